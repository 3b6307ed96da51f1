"""A linear program as arrays: minimise cost . x with rows of numbers between limits; solved by GLOP through MathOpt.

In: numpy arrays in coordinate form. Out: the value, the solution and the prices of the rows, or why there is none.
Simplified: floating point; a caller that claims a bound leaves room for rounding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from threading import Event, Thread
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Answer", "GrowingProgram", "Program", "minimise", "minimise_whole", "nothing_fits"]

Floats = NDArray[np.float64]
SMALL_ENTRIES, POLL_SECONDS = 3_000, 0.05
"""Entries up to which a program is solved in no time; seconds between two looks at `stop` while a larger one is."""


@dataclass(frozen=True, eq=False)
class Program:
    """C columns, R rows; entries at the same place add up."""

    cost: Floats
    low: Floats
    high: Floats
    """Limits of the columns."""
    row_low: Floats
    row_high: Floats
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: Floats


@dataclass(frozen=True, eq=False)
class Answer:
    """`value` is infinite where nothing satisfies the rows, and minus infinity where the solver gave up."""

    value: float
    solution: Floats
    prices: Floats
    """Change of the value per unit of a row's limit."""


def minimise(program: Program, *, seconds: float = 20.0, stop: Callable[[], bool] | None = None) -> Answer:
    """Solve; a program that is not solved in time, or before `stop` says so, has value minus infinity: no proof."""
    return _answer(_solve(program, seconds, stop))


def minimise_whole(program: Program, whole: int, *, seconds: float = 20.0) -> Answer:
    """The same where the first `whole` columns must be whole numbers, by SCIP; without prices."""
    from ortools.math_opt import result_pb2
    from ortools.math_opt.core.python import solver
    from ortools.math_opt.python import mathopt
    from pybind11_abseil.status import StatusNotOk

    proto, nothing = _message(program), np.zeros(0)
    proto.variables.integers[:whole] = [True] * whole
    limits = mathopt.SolveParameters(time_limit=timedelta(seconds=max(0.05, seconds)))
    with suppress(StatusNotOk):
        result = solver.solve(
            proto,
            mathopt.SolverType.GSCIP.value,
            mathopt.StreamableSolverInitArguments().to_proto(),
            limits.to_proto(),
            mathopt.ModelSolveParameters().to_proto(),
            None,
            mathopt.CallbackRegistration().to_proto(),
            None,
            None,
        )
        if result.solutions:
            found = result.solutions[0].primal_solution
            return Answer(found.objective_value, np.array(found.variable_values.values), nothing)
        if result.termination.reason == result_pb2.TERMINATION_REASON_INFEASIBLE:
            return Answer(np.inf, nothing, nothing)
    return Answer(-np.inf, nothing, nothing)


class GrowingProgram:
    """Columns of 0 and more, and rows, one by one; solved again and again, each time from where it was.

    Between two solutions it may get more rows, and other upper limits of columns.
    """

    def __init__(self) -> None:
        self._cost: list[float] = []
        self._entries: list[tuple[int, int, float]] = []
        self._row_low: list[float] = []
        self._row_high: list[float] = []
        self._high: dict[int, float] = {}
        self._solver: Any = None
        self._known = 0, 0
        """Entries and rows that the solver has."""
        self._changed: set[int] = set()

    def column(self, *, cost: float = 0.0) -> int:
        """Another column -> its number; all of them come before the first solution."""
        self._cost.append(cost)
        return len(self._cost) - 1

    def row(self, terms: list[tuple[int, float]], low: float, high: float) -> None:
        """Another row; terms of the same column add up."""
        number = len(self._row_low)
        self._entries += [(number, column, value) for column, value in terms]
        self._row_low.append(low)
        self._row_high.append(high)

    @property
    def height(self) -> int:
        """Rows so far."""
        return len(self._row_low)

    def limit(self, column: int, high: float) -> None:
        """The column is no more than this."""
        if self._high.get(column, np.inf) != high:
            self._high[column] = high
            self._changed.add(column)

    def solve(self, seconds: float, stop: Callable[[], bool] | None = None) -> Answer:
        """As `minimise` does."""
        from ortools.math_opt.core.python import solver
        from ortools.math_opt.python import mathopt
        from pybind11_abseil.status import StatusNotOk

        limits = mathopt.SolveParameters(time_limit=timedelta(seconds=max(0.01, seconds)))
        limits.lp_algorithm, limits.presolve = mathopt.LPAlgorithm.DUAL_SIMPLEX, mathopt.Emphasis.OFF
        try:
            if self._solver is None or not self._solver.update(self._update()):
                self._solver = solver.new(
                    mathopt.SolverType.GLOP.value,
                    _message(self._program()),
                    mathopt.StreamableSolverInitArguments().to_proto(),
                )
            self._known = len(self._entries), len(self._row_low)
            self._changed.clear()
            with _interrupter(stop) as interrupter:
                result = self._solver.solve(
                    limits.to_proto(),
                    mathopt.ModelSolveParameters().to_proto(),
                    None,
                    mathopt.CallbackRegistration().to_proto(),
                    None,
                    None if interrupter is None else interrupter.pybind_interrupter,
                )
        except StatusNotOk:  # rounding has led it astray
            self._solver = result = None
        answer = _answer(result)
        if result is not None and answer.value < np.inf:
            return answer
        # All anew where it went astray, and before anyone believes that nothing fits.
        return minimise(self._program(), seconds=seconds, stop=stop)

    def _program(self) -> Program:
        high = np.full(len(self._cost), np.inf)
        high[list(self._high)] = list(self._high.values())
        rows, columns, values = _columns(self._entries)
        return Program(
            np.array(self._cost),
            np.zeros(len(self._cost)),
            high,
            np.array(self._row_low),
            np.array(self._row_high),
            rows,
            columns,
            values,
        )

    def _update(self) -> Any:
        """What the solver does not know yet."""
        from ortools.math_opt import model_update_pb2

        entries, rows = self._known
        proto = model_update_pb2.ModelUpdateProto()
        limited = sorted(self._changed)
        proto.variable_updates.upper_bounds.ids.extend(limited)
        proto.variable_updates.upper_bounds.values.extend([self._high[column] for column in limited])
        proto.new_linear_constraints.ids.extend(range(rows, len(self._row_low)))
        proto.new_linear_constraints.lower_bounds.extend(self._row_low[rows:])
        proto.new_linear_constraints.upper_bounds.extend(self._row_high[rows:])
        if len(self._entries) > entries:
            _fill(proto.linear_constraint_matrix_updates, len(self._cost), *_columns(self._entries[entries:]))
        return proto


