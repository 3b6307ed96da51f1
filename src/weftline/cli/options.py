"""Words of the command line -> values: settings, shares, times; and the options of `weftline plan` with their help."""

from __future__ import annotations

import re
from pathlib import Path
from time import monotonic, time
from typing import Annotated, Literal

import typer

from weftline.errors import InputError, UsageError
from weftline.units import parse_ratio, parse_time

__all__ = [
    "Calibrate",
    "Cluster",
    "Coarsen",
    "Communication",
    "Costs",
    "Dim",
    "Gap",
    "Keep",
    "Measurements",
    "Memory",
    "Model",
    "Objective",
    "Output",
    "Polish",
    "Preset",
    "Reward",
    "Runtime",
    "Seed",
    "Setting",
    "Shape",
    "SolverName",
    "Stages",
    "Strict",
    "SweepStages",
    "Time",
    "Transfers",
    "Without",
    "Work",
    "process_begun",
    "read_gap",
    "read_rule_and_runtimes",
    "read_runtimes",
    "read_seconds",
    "read_settings",
]

OLD_SECONDS = 20.0
"""Seconds; a process that is older was not started for one command."""


def read_settings(words: list[str], **named: str | None) -> dict[str, str]:
    """`levels=2` -> {"levels": "2"}, with those that have an option of their own."""
    return _pairs(words, "--set", "levels=2") | {name: value for name, value in named.items() if value is not None}


def read_runtimes(words: list[str]) -> dict[str, str]:
    """`gpu0=openvino:GPU.1` -> {"gpu0": "openvino:GPU.1"}."""
    return _pairs(words, "--runtime", "gpu0=openvino:GPU.1")


def read_rule_and_runtimes(words: list[str]) -> tuple[str | None, dict[str, str]]:
    """`sequential` and `gpu0=openvino:GPU.1` -> ("sequential", {"gpu0": "openvino:GPU.1"}); the last rule counts."""
    rules = [word for word in words if "=" not in word]
    for word in rules:
        if word not in ("parallel", "sequential"):
            raise UsageError(f"--runtime {word[:60]!r} is neither parallel, sequential, nor like gpu0=openvino:GPU.1")
    return rules[-1] if rules else None, read_runtimes([word for word in words if "=" in word])


