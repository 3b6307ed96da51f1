"""What fusion-aware coarsening is worth: the same model planned without it, with it, and with other ways to coarsen.

In: models of the zoo, presets, seconds. Out: one row per model, preset and method. Every plan is costed twice on the
whole graph: with no op fused, and with the kernels that ONNX Runtime really fuses, as far as the plan leaves them whole
on one device. Simplified: a plan that is costed again keeps its placement, and the best of three orders.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from benchmarks.placement import PRESETS
from benchmarks.planned import Row
from benchmarks.results_file import Collector
from benchmarks.searched import Searched, searched
from weftline.ask.questions import lower_bounds
from weftline.cluster import Cluster
from weftline.graph.arrays import Indices
from weftline.latency import solvers
from weftline.latency.prepare import prepare
from weftline.problem import Problem, load_problem
from weftline.reduce import METHODS, Fusion, coarsened, costed_with_fusion, fuse, fused_problem
from weftline.search import Search
from weftline.simulate import Timeline
from weftline.zoo import architectures, build, save

__all__ = ["ALONE", "ORACLE", "WAYS", "FusedModel", "cost_again", "fusion_settings", "kernels_cut", "measure_fusion"]

ORACLE = "oracle"
ALONE = "single device"
WAYS = ("none", ORACLE, "gcof", "chains", "coplace", ALONE)
"""Ways to coarsen; the last one is no search: everything on the best device, fused."""
NEAR = 0.01
SIZES: dict[str, Row] = {
    "tiny": {"size": "small", "models": ["unet"], "presets": ["laptop"], "time_limit": 0.3},
    "quick": {"size": "full", "models": ["resnet50", "bert"], "presets": ["laptop", "four-unequal"], "time_limit": 3.0},
    "full": {"size": "full", "models": None, "presets": list(PRESETS), "time_limit": 10.0},
}


def fusion_settings(size: str, time_limit: float | None) -> Row:
    """Models, presets and seconds of a run."""
    chosen = SIZES[size]
    models = list(architectures()) if chosen["models"] is None else chosen["models"]
    return {**chosen, "models": models, "ways": list(WAYS), "time_limit": time_limit or chosen["time_limit"]}


class FusedModel:
    """One model on one preset, with what ONNX Runtime fuses there; nothing is computed before it is needed."""

    def __init__(self, path: Path, preset: str) -> None:
        self._path, self._preset = path, preset

    @cached_property
    def problem(self) -> Problem:
        """Without fusion."""
        return load_problem(self._path, cluster=Cluster.preset(self._preset), rules={"objective": "latency"})[0]

    @cached_property
    def oracle(self) -> Fusion:
        """What the backend fuses."""
        return fuse(self.problem, ORACLE, model=self._path)

    @cached_property
    def fused(self) -> Problem:
        """With fusion."""
        return fused_problem(self.problem, self.oracle)

    def coarsened(self, way: str) -> tuple[Problem, Indices | None, int, str]:
        """What is searched: a problem, the groups to begin with, the number of things to place, a note."""
        if way == ALONE:
            return self.fused, None, self.oracle.count, self.oracle.note
        found = coarsened(self.problem, way, model=self._path)
        label = np.asarray(found.problem.group) if found.group is None else found.group
        return found.problem, found.group, len(np.unique(label)), found.note

    def with_fusion(self, timeline: Timeline) -> int | None:
        """The latency of a plan if every kernel that it leaves whole is fused."""
        return cost_again(costed_with_fusion(self.problem, self.fused, self.oracle, timeline.placement), timeline)


def cost_again(problem: Problem, timeline: Timeline) -> int | None:
    """The placement under other times, in the order of its timeline or the default one; None if it breaks a limit."""
    search = Search(problem)
    search.offer(timeline.placement, actions=timeline.actions(problem.graph.arrays.producer))
    search.offer(timeline.placement, order=timeline.order)
    search.offer(timeline.placement)
    return None if search.best is None else int(search.best.value)


def kernels_cut(fusion: Fusion, placement: Indices) -> int:
    """Groups of ops that would be fused but stand on several devices."""
    low = np.full(fusion.count, np.iinfo(np.int32).max, np.int32)
    high = np.full(fusion.count, -1, np.int32)
    np.minimum.at(low, fusion.group, placement)
    np.maximum.at(high, fusion.group, placement)
    return int((low != high).sum())


def measure_fusion(settings: Row, collect: Collector) -> None:
    """All rows, model by model."""
    prepare()
    for model in settings["models"]:
        with _model_file(model, settings["size"]) as path:
            for preset in settings["presets"]:
                print(f"fusion: {model} on {preset}", file=sys.stderr, flush=True)
                asked = FusedModel(path, preset)
                for way in settings["ways"]:
                    key = {"model": model, "preset": preset, "instance": f"{model} on {preset}", "way": way}
                    collect.measure(key, partial(_row, asked, way, settings["time_limit"]))


@contextmanager
def _model_file(model: str, size: str) -> Iterator[Path]:
    """The model without weights as a file, which the oracle wants to see."""
    with TemporaryDirectory(prefix="weftline-fusion-") as folder:
        path = Path(folder) / f"{model}.onnx"
        save(build(model, size=size, weights=False), path)
        yield path


def _row(asked: FusedModel, way: str, time_limit: float) -> Row:
    n = len(asked.problem.graph.ops)
    begun = perf_counter()
    problem, group, count, note = asked.coarsened(way)
    spent = perf_counter() - begun if way in METHODS else 0.0
    solver = solvers()["single-device" if way == ALONE else "auto"]
    bound = lower_bounds(problem)[0]
    done = searched(problem, solver, time_limit=time_limit, bound=bound, group=group)
    return {
        "ops": n,
        "to_place": count,
        "coarsen_seconds": round(spent, 4),
        "coarsen_note": note,
        "time_limit": time_limit,
        "seconds": done.seconds,
        "near_seconds": done.seconds_within(NEAR),
        "note": done.note,
        **_values(asked, done),
    }


def _values(asked: FusedModel, done: Searched) -> Row:
    best, bound = done.search.best, done.search.bound
    if not isinstance(best, Timeline):
        return {"value_ns": None, "fine_ns": None, "fused_ns": None}
    return {
        "value_ns": int(best.value),
        "bound_ns": 0 if bound is None else int(bound.value),
        "bound_by": "" if bound is None else bound.by,
        "stopped_by": done.search.stopped_by or "done",
        "fine_ns": cost_again(asked.problem, best),
        "fused_ns": asked.with_fusion(best),
        "cut": kernels_cut(asked.oracle, best.placement),
        "kernels": int((np.bincount(asked.oracle.group) > 1).sum()),
    }
