"""Golden answers of every solver of every question, each under a limit of work: whole files, byte for byte.

`WEFTLINE_UPDATE_GOLDEN=1 make test TESTS=tests/golden WORKERS=1` writes answers.json anew; the difference belongs in
the review. With OPTIONS='-k latency/heft' only what one solver answers is asked and written, in seconds.
A hash is that of the file as it is saved, without the version of the program that made it. Where a solver has no answer
to a problem, its error stands there instead.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import weftline as wl
from weftline.latency import solvers as latency_solvers
from weftline.pipeline import solvers as throughput_solvers
from weftline.schedule import schedulers
from weftline.testing.generate import random_problem
from weftline.zoo import synthetic, zoo_graph

FILE = Path(__file__).with_name("answers.json")
FEWEST = 3
"""Answers, not counting errors, that every solver has here."""

REGISTRIES: dict[str, Callable[[], dict[str, Any]]] = {
    "latency": latency_solvers,
    "throughput": throughput_solvers,
    "schedule": schedulers,
}

PLANNED: dict[str, dict[str, tuple[str, str, dict[str, Any]]]] = {
    "latency": {
        "bert": ("bert", "laptop", {}),
        "layered": ("layered:30", "four-unequal", {}),
        "small": ("layered:10", "laptop", {}),
        "sequential": ("transformer_like:24", "four-unequal", {"runtime": "sequential"}),
        "per-edge": ("series_parallel:20", "two-gpus", {"transfers": "per-edge", "memory": "static"}),
    },
    "throughput": {
        "bert": ("bert", "laptop", {}),
        "layered": ("layered:30", "four-unequal", {}),
        "chain": ("chain:24", "two-servers", {"communication": "overlapped"}),
        "static": ("series_parallel:40", "two-gpus", {"memory": "static"}),
        "two-stages": ("unet", "four-unequal", {"stages": 2}),
    },
}
"""Question -> problem -> model of the zoo (or family of graphs and number of ops), cluster, rules."""
GENERATED = {"latency": (6, 26, 58), "throughput": (9, 19, 23)}
"""Seeds of random problems with memory, buses, missing links and ops that stay together."""
SHAPED: dict[str, tuple[str, int, dict[str, Any]]] = {
    "linear-2": ("linear", 2, {"micro_batches": 3}),
    "linear-3": ("linear", 3, {"micro_batches": 5, "memory": 6}),
    "linear-4": ("linear", 4, {"micro_batches": 6, "memory": 8}),
    "linear-5": ("linear", 5, {"micro_batches": 6}),
    "linear-6": ("linear", 6, {"micro_batches": 12}),
    "vshape-4": ("vshape", 4, {"micro_batches": 6, "memory": 4}),
    "kshape-2": ("kshape", 2, {"micro_batches": 4}),
    "kshape-4": ("kshape", 4, {"micro_batches": 6, "memory": 5}),
    "mshape-2": ("mshape", 2, {"micro_batches": 4, "memory": 4}),
    "xshape-2": ("xshape", 2, {"micro_batches": 3}),
    "xshape-4": ("xshape", 4, {"micro_batches": 4, "objective": "device-span"}),
    "xshape-6": ("xshape", 6, {"micro_batches": 4}),
    "zigzag-2": ("zigzag", 2, {"micro_batches": 4, "memory": 8}),
    "zigzag-3": ("zigzag", 3, {"micro_batches": 5, "memory": 12}),
    "zigzag-4": ("zigzag", 4, {"micro_batches": 8}),
    "zigzag-5": ("zigzag", 5, {"micro_batches": 10}),
    "zigzag-6": ("zigzag", 6, {"micro_batches": 14}),
    "interleaved-2": ("interleaved", 2, {"micro_batches": 4}),
    "interleaved-3": ("interleaved", 3, {"micro_batches": 5}),
    "interleaved-4": ("interleaved", 4, {"micro_batches": 8}),
    "arrivals-m": ("mshape", 4, {"micro_batches": 6, "train": False, "arrivals": 3}),
    "arrivals-nn": ("nnshape", 4, {"micro_batches": 6, "train": False, "arrivals": 9}),
    "arrivals-k": ("kshape", 4, {"micro_batches": 5, "train": False, "arrivals": 4, "memory": 4}),
}
"""Problem -> shape, devices, options. Beside them is `pipeline`: a plan of bert, split for training."""

ALL = {
    "latency": ("bert", "layered", "sequential", "per-edge", *(f"random-{seed}" for seed in GENERATED["latency"])),
    "throughput": (*PLANNED["throughput"], *(f"random-{seed}" for seed in GENERATED["throughput"])),
    "schedule": ("linear-4", "kshape-4", "mshape-2", "xshape-4", "zigzag-3", "interleaved-3", "pipeline"),
}
OTHER = {
    "latency/moirai-milp": ("small", "sequential", "random-6", "random-58"),
    "schedule/tessel-lazy": ("linear-3", "kshape-4", "mshape-2", "xshape-4", "zigzag-2", "interleaved-2"),
    "schedule/least-latency": ("arrivals-m", "arrivals-nn", "arrivals-k"),
    "schedule/1f1b": ("linear-3", "linear-4", "vshape-4", "pipeline"),
    "schedule/interleaved-1f1b": ("interleaved-2", "interleaved-3", "interleaved-4", "linear-4"),
    "schedule/1f1b-plus": ("kshape-2", "kshape-4", "mshape-2", "linear-4"),
    "schedule/chimera": ("xshape-2", "xshape-4", "xshape-6", "linear-4"),
    "schedule/zb-h1": ("linear-2", "linear-3", "linear-4", "pipeline"),
    "schedule/zb-h2": ("linear-2", "linear-4", "linear-5", "linear-6", "pipeline"),
    "schedule/zb-v": ("zigzag-2", "zigzag-3", "zigzag-4", "linear-4"),
    "schedule/dualpipe-v": ("zigzag-2", "zigzag-4", "zigzag-5", "zigzag-6", "linear-4"),
}
"""Solver -> its problems, where not all that others have: it takes only some, or is slow."""
SETTINGS = {
    "latency/policy": {"decodes": "8"},
    "latency/policy+polish": {"decodes": "8", "steps": "500"},
    "latency/hsdag": {"episodes": "3"},
    "latency/placeto": {"episodes": "3"},
    "latency/rnn": {"episodes": "3"},
}
WORK = {"latency/anneal": 2000, "throughput/anneal": 2000, "schedule/sequence": 400, "schedule/auto": 400}
"""Solver -> its limit, 100 for the others."""
VALUE_ONLY: dict[str, str] = {}
"""Case -> why only its value is the same in every run."""
LEFT_OUT: dict[str, str] = {}
"""Question and solver -> why nothing of its answer is the same in every run."""

SOLVERS = [f"{question}/{name}" for question, registry in REGISTRIES.items() for name in registry()]


def problems(solver: str) -> tuple[str, ...]:
    """Names of the problems of a question's solver."""
    return OTHER.get(solver, ALL[solver.partition("/")[0]])