def _columns(entries: list[tuple[int, int, float]]) -> tuple[NDArray[np.int64], NDArray[np.int64], Floats]:
    rows, columns, values = (np.array(part) for part in zip(*entries, strict=True))
    return rows.astype(np.int64), columns.astype(np.int64), values.astype(np.float64)


def _answer(result: Any) -> Answer:
    from ortools.math_opt import result_pb2

    nothing = np.zeros(0)
    if result is None:
        return Answer(-np.inf, nothing, nothing)
    reason = result.termination.reason
    if reason == result_pb2.TERMINATION_REASON_INFEASIBLE:
        return Answer(np.inf, nothing, nothing)
    if reason != result_pb2.TERMINATION_REASON_OPTIMAL:
        return Answer(-np.inf, nothing, nothing)
    found = result.solutions[0]
    solution = np.array(found.primal_solution.variable_values.values)
    prices = np.array(found.dual_solution.dual_values.values)
    return Answer(found.primal_solution.objective_value, solution, prices)


def nothing_fits(program: Program, *, seconds: float = 20.0, stop: Callable[[], bool] | None = None) -> bool:
    """True if no numbers satisfy the rows, whatever they cost; False if some do, or if it was not found out."""
    from ortools.math_opt import result_pb2

    result = _solve(replace(program, cost=np.zeros(len(program.cost))), seconds, stop, feasibility=True)
    return result is not None and bool(result.termination.reason == result_pb2.TERMINATION_REASON_INFEASIBLE)


def _solve(program: Program, seconds: float, stop: Callable[[], bool] | None, *, feasibility: bool = False) -> Any:
    """The solver's own answer, None if rounding leads it astray.

    MathOpt's core is called with messages: its model objects cost more than the solver.
    """
    from ortools.math_opt.core.python import solver
    from ortools.math_opt.python import mathopt
    from pybind11_abseil.status import StatusNotOk

    proto = _message(program)
    limits = mathopt.SolveParameters(time_limit=timedelta(seconds=max(0.01, seconds)))
    if (
        feasibility
    ):  # without costs every basis is dual feasible, and preparing the program takes longer than solving it
        limits.lp_algorithm, limits.presolve = mathopt.LPAlgorithm.DUAL_SIMPLEX, mathopt.Emphasis.OFF
    large = len(proto.linear_constraint_matrix.row_ids) > SMALL_ENTRIES
    with _interrupter(stop if large else None) as interrupter, suppress(StatusNotOk):
        return solver.solve(
            proto,
            mathopt.SolverType.GLOP.value,
            mathopt.StreamableSolverInitArguments().to_proto(),
            limits.to_proto(),
            mathopt.ModelSolveParameters().to_proto(),
            None,
            mathopt.CallbackRegistration().to_proto(),
            None,
            None if interrupter is None else interrupter.pybind_interrupter,
        )
    return None


def _message(program: Program) -> Any:
    from ortools.math_opt import model_pb2

    columns, rows = len(program.cost), len(program.row_low)
    proto = model_pb2.ModelProto()
    proto.variables.ids.extend(range(columns))
    proto.variables.lower_bounds.extend(program.low.tolist())
    proto.variables.upper_bounds.extend(program.high.tolist())
    proto.variables.integers.extend([False] * columns)
    proto.linear_constraints.ids.extend(range(rows))
    proto.linear_constraints.lower_bounds.extend(program.row_low.tolist())
    proto.linear_constraints.upper_bounds.extend(program.row_high.tolist())
    _fill(proto.linear_constraint_matrix, columns, program.rows, program.columns, program.values)
    used = np.flatnonzero(program.cost)
    proto.objective.linear_coefficients.ids.extend(used.tolist())
    proto.objective.linear_coefficients.values.extend(program.cost[used].tolist())
    return proto


def _fill(matrix: Any, width: int, rows: NDArray[np.int64], columns: NDArray[np.int64], values: Floats) -> None:
    """Entries by row and column, each place once."""
    key, where = np.unique(rows * width + columns, return_inverse=True)
    matrix.row_ids.extend((key // width).tolist())
    matrix.column_ids.extend((key % width).tolist())
    matrix.coefficients.extend(np.bincount(where, values).tolist())


@contextmanager
def _interrupter(stop: Callable[[], bool] | None) -> Iterator[Any]:
    """What ends a solver as soon as `stop` says so: a thread looks again and again, since the solver does not."""
    if stop is None:
        yield None
        return
    from ortools.util.python.solve_interrupter import SolveInterrupter

    interrupter, ended = SolveInterrupter(), Event()

    def watch() -> None:
        while not ended.wait(POLL_SECONDS):
            if stop():
                interrupter.interrupt()
                return

    watcher = Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield interrupter
    finally:
        ended.set()
        watcher.join()
