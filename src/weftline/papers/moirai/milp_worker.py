"""Solves a MathOpt model with HiGHS: small ones here, others in a process of their own that can be ended at any time.

Where HiGHS breaks down, SCIP is asked. HiGHS cannot be interrupted through MathOpt, and takes no start. So a long solve
runs as `python -m` of this file: the model comes on stdin, the answer goes to stdout as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from time import monotonic, time
from typing import Any, NamedTuple

from weftline.worker.child import die_with, private_output
from weftline.worker.parent import Child, ChildGone, ChildSilent

__all__ = ["MilpAnswer", "solve_here", "solve_in_process"]

POLL_SECONDS = 0.05
"""Between looks at a running process."""


class MilpAnswer(NamedTuple):
    """What the solver said."""

    status: str
    """optimal, feasible, infeasible or unknown."""
    bound: float
    """Minus infinity if it said nothing."""
    values: dict[int, float]
    """Variable id -> value, of the best solution; empty if there is none."""


def solve_here(model: Any, *, seconds: float | None, nodes: int | None, seed: int) -> MilpAnswer:
    """Solve in this process, without a way to stop it."""
    from ortools.math_opt.python import mathopt
    from ortools.math_opt.solvers import highs_pb2

    options = highs_pb2.HighsOptionsProto(string_options={"parallel": "off"})
    parameters = mathopt.SolveParameters(
        time_limit=None if seconds is None else timedelta(seconds=max(0.05, seconds)),
        node_limit=nodes,
        random_seed=seed,
        relative_gap_tolerance=0.0,
        highs=options,
    )
    result = None
    for name in (mathopt.SolverType.HIGHS, mathopt.SolverType.GSCIP):
        try:
            result = mathopt.solve(model, name, params=parameters)
        except Exception:  # "HighsStatus: kError" on some tiny models; MathOpt then stumbles over its own error
            continue
        break
    if result is None:
        return MilpAnswer("unknown", float("-inf"), {})
    reason = result.termination.reason
    values = {}
    if result.solutions and result.solutions[0].primal_solution is not None:
        values = {variable.id: value for variable, value in result.variable_values().items()}
    status = "feasible" if values else "unknown"
    if reason == mathopt.TerminationReason.OPTIMAL:
        status = "optimal"
    elif reason == mathopt.TerminationReason.INFEASIBLE:
        status = "infeasible"
    return MilpAnswer(status, float(result.termination.objective_bounds.dual_bound), values)


def solve_in_process(
    model: Any, *, seconds: float | None, nodes: int | None, seed: int, stop: Callable[[], bool]
) -> MilpAnswer:
    """The same in a process of its own, which ends when `stop` says so, or with an exception here (Ctrl-C)."""
    until = None if seconds is None else time() + seconds  # the process needs a second before it can begin
    asked = json.dumps([until, nodes, seed, os.getpid()])
    with Child("weftline.papers.moirai.milp_worker", asked) as child, suppress(ChildGone):
        child.write(model.export_model().SerializeToString(), last=True)
        while not stop():
            with suppress(ChildSilent):
                status, bound, values = child.receive(tuple[str, str, dict[int, float]], monotonic() + POLL_SECONDS)
                return MilpAnswer(status, float(bound), values)
    return MilpAnswer("unknown", float("-inf"), {})


def _main() -> None:
    from ortools.math_opt import model_pb2
    from ortools.math_opt.python import mathopt

    until, nodes, seed, parent = json.loads(sys.argv[1])
    die_with(parent)
    answers = private_output()
    proto = model_pb2.ModelProto.FromString(sys.stdin.buffer.read())
    model = mathopt.Model.from_model_proto(proto)
    answer = solve_here(model, seconds=None if until is None else until - time(), nodes=nodes, seed=seed)
    answers.write(json.dumps([answer.status, str(answer.bound), answer.values]).encode() + b"\n")
    answers.flush()


if __name__ == "__main__":
    _main()
