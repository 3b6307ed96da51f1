"""Solvers of a sweep against each other, by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.report.test_plan_sweep import row_with_plan

from weftline.grid.compare import compared_solvers
from weftline.grid.grid import PlanSweep
from weftline.report.sweep import plan_sweep_rows, ratio_table


def rows() -> list[object]:
    values = {("auto", "m"): 100, ("auto", "n"): 400, ("heft", "m"): 200, ("heft", "n"): 200, ("pack", "m"): None}
    return [
        msgspec.structs.replace(row_with_plan(), solver=solver, model=model, value_ns=value, ops=5, took_seconds=1.25)
        for (solver, model), value in values.items()
    ]


def test_ratios_and_means() -> None:
    """Tests that 2x and 0.5x have the mean 1, and that questions without a plan are counted, not compared."""
    first, heft, pack = compared_solvers(rows())  # type: ignore[arg-type]
    assert (first.solver, first.wins, first.losses) == ("auto", 0, 0)
    assert first.geometric_mean == heft.geometric_mean == pytest.approx(1)
    assert (heft.best, heft.worst) == (0.5, 2.0)
    assert (heft.wins, heft.losses, heft.questions) == (1, 1, 2)
    assert (pack.geometric_mean, pack.questions, pack.without_plan) == (None, 0, 1)


def test_they_are_shown_and_held() -> None:
    """Tests the table, the JSON, and the columns for ops and seconds."""
    sweep = PlanSweep(Path("out"), tuple(rows()), 5, 0, False)  # type: ignore[arg-type]
    table = ratio_table(sweep)
    assert table is not None
    assert table.row_count == 3
    assert [one["solver"] for one in msgspec.json.decode(sweep.to_json())["ratios"]] == ["auto", "heft", "pack"]
    header, cells = plan_sweep_rows(sweep)
    assert (cells[0][header.index("ops")], cells[0][header.index("took")]) == ("5", "1.2 s")
    assert ratio_table(PlanSweep(Path("out"), (row_with_plan(),), 1, 0, False)) is None
