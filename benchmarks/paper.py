"""The experiment of Archer et al. on models that need no download: k equal devices, bound / value.

In: the zoo at full size, the light models inside the onnx package, the published graphs of Tarnawski et al. without
CPUs, memory limits and colours. Out: one row per instance and k. Simplified: analytic costs of one class of GPU.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path

from benchmarks.flat import flat_cluster
from benchmarks.instances import data_folder
from benchmarks.planned import Row, plan_row
from benchmarks.results_file import Collector
from weftline.graph import Graph
from weftline.importers import read_file
from weftline.problem import Problem, asked_rules, build_problem, load_problem
from weftline.zoo import architectures, zoo_graph

__all__ = ["SHARED", "measure_paper", "paper_instances", "paper_settings", "shared_graph"]

SHARED = ("layer_bert24", "layer_gnmt", "layer_resnet50", "op_bert_l-3", "op_bert_l-6", "op_resnet50")
DROPPED = ("cpus", "memory", "together")
QUICK = ("bert", "inception-v3", "unet", "light squeezenet", "light shufflenet", "layer_resnet50", "op_bert_l-3")
SIZES: dict[str, Row] = {
    "tiny": {"stages": [2], "time_limit": 1.0, "only": ["light bvlc_alexnet"]},
    "quick": {"stages": [4, 16], "time_limit": 6.0, "only": list(QUICK)},
    "full": {"stages": [2, 4, 8, 16, 32, 64], "time_limit": 60.0, "only": None},
}


def paper_settings(size: str, time_limit: float | None) -> Row:
    """Stages, seconds and instances of a run."""
    chosen = SIZES[size]
    return {**chosen, "time_limit": time_limit or chosen["time_limit"]}


def paper_instances() -> dict[str, tuple[str, Callable[[int], Problem]]]:
    """Name -> its group, and how its problem with k stages is made; files that are absent are left out."""
    found: dict[str, tuple[str, Callable[[int], Problem]]] = {}
    for name in architectures():
        found[name] = ("zoo", partial(_on_flat, partial(zoo_graph, name)))
    for path in _light_models():
        name = path.stem.replace("light_", "light ")
        found[name] = ("light", partial(_on_flat, partial(_read, path)))
    for name in SHARED:
        if (path := data_folder() / "fiddle" / "throughput" / f"{name}_inference.json").is_file():
            found[name] = ("shared", partial(shared_graph, path))
    return found


def measure_paper(settings: Row, collect: Collector) -> None:
    """All rows, k by k."""
    chosen = {n: one for n, one in paper_instances().items() if settings["only"] is None or n in settings["only"]}
    for stages in settings["stages"]:
        for name, (group, make) in chosen.items():

            def row(make: Callable[[int], Problem] = make, stages: int = stages) -> Row:
                return plan_row(make(stages), time_limit=settings["time_limit"])

            print(f"paper: {name}, k = {stages}", file=sys.stderr, flush=True)
            collect.measure({"group": group, "instance": name, "stages": stages}, row)


def shared_graph(path: Path, stages: int) -> Problem:
    """A published graph as the plain partition problem."""
    return load_problem(path, rules={"objective": "throughput", "stages": stages}, without=DROPPED)[0]


def _on_flat(graph: Callable[[], Graph], stages: int) -> Problem:
    return build_problem(graph(), flat_cluster(stages), rules=asked_rules({"objective": "throughput"}))


@cache
def _read(path: Path) -> Graph:
    return read_file(path).graph


def _light_models() -> list[Path]:
    import onnx

    return sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("light_*.onnx"))
