"""Learned solvers beside heuristics, annealing and exact search on the three models of the HSDAG paper; the ablation.

Every method gets the same time on the same simulator. `hsdag` is asked three times: as published, as ours, and ours
without the annealing behind it, since otherwise nobody could say what the network found. The ablation trains without
one part at a time, without annealing, with several seeds.
"""

from __future__ import annotations

import sys
from functools import partial
from time import process_time

import numpy as np

from benchmarks.planned import Row
from benchmarks.results_file import Collector
from benchmarks.searched import CLOSE, run_solver
from weftline.ask.questions import lower_bounds
from weftline.cluster import Cluster
from weftline.latency import solvers
from weftline.latency.policy.settings import load_torch
from weftline.latency.prepare import prepare
from weftline.problem import Problem, asked_rules, build_problem
from weftline.search import Search
from weftline.zoo import zoo_graph

__all__ = ["ABLATION", "METHODS", "learned_settings", "measure_learned"]

METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "CPU only": ("single-device", {}),
    "best single device": ("single-device", {}),
    "HEFT": ("heft", {}),
    "cPEFT": ("cpeft", {}),
    "64 random cPEFT": ("cpeft-64", {}),
    "placeto-greedy": ("placeto-greedy", {}),
    "anneal": ("anneal", {}),
    "auto": ("auto", {}),
    "hsdag, paper": ("hsdag", {"preset": "paper"}),
    "hsdag, no polish": ("hsdag", {"polish": "off"}),
    "hsdag": ("hsdag", {}),
    "placeto": ("placeto", {}),
    "rnn": ("rnn", {}),
    "policy": ("policy", {}),
    "policy+polish": ("policy+polish", {}),
}
ABLATION: dict[str, dict[str, str]] = {
    "all parts": {"levels": "1"},
    "without structure": {"levels": "1", "features": "-degree,-fractal"},
    "without output shape": {"levels": "1", "features": "-shape"},
    "without position": {"levels": "1", "features": "-position"},
    "without grouping": {"levels": "0"},
    "the paper's features only": {"levels": "1", "features": "paper"},
}
SIZES: dict[str, Row] = {
    "tiny": {"models": ["unet"], "size": "small", "presets": ["laptop"], "seeds": 1, "limit": 2.0, "ablation": 1.0},
    "quick": {
        "models": ["inception-v3"],
        "size": "full",
        "presets": ["laptop"],
        "seeds": 2,
        "limit": 10.0,
        "ablation": 5.0,
    },
    "full": {
        "models": ["inception-v3", "resnet50", "bert"],
        "size": "full",
        "presets": ["laptop", "four-unequal"],
        "seeds": 5,
        "limit": 60.0,
        "ablation": 10.0,
    },
}


def learned_settings(size: str, time_limit: float | None) -> Row:
    """Models, clusters, seeds and seconds."""
    chosen = SIZES[size]
    return {**chosen, "limit": time_limit or chosen["limit"], "ablation": time_limit or chosen["ablation"]}


def measure_learned(settings: Row, collect: Collector) -> None:
    """The comparison, then the ablation on the first cluster."""
    prepare()
    load_torch()
    for preset in settings["presets"]:
        for model in settings["models"]:
            for method, asked in METHODS.items():
                key = {"part": "comparison", "preset": preset, "model": model, "method": method, "seed": 0}
                _measure(collect, key, settings, asked, settings["limit"])
    for model in settings["models"]:
        for method, options in ABLATION.items():
            for seed in range(settings["seeds"]):
                key = {"part": "ablation", "preset": settings["presets"][0], "model": model, "method": method}
                trained = "hsdag", {**options, "polish": "off"}
                _measure(collect, {**key, "seed": seed}, settings, trained, settings["ablation"])


def _measure(collect: Collector, key: Row, settings: Row, asked: tuple[str, dict[str, str]], limit: float) -> None:
    print(
        f"learned: {key['model']} on {key['preset']}, {key['method']}, seed {key['seed']}", file=sys.stderr, flush=True
    )
    collect.measure(key, partial(_row, key, settings["size"], asked, limit))


def _row(key: Row, size: str, asked: tuple[str, dict[str, str]], limit: float) -> Row:
    problem = _problem(key["model"], size, key["preset"])
    name, options = asked
    bound = lower_bounds(problem)[0]
    search = Search(problem, time_limit=limit, gap=CLOSE, seed=key["seed"], options=options, solver=name)
    search.offer_bound(bound)
    cpu = process_time()
    if key["method"] == "CPU only":
        hosts = [d for d, device in enumerate(problem.devices) if device.kind == "cpu"]
        if hosts:
            search.offer(np.full(len(problem.graph.ops), hosts[0], np.int32))
        note = "" if hosts else "the cluster has no CPU"
    else:
        note = run_solver(solvers()[name], search)
    value = None if search.best is None else search.best.value
    at_least = None if search.bound is None else search.bound.value
    return {
        "value_ns": value,
        "bound_ns": at_least,
        "cpu": round(process_time() - cpu, 2),
        "seconds": round(search.seconds, 3),
        "offered": search.offered,
        "note": note,
    }


def _problem(model: str, size: str, preset: str) -> Problem:
    rules = asked_rules({"objective": "latency"})
    return build_problem(zoo_graph(model, size=size), Cluster.preset(preset), rules=rules)
