"""Measured rewards: 60 real runs for each method on two devices of this machine, then the finds against each other.

The devices are the CPU's plugin of OpenVINO, registered twice: one with all cores, one with a single thread. In the
case `tight` neither may hold more than three fifths of the weights, so every placement is a real split; in `free` one
device may hold everything, and the question is whether anybody finds that out. All methods measure single devices first
where they fit. What each found is measured again, in turns with what the others found. Then placements of min-cut, the
policy and hsdag, planned on the simulator, are run beside the unsplit model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import msgspec
import numpy as np

from benchmarks.planned import Row
from benchmarks.results_file import Collector
from weftline.ask import make_plan
from weftline.cluster import Cluster, Device
from weftline.errors import WeftlineError
from weftline.graph.arrays import Indices
from weftline.importers.openvino.module import openvino_module
from weftline.latency.measured.calibration import count_parts
from weftline.latency.measured.measured import search_at_random, search_by_measuring
from weftline.latency.measured.measurements import Backend, Measurements, Reading
from weftline.latency.measured.proposals import policy_source, solver_source
from weftline.latency.policy.policy import prepare as prepare_policy
from weftline.latency.prepare import prepare
from weftline.problem import Problem, Rules, build_problem, read_model
from weftline.run.openvino.meter import Meter
from weftline.run.openvino.run import run_openvino
from weftline.search import Search
from weftline.simulate import simulate_latency
from weftline.zoo import build, save

__all__ = ["DUELS", "METHODS", "SOLVERS", "measure_measured", "measured_settings", "two_devices"]

RUNTIMES = {"all": "openvino:CPU", "one": "openvino:CPU2,INFERENCE_NUM_THREADS=1"}
CLUSTER = """
version = 1
name = "two plugins"
[[device]]
id = "all"
kind = "cpu"
memory = "64 GiB"
rate = { fp32 = "100 GFLOP/s", bandwidth = "20 GB/s", launch = "2 us", source = "guess" }
[[device]]
id = "one"
kind = "cpu"
memory = "64 GiB"
rate = { fp32 = "60 GFLOP/s", bandwidth = "12 GB/s", launch = "2 us", source = "guess" }
[[link]]
between = ["all", "one"]
bandwidth = "8 GB/s"
latency = "20 us"
source = "guess"
"""
SHARE = 0.6
"""Of the weights: what a device may hold in the case `tight`."""
METHODS: dict[str, Callable[[Search, Measurements], None]] = {
    "policy-started": lambda search, measured: search_by_measuring(search, measured, policy_source()),
    "random": search_at_random,
    "HEFT-started": lambda search, measured: search_by_measuring(search, measured, solver_source("heft")),
}
DUELS = (("policy-started", "random"), ("policy-started", "HEFT-started"))
SOLVERS: dict[str, dict[str, str]] = {"min-cut": {}, "policy": {}, "hsdag": {"polish": "off"}}
SIZES: dict[str, Row] = {
    "tiny": {
        "models": {"resnet50": {}},
        "size": "small",
        "cases": ["tight"],
        "seeds": 1,
        "budget": 6,
        "rounds": 1,
        "duel": 2,
        "hetero": ["resnet50"],
        "limit": 2.0,
    },
    "quick": {
        "models": {"resnet50": {"image": 112}},
        "size": "full",
        "cases": ["free", "tight"],
        "seeds": 1,
        "budget": 20,
        "rounds": 3,
        "duel": 15,
        "hetero": ["resnet50"],
        "limit": 5.0,
    },
    "full": {
        "models": {"inception-v3": {"image": 224}, "resnet50": {}, "bert": {"sequence": 32}},
        "size": "full",
        "cases": ["tight"],
        "seeds": 2,
        "budget": 60,
        "rounds": 3,
        "duel": 30,
        "hetero": ["resnet50", "bert"],
        "limit": 6.0,
    },
}


def measured_settings(size: str, time_limit: float | None) -> Row:
    """Models with their parameters, cases, seeds, measurements, and rounds of a measurement and of a duel."""
    chosen = SIZES[size]
    return {**chosen, "limit": time_limit or chosen["limit"]}


def measure_measured(settings: Row, collect: Collector) -> None:
    """Searches and duels, model by model; then the placements of solvers."""
    prepare()
    prepare_policy()
    with TemporaryDirectory(prefix="weftline-measured-") as folder:
        for model, parameters in settings["models"].items():
            path = _model_file(Path(folder), model, settings["size"], parameters)
            for case in settings["cases"]:
                problem = two_devices(path, case)
                for seed in range(settings["seeds"]):
                    _compare(settings, collect, {"model": model, "case": case, "seed": seed}, problem, path)
            for solver in SOLVERS if model in settings["hetero"] else ():
                key = {"part": "hetero", "model": model, "case": "tight", "method": solver, "seed": 0}
                _say(key)
                collect.measure(key, partial(_hetero_row, solver, settings, path))
            path.with_suffix(".bin").unlink()  # large


def two_devices(path: Path, case: str) -> Problem:
    """A model on the two plugins, sequential runtime, with or without limits of memory."""
    with TemporaryDirectory() as folder:
        file = Path(folder) / "cluster.toml"
        file.write_text(CLUSTER, encoding="utf-8")
        cluster = Cluster.load(file)
    graph = read_model(path)
    assert not isinstance(graph, Problem)
    problem = build_problem(graph, cluster, rules=Rules(runtime="sequential"))
    if case == "free":
        return problem
    weights = sum(op.weight_bytes for op in graph.ops) + sum(tied.bytes for tied in graph.tied)
    peak = int(simulate_latency(problem, np.zeros(len(graph.ops), np.int32)).peak[0])
    most = peak - int((1 - SHARE) * weights)
    devices = tuple(_with_memory(device, most) for device in problem.devices)
    return replace(problem, devices=devices)


def _with_memory(device: Device, most: int) -> Device:
    return msgspec.structs.replace(device, memory=most, reserve=0)


def _model_file(folder: Path, name: str, size: str, parameters: dict[str, int]) -> Path:
    openvino, onnx = openvino_module(), folder / f"{name}.onnx"
    save(build(name, size=size, **parameters), onnx)
    openvino.save_model(openvino.convert_model(str(onnx)), str(onnx.with_suffix(".xml")), compress_to_fp16=False)
    onnx.unlink()
    return onnx.with_suffix(".xml")


def _say(key: Row) -> None:
    print(f"measured: {', '.join(str(word) for word in key.values())}", file=sys.stderr, flush=True)


@contextmanager
def _meter(problem: Problem, path: Path, rounds: int) -> Iterator[Meter]:
    with Meter(
        problem.graph, problem.devices, path, runtimes=RUNTIMES, rounds=rounds, warm_up=1, give_up=1.2, reference="all"
    ) as meter:
        yield meter


def _compare(settings: Row, collect: Collector, key: Row, problem: Problem, path: Path) -> None:
    """Every method searches; then what they found, pair by pair."""
    for method in METHODS:
        own = {"part": "search", **key, "method": method}
        _say(own)
        collect.measure(own, partial(_search_row, problem, path, method, key["seed"], settings))
    found = {
        row["method"]: np.array(row["placement"], np.int32)
        for row in collect.rows
        if row["part"] == "search" and all(row[name] == value for name, value in key.items()) and row["placement"]
    }
    for one, other in DUELS:
        own = {"part": "duel", **key, "method": one, "other": other}
        if one in found and other in found:
            _say(own)
            collect.measure(own, partial(_duel_row, problem, path, found[one], found[other], settings["duel"]))


def _search_row(problem: Problem, path: Path, method: str, seed: int, settings: Row) -> Row:
    begun = perf_counter()
    search = Search(problem, seed=seed, solver=method)
    with _meter(problem, path, settings["rounds"]) as meter:

        def measure(placement: Indices, seconds: float | None) -> Reading:
            return meter.measure(placement.tolist(), seconds)

        measured = Measurements(search, Backend(measure, "openvino", meter.reference, settings["budget"]))
        METHODS[method](search, measured)
    best = measured.best
    ratios = np.minimum.accumulate([taken.reading.ratio for taken in measured.taken]).tolist()
    return {
        "count": len(measured.taken),
        "failures": len(measured.failures),
        "ratio": None if best is None else best.reading.ratio,
        "spread": None if best is None else best.reading.spread,
        "first": next((n + 1 for n, r in enumerate(ratios) if best and r <= 1.02 * best.reading.ratio), None),
        "parts": None if best is None else int(count_parts(problem, best.placement)[0]),
        "placement": [] if best is None else best.placement.tolist(),
        "seconds": round(perf_counter() - begun, 1),
    }


def _duel_row(problem: Problem, path: Path, one: Indices, other: Indices, rounds: int) -> Row:
    begun = perf_counter()
    if np.array_equal(one, other):
        return {"same": True, "ratios": [1.0], "note": "", "seconds": 0.0}
    with _meter(problem, path, rounds) as meter:
        found = meter.compare(one.tolist(), other.tolist(), rounds)
    seconds = round(perf_counter() - begun, 1)
    return {"same": False, "ratios": list(found.ratios), "note": found.error, "seconds": seconds}


def _hetero_row(solver: str, settings: Row, path: Path) -> Row:
    begun = perf_counter()
    problem = two_devices(path, "tight")
    try:
        plan = make_plan(problem, solver=solver, time_limit=settings["limit"], settings=SOLVERS[solver])
        done = run_openvino(plan, model=path, runtimes=RUNTIMES, rounds=settings["duel"], reference="all")
    except WeftlineError as error:
        return {"note": str(error).splitlines()[0][:120], "seconds": round(perf_counter() - begun, 1)}
    placement = np.array([problem.device_index[plan.placement[op.name]] for op in problem.graph.ops], np.int32)
    return {
        "note": "",
        "ops": done.ops,
        "parts": int(count_parts(problem, placement)[0]),
        "difference": done.max_output_difference,
        "measured": done.measured_seconds,
        "predicted": done.predicted_seconds,
        "measured_ratio": done.measured_ratio,
        "predicted_ratio": done.predicted_ratio,
        "spread": done.spread,
        "seconds": round(perf_counter() - begun, 1),
    }
