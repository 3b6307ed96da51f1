"""Paths that the documents name: each of them exists, in the package or in the repository."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.test_house import FLOW

import weftline

ROOT = Path(__file__).parents[2]
HOUSE = Path(weftline.__file__).parent
PAGES = sorted(
    [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").glob("*.md"),
        *(ROOT / "docs" / "design").glob("*.md"),
        *(ROOT / "docs" / "guide").glob("*.md"),
    ]
)
EXAMPLES = {
    ("formats.md", "plans/KEY.json"),
    ("solver.md", "tiny_weft.py"),
    ("0021-rooms-by-question.md", "bounds/"),
}
"""Page and path: files of the reader's own, a room that the page says has gone."""
NAMES = {path.name for path in HOUSE.rglob("*.py")}
FIRST = {*FLOW, "src", "tests", "docs", "benchmarks", "reliability", "examples"}
"""How a path of ours begins."""

_CODE = re.compile(r"(?<!`)`([\w.-]+(?:/[\w.-]+)*/?)`(?!`)")


def exists(path: str) -> bool:
    """Whether a path is one of ours; a module may stand without its suffix, a file without its folder."""
    if "/" not in path:
        return path in NAMES or (ROOT / path).is_file()
    return any((top / name).exists() for top in (HOUSE, ROOT) for name in (path, f"{path}.py"))


def named(text: str) -> set[str]:
    """What a page writes as code and looks like a path of ours."""
    found = set(_CODE.findall(text))
    return {path for path in found if path.endswith(".py") or ("/" in path and path.split("/")[0] in FIRST)}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_named_paths_exist(page: Path) -> None:
    """Tests that no page names a file or a room that has moved."""
    gone = {path for path in named(page.read_text(encoding="utf-8")) if not exists(path)}
    assert {path for path in gone if (page.name, path) not in EXAMPLES} == set()


def test_moved_paths_are_found() -> None:
    """Tests the test: old paths are seen, words with a slash that are no paths are left alone."""
    text = "`cost/efficiency.py` `latency/blocks/hub` `src/weftline/plan` `cp_sat_s.py` `encoder/layer.3` `files.py`"
    assert {path for path in named(text) if not exists(path)} == {
        "cost/efficiency.py",
        "latency/blocks/hub",
        "src/weftline/plan",
        "cp_sat_s.py",
    }


def test_contributing_has_the_rooms_in_their_order() -> None:
    """Tests that the table of rooms is the flow."""
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("| rooms |")[2].partition("\n\n")[0]
    assert " ".join(re.findall(r"^\| `([\w ]+)` \|", table, re.MULTILINE)).split() == FLOW
