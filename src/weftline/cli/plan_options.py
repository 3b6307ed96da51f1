"""The options of `weftline plan`, each with its help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "Calibrate",
    "Cluster",
    "Coarsen",
    "Communication",
    "Costs",
    "Gap",
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
    "SweepStages",
    "Time",
    "Transfers",
    "Without",
    "Work",
]

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
