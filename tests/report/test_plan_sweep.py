"""The table of a sweep over many questions: columns are what they are called, errors stand below it."""

from __future__ import annotations

from pathlib import Path

from weftline.grid.grid import PlanSweep
from weftline.grid.job import Row, failed
from weftline.grid.questions import GridQuestion
from weftline.report.sweep import plan_sweep_rows, plan_sweep_words

QUESTION = GridQuestion(
    model="a" * 60,
    file="a",
    model_sha256="",
    cluster="laptop",
    cluster_text="",
    objective="throughput",
    stages=2,
    solver="greedy",
    seed=7,
    gap=None,
    time_limit=None,
    work_limit=None,
)


def row_with_plan() -> Row:
    """A row whose every cell is known."""
    empty = failed(QUESTION, "", "", 1)
    known = {"value_ns": 2000, "bound_ns": 1000, "gap": 0.5, "proof": "claimed", "stopped_by": "work", "error": None}
    return Row(**{**{name: getattr(empty, name) for name in empty.__struct_fields__}, **known})


def test_rows_and_words() -> None:
    """Tests the cells of a plan and of an error, and that equal errors are said once."""
    wrong = failed(QUESTION, "InputError", "no such file", 3)
    sweep = PlanSweep(Path("out"), (row_with_plan(), wrong, wrong), 4, 1, True)
    header, rows = plan_sweep_rows(sweep)
    cells = dict(zip(header, rows[0], strict=True))
    assert len(cells["model"]) == 40
    assert cells | {"model": ""} == {
        "model": "",
        "cluster": "laptop",
        "objective": "throughput",
        "stages": "2",
        "solver": "greedy",
        "seed": "7",
        "ops": "",
        "value": "2 us",
        "bound": "1 us",
        "gap": "50.00%",
        "proof": "claimed",
        "stopped by": "work",
        "took": "",
    }
    assert dict(zip(header, rows[1], strict=True))["stopped by"] == "InputError"
    assert plan_sweep_words(sweep) == [
        "no such file (2 questions)",
        "3 of 4 finished, 1 of them before; 2 without a plan.",
        "Interrupted: the same call goes on from here.",
        "written to out",
    ]
