"""`weftline run`: run a plan or schedule for real, and compare with what was planned."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from weftline.cli.options import read_runtimes
from weftline.cli.output import JsonFlag, print_json, show, telling
from weftline.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weftline.plans import Plan
    from weftline.run.dist.run import PlanTorchResult
    from weftline.run.local.run import LocalResult
    from weftline.run.openvino.run import OpenvinoResult

__all__ = ["run"]


def run(
    answer: Annotated[Path, typer.Argument(metavar="PLAN|SCHEDULE", help="A plan or schedule file.")],
    model: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Plans: the model file (ONNX or OpenVINO IR). Schedules: FILE:FUNCTION, your model in stages, a "
            "Python function that is called with the layout and a seed; this imports and runs your code.",
        ),
    ],
    engine: Annotated[
        Literal["local", "openvino", "torch", "weftline"] | None,
        typer.Option(
            help="Plans: local, a worker of ONNX Runtime for each device; torch, the same over torch.distributed, on "
            "several machines by torchrun; or openvino, its HETERO. Schedules: torch, its pipelining (chains of "
            "stages), or weftline, our own interpreter (any schedule).  "
            "[default: local for ONNX models, openvino for others, weftline for schedules]"
        ),
    ] = None,
    steps: Annotated[int, typer.Option(metavar="N", min=1, max=1000, help="Schedules: steps for each seed.")] = 3,
    seed: Annotated[
        int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="The first seed of weights and inputs.")
    ] = 0,
    seeds: Annotated[
        int, typer.Option(metavar="N", min=1, max=1000, help="Schedules: number of seeds, one model each.")
    ] = 1,
    requests: Annotated[int, typer.Option(metavar="N", min=1, max=10**6, help="local, torch: timed requests.")] = 100,
    rounds: Annotated[
        int, typer.Option(metavar="N", min=1, max=10_000, help="openvino: timed runs, each beside one device.")
    ] = 20,
    inputs: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Plans: inputs by name, .npz.  [default: random]")
    ] = None,
    runtime: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DEVICE=RUNTIME",
            help="Plans: what stands for a device of the plan here, e.g. cpu0=ort:CPUExecutionProvider:2-3 or "
            "gpu0=openvino:GPU.1. May be repeated.",
        ),
    ] = None,
    timeout: Annotated[
        float,
        typer.Option(
            metavar="SECONDS",
            min=1,
            max=10**6,
            help="local, torch: seconds without any sign of life that count as a hang.",
        ),
    ] = 60,
    baselines: Annotated[
        bool, typer.Option("--baselines/--no-baselines", help="local: also time one process, and replicas.")
    ] = True,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch", help="local: plan again while it runs, if a device is slower than the others, against the plan."
        ),
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="With --watch: write the last plan here.")
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(
            metavar="DIFFERENCE",
            min=0,
            help="Largest allowed difference to one process or device.  [default: 1e-6; plans 1e-3]",
        ),
    ] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Compare with one process or device.")] = True,
    json: JsonFlag = False,
) -> None:
    """Run a plan or schedule for real.

    A plan runs on processes of this machine, one for each device, or (latency) by OpenVINO; outputs are compared with
    the unsplit model. A schedule trains a model on local processes (or under torchrun); every gradient is compared with
    one process. Measured time stands beside predicted time. Exit code 7 if results differ.

    weftline run plan.json --model model.onnx --requests 200

    weftline run plan.json --model model.onnx --requests 5000 --watch -o better.json

    weftline run plan.json --model model.xml --runtime cpu0=openvino:CPU

    weftline run sched.json --model examples/train_transformer.py:transformer --engine torch
    """
    from weftline.certify.run import is_schedule

    if is_schedule(answer):
        if engine in ("local", "openvino"):
            raise UsageError("a schedule runs by engine torch or weftline")
        limit = 1e-6 if tolerance is None else tolerance
        _schedule(answer, model, engine or "weftline", (steps, seed, seeds), limit if check else None, json)
        return
    if engine == "weftline":
        raise UsageError("a plan runs by engine local, torch or openvino")
    from weftline.plans.plan import load_plan
    from weftline.run.inputs import read_arrays

    plan, runtimes = load_plan(answer), read_runtimes(runtime or [])
    given = None if inputs is None else read_arrays(inputs)
    chosen = engine or _engine(plan, model, runtimes)
    if (watch or output) and not (watch and chosen == "local"):
        raise UsageError("--watch is for engine local, and -o FILE for --watch")
    if watch:
        most = (1e-3 if tolerance is None else tolerance) if check else None
        _watch(plan, model, given, runtimes, (requests, seed, timeout), output, most, json)
        return
    result: LocalResult | OpenvinoResult | PlanTorchResult | None
    if chosen == "torch":
        from weftline.run.dist.run import run_plan_torch

        result = run_plan_torch(
            plan,
            model=model,
            inputs=given,
            runtimes=runtimes,
            requests=requests,
            seed=seed,
            check=check,
            timeout=timeout,
        )
        if result is None:  # another process of torchrun tells
            return
    elif chosen == "openvino":
        from weftline.run.openvino.run import run_openvino

        result = run_openvino(plan, model=model, inputs=given, runtimes=runtimes, rounds=rounds, seed=seed)
    else:
        result = _local(plan, model, given, runtimes, (requests, seed, timeout, baselines))
    if json:
        print_json(result.to_json())
    else:
        show(result.summary())
    if check:
        result.check(1e-3 if tolerance is None else tolerance)


def _schedule(
    path: Path,
    model: str,
    engine: str,
    how_often: tuple[int, int, int],
    tolerance: float | None,
    json: bool,
) -> None:
    from weftline.plans.schedule import load_schedule
    from weftline.run import run_schedule
    from weftline.run.train.launch import under_torchrun

    loaded = load_schedule(path)
    steps, seed, seeds = how_often
    check = tolerance is not None
    result = run_schedule(loaded, model=model, engine=engine, steps=steps, seed=seed, seeds=seeds, check=check)
    if under_torchrun() and os.environ["RANK"] != "0":
        return
    if json:
        print_json(result.to_json())
    else:
        show(f"{loaded.name}: {result.summary()}")
    if tolerance is not None:
        result.check(tolerance)


def _engine(plan: Plan, model: str, runtimes: dict[str, str]) -> str:
    """OpenVINO where a device is said to be one of its own, or the model is not ONNX."""
    said = [runtimes.get(device.id, device.runtime) for device in plan.problem.devices]
    theirs = any(runtime.startswith("openvino:") for runtime in said)
    return "openvino" if theirs or Path(model).suffix.lower() == ".xml" else "local"


def _local(
    plan: Plan,
    model: str,
    inputs: dict[str, NDArray[Any]] | None,
    runtimes: dict[str, str],
    how: tuple[int, int, float, bool],
) -> LocalResult:
    from weftline.run.local.run import run_local

    requests, seed, timeout, baselines = how
    with telling("running") as tell:
        return run_local(
            plan,
            model=model,
            inputs=inputs,
            runtimes=runtimes,
            requests=requests,
            seed=seed,
            timeout=timeout,
            baselines=baselines,
            on_event=tell,
        )


def _watch(
    plan: Plan,
    model: str,
    inputs: dict[str, NDArray[Any]] | None,
    runtimes: dict[str, str],
    how: tuple[int, int, float],
    output: Path | None,
    tolerance: float | None,
    json: bool,
) -> None:
    from weftline.run.local.watch import run_watched

    requests, seed, timeout = how
    with telling("running") as tell:
        found = run_watched(
            plan,
            model=model,
            inputs=inputs,
            runtimes=runtimes,
            requests=requests,
            seed=seed,
            timeout=timeout,
            on_event=tell,
        )
    if output is not None:
        found.plan.save(output)
    if json:
        print_json(found.to_json())
    else:
        show(found.summary())
    if tolerance is not None:
        found.check(tolerance)
