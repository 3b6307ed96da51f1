"""`weftline train`: train what learned solvers use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weftline.cli.options import read_seconds
from weftline.cli.output import JsonFlag, print_json, progress, show
from weftline.errors import InputError, UsageError

__all__ = ["app"]

app = typer.Typer(help="Train what learned solvers use.", no_args_is_help=True)


@app.callback()
def _about() -> None:
    pass


@app.command()
def policy(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The file of weights; its checkpoint stands beside.")
    ],
    time: Annotated[str | None, typer.Option(metavar="TIME", help="How long, e.g. 2h.  [default: 2h]")] = None,
    steps: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="How many steps: with it the same seed gives the same bytes.")
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Seed of everything random.")] = 0,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint.")] = False,
    json: JsonFlag = False,
) -> None:
    """Train the network of `--solver policy` on fresh graphs and clusters.

    The result is used with: weftline plan MODEL --solver policy --set weights=FILE

    weftline train policy -o policy.safetensors --time 2h
    """
    from weftline.latency.policy.train import train_policy

    if time is not None and steps is not None:
        raise UsageError("--time or --steps, not both")
    if not output.parent.is_dir():
        raise InputError("cannot be written: no such folder", where=str(output))
    seconds = None if steps is not None else read_seconds(time or "2h")
    with progress("training the policy") as tell:
        written = train_policy(output, seconds=seconds, steps=steps, seed=seed, resume=resume, on_event=tell)
    if json:
        print_json({"weights": str(written)})
    else:
        show(f"written: {written}")
