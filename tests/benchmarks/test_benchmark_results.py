"""What is kept between runs: sections, rows of a run that was broken off, best known values."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.results import BestKnown, Collector, ResultsFile


def row(value: int | None, problem: str = "p") -> dict[str, Any]:
    return {"instance": "a", "value_ns": value, "problem": problem, "time_limit": 1.0, "seconds": 0.5}


def run(commit: str, size: str = "full") -> dict[str, Any]:
    stamp = {"commit": commit, "size": size}
    return {"stamp": stamp, "settings": {"limit": 1}, "more": {"x": {}}, "rows": [{"a": 1, "b": [2]}, {"a": None}]}


def test_sections_are_kept_apart(tmp_path: Path) -> None:
    """Tests that a run replaces the run of its own section only, and is read as it was written, one row per line."""
    file = ResultsFile(tmp_path)
    assert file.read() == {}
    for section, commit in (("paper", "one"), ("scale", "two"), ("scale", "three")):
        assert file.keep(section, run(commit)) == "latest.json"
    assert file.read() == {"paper": run("one"), "scale": run("three")}
    assert '   {"a": 1, "b": [2]},' in file.path.read_text().splitlines()


def test_a_whole_run_stays(tmp_path: Path) -> None:
    """Tests that a subset never replaces a whole run, a whole run replaces a subset, and fields are left out."""
    file = ResultsFile(tmp_path)
    assert file.keep("unequal", run("small", "quick")) == "latest.json"
    assert file.keep("unequal", run("whole"), unused=("b",)) == "latest.json"
    for size in ("quick", "tiny"):
        assert file.keep("unequal", run("small", size)) == "quick.json"
    kept = file.read()["unequal"]
    assert (kept["stamp"]["commit"], kept["rows"]) == ("whole", [{"a": 1}, {"a": None}])
    assert file.read("quick.json")["unequal"]["stamp"]["commit"] == "small"


def test_a_broken_run_goes_on(tmp_path: Path) -> None:
    """Tests that rows of a broken run are not measured again, unless the settings differ or nobody asked for it."""
    calls: list[int] = []

    def measure(value: int) -> dict[str, Any]:
        calls.append(value)
        return row(value)

    def again(settings: dict[str, Any], count: int, *, resume: bool, commit: str = "one") -> Collector:
        collect = Collector(tmp_path / "partial.json", settings, resume=resume, commit=commit)
        for stages in range(count):
            collect.measure({"instance": "a", "stages": stages}, partial(measure, stages))
        return collect

    again({"limit": 1}, 2, resume=False)
    second = again({"limit": 1}, 3, resume=True, commit="two")
    assert (second.seconds, second.commits) == (1.5, ["one", "two"])
    assert calls == [0, 1, 2]
    again({"limit": 2}, 1, resume=True)
    assert calls == [0, 1, 2, 0]
    again({"limit": 2}, 1, resume=False).close()
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
