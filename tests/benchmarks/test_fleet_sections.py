"""Tests of the sections on fleets: unequal devices, whole clusters with tables, and what they are worth when served."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.render import text_of
from benchmarks.results import BestKnown, Collector, Row
from benchmarks.section import Run
from benchmarks.sections import SECTIONS
from benchmarks.sections.layers import helix_file, helix_problem
from tests.data import present

BUSY = {"environment": {"cores": 2, "load_before": 4.0}}


def shown(name: str, rows: list[Row], settings: Row, best: BestKnown | None = None) -> str:
    """All that a section says of rows: its screen, its losses, its page."""
    section, run = SECTIONS[name], Run(rows, settings, BUSY, best=best or BestKnown())
    return "\n".join([*text_of((*section.screen, *section.blocks), run), *section.losses(run)])


def asked(name: str, folder: Path, **changed: Any) -> tuple[list[Row], Row]:
    """The rows of a tiny run, with other settings."""
    settings = {**SECTIONS[name].sizes["tiny"], **changed}
    collect = Collector(folder / "partial.json", settings, resume=False)
    SECTIONS[name].measure(settings, collect)
    return collect.rows, settings


def pair(cluster: str, period: int, gap: float, **more: Any) -> Row:
    """A pipeline of 100 ns beside copies of 80 ns, and a fleet with this period."""
    fleet = {"value_ns": period, "bound_ns": period * (1 - gap), "gap": gap, "proof": "proved", "bound_by": "prices"}
    fleet |= {"rate": 1e9 / period, "depth": 2, "lanes": 3, "seconds": 2.0, "time_limit": 1.0, "note": ""}
    row = {
        "model": "net",
        "cluster": cluster,
        "instance": f"net on {cluster}",
        "devices": 2,
        "ops": 3,
        "stages_used": 2,
    }
    row |= {"value_ns": 100, "bound_ns": 98, "simple_ns": 98, "bound_by": "load", "time_limit": 1.0, "note": ""}
    row |= {"seconds": 1.0, "baselines": {"replicas": 80, "greedy": 150, "even-split": None}}
    return {**row, "fleet": {**fleet, "checked": True, **more}}


def test_fleets_on_unequal_devices() -> None:
    """Tests the verdict, gains, and that defeats, wide gaps, lateness and refusals are said by name."""
    rows = [
        pair("a", 50, 0.005),
        pair("b", 80, 0.0),
        pair("c", 90, 0.05, seconds=9.0),
        pair("d", 60, 0.0, checked=False),
    ]
    rows[3]["fleet"]["note"] = "lane 0 has a hole"
    text = shown("unequal", rows, {"time_limit": 1.0})
    assert "as good as the best of one pipeline, replicas, greedy and even split on **3 of 4** pairs" in text
    assert "at most 1 % from its proved bound on **3 of 4**" in text
    assert "at most 60.0% (net on a). The checker accepted 3 of 4 files." in text
    assert "**The fleet is worse than something simpler:** net on c (behind replicas)." in text
    assert "**Fleets more than 1 % from a proved bound:** net on c 5.00%." in text
    assert "**Fleets more than 2 s over the time limit:** net on c (9.0 s)." in text
    assert "net on d: lane 0 has a hole." in text
    assert "| net | a | 2e+07 | 50 ns | 0.50% | 60.00% | replicas | 80 ns | 3 | 2 | prices | 2.0 | accepts |" in text
    assert "| **refuses** |" in text
    assert "a load of 4.0 on 2 cores" in text


def test_fleets_without_a_plan() -> None:
    """Tests that a pair nothing fits on is no defeat, and that a fleet that was not found is one."""
    lost = {**pair("a", 50, 0.0), "fleet": {"value_ns": None, "note": "no time", "seconds": 1.0, "time_limit": 1.0}}
    none = {**pair("b", 50, 0.0), "value_ns": None, "note": "too large", "baselines": {}, "fleet": None}
    text = shown("unequal", [pair("c", 50, 0.0), lost, none], {"time_limit": 1.0})
    assert "on **1 of 2** pairs" in text
    assert "**The fleet is worse than something simpler:** net on a (behind replicas)." in text
    assert "net on a: no time." in text


def _written(folder: Path, **more: Any) -> None:
    """Two nodes of two kinds, ten layers: one link is absent."""
    links = [["source", 0, 900, 1], [0, 1, 700, 1], [1, 0, 500, 1], [1, 2, 300, 1], [1, "sink", 900, 1]]
    file = {"name": "drawn", "layers": 10, "nodes": ["a", "b", "b"], "kinds": {"a": [90.0] * 6, "b": [50.0] * 6}}
    theirs = {"value": 40.0, "bound": 80.0, "seconds": 3.0, "layout": {"0": [0, 5], "1": [5, 10]}}
    (folder / "helix").mkdir()
    whole = {**file, "links": links, "theirs": theirs, "partial": False, **more}
    (folder / "helix" / "single_30b_a100.json").write_text(json.dumps(whole))
    (folder / "helix" / "het42_pruned.json").write_text(json.dumps(whole))


def test_rates_of_whole_clusters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests rows of a drawn file, of its completed links and of many devices, and that an absent file is said."""
    monkeypatch.setenv("WEFTLINE_DATA", str(tmp_path))
    _written(tmp_path)
    wanted = {"completed": ["het42_full"], "many": 2, "many_depths": [2]}
    rows, settings = asked("layers", tmp_path, **wanted)
    drawn, absent, full, many = rows
    assert [row["checked"] for row in rows] == [True, False, True, True]
    assert (drawn["rate"], drawn["theirs"]["value"], drawn["devices"]) == (50.0, 40.0, 3)
    assert absent["note"] == "quality10.json is not in the folder of files (WEFTLINE_DATA)"
    assert full["theirs"] is None
    assert full["rate"] == 90.0  # two nodes side by side behind the first one
    assert (many["devices"], many["depth"], many["rate"]) == (6, 2, 190.0)
    best = BestKnown(tmp_path)
    best.learn([{**full, "value_ns": 10**9 // 120}], "c")
    text = shown("layers", rows, settings, best)
    assert "| single_30b_a100 | 3 | 40.0 | 80 | 3 | 50.0 | 50.0 |" in text
    assert "single_30b_a100 +25.0%" in text
    assert "**Behind the best known rate:** het42_full -25.00%." in text
    assert "**Left out:** quality10.json is not in the folder of files (WEFTLINE_DATA)." in text
    assert "the checker accepted 3 of 3 files" in text


def test_completed_links_are_like_their_neighbours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that links of the file stay as they are, and that absent ones are the median of their two regions."""
    from benchmarks.sections.layers import _completed

    monkeypatch.setenv("WEFTLINE_DATA", str(tmp_path))
    _written(tmp_path, region=[0, 1, 1])
    problem, file = helix_problem("het42_pruned"), helix_file("het42_pruned")
    assert problem is not None
    assert file is not None
    found = _completed(problem, file, "full")
    links = {(a, b): rate // 10**6 for a, b, rate in found.links or ()}
    assert links[0, 1] == links[0, 2] == 700
    assert links[1, 0] == links[2, 0] == 500
    assert links[1, 2] == links[2, 1] == 300
    assert (-1, 1) not in links, "there is no link from the source to that region"
    assert links[2, -2] == 900


def test_serving_is_left_out_without_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that nothing is measured where the files of others are absent."""
    monkeypatch.setenv("WEFTLINE_DATA", str(tmp_path))
    assert asked("serving", tmp_path)[0] == []


def test_serving_of_helix(tmp_path: Path) -> None:
    """Tests that the layouts are simulated, kp1 among them, and that the page compares them with Helix's own."""
    present("helix/profiles.json")
    present("helix/single24.json")
    rows, settings = asked("serving", tmp_path)
    by_name = {row["known_as"] or row["layout"]: row for row in rows}
    assert by_name["Helix's own"]["table_rate"] == pytest.approx(1289.556, abs=0.001)
    assert by_name["kp1"]["table_rate"] == pytest.approx(1063.405, abs=0.001)
    assert (by_name["kp1"]["depth"], by_name["kp1"]["kind"]) == (11, "stages")
    assert by_name["kp1"]["rate"] > by_name["Helix's own"]["rate"]
    assert any(row["kind"] == "front" for row in rows)
    text = shown("serving", rows, settings)
    assert "**The rate by tables misleads:**" in text
    assert "Only these were run in Helix's own simulator" in text
    assert "Helix's own 252.08 (" in text
    assert "kp1 298.05 (" in text
