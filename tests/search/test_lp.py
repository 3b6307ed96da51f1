"""Tests of linear programs as arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weftline.search.lp import SMALL_ENTRIES, GrowingProgram, Program, minimise, nothing_fits


def _cover(columns: int, rows: int) -> Program:
    """Each row asks for at least 1 of some random columns."""
    random = np.random.default_rng(0)
    chosen = random.random((rows, columns)) < 0.3
    row, column = np.nonzero(chosen)
    cost = random.random(columns) + 0.5
    limits = np.ones(rows), np.full(rows, np.inf)
    return Program(cost, np.zeros(columns), np.full(columns, np.inf), *limits, row, column, np.ones(len(row)))


def test_value_solution_and_prices_agree() -> None:
    """Tests that value = cost of the solution = prices of the rows, and that nothing is infeasible by mistake."""
    program = _cover(20, 15)
    found = minimise(program)
    assert found.value == pytest.approx(float(program.cost @ found.solution))
    assert found.value == pytest.approx(float(found.prices.sum()))


def test_a_program_without_a_solution_is_infinite() -> None:
    """Tests x <= 1 and x >= 2."""
    one = np.ones(1)
    places = np.zeros(1, np.int64)
    found = minimise(Program(one, np.zeros(1), one, 2 * one, np.full(1, np.inf), places, places, one))
    assert found.value == np.inf


def test_feasibility_agrees_with_the_least_value() -> None:
    """Tests that a limit on the cost fits nothing if it is below the least value, and something if it is above."""
    program = _cover(20, 15)
    least = minimise(program).value
    assert not nothing_fits(program)
    for share, expected in ((0.999, True), (1.001, False)):
        limited = replace(
            program,
            row_low=np.append(program.row_low, -np.inf),
            row_high=np.append(program.row_high, share * least),
            rows=np.append(program.rows, np.full(20, 15)),
            columns=np.append(program.columns, np.arange(20)),
            values=np.append(program.values, program.cost),
        )
        assert nothing_fits(limited) is expected


def test_a_large_program_can_be_stopped() -> None:
    """Tests that a program that takes long ends without a proof when it is told to stop, and is solved otherwise."""
    program = _cover(700, 700)
    assert len(program.values) > SMALL_ENTRIES
    assert minimise(program, seconds=60, stop=lambda: True).value == -np.inf
    assert minimise(program, seconds=60, stop=lambda: False).value > 0


def _growing(program: Program) -> GrowingProgram:
    made = GrowingProgram()
    for cost in program.cost:
        made.column(cost=float(cost))
    for row in range(len(program.row_low)):
        mine = program.rows == row
        terms = list(zip(program.columns[mine].tolist(), program.values[mine].tolist(), strict=True))
        made.row(terms, float(program.row_low[row]), float(program.row_high[row]))
    return made


def test_a_program_that_grows_is_the_same_as_one_made_at_once() -> None:
    """Tests values after more rows, limits of columns, and limits that are taken back."""
    program = _cover(20, 15)
    growing = _growing(program)
    assert growing.height == 15
    first = growing.solve(5.0)
    assert first.value == pytest.approx(minimise(program).value)
    used = int(np.argmax(first.solution))
    growing.limit(used, 0.0)
    high = program.high.copy()
    high[used] = 0.0
    limited = growing.solve(5.0)
    assert limited.value == pytest.approx(minimise(replace(program, high=high)).value)
    assert limited.solution[used] == pytest.approx(0.0)
    growing.limit(used, np.inf)
    growing.row([(used, 1.0), (used, 1.0)], 3.0, np.inf)  # terms add up: at least 1.5
    more = growing.solve(5.0)
    assert more.solution[used] == pytest.approx(1.5)
    assert len(more.prices) == 16
    growing.row([(used, 1.0)], 0.0, 1.0)
    assert growing.solve(5.0).value == np.inf


def test_a_solver_led_astray_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that an internal error of the solver costs the warm start, not the answer."""
    from pybind11_abseil import status

    class Astray:
        def update(self, _: object) -> bool:
            return True

        def solve(self, *_: object) -> None:
            raise status.StatusNotOk(status.internal_error("rounding"))

    program = _cover(20, 15)
    growing = _growing(program)
    first = growing.solve(5.0).value
    monkeypatch.setattr(growing, "_solver", Astray())
    assert growing.solve(5.0).value == pytest.approx(first)
    used = int(np.argmax(growing.solve(5.0).solution))
    growing.limit(used, 0.0)
    assert growing.solve(5.0).solution[used] == pytest.approx(0.0)
