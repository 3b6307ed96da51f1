"""The sections on schedules: which cases they ask, how processor time is compared, and what the page says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.render import text_of
from benchmarks.results import Collector, Row
from benchmarks.section import Run
from benchmarks.sections import schedules, tessel
from benchmarks.sections.schedules_cases import cpu_until, fine_cases, formula_cases, schedule_row, shape_cases
from benchmarks.sections.tessel import METHODS, SERVING

from weftline.schedule.classic.classic import classic_schedules
from weftline.schedule.make_blocks import make_shape
from weftline.simulate import simulate_schedule


def test_cases() -> None:
    """Tests that cases have names of their own, fit their memory, and that fine times are about 3,500 per period."""
    cases = [*shape_cases((4, 8, 16)), *fine_cases((4, 8)), *formula_cases((4, 8))]
    assert len({case.name for case in cases}) == len(cases)
    assert all(case.blocks.balanced for case in cases)
    for case in fine_cases((4, 8, 16)):
        assert 2_800 < max(case.blocks.loads) < 4_200
        assert case.micro_batches == 4 * len(case.blocks.devices)
    assert {case.blocks.n for case in fine_cases((4,), seed=1)} == {case.blocks.n for case in fine_cases((4,), seed=2)}
    assert fine_cases((4,), seed=1)[0].blocks != fine_cases((4,), seed=2)[0].blocks


def test_formula_cases_have_the_memory_they_name() -> None:
    """Tests that the published schedule needs just the memory that a case gives."""
    wanted = {"ZB-H1": "zb-h1", "ZB-H2": "zb-h2", "ZB-V": "zb-v", "interleaved 1F1B": "interleaved-1f1b"}
    for case in formula_cases((4,)):
        title = case.name.rpartition("memory of ")[2]
        if title in wanted:
            orders = classic_schedules(case.blocks, case.micro_batches)[wanted[title]]
            found = simulate_schedule(case.blocks, case.micro_batches, orders)
            assert max(found.peak_memory) == case.blocks.devices[0].memory


def test_row_has_what_the_scheduler_found() -> None:
    """Tests that a row keeps period, makespan and the way there, and why nothing was found."""
    row = schedule_row(make_shape("vshape", 4).with_memory(20), 32, "tessel-fast", 20.0)
    assert (row["period"], row["makespan"], row["note"]) == (4.0, 140, "")
    assert cpu_until(row, 4.0, 140) == row["trail"][-1][0]
    assert cpu_until(row, 3.0, 140) is None
    refused = schedule_row(make_shape("vshape", 4).with_memory(1), 8, "tessel-fast", 20.0)
    assert refused["makespan"] is None
    assert "does not fit" in refused["note"]


def shape_row(method: str, period: float, makespan: int, cpu: float) -> dict[str, Any]:
    return {
        "part": "shapes",
        "instance": "vshape 4, memory 4",
        "method": method,
        "period": period,
        "period_bound": 4.0,
        "period_proved": method == "cyclic",
        "makespan": makespan,
        "trail": [(cpu / 2, period, makespan)],
        "cpu": cpu,
        "seconds": cpu,
        "time_limit": 10.0,
        "classics": {},
    }


def schedule_page(rows: list[Row]) -> str:
    return "\n".join(text_of(schedules.SECTION.blocks, Run(rows)))


def test_page_compares_processor_time() -> None:
    """Tests that the ratio is Tessel's whole time over ours until as good, and that worse is said to be worse."""
    rows = [shape_row("cyclic", 4.0, 140, 0.02), shape_row("tessel-lazy", 4.0, 149, 2.0)]
    text = schedule_page([*rows, shape_row("tessel-fast", 4.0, 139, 1.0)])
    assert "| vshape 4, memory 4 | 0.0100 | 200 | not as good | - |" in text
    assert "`tessel-lazy`: geometric mean 200, all cases together 200, at least 50 in 1 of 1" in text
    assert "4 proved" in text


def test_tiny_runs(tmp_path: Path) -> None:
    """Tests both sections from end to end on one case each."""
    collect = Collector(tmp_path / "a.json", {}, resume=False)
    schedules.SECTION.measure(dict(schedules.SECTION.sizes["tiny"]), collect)
    ours = ["cyclic", "auto"]
    assert [row["method"] for row in collect.rows] == [*ours, "tessel-lazy", *ours, "tessel-fast"]
    assert {row["makespan"] for row in collect.rows} == {140}
    assert "vshape 4, memory 4" in schedule_page(collect.rows)
    collect = Collector(tmp_path / "b.json", {}, resume=False)
    settings = {**tessel.SECTION.sizes["tiny"], "limit": 0.5}
    tessel.SECTION.measure(settings, collect)
    assert len(collect.rows) == 2 * len(METHODS) + len(SERVING)
    by_method = {(row["task"], row["method"], row["placement"]): row for row in collect.rows}
    assert by_method["training", "chimera", "bidirectional"]["makespan"] is None
    for task in ("training", "inference"):
        assert by_method[task, "auto", "staged"]["makespan"] <= by_method[task, "1f1b", "staged"]["makespan"]
    text = "\n".join(text_of(tessel.SECTION.blocks, Run(collect.rows, settings)))
    assert "| flava 4 |" in text
    assert "Shorter than 1F1B" in text


def test_who_is_asked() -> None:
    """Tests that Tessel's algorithms meet the small shapes, each on the memory it can handle, and nothing large."""
    cases = {case.name: case.tessel for case in shape_cases((4, 8, 16))}
    assert cases["mshape 4, memory 3"] == ("tessel-lazy",)
    assert cases["mshape 4, memory 20"] == ("tessel-fast",)
    assert cases["kshape 4, inference"] == ("tessel-lazy", "tessel-fast")
    assert {cases[name] for name in cases if " 4," not in name} == {()}
    assert {case.tessel for case in [*fine_cases((4,)), *formula_cases((4,))]} == {()}
