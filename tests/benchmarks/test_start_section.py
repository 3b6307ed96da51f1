"""The section on first answers: what is copied, what is counted, and what the page says."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from benchmarks.render import text_of
from benchmarks.results import Collector, Row
from benchmarks.section import Run
from benchmarks.sections.start import PREPARES, QUESTIONS, SECTION, package_copy


def row(state: str, seconds: float, compiled: int) -> Row:
    return {"state": state, "question": "plan", "seconds": seconds, "compiled": compiled, "repeat": 0, "note": ""}


def test_questions_name_what_is_there() -> None:
    """Tests that each question can be prepared, and that every size asks questions that are known."""
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
    """Tests that one question is asked cold and warm, of a copy."""
    collect = Collector(tmp_path / "a.json", {}, resume=False)
    SECTION.measure(dict(SECTION.sizes["tiny"]), collect)
    assert [(row["state"], row["note"]) for row in collect.rows] == [("fresh clone", ""), ("fresh clone, warm", "")]
    assert all(row["seconds"] > 0 for row in collect.rows)


def test_page() -> None:
    """Tests that states stand side by side, and that a slow start and a second compilation are said."""
    run = Run([row("fresh clone", 61.0, 12), row("fresh clone, warm", 2.0, 1)])
    assert text_of(SECTION.screen, run)[0].splitlines()[-1] == "| plan | 61.0 | 12 | 2.0 |"
    more = Run([*run.rows, {**row("fresh clone", 30.0, 9), "repeat": 1}])
    assert text_of(SECTION.screen, more)[0].splitlines()[-1] == "| plan | 30.0 to 61.0 | 9 to 12 | 2.0 |"
    assert "Not always the same kernels are compiled: plan, fresh clone, 9 to 12." in SECTION.losses(more)
    assert list(SECTION.losses(run)) == [
        "**A first answer takes more than a minute:** plan, fresh clone (61 s).",
        "**Kernels were compiled a second time:** plan, fresh clone, warm (1).",
    ]
    assert "| fresh clone | plan | 0 | 61.00 | 12 | - |" in "\n".join(text_of(SECTION.blocks, run))
