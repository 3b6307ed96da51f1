"""`weftline schedule`: in what order do micro-batches run?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from weftline.cli.options import process_begun, read_gap, read_seconds, read_settings
from weftline.cli.output import JsonFlag, console, print_json, progress, show
from weftline.cli.plan import call_arguments
from weftline.cli.plan_options import Setting
from weftline.errors import InputError, UsageError
from weftline.interrupts import uninterrupted

if TYPE_CHECKING:
    from weftline.ask.scheduling import MemorySweep
    from weftline.plans.schedule import Schedule

__all__ = ["schedule"]


_Shape = Annotated[str | None, typer.Option(metavar="NAME", help="A named placement; `--shape help` lists them.")]
_Devices = Annotated[int, typer.Option("--devices", metavar="N", min=1, help="Number of devices of the shape.")]
_Plan = Annotated[
    Path | None, typer.Option(metavar="PLAN", help="A throughput plan: its stages become blocks, in ns and bytes.")
]
_Blocks = Annotated[Path | None, typer.Option(metavar="FILE", help="A blocks.json file (docs/formats.md).")]
_MicroBatches = Annotated[
    int | None, typer.Option("--micro-batches", "-n", metavar="N", min=1, help="How many.  [default: 4 per device]")
]
_Memory = Annotated[
    str | None,
    typer.Option(
        metavar="LIMIT",
        help="Limit of every device, in units of the blocks (with --plan also 12 GiB), or one for each: 4,4,8.",
    ),
]
_Train = Annotated[bool, typer.Option("--train/--infer", help="Forward and backward, or forward alone.")]
_Split = Annotated[
    bool, typer.Option("--split-backward", help="With --plan: gradients of inputs and of weights apart.")
]
_Recompute = Annotated[
    bool, typer.Option("--recompute", help="With --plan: keep only a stage's inputs, compute the rest again.")
]
_Objective = Annotated[
    Literal["makespan", "device-span"],
    typer.Option(help="What is short: all micro-batches, or each device's time from first to last block."),
]
_Period = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="With --infer: a request arrives every so often; search the least latency at that rate.",
    ),
]
_Solver = Annotated[str, typer.Option(metavar="NAME", help="Name of a method; `--solver help` lists them.")]
_Gap = Annotated[
    str | None,
    typer.Option(metavar="SHARE", help="Stop when this close to the bound, e.g. 1%. Exit code 5 if not reached."),
]
_Time = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Time limit, e.g. 60s.  [default: until nothing improves, at most 60s]"),
]
_Work = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Limit of orders costed: with it the same call gives the same bytes."),
]
_Seed = Annotated[int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Seed of everything random.")]
_Robust = Annotated[bool, typer.Option("--robust", help="Choose the order with the least 95th percentile under noise.")]
_Noise = Annotated[
    float, typer.Option(metavar="SIGMA", min=0, max=2, help="With --robust: sigma of the log-normal spans.")
]
_Straggler = Annotated[
    float, typer.Option(metavar="FACTOR", min=1, max=100, help="With --robust: how much slower one device may be.")
]
_SweepMemory = Annotated[
    str | None, typer.Option(metavar="A..B|M,M...", help="Period and makespan for several memory limits.")
]
_Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the schedule here.")]


def schedule(
    shape: _Shape = None,
    *,
    devices: _Devices = 4,
    plan: _Plan = None,
    blocks: _Blocks = None,
    micro_batches: _MicroBatches = None,
    memory: _Memory = None,
    train: _Train = True,
    split: _Split = False,
    recompute: _Recompute = False,
    objective: _Objective = "makespan",
    period: _Period = None,
    solver: _Solver = "auto",
    gap: _Gap = None,
    time: _Time = None,
    work: _Work = None,
    seed: _Seed = 0,
    setting: Setting = None,
    robust: _Robust = False,
    noise: _Noise = 0.1,
    straggler: _Straggler = 1.2,
    sweep_memory: _SweepMemory = None,
    output: _Output = None,
    json: JsonFlag = False,
) -> None:
    """Order many micro-batches on their devices, with a bound on it.

    Searches a repeating pattern (repetend) and the order of all micro-batches.

    weftline schedule --shape vshape --devices 4 --micro-batches 16 --memory 4 -o sched.json
    """
    from weftline.ask.answer import answer_memory, answer_schedule, resolve_blocks
    from weftline.ask.request import ScheduleRequest
    from weftline.plans.schedule import schedule_to_json
    from weftline.schedule.make_blocks import make_shape
    from weftline.schedule.noise import Noise

    if solver == "help" or shape == "help":
        _list(shape == "help", json)
        return
    if output is not None and not output.parent.is_dir():
        raise InputError("cannot be written: no such folder", where=str(output))
    if sum(given is not None for given in (shape, plan, blocks)) != 1:
        raise UsageError("what is scheduled? One of --shape NAME, --plan plan.json, --blocks blocks.json")
    asked_gap = read_gap(gap)
    if period is not None and train:
        raise UsageError("--period is for inference: add --infer")
    request = ScheduleRequest(
        blocks=blocks if shape is None else make_shape(shape, devices, train=train),
        plan=plan,
        micro_batches=micro_batches,
        memory=None if memory is None else _limits(memory, in_bytes=plan is not None),
        train=train,
        split_backward=split,
        recompute=recompute,
        objective=objective,
        arrivals=period,
        solver=solver,
        gap=asked_gap,
        time_limit=read_seconds(time),
        work_limit=work,
        seed=seed,
        robust=Noise(noise, straggler, seed=seed) if robust else None,
        settings=read_settings(setting or []),
        argv=tuple(call_arguments()),
    )
    found = resolve_blocks(request)
    with progress(f"scheduling {found.blocks.name}") as tell:
        if sweep_memory is not None:
            _show_sweep(answer_memory(found, sweep_memory, on_event=tell), output, json)
            return
        answer = answer_schedule(found, begun=process_begun(), on_event=tell)
    if output is not None:
        with uninterrupted():
            answer.save(output)
    if json:
        print_json(schedule_to_json(answer).rstrip())
    else:
        _show(answer, output)
    if asked_gap is not None and answer.gap > asked_gap:
        typer.echo(
            f"the gap is {answer.gap:.2%}, not the asked {asked_gap:.2%}: stopped by {answer.stopped_by}", err=True
        )
        raise typer.Exit(5)


def _limits(word: str, in_bytes: bool) -> int | list[int]:
    """`4`, `4,4,8`, or with bytes `12 GiB`."""
    from weftline.units import parse_bytes

    try:
        limits = [
            parse_bytes(part) if in_bytes and not part.strip().isdigit() else int(part) for part in word.split(",")
        ]
    except ValueError as error:
        raise UsageError(f"--memory {word!r} is not a whole number, or one for each device") from error
    return limits[0] if len(limits) == 1 else limits


def _list(shapes: bool, json: bool) -> None:
    if shapes:
        from weftline.schedule.make_blocks import SHAPES

        entries = {name: entry.description for name, entry in SHAPES.items()}
    else:
        from weftline.schedule import schedulers

        entries = {name: method.description for name, method in schedulers().items()}
    if json:
        print_json({"shapes" if shapes else "solvers": entries})
        return
    for name, description in entries.items():
        show(f"{name:<16} {description}")


def _show(answer: Schedule, output: Path | None) -> None:
    from weftline.report.tables import gantt, schedule_table, schedule_words

    out = console()
    show(f"{answer.name}: {len(answer.blocks.blocks)} blocks, {answer.micro_batches} micro-batches", "")
    for line in gantt(answer, out.width):
        out.print(line)
    show("", schedule_table(answer), "", *schedule_words(answer))
    show(f"written to {output}" if output else "not written; -o sched.json keeps it")


def _show_sweep(answer: MemorySweep, output: Path | None, json: bool) -> None:
    from weftline.report.sweep import memory_table, memory_words

    if output is not None:
        with uninterrupted():
            answer.best.save(output)
    if json:
        print_json(answer.to_json())
        return
    show(memory_table(answer), "", *memory_words(answer))
    show(f"written to {output}" if output else "not written; -o sched.json keeps the best")
