"""Unequal devices: the presets and models of the zoo, planned beside even split, greedy, one device and replicas.

Out: one row per model and preset. Replicas answer another question, but a user wants to know when they win.
"""

from __future__ import annotations

import sys
from functools import partial

from benchmarks.planned import Row, plan_row
from benchmarks.results_file import Collector
from weftline.cluster import Cluster
from weftline.cluster.model import preset_names
from weftline.errors import InfeasibleError
from weftline.problem import asked_rules, build_problem
from weftline.zoo import zoo_graph

__all__ = ["measure_unequal", "unequal_settings"]

MODELS = {
    "resnet50": ("resnet50", "full"),
    "bert": ("bert", "full"),
    "gpt2": ("gpt2", "full"),
    "moe": ("moe", "full"),
    "gpt 6.7b": ("gpt2", "6.7b"),
}
"""Name on the page -> architecture, size; the last one is too large for most single devices."""
SIZES: dict[str, Row] = {
    "tiny": {"pairs": [["resnet50", "laptop"]], "time_limit": 0.5},
    "quick": {
        "pairs": [["resnet50", "laptop"], ["gpt2", "four-unequal"], ["gpt 6.7b", "two-servers"]],
        "time_limit": 6.0,
    },
    "full": {"pairs": [[model, cluster] for model in MODELS for cluster in preset_names()], "time_limit": 30.0},
}


def unequal_settings(size: str, time_limit: float | None) -> Row:
    """Models, clusters and seconds of a run."""
    chosen = SIZES[size]
    return {**chosen, "time_limit": time_limit or chosen["time_limit"]}


def measure_unequal(settings: Row, collect: Collector) -> None:
    """All rows."""
    for model, cluster in settings["pairs"]:
        print(f"unequal: {model} on {cluster}", file=sys.stderr, flush=True)
        key = {"model": model, "cluster": cluster, "instance": f"{model} on {cluster}"}
        collect.measure(key, partial(_row, model, cluster, settings["time_limit"]))


def _row(model: str, cluster: str, time_limit: float) -> Row:
    name, size = MODELS[model]
    preset = Cluster.preset(cluster)
    shape = {"devices": len(preset.devices)}
    try:
        problem = build_problem(zoo_graph(name, size=size), preset, rules=asked_rules({"objective": "throughput"}))
    except InfeasibleError as error:
        note = str(error).splitlines()[0][:120]
        return {**shape, "value_ns": None, "note": note, "seconds": 0.0, "time_limit": time_limit}
    return {**shape, **plan_row(problem, time_limit=time_limit)}
