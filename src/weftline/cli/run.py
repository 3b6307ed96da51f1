"""Verbs that compute for real: `weftline run` runs a plan or schedule, `train` trains the policy."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Literal

import typer

from weftline.cli.options import read_runtimes, read_seconds
from weftline.cli.output import OUTPUT_PANEL, FileCommand, JsonFlag, print_json, progress, show, telling
from weftline.errors import InputError, UsageError

__all__ = ["run", "train_app"]


SUBJECT_PANEL = "What runs"
PLAN_PANEL = "For plans"
SCHEDULE_PANEL = "For schedules"
CHECK_PANEL = "Check of the results"

_Answer = Annotated[Path, typer.Argument(metavar="PLAN|SCHEDULE", help="A plan, fleet plan or schedule file.")]
_Model = Annotated[
    str,
    typer.Option(
        metavar="FILE",
        help="Plans: the model file (ONNX or OpenVINO IR). Schedules: FILE:FUNCTION, your model in stages, a "
        "Python function that is called with the layout and a seed; this imports and runs your code.",
        rich_help_panel=SUBJECT_PANEL,
    ),
]
_Engine = Annotated[
    Literal["local", "openvino", "torch", "weftline"] | None,
    typer.Option(
        help="Plans: local (ONNX Runtime, a process for each device), torch (the same over torch.distributed) or "
        "openvino (its HETERO). Schedules: torch (its pipelining) or weftline (our own, any schedule).  [default: "
        "local for ONNX models, openvino for others, weftline for schedules]",
        rich_help_panel=SUBJECT_PANEL,
    ),
]
_Steps = Annotated[
    int, typer.Option(metavar="N", min=1, max=1000, help="Steps for each seed.", rich_help_panel=SCHEDULE_PANEL)
]
_Seed = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=0,
        max=2**31 - 1,
        help="The first seed of weights and inputs.",
        rich_help_panel=SUBJECT_PANEL,
    ),
]
_Seeds = Annotated[
    int,
    typer.Option(metavar="N", min=1, max=1000, help="Number of seeds, one model each.", rich_help_panel=SCHEDULE_PANEL),
]
_Requests = Annotated[
    int,
    typer.Option(
        metavar="N", min=1, max=10**6, help="local, torch: inputs that are timed.", rich_help_panel=PLAN_PANEL
    ),
]
_Rounds = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=1,
        max=10_000,
        help="openvino: timed runs, each beside a run on one device.",
        rich_help_panel=PLAN_PANEL,
    ),
]
_Inputs = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="FILE",
        help="Inputs by name, .npz. May be repeated: requests take them in turns.  [default: random]",
        rich_help_panel=PLAN_PANEL,
    ),
]
_Runtime = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DEVICE=RUNTIME",
        help="What stands for a device of the plan here: cpu0=ort:CPUExecutionProvider:2-3 (cores 2 and 3), "
        "gpu0=openvino:GPU.1. May be repeated.",
        rich_help_panel=PLAN_PANEL,
    ),
]
_Timeout = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        min=1,
        max=10**6,
        help="local, torch: seconds without any sign of life that count as a hang.",
        rich_help_panel=PLAN_PANEL,
    ),
]
_Baselines = Annotated[
    bool,
    typer.Option(
        "--baselines/--no-baselines",
        help="local: also time the whole model in one process, and copies of it.",
        rich_help_panel=PLAN_PANEL,
    ),
]
_Watch = Annotated[
    bool,
    typer.Option(
        "--watch",
        help="local: plan again while it runs, if a device is slower than the plan says.",
        rich_help_panel=PLAN_PANEL,
    ),
]
_Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="FILE", help="With --watch: write the last plan here.", rich_help_panel=OUTPUT_PANEL
    ),
]
_Tolerance = Annotated[
    float | None,
    typer.Option(
        metavar="DIFFERENCE",
        min=0,
        help="Largest allowed difference.  [default: 1e-6; plans 1e-3, more for float16, bfloat16 and 8 bits]",
        rich_help_panel=CHECK_PANEL,
    ),
]
_Check = Annotated[
    bool,
    typer.Option(
        "--check/--no-check",
        help="Compare with the whole model in one process or on one device.",
        rich_help_panel=CHECK_PANEL,
    ),
]


def run(
    answer: _Answer,
    model: _Model,
    *,
    engine: _Engine = None,
    steps: _Steps = 3,
    seed: _Seed = 0,
    seeds: _Seeds = 1,
    requests: _Requests = 100,
    rounds: _Rounds = 20,
    inputs: _Inputs = None,
    runtime: _Runtime = None,
    timeout: _Timeout = 60,
    baselines: _Baselines = True,
    watch: _Watch = False,
    output: _Output = None,
    tolerance: _Tolerance = None,
    check: _Check = True,
    json: JsonFlag = False,
) -> None:
    """Run a plan or schedule for real.

    A plan runs on processes of this machine, one for each device, or (latency) by OpenVINO; outputs are compared with
    the unsplit model. The inputs of a fleet are shared out among its lanes as planned. A schedule trains a model on
    local processes (or under torchrun); every gradient is compared with one process. Measured time stands beside
    predicted time. Exit code 7 if results differ.

    weftline run plan.json --model model.onnx --requests 200

    weftline run plan.json --model model.onnx --requests 5000 --watch -o better.json

    weftline run fleet.json --model model.onnx --requests 500

    weftline run plan.json --model model.xml --runtime cpu0=openvino:CPU

    weftline run sched.json --model examples/train_transformer.py:transformer --engine torch
    """
    from weftline.plans.schedule import Schedule
    from weftline.run.inputs import read_arrays
    from weftline.run.local.watch import WatchResult
    from weftline.run.verb import choose_engine, load_answer
    from weftline.run.verb import run as run_answer

    loaded, runtimes = load_answer(answer, engine), read_runtimes(runtime or [])
    trains = isinstance(loaded, Schedule)
    is_local = not isinstance(loaded, Schedule) and choose_engine(loaded, model, runtimes, engine) == "local"
    if not trains:
        watched = watch and is_local
        if (watch or output) and not watched:
            raise UsageError("--watch is for engine local, and -o FILE for --watch")
    with telling("running") if is_local else nullcontext() as tell:
        result = run_answer(
            loaded,
            model=model,
            engine=engine,
            inputs=[read_arrays(file) for file in inputs] if inputs and not trains else None,
            runtimes=runtimes,
            requests=requests,
            rounds=rounds,
            steps=steps,
            seed=seed,
            seeds=seeds,
            timeout=timeout,
            baselines=baselines,
            check=check,
            watch=watch and not trains,
            on_event=tell,
        )
    if result is None:  # another process of torchrun tells
        return
    if isinstance(result, WatchResult) and output is not None:
        result.plan.save(output)
    if json:
        print_json(result.to_json())
    else:
        show(f"{loaded.name}: {result.summary()}" if isinstance(loaded, Schedule) else result.summary())
    if check:
        result.check(tolerance)


train_app = typer.Typer(help="Train what learned solvers use.", no_args_is_help=True)


@train_app.callback()
def _about() -> None:
    pass


@train_app.command(cls=FileCommand)
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
