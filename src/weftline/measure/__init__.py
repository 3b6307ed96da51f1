"""What things cost here: profiles of ops and links, calibration.

In: a model and a cluster. Out: a Profile. Simplified: ops are measured alone, in turns.

The verbs that measure: profile, calibrate.

In: a model file and a cluster. Out: measured costs, or a plan by costs that measured parts corrected. Simplified: on
this machine only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Literal

from weftline.arguments import a_choice, a_flag, a_function, a_mapping, a_text, a_whole_number
from weftline.ask.answer import answer_one, find_devices, model_path
from weftline.ask.request import PlanRequest, import_options
from weftline.errors import UsageError

if TYPE_CHECKING:
    from weftline.cluster import Cluster
    from weftline.cost import Profile
    from weftline.graph.arrays import Indices
    from weftline.plans import Plan
    from weftline.search import Event, Solver

__all__ = ["answer_calibrated", "calibrate", "profile"]


def profile(
    model: Path | str,
    cluster: Cluster | Path | str,
    *,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    dims: Mapping[str, int] = MappingProxyType({}),
    runtimes: Mapping[str, str] = MappingProxyType({}),
    repeats: int = 30,
    cache: bool = True,
    seed: int = 0,
    channel: Literal["memory", "gloo"] = "memory",
) -> Profile:
    """Measure every op of a model on every device of a cluster, by ONNX Runtime or OpenVINO on this machine.

    The cluster is an object, a file, or a preset.

    `runtimes` says what stands for a device here: {"gpu": "ort:CPUExecutionProvider:2-3"}. With `cache`, what was
    measured before for the same question is given back. `channel` is what links are measured over: shared memory, or
    gloo for plans that are run over torch.distributed.
    """
    from weftline.measure.profiling import profile_model

    found = find_devices(cluster)
    if found is None:
        raise UsageError("profile needs a cluster: an object, a file, or the name of a preset")
    options = import_options(shapes, dims)
    return profile_model(
        model_path(model),
        found,
        shapes=options.shapes,
        dims=options.dims,
        runtimes=a_mapping(runtimes, "runtimes", a_text, '{"gpu": "ort:CPUExecutionProvider"}'),
        repeats=a_whole_number(repeats, "repeats", 1, 1_000_000),
        cache=a_flag(cache, "cache"),
        seed=a_whole_number(seed, "seed", 0, 2**31 - 1),
        channel=a_choice(channel, "channel", ("memory", "gloo")),  # type: ignore[arg-type]
    )


def calibrate(
    model: Path | str,
    cluster: Cluster | Path | str,
    costs: Profile | Path | str,
    *,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    dims: Mapping[str, int] = MappingProxyType({}),
    without: Collection[str] = (),
    rounds: int = 3,
    objective: Literal["latency", "throughput"] | None = None,
    runtime: Literal["parallel", "sequential"] | None = None,
    transfers: Literal["per-tensor", "per-edge"] | None = None,
    communication: Literal["added", "overlapped"] | None = None,
    memory: Literal["dynamic", "static"] | None = None,
    stages: int | None = None,
    solver: str | Solver = "auto",
    gap: float | str | None = None,
    time_limit: float | str | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    settings: Mapping[str, str] = MappingProxyType({}),
    on_event: Callable[[Event], None] | None = None,
) -> Plan:
    """Plan by measured costs, measure the parts of the plan, correct the costs by that, plan again.

    At most `rounds` times; the plan is the best by what was measured. The limits are for each search.
    """
    request = PlanRequest(
        model=model,
        cluster=cluster,
        objective=objective,
        runtime=runtime,
        transfers=transfers,
        communication=communication,
        memory=memory,
        stages=stages,
        without=without,  # type: ignore[arg-type]
        shapes=shapes,
        dims=dims,
        costs=costs,
        solver=solver,
        gap=gap,
        time_limit=time_limit,
        work_limit=work_limit,
        seed=seed,
        settings=settings,
    )
    number = a_whole_number(rounds, "rounds", 1, 1000)
    return answer_calibrated(request, rounds=number, on_event=a_function(on_event, "on_event"))


def answer_calibrated(
    request: PlanRequest,
    *,
    rounds: int = 3,
    on_event: Callable[[Event], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Plan:
    """The calibrated plan of a request with costs."""
    from weftline.cost import read_profile
    from weftline.measure.calibration import calibrated_plan
    from weftline.search import Event

    if request.costs is None or not isinstance(request.model, Path | str):
        raise UsageError("a plan is calibrated from measured costs and the file of the model")
    file = model_path(request.model)
    if isinstance(request.costs, Path | str):
        costs, digest = read_profile(request.costs)
        request = replace(request, costs=costs, inputs={**request.inputs, "costs": digest})
    warnings = [say]

    def planner(profile: Profile, start: Indices | None, keep: bool) -> Plan:
        asked = replace(request, costs=profile, coarsen="none")
        if keep:
            asked = replace(asked, time_limit=0.0, work_limit=None)
        return answer_one(asked, start=start, on_event=on_event, say=warnings.pop() if warnings else None)

    def tell(message: str) -> None:
        if on_event is not None:
            on_event(Event(0.0, "", None, None, message))

    assert not isinstance(request.costs, Path | str | None)
    return calibrated_plan(file, request.costs, planner, rounds=rounds, tell=tell)
