"""Placement for latency: every solver on published instances and on the zoo x presets, all with the same time.

In: models, presets, files, seconds. Out: one row per instance and solver: value, bound, seconds. The value is what the
simulator says; all solvers begin with the same first lower bound, which is not on their clock.
Simplified: analytic costs for the zoo; published files keep their own rules.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial

import msgspec

from benchmarks.instances import MOIRAI, data_folder
from benchmarks.placement_summary import AUTO, first_runs, winner
from benchmarks.planned import Row
from benchmarks.quality import Judge
from benchmarks.results_file import Collector
from benchmarks.searched import searched
from weftline.ask.questions import lower_bounds
from weftline.cluster import Cluster
from weftline.errors import InfeasibleError
from weftline.latency import solvers
from weftline.latency.prepare import prepare
from weftline.problem import Problem, asked_rules, build_problem, load_problem
from weftline.problem.json_form import problem_hash, problem_to_file
from weftline.search import Solver
from weftline.zoo import architectures, synthetic, zoo_graph

__all__ = [
    "AGAIN",
    "FILES",
    "PRESETS",
    "Question",
    "measure_placement",
    "placement_row",
    "placement_settings",
    "questions",
    "warm_solvers",
]

FILES = "published"
"""Where a file brings its own devices, this stands for the preset."""
PRESETS = ("laptop", "two-gpus", "four-unequal", "edge")
SECOND = 10**9
WARM_OPS = 40
AGAIN = 3
"""Times that `auto` and the best run again where `auto` was behind."""
TRAINED = ("policy", "policy+polish")
"""Solvers with a network that was trained before."""
SIZES: dict[str, Row] = {
    "tiny": {"size": "small", "models": ["unet"], "presets": ["laptop"], "files": ["example-1"], "time_limit": 0.3},
    "quick": {
        "size": "full",
        "models": ["inception-v3", "bert"],
        "presets": ["laptop", "four-unequal"],
        "files": list(MOIRAI),
        "time_limit": 3.0,
    },
    "full": {"size": "full", "models": None, "presets": list(PRESETS), "files": list(MOIRAI), "time_limit": 15.0},
}


def placement_settings(size: str, time_limit: float | None) -> Row:
    """Models, presets, files and seconds of a run."""
    chosen = SIZES[size]
    models = list(architectures()) if chosen["models"] is None else chosen["models"]
    return {**chosen, "models": models, "time_limit": time_limit or chosen["time_limit"]}


@dataclass
class Question:
    """One model on one preset, or one published file; nothing is read before it is needed."""

    preset: str
    model: str
    make: Callable[[], Problem]
    reference_ns: int | None = None
    """An optimum that is known from outside."""

    @property
    def instance(self) -> str:
        """Its name."""
        return self.model if self.preset == FILES else f"{self.model} on {self.preset}"

    @cached_property
    def problem(self) -> Problem:
        """What is asked."""
        return self.make()

    @cached_property
    def judge(self) -> Judge:
        """Who says how good an answer is."""
        return Judge(self.problem)

    @cached_property
    def about(self) -> Row:
        """What all rows of it have in common."""
        return {
            "ops": len(self.problem.graph.ops),
            "devices": len(self.problem.devices),
            "problem": problem_hash(problem_to_file(self.problem))[:16],
            "reference_ns": self.reference_ns,
        }


def questions(settings: Row) -> list[Question]:
    """Files first (those that are on this machine), then preset by preset."""
    found = []
    for name in settings["files"]:
        path = data_folder() / "moirai" / f"{name}.json"
        if path.is_file():
            make = partial(_file, str(path))
            found.append(Question(FILES, name, make, round(MOIRAI[name] * SECOND)))
    for preset in settings["presets"]:
        found += [
            Question(preset, model, partial(_zoo, model, settings["size"], preset)) for model in settings["models"]
        ]
    return found


def measure_placement(settings: Row, collect: Collector) -> None:
    """All rows, instance by instance."""
    prepare()
    if settings["size"] == "full":
        warm_solvers()
    for question in questions(settings):
        print(f"placement: {question.instance}", file=sys.stderr, flush=True)
        for solver in asked_solvers():
            key = {"preset": question.preset, "model": question.model, "instance": question.instance}
            make = partial(placement_row, question, solver, settings["time_limit"])
            collect.measure({**key, "solver": solver.name}, make)
        _again(question, settings["time_limit"], collect)


def _again(question: Question, time_limit: float, collect: Collector) -> None:
    """Where `auto` was behind: it and the winner once more, in turn, since near the end one step decides."""
    rows = [row for row in first_runs(collect.rows) if row["instance"] == question.instance]
    best = winner(rows)
    for turn in range(1, AGAIN + 1) if best is not None else ():
        for name in (best, AUTO):
            key = {"preset": question.preset, "model": question.model, "instance": question.instance, "solver": name}
            collect.measure({**key, "again": turn}, partial(placement_row, question, solvers()[name], time_limit))


def asked_solvers() -> list[Solver]:
    """All but those that train a network for each problem, which have a section of their own."""
    return [solver for solver in solvers().values() if not solver.learned or solver.name in TRAINED]


def warm_solvers(seconds: float = 0.5) -> None:
    """Kernels of every solver are compiled or loaded now, not on somebody's clock."""
    for problem in _warm_problems():
        bound = lower_bounds(problem)[0]
        for solver in asked_solvers():
            searched(problem, solver, time_limit=seconds, bound=bound)


def _warm_problems() -> list[Problem]:
    """Small, but none that is solved at once: with room and without, one transfer per device and one per edge."""
    graph, cluster = synthetic("layered", ops=WARM_OPS, seed=1), Cluster.preset("four-unequal")
    room = sum(op.weight_bytes for op in graph.ops) // 2
    tight = tuple(msgspec.structs.replace(device, memory=room, reserve=0) for device in cluster.devices)
    rules = {"objective": "latency", "transfers": "per-edge", "memory": "static"}
    return [
        build_problem(graph, cluster, rules=asked_rules({"objective": "latency"})),
        build_problem(graph, msgspec.structs.replace(cluster, devices=tight), rules=asked_rules(rules)),
    ]


def placement_row(question: Question, solver: Solver, time_limit: float) -> Row:
    """What a solver does in so many seconds."""
    common: Row = {"baseline": solver.baseline, "time_limit": time_limit}
    try:
        about = question.about
    except InfeasibleError as error:
        return {**common, "value_ns": None, "note": str(error).splitlines()[0][:120], "seconds": 0.0}
    done = searched(question.problem, solver, time_limit=time_limit, bound=question.judge.first_bound)
    verdict = question.judge.verdict(done.search)
    return {**common, **about, **verdict, "seconds": done.seconds, "note": done.note}


def _file(path: str) -> Problem:
    return load_problem(path, rules={"objective": "latency"})[0]


def _zoo(model: str, size: str, preset: str) -> Problem:
    return build_problem(
        zoo_graph(model, size=size), Cluster.preset(preset), rules=asked_rules({"objective": "latency"})
    )
