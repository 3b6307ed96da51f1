"""`weftline schedule`: in what order do micro-batches run?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from weftline.cli.options import (
    AIM_PANEL,
    LIMIT_PANEL,
    SEARCH_PANEL,
    Proof,
    process_begun,
    read_gap,
    read_seconds,
    read_settings,
)
from weftline.cli.output import OUTPUT_PANEL, JsonFlag, console, print_json, progress, show, show_names
from weftline.cli.plan import call_arguments
from weftline.errors import InputError, UsageError
from weftline.interrupts import uninterrupted

if TYPE_CHECKING:
    from weftline.ask.scheduling import MemorySweep
    from weftline.plans.schedule import Schedule

__all__ = ["schedule"]


SUBJECT_PANEL = "What is scheduled"
NOISE_PANEL = "Under noise"

_Shape = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="A well-known pipeline in small numbers; `--shape help` lists them.",
        rich_help_panel=SUBJECT_PANEL,
    ),
]
_Devices = Annotated[
    int,
    typer.Option(
        "--devices", metavar="N", min=1, help="With --shape: number of devices.", rich_help_panel=SUBJECT_PANEL
    ),
]
_Plan = Annotated[
    Path | None,
    typer.Option(
        metavar="PLAN", help="The stages of a throughput plan, in time and bytes.", rich_help_panel=SUBJECT_PANEL
    ),
]
_Blocks = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Work and memory of your own: blocks.json (docs/formats.md).",
        rich_help_panel=SUBJECT_PANEL,
    ),
]
_MicroBatches = Annotated[
    int | None,
    typer.Option(
        "--micro-batches",
        "-n",
        metavar="N",
        min=1,
        help="How many.  [default: 4 per device]",
        rich_help_panel=SUBJECT_PANEL,
    ),
]
_Train = Annotated[
    bool,
    typer.Option(
        "--train/--infer", help="Forward and backward passes, or forward alone.", rich_help_panel=SUBJECT_PANEL
    ),
]
_Split = Annotated[
    bool,
    typer.Option(
        "--split-backward",
        help="With --plan: compute gradients of inputs and of weights apart.",
        rich_help_panel=SUBJECT_PANEL,
    ),
]
_Recompute = Annotated[
    bool,
    typer.Option(
        "--recompute",
        help="With --plan: keep only what enters a stage, compute the rest again for the backward pass: less memory, "
        "more work.",
        rich_help_panel=SUBJECT_PANEL,
    ),
]
_Objective = Annotated[
    Literal["makespan", "device-span"],
    typer.Option(
        help="makespan: from the first start to the last end. device-span: the longest such time of one device.",
        rich_help_panel=AIM_PANEL,
    ),
]
_Period = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="With --infer: a request arrives every N units of time; search the least latency at that rate.",
        rich_help_panel=AIM_PANEL,
    ),
]
_SweepMemory = Annotated[
    str | None,
    typer.Option(
        metavar="A..B|M,M...",
        help="Schedules for several memory limits: 2..8 or 2,4,8; with --plan 2GiB,4GiB.",
        rich_help_panel=AIM_PANEL,
    ),
]
_Memory = Annotated[
    str | None,
    typer.Option(
        metavar="LIMIT",
        help="Memory of every device for activations, or one for each: 4,4,8. With --plan in bytes, beside weights and "
        "optimizer state: 12GiB. Else in units of the blocks; in a shape 1 is one activation of a stage (in linear and "
        "zigzag half of one).",
        rich_help_panel=LIMIT_PANEL,
    ),
]
_Solver = Annotated[
    str,
    typer.Option(metavar="NAME", help="The method; `--solver help` lists them.", rich_help_panel=SEARCH_PANEL),
]
_Gap = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE",
        help="Stop when no schedule can be better by more than this, e.g. 1%. Exit code 5 if not reached.",
        rich_help_panel=SEARCH_PANEL,
    ),
]
_Time = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Time limit, e.g. 60s.  [default: until nothing improves, at most 60s]",
        rich_help_panel=SEARCH_PANEL,
    ),
]
_Work = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Limit of orders tried instead of time: the same call gives the same bytes on every machine.",
        rich_help_panel=SEARCH_PANEL,
    ),
]
_Seed = Annotated[
    int,
    typer.Option(metavar="N", min=0, max=2**31 - 1, help="Seed of everything random.", rich_help_panel=SEARCH_PANEL),
]
_Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the chosen solver. May be repeated.",
        rich_help_panel=SEARCH_PANEL,
    ),
]
_Robust = Annotated[
    bool,
    typer.Option(
        "--robust",
        help="Choose the order that is shortest in 95 of 100 runs where times vary.",
        rich_help_panel=NOISE_PANEL,
    ),
]
_Noise = Annotated[
    float,
    typer.Option(
        metavar="SIGMA",
        min=0,
        max=2,
        help="With --robust: how much times vary (sigma of the log-normal noise).",
        rich_help_panel=NOISE_PANEL,
    ),
]
_Straggler = Annotated[
    float,
    typer.Option(
        metavar="FACTOR",
        min=1,
        max=100,
        help="With --robust: how much slower one device may be.",
        rich_help_panel=NOISE_PANEL,
    ),
]
_Links = Annotated[
    bool,
    typer.Option("--links", help="Show rows of links too, also where they are idle.", rich_help_panel=OUTPUT_PANEL),
]
_Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the schedule here.", rich_help_panel=OUTPUT_PANEL),
]


def schedule(
    shape: _Shape = None,
    *,
    devices: _Devices = 4,
    plan: _Plan = None,
    blocks: _Blocks = None,
    micro_batches: _MicroBatches = None,
    train: _Train = True,
    split: _Split = False,
    recompute: _Recompute = False,
    objective: _Objective = "makespan",
    period: _Period = None,
    sweep_memory: _SweepMemory = None,
    memory: _Memory = None,
    solver: _Solver = "auto",
    gap: _Gap = None,
    proof: Proof = None,
    time: _Time = None,
    work: _Work = None,
    seed: _Seed = 0,
    setting: _Setting = None,
    robust: _Robust = False,
    noise: _Noise = 0.1,
    straggler: _Straggler = 1.2,
    links: _Links = False,
    output: _Output = None,
    json: JsonFlag = False,
) -> None:
    """Decide in what order each device works on many micro-batches.

    Prints how long all of them take, how much shorter any other order could be at most, and the pattern that repeats.

    weftline schedule --shape vshape --devices 4 --micro-batches 16 --memory 4 -o sched.json
    """
    from weftline.ask.micro_batches import answer_memory, answer_schedule, resolve_blocks
    from weftline.ask.request import ScheduleRequest, read_memory
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
    if (split or recompute) and (plan is None or not train):
        raise UsageError("--split-backward and --recompute are for training by a plan: --plan plan.json --train")
    request = ScheduleRequest(
        blocks=blocks if shape is None else make_shape(shape, devices, train=train),
        plan=plan,
        micro_batches=micro_batches,
        memory=None if memory is None else read_memory(memory, plan is not None, "--memory "),
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
        proof=read_seconds(proof),
        settings=read_settings(setting or []),
        argv=tuple(call_arguments()),
    )
    found = resolve_blocks(request)
    with progress(f"scheduling {found.blocks.name}", bare=plan is None) as tell:
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
        _show(answer, output, links=links)
    if asked_gap is not None and answer.gap > asked_gap:
        typer.echo(
            f"the gap is {answer.gap:.2%}, not the asked {asked_gap:.2%}: stopped by {answer.stopped_by}", err=True
        )
        raise typer.Exit(5)


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
    show_names(entries)


def _show(answer: Schedule, output: Path | None, *, links: bool) -> None:
    from weftline.plans.schedule_story import schedule_advice, schedule_words
    from weftline.report.tables import gantt, left_out, schedule_table

    out = console()
    if sentence := schedule_advice(answer):
        show(sentence, "")
    show(f"{answer.name}: {len(answer.blocks.blocks)} blocks, {answer.micro_batches} micro-batches", "")
    for line in gantt(answer, out.width, colour=out.color_system is not None and not out.no_color, links=links):
        out.print(line)
    show("", schedule_table(answer, links=links))
    if not links and (sentence := left_out(answer)):
        show(sentence)
    show("", *schedule_words(answer))
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
