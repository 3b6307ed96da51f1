"""weftline: plan how one neural network runs on several unequal devices, prove how good the plan is, and run it.

    import weftline as wl
    graph = wl.load("bert.onnx")
    plan = wl.plan(graph, wl.Cluster.preset("laptop"), objective="latency")
    print(plan.summary())

Verbs, values and errors are here, models in `weftline.zoo`; rooms load when they are first used. Rooms that have a
verb's name are imported by `from weftline.simulate import ...`; `weftline.simulate` itself is the verb.
"""

from __future__ import annotations

from weftline import _start  # noqa: F401  (first: until then a Ctrl-C is a traceback)

# isort: split
from typing import TYPE_CHECKING

from weftline.ask.answer import answer, resolve
from weftline.ask.fit_request import FitRequest, fit
from weftline.ask.look import diff, explain, simulate, verify
from weftline.ask.machine_verbs import detect, train
from weftline.ask.request import GridRequest, PlanRequest, ScheduleRequest
from weftline.ask.verbs import from_openvino, from_torch, load, load_problem, plan, plan_stages, schedule, shape
from weftline.errors import (
    ExecutionMismatch,
    InfeasibleError,
    InputError,
    LimitReached,
    MissingExtra,
    UsageError,
    VerificationError,
    WeftlineError,
)
from weftline.export import export
from weftline.grid import sweep
from weftline.lazy import lazy_names as _lazy_names
from weftline.measure import calibrate, profile
from weftline.report import report
from weftline.run.verb import run

if TYPE_CHECKING:
    from weftline.cluster import Cluster
    from weftline.cost import Profile
    from weftline.graph import Graph
    from weftline.plans import Plan
    from weftline.plans.schedule import Schedule
    from weftline.problem import Blocks, Problem

__version__ = "0.1.0"

__all__ = [
    "Blocks",
    "Cluster",
    "ExecutionMismatch",
    "FitRequest",
    "Graph",
    "GridRequest",
    "InfeasibleError",
    "InputError",
    "LimitReached",
    "MissingExtra",
    "Plan",
    "PlanRequest",
    "Problem",
    "Profile",
    "Schedule",
    "ScheduleRequest",
    "UsageError",
    "VerificationError",
    "WeftlineError",
    "__version__",
    "answer",
    "calibrate",
    "detect",
    "diff",
    "explain",
    "export",
    "fit",
    "from_openvino",
    "from_torch",
    "load",
    "load_problem",
    "plan",
    "plan_stages",
    "profile",
    "report",
    "resolve",
    "run",
    "schedule",
    "shape",
    "simulate",
    "sweep",
    "train",
    "verify",
]
__dir__ = __all__.copy

__getattr__ = _lazy_names(
    __name__,
    {
        "Blocks": "weftline.problem",
        "Cluster": "weftline.cluster",
        "Graph": "weftline.graph",
        "Plan": "weftline.plans",
        "Problem": "weftline.problem",
        "Profile": "weftline.cost",
        "Schedule": "weftline.plans.schedule",
    },
)
