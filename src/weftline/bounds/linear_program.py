"""A linear program as arrays: minimise cost . x with rows of numbers between limits; solved by GLOP through MathOpt.

In: numpy arrays in coordinate form. Out: the value, the solution and the prices of the rows, or why there is none.
Simplified: floating point; a caller that claims a bound leaves room for rounding.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

import numpy as np
from numpy.typing import NDArray

__all__ = ["Answer", "Program", "minimise"]

Floats = NDArray[np.float64]


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


def minimise(program: Program, *, seconds: float = 20.0) -> Answer:
    """Solve; a program that is not solved in time has value minus infinity, which proves nothing."""
    from ortools.math_opt import model_pb2
    from ortools.math_opt.python import mathopt

    columns, rows = len(program.cost), len(program.row_low)
    proto = model_pb2.ModelProto()
    proto.variables.ids.extend(range(columns))
    proto.variables.lower_bounds.extend(program.low.tolist())
    proto.variables.upper_bounds.extend(program.high.tolist())
    proto.variables.integers.extend([False] * columns)
    proto.linear_constraints.ids.extend(range(rows))
    proto.linear_constraints.lower_bounds.extend(program.row_low.tolist())
    proto.linear_constraints.upper_bounds.extend(program.row_high.tolist())
    key, where = np.unique(program.rows * columns + program.columns, return_inverse=True)
    proto.linear_constraint_matrix.row_ids.extend((key // columns).tolist())
    proto.linear_constraint_matrix.column_ids.extend((key % columns).tolist())
    proto.linear_constraint_matrix.coefficients.extend(np.bincount(where, program.values).tolist())
    used = np.flatnonzero(program.cost)
    proto.objective.linear_coefficients.ids.extend(used.tolist())
    proto.objective.linear_coefficients.values.extend(program.cost[used].tolist())
    model = mathopt.Model.from_model_proto(proto)
    limits = mathopt.SolveParameters(time_limit=timedelta(seconds=max(0.01, seconds)))
    result = mathopt.solve(model, mathopt.SolverType.GLOP, params=limits)
    reason = result.termination.reason
    nothing = np.zeros(0)
    if reason == mathopt.TerminationReason.INFEASIBLE:
        return Answer(np.inf, nothing, nothing)
    if reason != mathopt.TerminationReason.OPTIMAL:
        return Answer(-np.inf, nothing, nothing)
    variables, constraints = list(model.variables()), list(model.linear_constraints())
    solution = np.array(result.variable_values(variables)) if variables else nothing
    prices = np.array(result.dual_values(constraints)) if constraints else nothing
    return Answer(float(result.objective_value()), solution, prices)
