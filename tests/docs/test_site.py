"""The docs site: it builds without a warning, loads nothing from elsewhere, and its reference is what the code says."""

from __future__ import annotations

import json
import os
import re
import runpy
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import jsonschema
import pytest

from weftline.ask import make_plan
from weftline.plans.plan import plan_to_json
from weftline.testing.generate import Feed, problem_of

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("site")
    words = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        words,
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


class Loads(HTMLParser):
    """Collects what a browser fetches for a page by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        fetched = {"script": "src", "img": "src", "iframe": "src", "source": "src", "link": "href", "video": "src"}
        if tag in fetched and values.get(fetched[tag]):
            self.found.append(values[fetched[tag]] or "")
        if values.get("style"):
            self.found += re.findall(r"url\(([^)]*)\)", values["style"] or "")


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    """Tests that pages and styles name no script, style, font or picture of another host."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        loads = Loads()
        loads.feed(page.read_text(encoding="utf-8"))
        assert loads.found
        outside = [link for link in loads.found if re.match(r"(?:[a-z]+:)?//", link)]
        assert not outside, f"{page.name}: {outside}"
    for style in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", style.read_text(encoding="utf-8")), (
            style.name
        )


def test_every_page_is_in_the_site(site: Path) -> None:
    """Tests that each document has become a page, and each schema a file beside them."""
    for page in DOCS.rglob("*.md"):
        assert (site / page.relative_to(DOCS)).with_suffix(".html").is_file(), page
    for schema in (DOCS / "schemas").glob("*.json"):
        assert (site / "schemas" / schema.name).read_bytes() == schema.read_bytes()


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda page: page.relative_to(DOCS).as_posix())
def test_every_block_is_a_block(site: Path, page: Path) -> None:
    """Tests that each fenced block of a document is one block of its page, words behind its language or not."""
    fences = len(re.findall(r"^```", page.read_text(encoding="utf-8"), re.MULTILINE))
    html = (site / page.relative_to(DOCS)).with_suffix(".html").read_text(encoding="utf-8")
    assert "```" not in html
    assert html.count("<pre>") >= fences // 2


def test_the_reference_is_up_to_date() -> None:
    """Tests that schemas, command line and API pages are what the code gives today."""
    pages = runpy.run_path(str(DOCS / "make_reference.py"))["pages"]()
    stale = [name for name, text in pages.items() if (DOCS / name).read_text(encoding="utf-8") != text]
    assert not stale, "run `python docs/make_reference.py` (or make docs)"
    written = {
        path.relative_to(DOCS).as_posix() for room in ("schemas", "reference") for path in (DOCS / room).iterdir()
    }
    assert written == set(pages)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_plans_fit_their_schema(objective: str) -> None:
    """Tests that real plans are valid by the schema, and that a wrong one is not."""
    schema = json.loads((DOCS / "schemas" / "plan.json").read_text(encoding="utf-8"))
    problem = problem_of([[5, 9], [9, 5]], [Feed(0, (1,), 1, bytes=8)], objective=objective)
    plan = json.loads(plan_to_json(make_plan(problem, work_limit=10)))
    jsonschema.validate(plan, schema)
    for broken in ({**plan, "value_ns": "fast"}, {**plan, "more": 1}, {k: v for k, v in plan.items() if k != "bounds"}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(broken, schema)
