"""How fast weftline itself is: the simulator, large files, the start of a process, the independent checker.

In: sizes and repeats. Out: one dictionary with a part for each (no rows). Each part stands beside the least that
anybody would have to do (parse the JSON, parse the protobuf, start Python), in the same run; the checker stands beside
its own growth.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.clock import Prepare, best_median, exponent, interleaved, on_one_core
from benchmarks.measure import say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields
from benchmarks.sections.speed_simulator import SEED, layered_problem, measure_growth, measure_simulator
from weftline.ask import make_plan
from weftline.certify import check_plan, read_plan
from weftline.graph import graph_from_json, graph_to_json
from weftline.importers import read_file
from weftline.units import format_time
from weftline.zoo import build, save, synthetic

__all__ = ["SECTION"]

SIZES: dict[str, Row] = {
    "tiny": {
        "simulator": {"ops": 100, "batch": 200, "plain": 5, "reference": 1, "repeats": 3},
        "growth": {"sizes": (200, 400, 800), "work": 4_000, "repeats": 3},
        "files": {"graph_ops": 1_000, "onnx_nodes": 200, "repeats": 1},
        "check": {"sizes": (50, 100), "repeats": 1},
    },
    "full": {
        "simulator": {"ops": 1000, "batch": 1200, "plain": 20, "reference": 1, "repeats": 20},
        "growth": {"sizes": (1_000, 3_000, 10_000, 30_000, 100_000), "work": 300_000, "repeats": 15},
        "files": {"graph_ops": 100_000, "onnx_nodes": 10_000, "repeats": 10},
        "check": {"sizes": (300, 1_000, 3_000, 10_000), "repeats": 5},
    },
}
NODES_PER_LAYER = 34
"""Of the zoo's gpt2, roughly; the exact number of nodes is reported."""


def measure(settings: Row, _: Collector) -> Row:
    """All parts, one after another, on one core."""
    parts: dict[str, Callable[..., object]] = {
        "simulator": measure_simulator,
        "growth": measure_growth,
        "files": measure_files,
        "check": measure_check,
    }
    found: Row = {}
    with on_one_core() as pinned:
        for name, part in parts.items():
            say(f"speed: {name}")
            found[name] = part(**settings[name])
    return {"pinned": pinned, **found}


