"""`weftline run`: run a schedule for real, and compare with what was planned."""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from weftline.cli.output import JsonFlag, print_json, show

__all__ = ["run"]


def run(
    schedule: Annotated[Path, typer.Argument(help="A schedule file.")],
    model: Annotated[
        str,
        typer.Option(
            metavar="FILE:FUNCTION",
            help="Your model in stages: a Python function that is called with the layout and a seed. This imports and "
            "runs your code.",
        ),
    ],
    engine: Annotated[
        Literal["torch", "weftline"],
        typer.Option(help="torch.distributed.pipelining (chains of stages), or our own interpreter (any schedule)."),
    ] = "weftline",
    steps: Annotated[int, typer.Option(min=1, max=1000, help="Steps for each seed.")] = 3,
    seed: Annotated[int, typer.Option(min=0, max=2**31 - 1, help="The first seed of weights and inputs.")] = 0,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Number of seeds, one model each.")] = 1,
    tolerance: Annotated[float, typer.Option(min=0, help="Largest allowed difference to one process.")] = 1e-6,
    check: Annotated[bool, typer.Option("--check/--no-check", help="Compare gradients with one process.")] = True,
    json: JsonFlag = False,
) -> None:
    """Run a schedule on local processes (or under torchrun).

    Trains the model by the schedule's order, compares every gradient with one process, and the step time with the
    simulated one. Exit code 7 if gradients differ.

    weftline run sched.json --model examples/train_transformer.py:transformer --engine torch
    """
    from weftline.execute import run_schedule
    from weftline.execute.torch_launch import under_torchrun
    from weftline.plan.schedule_file import load_schedule

    loaded = load_schedule(schedule)
    result = run_schedule(loaded, model=model, engine=engine, steps=steps, seed=seed, seeds=seeds, check=check)
    if under_torchrun() and os.environ["RANK"] != "0":
        return
    if json:
        print_json(asdict(result))
    else:
        show(f"{loaded.name}: {result.summary()}")
    result.check(tolerance)
