"""Words of the command line -> values: settings, shares, times; and the options of `weftline plan` with their help."""

from __future__ import annotations

from pathlib import Path
from time import monotonic, time
from typing import Annotated, Literal

import typer

from weftline.cli.output import OUTPUT_PANEL
from weftline.errors import InputError, UsageError
from weftline.units import parse_duration, parse_ratio

__all__ = [
    "AIM_PANEL",
    "LIMIT_PANEL",
    "MEASURED_PANEL",
    "MODEL_PANEL",
    "SEARCH_PANEL",
    "Calibrate",
    "Cluster",
    "Coarsen",
    "Communication",
    "Costs",
    "Dim",
    "For",
    "Gap",
    "Keep",
    "Measurements",
    "Memory",
    "Model",
    "Objective",
    "Output",
    "Polish",
    "Preset",
    "Proof",
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
    """`60s`, `10 sec`, `1.5 min`, or a bare number of seconds."""
    if word is None:
        return None
    try:
        return parse_duration(word)
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


MODEL_PANEL = "Model and cluster"
AIM_PANEL = "What to optimise"
LIMIT_PANEL = "Limits and rules"
SEARCH_PANEL = "Search"
MEASURED_PANEL = "Learned and measured placement"

Model = Annotated[
    Path | None,
    typer.Argument(
        metavar="MODEL",
        help="An ONNX model, OpenVINO IR (.xml) or weftline JSON; or zoo:NAME, an architecture of `weftline zoo`.",
    ),
]
Cluster = Annotated[
    str | None,
    typer.Option(
        "--cluster",
        "-c",
        metavar="FILE|PRESET",
        help="The devices: a cluster file (TOML) or a preset; see: weftline cluster presets.",
        rich_help_panel=MODEL_PANEL,
    ),
]
Costs = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="Times of this model measured on these devices, by `weftline profile`.  [default: estimated from the "
        "devices' rates]",
        rich_help_panel=MODEL_PANEL,
    ),
]
Shape = Annotated[
    list[str] | None,
    typer.Option(
        metavar="INPUT=SHAPE",
        help="The shape of an input that the file leaves open: input=8x3x224x224. May be repeated.",
        rich_help_panel=MODEL_PANEL,
    ),
]
Dim = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME=N",
        help="A dimension that an ONNX file leaves open, by its name, on all inputs: batch=8. May be repeated.",
        rich_help_panel=MODEL_PANEL,
    ),
]
Objective = Annotated[
    Literal["latency", "throughput"] | None,
    typer.Option(
        help="latency: the time from one input to its output. throughput: as many inputs per second as the whole "
        "cluster can.  [default: latency]",
        rich_help_panel=AIM_PANEL,
    ),
]
Stages = Annotated[
    str | None,
    typer.Option(
        metavar="K|auto",
        help="Throughput: one pipeline of at most K devices; auto tries every number and says which is best. With "
        "--copies auto: how many devices of the cluster are enough, and what one more brings.",
        rich_help_panel=AIM_PANEL,
    ),
]
MaxDepth = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Throughput: no input passes more than N devices in a row.",
        rich_help_panel=AIM_PANEL,
    ),
]
LatencyLimit = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Throughput: no input that is alone takes longer on its way, each op and transfer after the other: 5ms.",
        rich_help_panel=AIM_PANEL,
    ),
]
Copies = Annotated[
    str | None,
    typer.Option(
        metavar="N|auto",
        help="Throughput: auto: whole copies and pipelines side by side, what gives most; N: no part of the model is "
        "on more than N devices; 1: one pipeline.  [default: "
        "auto; 1 with --stages, --coarsen, --reward measured, --calibrate, a solver of pipelines, or a file that holds "
        "its own devices]",
        rich_help_panel=AIM_PANEL,
    ),
]
SweepStages = Annotated[
    str | None,
    typer.Option(
        metavar="A..B|K,K...",
        help="Throughput: like --stages auto, for these numbers: 1..8 or 1,2,4,8.",
        rich_help_panel=AIM_PANEL,
    ),
]
Without = Annotated[
    str,
    typer.Option(
        metavar="LIMITS",
        help="Limits to ignore, comma-separated: cpus (use none), memory, together.",
        rich_help_panel=LIMIT_PANEL,
    ),
]
Memory = Annotated[
    Literal["dynamic", "static"] | None,
    typer.Option(
        help="dynamic: an activation needs memory while it is in use; static: all of them all the time.  [default: "
        "dynamic, or the file's rule]",
        rich_help_panel=LIMIT_PANEL,
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Refuse a model some of whose dimensions cannot be computed, instead of guessing.",
        rich_help_panel=MODEL_PANEL,
    ),
]
Runtime = Annotated[
    list[str] | None,
    typer.Option(
        metavar="parallel|sequential|DEVICE=RUNTIME",
        help="Latency: devices work at the same time, or one after another  [default: parallel]. With --reward "
        "measured also what stands for a device here: gpu0=openvino:GPU.1. May be repeated.",
        rich_help_panel=LIMIT_PANEL,
    ),
]
Transfers = Annotated[
    Literal["per-tensor", "per-edge"] | None,
    typer.Option(
        help="A tensor is sent once to each device, or once to each op that reads it.  [default: per-tensor, or the "
        "file's rule]",
        rich_help_panel=LIMIT_PANEL,
    ),
]
Communication = Annotated[
    Literal["added", "overlapped"] | None,
    typer.Option(
        help="Throughput: a stage sends and computes in turn, or at the same time.  [default: added]",
        rich_help_panel=LIMIT_PANEL,
    ),
]
SolverName = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="The method; `--solver help` lists them, with --objective those for it.",
        rich_help_panel=SEARCH_PANEL,
    ),
]
Time = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Time limit of the whole command but --proof: 60s, 5min.  [default: 60s, unless --work is given]",
        rich_help_panel=SEARCH_PANEL,
    ),
]
Proof = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="After the search, for proofs that `verify` can repeat; 0 for none.  [default: 10s, or --time if that is "
        "less; none with --work]",
        rich_help_panel=SEARCH_PANEL,
    ),
]
Gap = Annotated[
    str | None,
    typer.Option(
        metavar="SHARE",
        help="Stop when no plan can be better by more than this, e.g. 1%. Exit code 5 if not reached.  [default: "
        "0.01%, without an exit code]",
        rich_help_panel=SEARCH_PANEL,
    ),
]
Work = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="Limit of plans tried instead of time: the same call gives the same bytes on every machine.",
        rich_help_panel=SEARCH_PANEL,
    ),
]
Seed = Annotated[
    int,
    typer.Option(metavar="N", min=0, max=2**31 - 1, help="Seed of everything random.", rich_help_panel=SEARCH_PANEL),
]
Keep = Annotated[
    Literal["layers"] | None,
    typer.Option(
        help="Keep every layer whole on one device: numbered blocks by their names, else sub-graphs that repeat.",
        rich_help_panel=LIMIT_PANEL,
    ),
]
For = Annotated[
    Literal["vllm", "megatron", "llamacpp", "accelerate"] | None,
    typer.Option(
        "--for",
        help="Who will run the plan: whole layers, in a row and without CPUs where it needs that. Then: export --to.",
        rich_help_panel=LIMIT_PANEL,
    ),
]
Coarsen = Annotated[
    Literal["none", "gcof", "oracle", "chains", "coplace"],
    typer.Option(
        help="Latency: join ops before the search. gcof, oracle: those that run as one kernel (by rules, or by what "
        "ONNX Runtime does); chains, coplace: only to make the search smaller.",
        rich_help_panel=SEARCH_PANEL,
    ),
]
Setting = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A setting of the chosen solver, e.g. with --solver hsdag: preset=paper. May be repeated.",
        rich_help_panel=SEARCH_PANEL,
    ),
]
Preset = Annotated[str | None, typer.Option(metavar="NAME", help="The same as --set preset=NAME.", hidden=True)]
Polish = Annotated[str | None, typer.Option(metavar="TIME|on|off", help="The same as --set polish=TIME.", hidden=True)]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the plan here.", rich_help_panel=OUTPUT_PANEL),
]
Reward = Annotated[
    Literal["simulated", "measured"],
    typer.Option(
        help="Latency: how candidates are judged. simulated: by the cost model. measured: by running them with "
        "OpenVINO on this machine; the fastest one is kept.",
        rich_help_panel=MEASURED_PANEL,
    ),
]
Measurements = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=100_000,
        help="With --reward measured: how many candidates are run.  [default: 60, within 600s]",
        rich_help_panel=MEASURED_PANEL,
    ),
]
Calibrate = Annotated[
    bool,
    typer.Option(
        "--calibrate",
        help="With --costs: run the parts of the plan on this machine, correct the costs by that, plan again, up to "
        "three times; the best by what was measured is kept.",
        rich_help_panel=MEASURED_PANEL,
    ),
]
