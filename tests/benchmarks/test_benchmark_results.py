"""What is kept between runs: sections, rows of a run that was broken off, best known values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.results_file import BestKnown, Collector, ResultsFile


def row(value: int | None, problem: str = "p") -> dict[str, Any]:
    return {"instance": "a", "value_ns": value, "problem": problem, "time_limit": 1.0, "seconds": 0.5}


def test_sections_are_kept_apart(tmp_path: Path) -> None:
    """Tests that a run replaces the run of its own section and size only."""
    file = ResultsFile(tmp_path)
    assert file.read() == {}
    for section, size, number in (
        ("paper", "full", 1),
        ("paper", "quick", 2),
        ("scale", "full", 3),
        ("scale", "full", 4),
    ):
        file.keep(section, size, {"number": number})
    assert file.read() == {"paper": {"full": {"number": 1}, "quick": {"number": 2}}, "scale": {"full": {"number": 4}}}


def test_a_broken_run_goes_on(tmp_path: Path) -> None:
    """Tests that rows of a broken run are not measured again, unless the settings differ or nobody asked for it."""
    calls: list[int] = []

    def measure(value: int) -> dict[str, Any]:
        calls.append(value)
        return row(value)

    def run(settings: dict[str, Any], count: int, *, resume: bool, commit: str = "one") -> Collector:
        collect = Collector(tmp_path / "partial.json", settings, resume=resume, commit=commit)
        for stages in range(count):
            collect.measure({"instance": "a", "stages": stages}, lambda stages=stages: measure(stages))
        return collect

    run({"limit": 1}, 2, resume=False)
    again = run({"limit": 1}, 3, resume=True, commit="two")
    assert (again.seconds, again.commits) == (1.5, ["one", "two"])
    assert calls == [0, 1, 2]
    run({"limit": 2}, 1, resume=True)
    assert calls == [0, 1, 2, 0]
    run({"limit": 2}, 1, resume=False).close()
    assert calls == [0, 1, 2, 0, 0]
    assert not list(tmp_path.iterdir())


def test_best_known_values(tmp_path: Path) -> None:
    """Tests that the best value of a problem stays, whoever found it, and that no plan is no value."""
    BestKnown(tmp_path).learn([row(10), row(None, "q")], "one")
    BestKnown(tmp_path).learn([row(12), row(7, "r")], "two")
    best = BestKnown(tmp_path)
    assert [best.of(row(1, name)) for name in "pqr"] == [10, None, 7]
    assert best.values["p"]["commit"] == "one"
    best.learn([row(9)], "three")
    assert best.of({"instance": "no problem"}) is None
    assert [best.compared(row(18)), best.compared(row(7, "r"))] == ["2.0000 (3 runs)", "only run"]
    assert BestKnown(tmp_path).of(row(1)) == 9