def _pairs(words: list[str], option: str, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition("=")
        if not (name and value):
            raise UsageError(f"{option} {word!r} makes no sense; write it like {example}")
        found[name] = value
    return found


def read_seconds(word: str | None) -> float | None:
    """`60s`, `1.5 min`, or a bare number of seconds."""
    if word is None:
        return None
    try:
        return parse_time(f"{word} s" if re.fullmatch(r"[\d.]+", word) else word) / 1e9
    except InputError as error:
        raise UsageError(f"--time: {error}") from error


def read_gap(word: str | None) -> float | None:
    """`1%` or `0.01`."""
    try:
        found = None if word is None else parse_ratio(word)
    except InputError as error:
        raise UsageError(f"--gap: {error}") from error
    if found is not None and found >= 1:
        raise UsageError(f"--gap {word} is a gap of {found:.0%}; write 1% or 0.01 for one per cent")
    return found


def process_begun() -> float:
    """When this process was started, on the clock of `time.monotonic`: a time limit is for the whole command.

    Now, if that is so long ago that the process was not started for this command.
    """
    import psutil

    age = max(0.0, time() - float(psutil.Process().create_time()))
    return monotonic() - (age if age < OLD_SECONDS else 0.0)


Model = Annotated[
    Path | None,
    typer.Argument(
        metavar="MODEL",
        help="ONNX model, OpenVINO IR (.xml), weftline JSON, msr-fiddle or Moirai JSON, Moirai .xls, REGAL cost graph; "
        "or zoo:NAME, zoo:NAME:SIZE: an architecture of `weftline zoo`.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster", "-c", metavar="FILE|PRESET", help="Cluster file (TOML) or preset; see: weftline cluster presets."
    ),
]
Costs = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Measured times of this model on this cluster, written by: weftline profile. Kernels are not cut.  "
        "[default: estimated from the devices' rates]",
    ),
]
Calibrate = Annotated[
    bool,
    typer.Option(
        "--calibrate",
        help="With --costs: measure the stages (latency: the segments) of the plan on this machine, correct the costs "
        "by that, plan again; up to three times. The best by what was measured is kept.",
    ),
]
Objective = Annotated[
    Literal["latency", "throughput"] | None,
    typer.Option(help="Make one input fast, or let many inputs flow fast.  [default: latency]"),
]
Stages = Annotated[
    str | None,
    typer.Option(
        metavar="K|auto",
        help="Throughput: use at most K devices (problem files: K accelerators); auto: try every number, and say "
        "which is best.",
    ),
]
SweepStages = Annotated[
    str | None,
    typer.Option(metavar="A..B|K,K...", help="Throughput: like --stages auto, for these numbers: 1..8 or 1,2,4,8."),
]
SolverName = Annotated[str, typer.Option(metavar="NAME", help="Name of a solver; `--solver help` lists them.")]
Gap = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE",
        help="Stop when this close to the bound, e.g. 1%. Exit code 5 if not reached.  "
        "[default: 0.01%, without an exit code]",
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Time limit of the whole command, e.g. 60s.  [default: 60s, unless --work is given; 600s with --reward "
        "measured]",
    ),
]
Work = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Limit of candidates costed: with it the same call gives the same bytes."),
]
Seed = Annotated[int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Seed of everything random.")]
Shape = Annotated[
    list[str] | None,
    typer.Option(metavar="INPUT=SHAPE", help="Set an input's symbolic dimensions: input=1x3x224x224. May be repeated."),
]
Dim = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=N",
        help="Set a symbolic dimension of an ONNX model, wherever it stands: batch=8. May be repeated.",
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Refuse a model some of whose dimensions cannot be computed, instead of guessing."),
]
Runtime = Annotated[
    list[str] | None,
    typer.Option(
        metavar="parallel|sequential|DEVICE=RUNTIME",
        help="Latency: devices at the same time, or one after another  [default: parallel; sequential with --reward "
        "measured]. With --reward measured also, for each device, what stands for it on this machine, e.g. "
        "gpu0=openvino:GPU.1; a second CPU is openvino:CPU2. May be repeated.",
    ),
]
Transfers = Annotated[
    Literal["per-tensor", "per-edge"] | None,
    typer.Option(help="Send a tensor once per device, or once per consumer.  [default: the file's rule]"),
]
Communication = Annotated[
    Literal["added", "overlapped"] | None,
    typer.Option(help="Throughput: transfers add to compute, or hide behind it.  [default: added]"),
]
Memory = Annotated[
    Literal["dynamic", "static"] | None,
    typer.Option(help="Live activations over time, or the plain sum.  [default: the file's rule]"),
]
Without = Annotated[
    str, typer.Option(metavar="LIMITS", help="Limits to drop, comma-separated: cpus, memory, together.")
]
Keep = Annotated[
    Literal["layers"] | None,
    typer.Option(
        help="Keep every layer whole on one device: numbered blocks by their names, else sub-graphs that repeat.",
    ),
]
Coarsen = Annotated[
    Literal["none", "gcof", "oracle", "chains", "coplace"],
    typer.Option(
        help="Latency: join ops before the search. gcof: what the devices' backends fuse, by rules; oracle: what ONNX "
        "Runtime fuses in this model (both: no plan cuts a fused kernel, and it costs what one kernel costs). chains: "
        "ops in a row; coplace: an op and its only reader (both: only the search becomes smaller).",
    ),
]
Preset = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Solver hsdag: paper (as published) or weftline.  [default: weftline]"),
]
Polish = Annotated[
    str | None,
    typer.Option(
        metavar="TIME|on|off",
        help="Solvers hsdag, placeto, rnn: anneal the result for so long, e.g. 5s; on: for the time left; or off.",
    ),
]
Reward = Annotated[
    Literal["simulated", "measured"],
    typer.Option(
        help="Latency: what decides which placement is best. simulated: the one simulator. measured: candidates are "
        "run for real by OpenVINO's HETERO, in turns with one device; policy and other solvers propose, hsdag and rnn "
        "learn from the measurements. The plan is the best measured; its value is still the simulator's.",
    ),
]
Measurements = Annotated[
    int | None,
    typer.Option(
        metavar="N", min=1, max=100_000, help="With --reward measured: how many placements are run.  [default: 60]"
    ),
]
Setting = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="NAME=VALUE", help="A setting of the solver's own. May be repeated."),
]
Output = Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the plan here.")]