@cache
def problem(question: str, name: str) -> Any:
    """A problem, with the rules it is planned by."""
    kind, _, seed = name.partition("-")
    if kind == "random":
        return random_problem(int(seed), question, max_ops=14, max_devices=4), {}  # type: ignore[arg-type]
    model, cluster, rules = PLANNED[question][name]
    family, _, ops = model.partition(":")
    graph = synthetic(family, ops=int(ops), seed=1) if ops else zoo_graph(family, size="small")
    return graph, {"cluster": wl.Cluster.preset(cluster), "objective": question, "copies": 1, **rules}


@cache
def pipeline() -> wl.Plan:
    """A plan of two unequal stages."""
    graph = zoo_graph("bert", size="small")
    asked: dict[str, Any] = {"solver": "even-split", "work_limit": 100}
    return wl.plan(graph, wl.Cluster.preset("two-gpus"), objective="throughput", copies=1, **asked)


def solve(solver: str, name: str) -> wl.Plan | wl.Schedule:
    """A question's solver on a problem."""
    question, _, method = solver.partition("/")
    work = WORK.get(solver, 100)
    if question != "schedule":
        model, rules = problem(question, name)
        plan: wl.Plan = wl.plan(model, solver=method, work_limit=work, settings=SETTINGS.get(solver, {}), **rules)
        return plan
    if name == "pipeline":
        return wl.schedule(pipeline(), micro_batches=5, split_backward=True, solver=method, work_limit=work)
    shape, devices, options = SHAPED[name]
    blocks = wl.shape(shape, devices, train=options.get("train", True))
    return wl.schedule(blocks, solver=method, work_limit=work, **options)


