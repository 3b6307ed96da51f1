"""The verb `run`: a plan or schedule for real, by the engine that suits it.

In: an answer or its file, and its model. Out: measured beside predicted times, and how far results are from those of
one process. Simplified: one engine runs the whole of it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from weftline.arguments import a_choice, a_flag, a_function, a_mapping, a_path, a_text, a_whole_number, seconds
from weftline.errors import UsageError

if TYPE_CHECKING:
    from weftline.plans import FleetPlan, Plan
    from weftline.plans.schedule import Schedule
    from weftline.run.result import RunResult

__all__ = ["choose_engine", "load_answer", "run"]

Engine = Literal["local", "openvino", "torch", "weftline"]


def run(
    answer: Plan | FleetPlan | Schedule | Path | str,
    *,
    model: Path | str | Callable[..., Any],
    engine: Engine | None = None,
    inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
    runtimes: Mapping[str, str] = MappingProxyType({}),
    requests: int = 100,
    rounds: int = 20,
    steps: int = 3,
    seed: int = 0,
    seeds: int = 1,
    timeout: float | str = 60.0,
    baselines: bool = True,
    check: bool = True,
    watch: bool = False,
    on_event: Callable[[str], None] | None = None,
) -> RunResult | None:
    """Run a plan, fleet plan or schedule for real; the result's `check` insists on what one process gives.

    Plans, fleets: `model` is the file they were made for. Engine local (ONNX) is a process of ONNX Runtime for each
    device; torch the same over torch.distributed (None in ranks of torchrun other than 0); openvino its HETERO
    (`rounds` timed runs). `runtimes` says what stands for a device here: {"gpu0": "ort:CUDAExecutionProvider:0"}.
    `watch` plans again while it runs (local). Schedules: `model` is FILE:FUNCTION or a function that makes a
    `StageModel`; engine weftline or torch, `steps` for each of `seeds` models. `check=False` saves comparing.
    """
    from weftline.plans import FleetPlan, Plan
    from weftline.plans.schedule import Schedule

    a_choice(engine or "local", "engine", ("local", "openvino", "torch", "weftline"))
    if not isinstance(answer, Plan | FleetPlan | Schedule):
        answer = load_answer(a_path(answer, "answer"), engine)
    _check_counts(seed, requests=requests, rounds=rounds, steps=steps, seeds=seeds)
    _check_inputs(inputs)
    _check_rest(runtimes, on_event, baselines=baselines, check=check, watch=watch)
    limit = seconds(timeout, "timeout")
    limit = 60.0 if limit is None else limit
    if isinstance(answer, Schedule):
        return _run_schedule(answer, model, engine or "weftline", steps=steps, seed=seed, seeds=seeds, check=check)
    if not isinstance(model, Path | str):
        raise UsageError("the model of a plan is a file")
    given: dict[str, Any] = {"model": model, "inputs": inputs, "runtimes": runtimes, "seed": seed}
    chosen = choose_engine(answer, model, runtimes, engine)
    if watch and chosen != "local":
        raise UsageError("watch is for engine local")
    if chosen == "torch":
        from weftline.run.dist.run import run_plan_torch

        return run_plan_torch(answer, requests=requests, check=check, timeout=limit, **given)
    if chosen == "openvino" and isinstance(answer, Plan):
        from weftline.run.openvino.run import run_openvino

        return run_openvino(answer, rounds=rounds, **given | {"inputs": _one_set(inputs)})
    if watch:
        from weftline.run.local.watch import run_watched

        return run_watched(answer, requests=requests, timeout=limit, on_event=on_event, **given)
    from weftline.run.local.run import run_local

    return run_local(answer, requests=requests, timeout=limit, baselines=baselines, on_event=on_event, **given)


def _check_counts(seed: int, **counts: int) -> None:
    a_whole_number(seed, "seed", 0, 2**31 - 1)
    for name, count in counts.items():
        a_whole_number(count, name, 1, 2**31)


def _check_inputs(inputs: object) -> None:
    """None, arrays by name, or a list of such; whether they suit the model is seen when it is read."""
    if isinstance(inputs, Sequence) and not isinstance(inputs, str | bytes):
        for number, one in enumerate(inputs):
            a_mapping(one, f"inputs[{number}]", _anything, '{"x": array}')
    elif inputs is not None:
        a_mapping(inputs, "inputs", _anything, '{"x": array}, or a list of such')


def _anything(value: Any, name: str) -> Any:
    return value


def _check_rest(runtimes: Mapping[str, str], on_event: Callable[[str], None] | None, **flags: bool) -> None:
    a_mapping(runtimes, "runtimes", a_text, '{"gpu0": "ort:CUDAExecutionProvider:0"}')
    a_function(on_event, "on_event")
    for name, flag in flags.items():
        a_flag(flag, name)


def _one_set(inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None) -> Mapping[str, Any] | None:
    """What an engine takes that runs one request at a time."""
    if inputs is None or isinstance(inputs, Mapping):
        return inputs
    if len(inputs) != 1:
        raise UsageError("engine openvino takes one set of inputs")
    return inputs[0]


def load_answer(file: Path | str, engine: Engine | None) -> Plan | FleetPlan | Schedule:
    """The plan, fleet plan or schedule in a file, if the engine is one for it."""
    from weftline.certify.run import is_fleet, is_schedule
    from weftline.plans.fleet import FleetPlan, load_fleet
    from weftline.plans.plan import load_plan
    from weftline.plans.schedule import load_schedule

    if is_schedule(Path(file)):
        _check_engine("schedule", engine)
        return load_schedule(file)
    if is_fleet(Path(file)):
        _check_engine("fleet", engine)
        fleet = load_fleet(file)
        if not isinstance(fleet, FleetPlan):
            raise UsageError(f"{file} holds layers on devices with tables, and no model that could be run")
        return fleet
    _check_engine("plan", engine)
    return load_plan(file)


def _check_engine(kind: Literal["plan", "fleet", "schedule"], engine: str | None) -> None:
    if kind == "schedule" and engine in ("local", "openvino"):
        raise UsageError("a schedule runs by engine torch or weftline")
    if kind == "plan" and engine == "weftline":
        raise UsageError("a plan runs by engine local, torch or openvino")
    if kind == "fleet" and engine in ("weftline", "openvino"):
        raise UsageError("a fleet runs by engine local or torch, each of its devices by ONNX Runtime")


def _run_schedule(
    schedule: Schedule, model: Path | str | Callable[..., Any], engine: Engine, **how: Any
) -> RunResult | None:
    from weftline.run.train.launch import under_torchrun
    from weftline.run.train.run import run_schedule

    _check_engine("schedule", engine)
    result = run_schedule(schedule, model=str(model) if isinstance(model, Path) else model, engine=engine, **how)
    return None if under_torchrun() and os.environ["RANK"] != "0" else result


def choose_engine(
    plan: Plan | FleetPlan, model: Path | str, runtimes: Mapping[str, str], engine: Engine | None = None
) -> str:
    """The engine of a plan: OpenVINO where a device is said to be one of its own, or the model is not ONNX."""
    from weftline.plans import FleetPlan

    kind: Literal["plan", "fleet"] = "fleet" if isinstance(plan, FleetPlan) else "plan"
    _check_engine(kind, engine)
    if engine is not None:
        return engine
    said = [runtimes.get(device.id, device.runtime) for device in plan.problem.devices]
    theirs = any(runtime.startswith("openvino:") for runtime in said)
    chosen = "openvino" if theirs or Path(model).suffix.lower() == ".xml" else "local"
    _check_engine(kind, chosen)
    return chosen
