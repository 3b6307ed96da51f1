"""The questions that every solver is asked: files that other people published (if present), the zoo, synthetic graphs.

In: WEFTLINE_DATA, which names the folder of the files. Out: instances, and clusters of equal devices. Each instance is
a name and a function that makes its Problem, so that nothing is read before it is needed. `reference_ns` is a value
from outside: the optimum that is known for the file, rounded as it was published.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec

from weftline.cluster import Cluster, Link
from weftline.cost import devices_of_file, expand_file_costs
from weftline.problem import Problem, Rules, asked_rules, build_problem, load_problem
from weftline.zoo import regal_costs, synthetic, zoo_graph

__all__ = ["FAMILIES", "FIDDLE", "FLAT", "MOIRAI", "Instance", "data_folder", "flat_cluster", "instances", "on_preset"]

MOIRAI = {"example-1": 30.0, "GoogLeNet": 1.27811, "yolov5x": 23.745}
"""Seconds: optima of the sample instances published with Moirai, for one transfer per edge and ports."""

FIDDLE = {
    "layer_bert24_inference": 17.7899,
    "layer_bert24_training": 41.7458,
    "layer_gnmt_inference": 32.9107,
    "layer_resnet50_inference": 33.7747,
    "op_bert_l-3_inference": 27.9186,
    "op_bert_l-3_training": 65.3031,
    "op_bert_l-6_inference": 29.5795,
    "op_resnet50_inference": 124.349,
}
"""Milliseconds: optima by the dynamic program of Tarnawski et al. 2020 over contiguous partitions."""

ZOO_LATENCY = (
    ("resnet50", "laptop"), ("inception-v3", "laptop"), ("inception-v3", "four-unequal"), ("mobilenet-v3", "edge"),
    ("unet", "two-gpus"), ("bert", "four-unequal"), ("gpt2", "laptop"), ("mt5", "two-gpus"), ("flava", "two-gpus"),
    ("flava", "four-unequal"), ("swin", "edge"), ("moe", "four-unequal"),
)  # fmt: skip
ZOO_THROUGHPUT = (
    ("resnet50", "eight-gpus"), ("inception-v3", "four-unequal"), ("mobilenet-v3", "edge"), ("unet", "laptop"),
    ("bert", "eight-gpus"), ("bert", "two-gpus"), ("gpt2", "four-unequal"), ("mt5", "eight-gpus"),
    ("flava", "laptop"), ("swin", "edge"), ("moe", "eight-gpus"), ("moe", "two-gpus"),
)  # fmt: skip
SYNTHETIC_LATENCY = (
    ("layered", 400, "four-unequal"), ("series_parallel", 200, "laptop"), ("transformer_like", 300, "two-gpus"),
    ("erdos_renyi", 100, "units"), ("barabasi_albert", 100, "units"),
)  # fmt: skip
SYNTHETIC_THROUGHPUT = (
    ("chain", 200, "eight-gpus"), ("layered", 400, "four-unequal"), ("transformer_like", 300, "eight-gpus"),
    ("watts_strogatz", 100, "units"), ("block_model", 100, "units"),
)  # fmt: skip
FLAT = "eight-gpus"
"""The preset whose GPU and link are copied for k equal devices."""
UNIT_DEVICES = 4
SYNTHETIC_SEED = 7


@dataclass(frozen=True)
class Instance:
    """One question."""

    family: str
    name: str
    make: Callable[[], Problem]
    reference_ns: int | None = None
    """A value known from outside."""


FAMILIES = {
    "moirai": "Sample instances published with Moirai (latency, one transfer per edge, static memory).",
    "fiddle": "Inputs published with Tarnawski et al. 2020 (throughput, the files' own accelerators, CPUs and memory).",
    "zoo-latency": "Architectures of the zoo on preset clusters, analytic costs, latency.",
    "zoo-throughput": "Architectures of the zoo on preset clusters, analytic costs, throughput.",
    "synthetic-latency": "Synthetic graphs; `units` means four equal devices with REGAL's unit costs.",
    "synthetic-throughput": "Synthetic graphs as pipelines; `units` means four equal devices with REGAL's unit costs.",
}


def instances(*, quick: bool = False) -> list[Instance]:
    """All instances in the order of the page; `quick` takes the first of each list, at small size."""
    zoo = ("zoo", "latency", ZOO_LATENCY), ("zoo", "throughput", ZOO_THROUGHPUT)
    drawn = ("synthetic", "latency", SYNTHETIC_LATENCY), ("synthetic", "throughput", SYNTHETIC_THROUGHPUT)
    found = list(_files(quick))
    for family, objective, pairs in zoo:
        for model, cluster in pairs[: 1 if quick else None]:
            make = partial(on_preset, model, cluster, objective, "small" if quick else "full")
            found.append(Instance(f"{family}-{objective}", f"{model} on {cluster}", make))
    for family, objective, triples in drawn:
        for kind, ops, cluster in triples[:1] + triples[-1:] if quick else triples:
            count = ops // 10 if quick else ops
            make = partial(_synthetic, kind, count, cluster, objective)
            found.append(Instance(f"{family}-{objective}", f"{kind} {count} on {cluster}", make))
    return found


def data_folder() -> Path:
    """Where files of others are looked for."""
    default = Path(__file__).resolve().parents[1] / "../shared/data"
    return Path(os.environ.get("WEFTLINE_DATA") or default)


def _files(quick: bool) -> Iterator[Instance]:
    """Problem files of others; the folder is named by WEFTLINE_DATA and may be absent."""
    data = data_folder()
    lists = ("moirai", data / "moirai", MOIRAI, 10**9), ("fiddle", data / "fiddle" / "throughput", FIDDLE, 10**6)
    for family, folder, known, unit in lists:
        for name in list(known)[: 1 if quick else None]:
            path = folder / f"{name}.json"
            if path.is_file():
                objective = "latency" if family == "moirai" else "throughput"
                yield Instance(family, name, partial(_file, path, objective), round(known[name] * unit))


def flat_cluster(count: int) -> Cluster:
    """`count` copies of a preset's first device, linked like its first pair, memory unlimited: the papers' machines."""
    preset = Cluster.preset(FLAT)
    device, link = preset.devices[0], preset.links[0]
    names = [f"gpu{i}" for i in range(count)]
    devices = tuple(msgspec.structs.replace(device, id=name, memory=None, reserve=0, runtime="") for name in names)
    links = tuple(Link(a, b, link.bandwidth, link.latency, origin=link.origin) for a in names for b in names if a != b)
    return Cluster(f"{count} x {FLAT}", devices, links)


def _file(path: Path, objective: str) -> Problem:
    return load_problem(path, rules={"objective": objective})[0]


def on_preset(model: str, cluster: str, objective: str, size: str) -> Problem:
    """A model of the zoo on a preset, analytic costs."""
    return build_problem(zoo_graph(model, size=size), Cluster.preset(cluster), rules=_rules(objective))


def _synthetic(kind: str, ops: int, cluster: str, objective: str) -> Problem:
    graph = synthetic(kind, ops=ops, seed=SYNTHETIC_SEED)
    if cluster != "units":
        return build_problem(graph, Cluster.preset(cluster), rules=_rules(objective))
    costs = regal_costs(graph, UNIT_DEVICES)
    return Problem(graph, devices_of_file(costs), expand_file_costs(costs), _rules(objective))


def _rules(objective: str) -> Rules:
    return asked_rules({"objective": objective})
