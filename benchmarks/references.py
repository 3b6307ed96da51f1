"""Values that others have proved, reached or not: the graphs published with Tarnawski et al. 2020.

Two tables: the plain partition problem (no CPU, no memory limit, no colours) for k = 2, 4, 8, 16, and the files' own
problem with their CPUs, memory and colours. The known optima are rounded as they were published, in milliseconds.
"""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from benchmarks.instances import FIDDLE, data_folder
from benchmarks.paper import SHARED, shared_graph
from benchmarks.planned import Row, plan_row
from benchmarks.results_file import Collector
from weftline.problem import Problem, load_problem

__all__ = ["measure_references", "reference_settings"]

STAGES = (2, 4, 8, 16)
PLAIN = {
    "layer_bert24": (47.479, 24.917, 14.204, 7.1959),
    "layer_gnmt": (93.194, 47.161, 25.85, 24.788),
    "layer_resnet50": (101.28, 50.99, 26.761, 18.998),
    "op_bert_l-3": (33.257, 27.186, 27.186, 27.186),
    "op_bert_l-6": (46.285, 27.186, 27.186, 27.186),
    "op_resnet50": (165.88, 92.629, 89.311, 89.311),
}
"""Optima for k = 2, 4, 8, 16."""
THEIR_SECONDS = {
    "layer_bert24_inference": 0.01,
    "layer_bert24_training": 0.02,
    "layer_gnmt_inference": 29,
    "layer_resnet50_inference": 0.2,
    "op_bert_l-3_inference": 0.9,
    "op_bert_l-3_training": 40,
    "op_bert_l-6_inference": 20,
    "op_resnet50_inference": 0.8,
}
"""Of the authors' dynamic program, measured once on a core like ours."""
MILLISECOND = 10**6
SIZES: dict[str, Row] = {
    "tiny": {"plain": ["layer_bert24"], "own": ["layer_bert24_inference"], "plain_limit": 2.0, "own_limit": 2.0},
    "quick": {"plain": list(SHARED), "own": list(FIDDLE), "plain_limit": 20.0, "own_limit": 60.0},
}
SIZES["full"] = SIZES["quick"]


def reference_settings(size: str, time_limit: float | None) -> Row:
    """Files and seconds of a run; a time limit that is asked for holds for both tables."""
    chosen = SIZES[size]
    limits = {name: time_limit or chosen[name] for name in ("plain_limit", "own_limit")}
    return {**chosen, **limits}


def measure_references(settings: Row, collect: Collector) -> None:
    """All rows; nothing where the files are not on this machine."""
    folder = data_folder() / "fiddle" / "throughput"
    if not folder.is_dir():
        return
    for name in settings["plain"]:
        for stages, known in zip(STAGES, PLAIN[name], strict=True):
            print(f"fiddle: {name}, k = {stages}", file=sys.stderr, flush=True)
            key = {"table": "plain", "instance": name, "stages": stages}
            make = partial(shared_graph, folder / f"{name}_inference.json", stages)
            collect.measure(key, partial(_row, make, known, settings["plain_limit"]))
    for name in settings["own"]:
        print(f"fiddle: {name}, own limits", file=sys.stderr, flush=True)
        key = {"table": "own", "instance": name, "stages": 0}
        make = partial(_own, folder / f"{name}.json")
        collect.measure(key, partial(_row, make, FIDDLE[name], settings["own_limit"], THEIR_SECONDS[name]))


def _own(path: Path) -> Problem:
    return load_problem(path, rules={"objective": "throughput"})[0]


def _row(make: partial[Problem], known: float, time_limit: float, their_seconds: float | None = None) -> Row:
    reference = round(known * MILLISECOND)
    return {
        **plan_row(make(), time_limit=time_limit),
        "reference_ns": reference,
        "their_seconds": their_seconds,
    }
