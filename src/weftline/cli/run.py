"""`weftline run`: run a plan or schedule for real, and compare with what was planned."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from weftline.cli.options import read_runtimes
from weftline.cli.output import JsonFlag, print_json, show
from weftline.errors import UsageError

__all__ = ["run"]


def run(
    answer: Annotated[Path, typer.Argument(metavar="PLAN|SCHEDULE", help="A plan or schedule file.")],
    model: Annotated[
        str,
        typer.Option(
            metavar="FILE",
            help="Plans: the model file (OpenVINO IR or ONNX). Schedules: FILE:FUNCTION, your model in stages, a "
            "Python function that is called with the layout and a seed; this imports and runs your code.",
        ),
    ],
    engine: Annotated[
        Literal["torch", "weftline", "openvino"] | None,
        typer.Option(
            help="Schedules: torch.distributed.pipelining (chains of stages), or weftline, our own interpreter (any "
            "schedule). Plans: openvino, its HETERO; or torch, a process for every device over torch.distributed, on "
            "several machines by torchrun.  [default: weftline for schedules, openvino for plans]"
        ),
    ] = None,
    steps: Annotated[int, typer.Option(min=1, max=1000, help="Schedules: steps for each seed.")] = 3,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="The first seed of weights and inputs.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Schedules: number of seeds, one model each.")] = 1,
    rounds: Annotated[int, typer.Option(min=1, max=10_000, help="Plans: timed runs, each beside one device.")] = 20,
    requests: Annotated[int, typer.Option(min=1, max=1_000_000, help="Plans, engine torch: counted requests.")] = 100,
    timeout: Annotated[
        float, typer.Option(min=0.1, help="Plans, engine torch: seconds that a process waits for another.")
    ] = 120.0,
    inputs: Annotated[Path | None, typer.Option(help="Plans: inputs by name, .npz.  [default: random]")] = None,
    runtime: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DEVICE=RUNTIME",
            help="Plans: what stands for a device of the plan here, e.g. gpu0=openvino:GPU.1. May be repeated.",
        ),
    ] = None,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="Largest allowed difference to one process or device.  [default: 1e-6; plans 1e-3]"),
    ] = None,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Compare with one process or device.")] = True,
    json: JsonFlag = False,
) -> None:
    """Run a plan or schedule for real.

    A schedule trains a model on local processes (or under torchrun); every gradient is compared with one process. A
    latency plan runs by OpenVINO; outputs are compared with the model on one device. Measured time stands beside
    simulated time. Exit code 7 if results differ.

    weftline run plan.json --model model.xml --runtime cpu0=openvino:CPU

    weftline run plan.json --model model.onnx --engine torch --requests 100

    weftline run sched.json --model examples/train_transformer.py:transformer --engine torch
    """
    from weftline.certify.run import is_schedule

    if is_schedule(answer):
        if engine == "openvino":
            raise UsageError("a schedule runs by engine torch or weftline")
        limit = 1e-6 if tolerance is None else tolerance
        _schedule(answer, model, engine or "weftline", (steps, seed, seeds), limit if check else None, json)
        return
    limit = 1e-3 if tolerance is None else tolerance
    if engine == "torch":
        named = read_runtimes(runtime or [])
        _plan_torch(answer, model, inputs, named, (requests, seed, timeout), limit if check else None, json)
        return
    if engine not in (None, "openvino"):
        raise UsageError("a plan runs by engine openvino or torch")
    _plan(answer, model, inputs, read_runtimes(runtime or []), (rounds, seed), limit if check else None, json)


def _schedule(
    path: Path,
    model: str,
    engine: str,
    how_often: tuple[int, int, int],
    tolerance: float | None,
    json: bool,
) -> None:
    from weftline.execute import run_schedule
    from weftline.execute.torch_launch import under_torchrun
    from weftline.plan.schedule_file import load_schedule

    loaded = load_schedule(path)
    steps, seed, seeds = how_often
    check = tolerance is not None
    result = run_schedule(loaded, model=model, engine=engine, steps=steps, seed=seed, seeds=seeds, check=check)
    if under_torchrun() and os.environ["RANK"] != "0":
        return
    if json:
        print_json(asdict(result))
    else:
        show(f"{loaded.name}: {result.summary()}")
    if tolerance is not None:
        result.check(tolerance)


def _plan(
    path: Path,
    model: str,
    inputs: Path | None,
    runtimes: dict[str, str],
    how_often: tuple[int, int],
    tolerance: float | None,
    json: bool,
) -> None:
    from weftline.execute.arrays import read_arrays
    from weftline.execute.openvino_run import run_openvino
    from weftline.plan.files import load_plan

    given = None if inputs is None else read_arrays(inputs)
    rounds, seed = how_often
    result = run_openvino(load_plan(path), model=model, inputs=given, runtimes=runtimes, rounds=rounds, seed=seed)
    if json:
        print_json(asdict(result))
    else:
        show(result.summary())
    if tolerance is not None:
        result.check(tolerance)


def _plan_torch(
    path: Path,
    model: str,
    inputs: Path | None,
    runtimes: dict[str, str],
    how: tuple[int, int, float],
    tolerance: float | None,
    json: bool,
) -> None:
    from weftline.execute.arrays import read_arrays
    from weftline.execute.plan_torch import run_plan_torch
    from weftline.plan.files import load_plan

    requests, seed, timeout = how
    result = run_plan_torch(
        load_plan(path),
        model=model,
        inputs=None if inputs is None else read_arrays(inputs),
        runtimes=runtimes,
        requests=requests,
        seed=seed,
        check=tolerance is not None,
        timeout=timeout,
    )
    if result is None:
        return
    if json:
        print_json(asdict(result))
    else:
        show(result.summary())
    if tolerance is not None:
        result.check(tolerance)
