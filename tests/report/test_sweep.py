"""A stage sweep in a terminal: table, curve and sentences."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weftline.ask import Sweep, stage_problems, sweep_stages
from weftline.ask.stages import OneMore, SweepRow
from weftline.problem import Problem, asked_rules
from weftline.report.sweep import BAR_WIDTH, sweep_curve, sweep_rows, sweep_table, sweep_words
from weftline.testing.generate import Feed, problem_of


def _sweep(problem: Problem, counts: str = "auto") -> Sweep:
    def load(stages: int | None) -> Problem:
        return problem.with_rules(asked_rules({"stages": stages}, problem.rules))

    return sweep_stages(stage_problems(load, counts), solver="greedy", work_limit=400)


def _chain(devices: int, length: int) -> Problem:
    wires = [Feed(i, (i + 1,), length) for i in range(3)]
    return problem_of([[100] * devices] * 4, wires, objective="throughput")


FREE, DEAR = _sweep(_chain(4, 0)), _sweep(_chain(4, 1000))


def test_table() -> None:
    """Tests the cells of each number of stages."""
    header, rows = sweep_rows(FREE)
    assert header[:7] == ("stages", "period", "bound", "gap", "speed-up", "efficiency", "proof")
    assert rows[0] == ("1", "400 ns", "400 ns", "0.00%", "1.00x", "100%", "proved by load", "")
    assert rows[3] == ("4", "100 ns", "100 ns", "0.00%", "4.00x", "100%", rows[3][6], "best")
    assert [row[-1] for row in rows].count("best") == 1
    assert sweep_table(FREE).row_count == 4


def test_rows_without_value_or_bound() -> None:
    """Tests what did not fit, and what was not searched for want of time."""
    rows = (
        SweepRow(1, None, 0, None, "none", "", None, "infeasible"),
        SweepRow(2, 200, 150, 0.25, "claimed", "oracle", 1.0, "time"),
        SweepRow(3, 200, 0, 1.0, "none", "", None, "time"),
    )
    sweep = replace(DEAR, rows=rows, best_stages=2)
    shown = sweep_rows(sweep)[1]
    assert shown[0] == ("1", "infeasible", "", "", "", "", "none", "")
    assert shown[1] == ("2", "200 ns", "150 ns", "25.00%", "1.00x", "100%", "claimed by oracle", "best")
    assert shown[2] == ("3", "200 ns", "", "", "1.00x", "67%", "none", "")
    curve = sweep_curve(sweep)
    assert curve[0].startswith("Speed-up against 2 stages")
    assert curve[1] == "1 no plan"


def test_curve() -> None:
    """Tests that bars grow with the speed-up, end with the bound, and fit."""
    lines = sweep_curve(FREE)
    assert lines[0].startswith("Speed-up against 1 stage;")
    assert lines[4] == f"4 {'█' * BAR_WIDTH} 4.00x"
    assert lines[1] == f"1 {'█' * (BAR_WIDTH // 4)} 1.00x"
    assert lines[3].count("█") == BAR_WIDTH // 2
    assert "░" in lines[3]
    assert all(len(line) <= BAR_WIDTH + 10 for line in lines[1:])


def test_curve_in_ascii() -> None:
    """Tests that a terminal without blocks gets plain signs, the same lengths."""
    blocks, plain = sweep_curve(FREE), sweep_curve(FREE, ascii_only=True)
    assert all(line.isascii() for line in plain)
    assert [len(line) for line in plain] == [len(line) for line in blocks]


def test_a_weak_bound_does_not_squeeze_the_bars() -> None:
    """Tests that the longest bar is at most twice the best speed-up."""
    weak = replace(DEAR, rows=tuple(replace(row, bound_ns=1) for row in DEAR.rows))
    assert sweep_curve(weak)[1].count("█") == BAR_WIDTH // 2


def test_no_time_at_all() -> None:
    """Tests that a period of 0 divides nothing by zero."""
    sweep = _sweep(problem_of([[0, 0]], objective="throughput"))
    assert sweep_curve(sweep) == []
    assert sweep_rows(sweep)[1][0][1] == "0 ns"
    assert sweep_words(sweep)[1] == "A 2nd device would bring nothing: the period is 0 already."


def test_words() -> None:
    """Tests which number is best, and that there may be no further device."""
    assert sweep_words(FREE) == [
        "4 stages are best here: the fewest whose period is within 1% of the shortest one found.",
        "There is no 5th device to add.",
    ]
    assert sweep_words(DEAR)[0].startswith("1 stage is best here")
    assert sweep_words(DEAR)[1] == "A 2nd device would bring nothing (proved by cut)."


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (OneMore(2, None, 320, "claimed", "x"), "at most 25.0% more throughput (claimed by x); no plan with it was"),
        (OneMore(2, 399, 320, "proved", "x"), "(proved by x); the plan found brings 0.3%."),
        (OneMore(2, 400, 400, "proved", "x"), "A 2nd device would bring nothing (proved by x)."),
        (OneMore(2, 400, 0, "none", ""), "A 2nd device: nothing is known about what it could bring."),
    ],
)
def test_one_more(more: OneMore, sentence: str) -> None:
    """Tests the sentence for each kind of knowledge."""
    assert sentence in sweep_words(replace(DEAR, one_more=more))[1]


@pytest.mark.parametrize(
    ("best", "start"), [(1, "A 2nd"), (2, "A 3rd"), (7, "An 8th"), (10, "An 11th"), (11, "A 12th"), (20, "A 21st")]
)
def test_ordinals(best: int, start: str) -> None:
    """Tests that numbers are read aloud well."""
    assert sweep_words(replace(DEAR, best_stages=best))[1].startswith(start)
