"""The harness from end to end, on small instances."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.__main__ import main
from benchmarks.instances import FAMILIES, instances
from benchmarks.results import ResultsFile
from benchmarks.sections import SECTIONS
from benchmarks.sections.fusion import WAYS
from benchmarks.sections.quality import REPLICAS, measure_quality, share_of_budget

from weftline.latency import solvers

HEADINGS = {
    "speed": ("## Simulator", "## Growth", "## Files and start", "## Checker"),
    "placement": ("## Speed-up of auto", "## Means by preset", "## All solvers on all instances"),
    "quality": ("## All rows",),
}


def test_tiny_run_writes_results_and_page(tmp_path: Path) -> None:
    """Tests that a whole run gives consistent JSON, and pages with every section, which render again."""
    assert main(["--tiny"], root=tmp_path) == 0
    runs = json.loads((tmp_path / "benchmarks/results/latest.json").read_text())["sections"]
    pages = {path.stem: path.read_text() for path in (tmp_path / "docs/benchmarks").iterdir()}
    page = tmp_path / "docs/benchmarks.md"
    text = page.read_text()
    assert set(runs) == set(pages) == set(SECTIONS)
    rows = {name: run["rows"] for name, run in runs.items()}
    check_rows(rows["quality"])
    check_speed(runs["speed"]["more"])
    for name, headings in HEADINGS.items():
        assert [heading for heading in headings if f"\n{heading}\n" not in pages[name]] == []
    assert [section.title for section in SECTIONS.values() if f"\n### {section.title}\n" not in text] == []
    assert "`python -m benchmarks --tiny`" in text
    assert str(tmp_path) not in text
    for row in rows["quality"]:
        assert f"| {row['instance']} | {row['ops']} | {row['devices']} | {row['solver']} |" in pages["quality"]
    for name in ("paper", "regal", "unequal", "scale", "placement-scale"):
        for row in rows[name]:
            assert row["simple_ns"] <= row["bound_ns"] <= row["value_ns"]
    for name in ("placement", "fusion"):
        for row in rows[name]:
            assert row["value_ns"] is None or row["bound_ns"] <= row["value_ns"]
    asked = {name for name, solver in solvers().items() if not solver.learned} | {"policy", "policy+polish"}
    assert {row["solver"] for row in rows["placement"]} == asked
    assert {row["way"] for row in rows["fusion"]} == set(WAYS)
    (fault,) = rows["faults"]
    assert (fault["rounds"], fault["clear"], fault["late"], fault["alive"], fault["folders"]) == (1, 1, 0, 0, 0)
    page.unlink()
    assert main(["--render"], root=tmp_path) == 0
    assert page.read_text() == text
    assert {path.name for path in (tmp_path / "benchmarks/results").iterdir()} == {"latest.json", "best.json"}


def check_rows(rows: list[dict[str, Any]]) -> None:
    best: dict[tuple[str, str], int] = {}
    for row in rows:
        assert row["family"] in FAMILIES
        if row["value_ns"] is None:
            assert row["ratio"] is None
            assert row["gap"] is None
        elif row["solver"] != REPLICAS:
            assert row["value_ns"] >= row["bound_ns"]
            assert row["ratio"] >= 1
            assert 0 <= row["gap"] <= 1
            assert row["proof"] in ("proved", "claimed")
            key = (row["family"], row["instance"])
            best[key] = min(best.get(key, row["value_ns"]), row["value_ns"])
    assert len(best) == len(instances(quick=True))
    for row in rows:
        if row["ratio"] is not None:
            assert row["ratio"] * best[row["family"], row["instance"]] == pytest.approx(row["value_ns"])
    assert {row["solver"] for row in rows if row["objective"] == "throughput"} >= {"auto", "single-device", REPLICAS}


def check_speed(speed: dict[str, Any]) -> None:
    assert all(row["per_second"] > 0 for row in speed["simulator"]["rows"])
    assert [row["ops"] for row in speed["growth"]["rows"]] == [200, 400, 800]
    for row in speed["files"]:
        assert row["ratio"] == pytest.approx(row["seconds"] / row["against_seconds"])
    assert all(row["seconds"] > 0 for row in speed["check"]["rows"])


def test_one_section_leaves_the_others_alone(tmp_path: Path) -> None:
    """Tests that --only measures one section and keeps what was measured of the others."""
    assert main(["--tiny", "--only", "regal"], root=tmp_path) == 0
    before = ResultsFile(tmp_path / "benchmarks/results").read()
    assert main(["--tiny", "--only", "unequal", "--time-limit", "0.3"], root=tmp_path) == 0
    after = ResultsFile(tmp_path / "benchmarks/results").read()
    assert after["regal"] == before["regal"]
    assert after["unequal"]["settings"]["time_limit"] == 0.3
    page = (tmp_path / "docs/benchmarks.md").read_text()
    assert "### Pipelines of random graphs" in page
    assert "### Pipelines and fleets on unequal devices" in page
    assert SECTIONS["quality"].title not in page


def test_render_without_results_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Tests that --render before any measurement is an error that names what is missing."""
    assert main(["--render"], root=tmp_path) == 3
    assert "latest.json" in capsys.readouterr().err


def test_files_of_others_are_optional(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that without the folder of published instances only the project's own are asked."""
    monkeypatch.setenv("WEFTLINE_DATA", str(tmp_path))
    families = {instance.family for instance in instances()}
    assert families == {name for name in FAMILIES if name not in ("moirai", "fiddle")}


def test_instance_names_are_unique() -> None:
    """Tests that no two instances of a family share a name, since tables are keyed by it."""
    names = [(instance.family, instance.name) for instance in instances()]
    assert len(set(names)) == len(names)


def test_share_of_budget() -> None:
    """Tests that more instances leave less time for each, within bounds."""
    chosen = instances()
    assert share_of_budget(chosen[:1], 100.0) >= share_of_budget(chosen, 100.0) >= 0.3
    assert share_of_budget(chosen[:1], 1e9) == 10.0


def test_a_crash_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a solver that crashes costs its own rows only."""
    from benchmarks.sections import quality

    from weftline.search import Search, Solver

    def crash(search: Search) -> None:
        raise ZeroDivisionError

    broken = {"broken": Solver("broken", "", crash), "heft": solvers()["heft"]}
    monkeypatch.setattr(quality, "solvers_for", lambda objective: broken)
    instance = next(one for one in instances(quick=True) if one.family == "synthetic-latency")
    rows = measure_quality([instance], seeds=1, time_limit=0.1)
    assert [(row["solver"], row["note"]) for row in rows] == [("broken", "crashed: ZeroDivisionError"), ("heft", "")]
    assert rows[1]["ratio"] == 1