def digest(solver: str, name: str, file: Path) -> dict[str, object]:
    """The value and the hash of an answer's file, or the error."""
    try:
        answer = solve(solver, name)
    except wl.InfeasibleError as error:
        return {"error": str(error)}
    value = answer.value_ns if isinstance(answer, wl.Plan) else answer.value
    if f"{solver}/{name}" in VALUE_ONLY:
        return {"value": value}
    answer.save(file)
    fields = json.loads(file.read_bytes())
    assert fields["seconds"] is None  # no clock in answers under a limit of work
    del fields["provenance"]["version"]
    return {"value": value, "sha256": hashlib.sha256(json.dumps(fields).encode()).hexdigest()}


@pytest.mark.parametrize("solver", [solver for solver in SOLVERS if solver not in LEFT_OUT])
def test_answers(solver: str, tmp_path: Path) -> None:
    """Tests that a solver answers as it did, to the byte."""
    answers = {f"{solver}/{name}": digest(solver, name, tmp_path / "answer.json") for name in problems(solver)}
    assert sum("value" in answer for answer in answers.values()) >= FEWEST
    if os.environ.get("WEFTLINE_UPDATE_GOLDEN"):
        kept = json.loads(FILE.read_text()) if FILE.exists() else {}
        FILE.write_text(json.dumps(kept | answers, indent=1, sort_keys=True) + "\n")
    golden = json.loads(FILE.read_text())
    again = f"WEFTLINE_UPDATE_GOLDEN=1 make test TESTS=tests/golden WORKERS=1 OPTIONS='-k {solver}'"
    missing = [name for name in answers if name not in golden]
    assert not missing, f"no golden answers yet; write them: {again}"
    changed = {name: differences(answer, golden[name]) for name, answer in answers.items() if answer != golden[name]}
    assert not changed, f"other answers than before. If that is meant: {again}"


def differences(answer: dict[str, object], golden: dict[str, object]) -> str:
    """What a reader wants to know first: is the plan another one, or only the rest of its file?"""
    if answer.keys() == golden.keys() == {"value", "sha256"} and answer["value"] == golden["value"]:
        return f"same value, {answer['value']}; another placement, bound or field of the file"
    return f"{golden.get('value', golden.get('error'))} -> {answer.get('value', answer.get('error'))}"


def test_every_solver_is_there() -> None:
    """Tests that no solver is missing, and that no answer or exception is left over from one that is gone."""
    asked = {f"{solver}/{name}" for solver in SOLVERS if solver not in LEFT_OUT for name in problems(solver)}
    golden = json.loads(FILE.read_text())
    new, gone = sorted(asked - set(golden)), sorted(set(golden) - asked)
    assert not new, "no golden answers yet; test_answers of these solvers says how to write them"
    assert not gone, "nobody asks for these answers any more; take them out of answers.json"
    assert set(LEFT_OUT) | set(OTHER) | set(SETTINGS) | set(WORK) <= set(SOLVERS)
    assert {name for name, answer in golden.items() if set(answer) == {"value"}} == set(VALUE_ONLY)
