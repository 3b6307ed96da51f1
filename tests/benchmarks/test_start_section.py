"""The section on first answers: what is copied, what is counted, and what the page says."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest
from benchmarks.render import text_of
from benchmarks.results import Collector, Row
from benchmarks.section import Run
from benchmarks.sections import start
from benchmarks.sections.start import FIRST, QUESTIONS, SECTION, package_copy

from weftline.ask.compiling import PREPARES


def row(state: str, cpu: float, compiled: int) -> Row:
    about = {"state": state, "question": FIRST[0], "repeat": 0, "note": ""}
    return {**about, "seconds": cpu / 2, "cpu": cpu, "compiled": compiled}


def test_questions_name_what_is_there() -> None:
    """Tests that each question can be prepared, and that every size asks questions that are known."""
    assert set(FIRST) <= set(QUESTIONS)
    for module in PREPARES.values():
        assert callable(import_module(module).prepare)
    for size in SECTION.sizes.values():
        assert set(size["questions"]) <= set(QUESTIONS)


def test_a_copy_is_cold(tmp_path: Path) -> None:
    """Tests that a copy of the package has its modules and data, and nothing that was compiled."""
    copy = package_copy(tmp_path / "clone")
    assert (copy / "weftline" / "__main__.py").is_file()
    assert not [path for path in copy.rglob("*") if path.name == "__pycache__" or path.suffix in (".nbi", ".nbc")]


def test_tiny_run(tmp_path: Path) -> None:
    """Tests that one question is asked cold, warm, and by another user, of a copy."""
    collect = Collector(tmp_path / "a.json", {}, resume=False)
    SECTION.measure(dict(SECTION.sizes["tiny"]), collect)
    states = ["fresh clone", "fresh clone, warm", "another user"]
    assert [(row["state"], row["note"]) for row in collect.rows] == [(state, "") for state in states]
    assert all(row["seconds"] > 0 and row["cpu"] > 0 for row in collect.rows)


def test_a_run_that_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that what was measured is asked again only where the next state needs it."""
    asked: list[str] = []
    rows = {state: row(state, 1.0, 0) | {"question": "weftline --help"} for state in start.STATES[start.CLONE]}

    def answer(words: tuple[str, ...], work: Path, state: str) -> Row:
        asked.append(state)
        return {**rows[state], "cpu": 2.0}

    monkeypatch.setattr(start, "_row", answer)
    collect = Collector(tmp_path / "a.json", {}, resume=False)
    collect.rows.append(rows["fresh clone"])
    SECTION.measure(dict(SECTION.sizes["tiny"]), collect)
    assert asked == ["fresh clone", "fresh clone, warm", "another user"]
    assert [each["cpu"] for each in collect.rows] == [1.0, 2.0, 2.0]
    SECTION.measure(dict(SECTION.sizes["tiny"]), collect)
    assert len(asked) == 3


def test_another_user_may_only_read(tmp_path: Path) -> None:
    """Tests that even an administrator cannot write into the copy when somebody else asks."""
    (tmp_path / "place").mkdir()
    code = "import pathlib; pathlib.Path('new').write_text('')"
    found = start._row(("-c", code), tmp_path, "another user")
    assert "crashed" in found["note"]
    assert start._row(("-c", code), tmp_path, "fresh clone")["note"] == ""


def test_page() -> None:
    """Tests that states stand side by side, and that a slow start and a second compilation are said."""
    run = Run([row("fresh clone", 101.0, 12), row("fresh clone, warm", 2.0, 1)])
    assert text_of(SECTION.screen, run)[0].splitlines()[-1] == "| plan, latency | 101.0 | 12 | 2.0 |"
    more = Run([*run.rows, {**row("fresh clone", 30.0, 9), "repeat": 1}])
    assert text_of(SECTION.screen, more)[0].splitlines()[-1] == "| plan, latency | 30.0 to 101.0 | 9 to 12 | 2.0 |"
    assert "Not always the same kernels are compiled: plan, latency, fresh clone, 9 to 12." in SECTION.losses(more)
    assert list(SECTION.losses(run)) == [
        "**A first answer takes more CPU time than 100 s (clone) or 20 s (all others):** "
        "plan, latency, fresh clone (101 s).",
        "**Kernels were compiled a second time:** plan, latency, fresh clone, warm (1).",
    ]
    assert "| fresh clone | plan, latency | 0 | 50.50 | 101.00 | 12 | - |" in "\n".join(text_of(SECTION.blocks, run))
    assert list(SECTION.losses(Run([row("fresh clone", 99.0, 12), row("wheel", 19.0, 0)]))) == []
    assert "wheel (21 s)" in next(iter(SECTION.losses(Run([row("wheel", 21.0, 0)]))))