def measure_files(*, graph_ops: int, onnx_nodes: int, repeats: int) -> list[dict[str, Any]]:
    """Rows: what, size, seconds, and the seconds of the least that it could take."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [_graph_file(graph_ops, repeats), _onnx_file(Path(folder), onnx_nodes, repeats), _help(repeats)]
    return rows


def _graph_file(ops: int, repeats: int) -> dict[str, Any]:
    data = graph_to_json(synthetic("layered", ops=ops, seed=SEED))
    size = f"{ops:,} ops, {len(data) / 2**20:.1f} MiB"
    return _compare(
        f"graph JSON: read and check ({size})",
        _plain(partial(graph_from_json, data)),
        "json.loads",
        _plain(partial(json.loads, data)),
        repeats,
    )


def _onnx_file(folder: Path, nodes: int, repeats: int) -> dict[str, Any]:
    import onnx

    path = folder / "model.onnx"
    model = build("gpt2", weights=False, layers=max(1, nodes // NODES_PER_LAYER))
    save(model, path)
    size = f"{len(model.graph.node):,} nodes, {path.stat().st_size / 2**20:.1f} MiB"
    return _compare(
        f"ONNX: import, shapes, FLOP, traffic ({size})",
        _plain(partial(read_file, path)),
        "onnx.load",
        _plain(partial(onnx.load, path, load_external_data=False)),
        repeats,
    )


def _help(repeats: int) -> dict[str, Any]:
    script = "from weftline.cli import main; main()"
    call = partial(subprocess.run, check=True, capture_output=True)
    return _compare(
        "weftline --help: whole process",
        _plain(partial(call, [sys.executable, "-c", script, "--help"])),
        "python -c pass",
        _plain(partial(call, [sys.executable, "-c", "pass"])),
        repeats,
        wall=True,
    )


def _plain(action: Callable[[], object]) -> Prepare:
    return lambda: action


def _compare(
    what: str, ours: Prepare, against: str, least: Prepare, repeats: int, *, wall: bool = False
) -> dict[str, Any]:
    interleaved({"ours": ours, "least": least}, 1)  # caches of the file system, lazy imports
    seconds = interleaved({"ours": ours, "least": least}, repeats, wall=wall)
    mine, other = best_median(seconds["ours"]), best_median(seconds["least"])
    return {"what": what, "seconds": mine, "against": against, "against_seconds": other, "ratio": mine / other}


def measure_check(sizes: tuple[int, ...], *, repeats: int) -> dict[str, Any]:
    """Seconds of the independent checker (parsing the plan included) over the number of ops; latency plans by HEFT."""
    actions: dict[str, Prepare] = {}
    bytes_of = {}
    with tempfile.TemporaryDirectory() as folder:
        for ops in sizes:
            path = Path(folder) / f"{ops}.json"
            make_plan(layered_problem(ops), solver="heft", work_limit=2).save(path)
            bytes_of[ops] = path.stat().st_size
            actions[str(ops)] = _plain(partial(_check, str(path)))
        seconds = interleaved(actions, repeats)
    rows: list[dict[str, Any]] = []
    for ops in sizes:
        taken = best_median(seconds[str(ops)])
        rows.append({"ops": ops, "plan_bytes": bytes_of[ops], "seconds": taken, "us_per_op": taken * 1e6 / ops})
    times = [row["seconds"] for row in rows]
    return {"rows": rows, "exponent_of_n": exponent([float(n) for n in sizes], times), "repeats": repeats}


def _check(path: str) -> None:
    check_plan(read_plan(path))


KERNEL = "evaluate, latency"
KERNEL_MEMORY = "evaluate, latency with memory peaks"
PLAIN = "plain Python, latency"
REFERENCE = "reference, latency with memory peaks"


def _rates(run: Run) -> dict[str, float]:
    return {row["what"]: row["per_second"] for row in run.more["simulator"]["rows"]}


def _goal(run: Run) -> str:
    simulator = run.more["simulator"]
    if (simulator["ops"], simulator["devices"]) != (1000, 4):
        return "not asked"
    return "reached" if _rates(run)[KERNEL] >= simulator["goal_per_second"] else "missed"


def _method(run: Run) -> Iterator[str]:
    pinned = "pinned to one core" if run.more["pinned"] else "not pinned to a core (the system does not allow it)"
    yield (
        f"Processor time of one process, {pinned}; on an idle machine that is wall time. What is compared "
        "takes turns, repeat by repeat; a number is the smallest of the medians of five repeats each. Ratios carry "
        "over to other machines better than the numbers do; other work on the machine makes both worse or noisy."
    )


def _simulator_text(run: Run) -> Iterator[str]:
    rate, simulator = _rates(run), run.more["simulator"]
    shape = f"{simulator['ops']:,} ops, {simulator['edges']:,} edges, {simulator['devices']} devices"
    yield "## Simulator"
    yield (
        f"Evaluations per second of random placements, no placement twice, one core ({shape}; layered graph on the "
        f"preset four-unequal). The goal of {simulator['goal_per_second']:,}/s for 1,000 ops was **{_goal(run)}** in "
        f"this run ({rate[KERNEL]:,.0f}/s at {simulator['ops']:,} ops). In the same run, on the same placements: "
        f"**{rate[KERNEL] / rate[PLAIN]:.0f} times** plain Python that is linear in the edges, and "
        f"{rate[KERNEL_MEMORY] / rate[REFERENCE]:,.0f} times the reference simulator, which also finds memory peaks, "
        "was written to be obviously right and takes quadratic time, so this last ratio says little. Annealing and "
        "other incremental searches evaluate moves in other ways; they are not measured here."
    )


def _growth_text(run: Run) -> Iterator[str]:
    growth = run.more["growth"]
    yield "## Growth"
    yield (
        "Time of one latency evaluation over the size of the graph (same family, random placements). The fitted "
        f"exponent is **{growth['exponent_of_n_log_n']:.3f}** against n log n and {growth['exponent_of_n']:.3f} "
        "against n: 1 means that time grows exactly like that. Large graphs leave the caches, which the fit includes."
    )


def _check_text(run: Run) -> Iterator[str]:
    yield "## Checker"
    yield (
        "The independent checker (standard library alone, parsing included, start of the process not) on latency plans "
        "by HEFT for the same family of graphs. The fitted exponent against n is "
        f"{run.more['check']['exponent_of_n']:.3f}."
    )


def _losses(run: Run) -> Iterator[str]:
    if _goal(run) == "missed":
        goal = run.more["simulator"]["goal_per_second"]
        yield f"**Goal missed:** {_rates(run)[KERNEL]:,.0f} evaluations per second; the goal is {goal:,}."
    slow = [row for row in run.more["files"] if row["ratio"] > 2]
    if slow:
        yield "; ".join(f"{x['what']}: {x['ratio']:.1f} times as long as `{x['against']}`" for x in slow) + "."


def _time(seconds: float) -> str:
    return format_time(round(seconds * 1e9))


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} us"


RATES: Table[Row] = Table(
    (
        *fields("what | evaluations/s=per_second:,.0f"),
        Column("time of one", lambda row: 1 / row["per_second"], _microseconds),
    ),
    lambda run: run.more["simulator"]["rows"],
)
FILES: Table[Row] = Table(
    (
        Column("what", "what"),
        Column("time", "seconds", _time),
        Column("against", "against"),
        Column("its time", "against_seconds", _time),
        Column("ratio", "ratio", ".2f"),
    ),
    lambda run: run.more["files"],
)
SECTION = Section(
    name="speed",
    title="Speed",
    chapter="tool",
    asked="How many placements does the simulator cost per second, and how long do files and `--help` take beside the "
    "least that anybody would have to do for them? One core, warm.",
    sizes={**SIZES, "quick": SIZES["full"]},
    measure=measure,
    screen=(),
    losses=_losses,
    blocks=(
        _method,
        _simulator_text,
        RATES,
        _growth_text,
        Table(
            (
                *fields("ops:, | edges:,"),
                Column("one evaluation", "seconds", _microseconds),
                Column("ns per op", "ns_per_op", ".1f"),
            ),
            lambda run: run.more["growth"]["rows"],
        ),
        "## Files and start",
        "Time beside the least that anybody would have to do for it, in the same run, after one warm-up each; whole "
        "processes in wall time. First use after installation is slower: Python compiles modules, numba kernels.",
        FILES,
        _check_text,
        Table(
            (
                Column("ops", "ops", ","),
                Column("plan file", lambda row: f"{row['plan_bytes'] / 2**20:.2f} MiB"),
                Column("time", "seconds", _time),
                Column("us per op", "us_per_op", ".1f"),
            ),
            lambda run: run.more["check"]["rows"],
        ),
    ),
    limits=(),
    long=False,
)
