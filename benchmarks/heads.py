"""Encoder-decoders with one op per head: `auto` beside its parts, all with the same time, on instances drawn by seed.

In: seeds, how dear transfers are, seconds. Out: one row per instance and solver: value, bound, seconds. One op feeds
most of the decoder here, so that no chain of ops cuts the graph. Simplified: costs are drawn, per-edge transfers.
"""

from __future__ import annotations

import sys
import tempfile
from functools import partial
from pathlib import Path

import msgspec

from benchmarks.placement import Question, placement_row
from benchmarks.planned import Row
from benchmarks.results_file import Collector
from weftline.latency import solvers
from weftline.latency.prepare import prepare
from weftline.papers.moirai.heads import heads_file
from weftline.problem import Problem, load_problem

__all__ = ["heads_settings", "measure_heads"]

SOLVERS = ("auto", "anneal", "heft", "single-device")
INSTANCES: dict[str, Row] = {
    "dear transfers": {"seed": 11, "activation": 0.9},
    "cheap transfers": {"seed": 13, "activation": 0.45},
    "keys and values of the encoder": {"seed": 15, "activation": 0.9, "queries_from_encoder": False},
}
SIZES: dict[str, Row] = {
    "tiny": {"instances": {"small": {"seed": 1, "layers": 1, "heads": 2}}, "time_limit": 0.5},
    "quick": {"instances": {"dear transfers": INSTANCES["dear transfers"]}, "time_limit": 30.0},
    "full": {"instances": INSTANCES, "time_limit": 120.0},
}


def heads_settings(size: str, time_limit: float | None) -> Row:
    """Instances and seconds of a run."""
    return {**SIZES[size], "time_limit": time_limit or SIZES[size]["time_limit"]}


def measure_heads(settings: Row, collect: Collector) -> None:
    """All rows, instance by instance."""
    prepare()
    for name, options in settings["instances"].items():
        print(f"heads: {name}", file=sys.stderr, flush=True)
        question = Question("drawn", name, partial(_problem, options))
        for solver in SOLVERS:
            key = {"instance": name, "solver": solver}
            collect.measure(key, partial(placement_row, question, solvers()[solver], settings["time_limit"]))


def _problem(options: Row) -> Problem:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "heads.json"
        path.write_bytes(msgspec.json.encode(heads_file(**options)))
        return load_problem(path, rules={"objective": "latency"})[0]
