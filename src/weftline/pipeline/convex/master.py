"""The master program: cover every piece by sets cheaper than the target, with as few as possible.

In: sets and their costs. Out: how many sets the best fractional cover needs, and the dual weight of each piece. Only
the weights are used, rounded to integers, so tolerances of the solver cannot make a bound wrong.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints

__all__ = ["Master", "whole"]

Members = NDArray[np.bool_]


class Master:
    """An incremental linear program; sets that cost too much for the target are switched off, not removed."""

    def __init__(self, pieces: int, stages: int) -> None:
        from ortools.math_opt.python import mathopt

        self._model = mathopt.Model()
        self._objective = self._model.objective
        self._solver_type = mathopt.SolverType.GLOP
        self._mathopt = mathopt
        self._solver: Any = None
        no_rest = mathopt.SparseVectorFilter[Any](filtered_items=[])
        self._answers = mathopt.ModelSolveParameters(
            variable_values_filter=mathopt.SparseVectorFilter[Any](skip_zero_values=True), reduced_costs_filter=no_rest
        )
        self._rows = [self._model.add_linear_constraint(lb=1.0) for _ in range(pieces)]
        self._columns: list[Any] = []
        self._place: dict[Any, int] = {}
        self.cost: list[int] = []
        self.members: list[Members] = []
        self._known: set[bytes] = set()
        self.target = -1
        for row in self._rows:
            # Leaving a piece out must be dearer than all stages together; covering it twice is free, so that no
            # weight is negative: weaker in theory, but the weights settle much sooner.
            extra = self._model.add_variable(lb=0.0)
            row.set_coefficient(extra, 1.0)
            self._objective.set_linear_coefficient(extra, stages + 4.0)

    def add(self, members: Members, cost: int) -> bool:
        """A set -> False if it is known."""
        name = members.tobytes()
        if name in self._known:
            return False
        self._known.add(name)
        column = self._model.add_variable(lb=0.0, ub=float("inf") if cost < self.target else 0.0)
        for piece in np.flatnonzero(members).tolist():
            self._rows[piece].set_coefficient(column, 1.0)
        self._objective.set_linear_coefficient(column, 1.0)
        self._place[column] = len(self._columns)
        self._columns.append(column)
        self.cost.append(cost)
        self.members.append(members.copy())
        return True

    def aim(self, target: int) -> None:
        """Only sets cheaper than this may be used."""
        for column, cost in zip(self._columns, self.cost, strict=True):
            if (cost < target) != (cost < self.target):
                column.upper_bound = float("inf") if cost < target else 0.0
        self.target = target

    def solve(self) -> tuple[float, NDArray[np.float64], list[int]] | None:
        """(number of sets, weights of pieces, sets in use), or None if the solver failed."""
        result = self._result() or self._result()
        if result is None or not result.has_primal_feasible_solution() or not result.has_dual_feasible_solution():
            return None
        weights = np.array(result.dual_values(self._rows))
        amounts = result.variable_values()
        used = [self._place[column] for column, amount in amounts.items() if amount > 1e-6 and column in self._place]
        return float(result.objective_value()), weights, used

    def _result(self) -> Any:
        """Solve from where the solver is; None if it broke down (numbers), and then the next begins anew."""
        if self._solver is None:
            self._solver = self._mathopt.IncrementalSolver(self._model, self._solver_type)
        try:
            return self._solver.solve(model_params=self._answers)
        except Exception:  # of several kinds, some of them errors inside of the error handling
            self._solver = None
            return None

    def usable(self) -> list[Members]:
        """Sets cheaper than the target."""
        return [m for m, cost in zip(self.members, self.cost, strict=True) if cost < self.target]


def whole(weights: NDArray[np.float64], scale: int) -> Ints:
    """Weights rounded to integers."""
    return np.rint(weights * scale).astype(np.int64)
