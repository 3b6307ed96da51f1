"""The verbs that measure: profile, calibrate.

In: a model file and a cluster. Out: measured costs, or a plan by costs that measured parts corrected. Simplified: on
this machine only.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from weftline.cluster import Cluster
    from weftline.cost import Profile
    from weftline.graph.arrays import Indices
    from weftline.plans import Plan
    from weftline.search import Event

__all__ = ["calibrate", "profile"]


def profile(
    model: Path | str,
    cluster: Cluster,
    *,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    runtimes: Mapping[str, str] = MappingProxyType({}),
    repeats: int = 30,
    cache: bool = True,
    seed: int = 0,
    channel: Literal["memory", "gloo"] = "memory",
) -> Profile:
    """Measure every op of a model on every device of a cluster, by ONNX Runtime or OpenVINO on this machine.

    `runtimes` says what stands for a device here: {"gpu": "ort:CPUExecutionProvider:2-3"}. With `cache`, what was
    measured before for the same question is given back. `channel` is what links are measured over: shared memory, or
    gloo for plans that are run over torch.distributed.
    """
    from weftline.measure.profile import profile_model

    return profile_model(
        model,
        cluster,
        shapes=shapes,
        runtimes=runtimes,
        repeats=repeats,
        cache=cache,
        seed=seed,
        channel=channel,
    )


def calibrate(
    model: Path | str,
    cluster: Cluster,
    costs: Profile | Path | str,
    *,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    rounds: int = 3,
    objective: Literal["latency", "throughput"] | None = None,
    runtime: Literal["parallel", "sequential"] | None = None,
    transfers: Literal["per-tensor", "per-edge"] | None = None,
    communication: Literal["added", "overlapped"] | None = None,
    memory: Literal["dynamic", "static"] | None = None,
    stages: int | None = None,
    solver: str = "auto",
    gap: float | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    settings: Mapping[str, str] = MappingProxyType({}),
    on_event: Callable[[Event], None] | None = None,
) -> Plan:
    """Plan by measured costs, measure the parts of the plan, correct the costs by that, plan again.

    At most `rounds` times; the plan is the best by what was measured. The limits are for each search.
    """
    from weftline.ask.planning import make_plan
    from weftline.cost import load_profile
    from weftline.importers import ImportOptions
    from weftline.measure.calibrate import calibrated_plan
    from weftline.problem import load_problem
    from weftline.search import Event

    rules = {
        "objective": objective,
        "runtime": runtime,
        "transfers": transfers,
        "communication": communication,
        "memory": memory,
        "stages": stages,
    }
    options = ImportOptions(shapes=shapes)

    def planner(profile: Profile, start: Indices | None, keep: bool) -> Plan:
        problem, digest = load_problem(model, cluster=cluster, rules=rules, options=options, costs=profile)
        limits: dict[str, Any] = {"time_limit": time_limit, "work_limit": work_limit}
        if keep:
            limits = {"time_limit": 0.0, "work_limit": None}
        return make_plan(
            problem,
            solver=solver,
            gap=gap,
            seed=seed,
            start=start,
            settings=settings,
            inputs={"model": digest},
            on_event=on_event,
            **limits,
        )

    def tell(message: str) -> None:
        if on_event is not None:
            on_event(Event(0.0, "", None, None, message))

    first = load_profile(costs) if isinstance(costs, Path | str) else costs
    return calibrated_plan(model, first, planner, rounds=rounds, tell=tell)
