"""Measured rewards: 60 real runs for each method on two devices of this machine, then the finds against each other.

In: models, cases, seeds, how often is measured. Out: rows of searches, of duels and of plans that were run. The devices
are the CPU's plugin of OpenVINO, registered twice: one with all cores, one with a single thread. In the case `tight`
neither may hold more than three fifths of the weights, so every placement is a real split; in `free` one device may
hold everything, and the question is whether anybody finds that out. All methods measure single devices first where they
fit. What each found is measured again, in turns with what the others found. Then placements of min-cut, the policy and
hsdag, planned on the simulator, are run beside the unsplit model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import msgspec
import numpy as np

from benchmarks.measure import first_line, say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.stats import grouped
from weftline.ask import make_plan
from weftline.cluster import Cluster, Device
from weftline.errors import WeftlineError
from weftline.graph.arrays import Indices
from weftline.importers.openvino import openvino_module
from weftline.latency.measured import count_parts, policy_source, search_at_random, search_by_measuring, solver_source
from weftline.latency.measured.measurements import Backend, Measurements, Reading
from weftline.latency.policy import prepare as prepare_policy
from weftline.latency.prepare import prepare
from weftline.problem import Problem, Rules, build_problem, read_model
from weftline.run.openvino.meter import OpenvinoMeter
from weftline.run.openvino.run import run_openvino
from weftline.search import Search
from weftline.simulate import simulate_latency
from weftline.zoo import build, save

__all__ = ["DUELS", "METHODS", "SECTION", "SOLVERS", "duel_interval", "two_devices"]

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
RESNET: Row = {"seeds": 1, "hetero": ["resnet50"]}
SIZES: dict[str, Row] = {
    "tiny": {**RESNET, "models": {"resnet50": {}}, "size": "small", "cases": ["tight"], "limit": 2.0}
    | {"budget": 6, "rounds": 1, "duel": 2},
    "quick": {
        **RESNET,
        "models": {"resnet50": {"image": 112}},
        "size": "full",
        "cases": ["free", "tight"],
        "limit": 5.0,
    }
    | {"budget": 20, "rounds": 3, "duel": 15},
    "full": {"seeds": 2, "hetero": ["resnet50", "bert"], "size": "full", "cases": ["tight"], "limit": 6.0}
    | {"models": {"inception-v3": {"image": 224}, "resnet50": {}, "bert": {"sequence": 32}}}
    | {"budget": 60, "rounds": 3, "duel": 30},
}


def measure(settings: Row, collect: Collector) -> None:
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
                say(f"measured: {', '.join(map(str, key.values()))}")
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


def _model_file(folder: Path, name: str, size: str, parameters: dict[str, Any]) -> Path:
    openvino, onnx = openvino_module(), folder / f"{name}.onnx"
    save(build(name, size=size, **parameters), onnx)
    openvino.save_model(openvino.convert_model(str(onnx)), str(onnx.with_suffix(".xml")), compress_to_fp16=False)
    onnx.unlink()
    return onnx.with_suffix(".xml")


@contextmanager
def _meter(problem: Problem, path: Path, rounds: int) -> Iterator[OpenvinoMeter]:
    with OpenvinoMeter(
        problem.graph, problem.devices, path, runtimes=RUNTIMES, rounds=rounds, warm_up=1, give_up=1.2, reference="all"
    ) as meter:
        yield meter


def _compare(settings: Row, collect: Collector, key: Row, problem: Problem, path: Path) -> None:
    """Every method searches; then what they found, pair by pair."""
    for method in METHODS:
        own = {"part": "search", **key, "method": method}
        say(f"measured: {', '.join(map(str, own.values()))}")
        collect.measure(own, partial(_search_row, problem, path, method, key["seed"], settings))
    found = {
        row["method"]: np.array(row["placement"], np.int32)
        for row in collect.rows
        if row["part"] == "search" and all(row[name] == value for name, value in key.items()) and row["placement"]
    }
    for one, other in DUELS:
        own = {"part": "duel", **key, "method": one, "other": other}
        if one in found and other in found:
            say(f"measured: {', '.join(map(str, own.values()))}")
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
        return {"note": first_line(error), "seconds": round(perf_counter() - begun, 1)}
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


DRAWS = 2000


def duel_interval(rows: list[list[float]], seed: int = 0) -> tuple[float, float, float]:
    """Ratios of each seed's rounds -> geometric mean of the medians; its bootstrap interval over seeds and rounds."""
    dice = np.random.default_rng(seed)
    logs = [np.log(np.array(ratios)) for ratios in rows if ratios]
    if not logs:
        return math.nan, math.nan, math.nan
    centre = float(np.mean([np.median(each) for each in logs]))
    draws = []
    for _ in range(DRAWS):
        chosen = [logs[int(which)] for which in dice.integers(len(logs), size=len(logs))]
        draws.append(np.mean([np.median(dice.choice(each, len(each))) for each in chosen]))
    low, high = np.quantile(draws, (0.025, 0.975)).tolist()
    return math.exp(centre), math.exp(low), math.exp(high)


def _searches(run: Run) -> list[Row]:
    """One line per case and method, over the seeds."""
    found = []
    for model, case in dict.fromkeys((row["model"], row["case"]) for row in run.of(part="search")):
        for method in METHODS:
            own = run.of(part="search", model=model, case=case, method=method)
            found.append(
                {"case": f"{model}, {case}", "method": method, "own": own, "ran": [r for r in own if r["ratio"]]}
            )
    return found


def _duels(run: Run) -> list[Row]:
    """One line per case and pair, with what it decides."""
    found = []
    for model, case in dict.fromkeys((row["model"], row["case"]) for row in run.of(part="duel")):
        for one, other in DUELS:
            own = run.of(part="duel", model=model, case=case, method=one, other=other)
            if own:
                ratio, low, high = duel_interval([row["ratios"] for row in own])
                so = "first is faster" if high < 1 else "second is faster" if low > 1 else "undecided"
                found.append(
                    {
                        "case": f"{model}, {case}",
                        "pair": f"{one} / {other}",
                        "ratio": ratio,
                        "interval": f"{low:.3f} to {high:.3f}",
                        "same": f"{sum(row['same'] for row in own)} of {len(own)}",
                        "so": so,
                    }
                )
    return found


def _reading(run: Run) -> Iterator[str]:
    duels, said = _duels(run), []
    for one, other in DUELS:
        so = [line["so"] for line in duels if line["pair"] == f"{one} / {other}"]
        if so:
            counts = ", ".join(f"{so.count(word)} {word}" for word in dict.fromkeys(so))
            said.append(f"{one} against {other}: {counts}.")
    if said:
        yield " ".join(said)


def _losses(run: Run) -> Iterator[str]:
    lost = [f"{line['case']}: {line['pair']}" for line in _duels(run) if line["so"] == "second is faster"]
    yield from verdict("The second is faster", lost)
    split = [row for row in run.of(part="hetero") if not row["note"] and row["measured_ratio"] > 1]
    if split:
        worst = max(split, key=lambda row: row["measured_ratio"])
        yield (
            f"Split models are slower than the unsplit one in {len(split)} of {len(run.of(part='hetero'))} runs "
            f"(worst {worst['measured_ratio']:.2f}: {worst['model']}, {worst['method']})."
        )


def _models(run: Run) -> Iterator[str]:
    shown = ", ".join(
        name + "".join(f" ({key} {value})" for key, value in parameters.items())
        for name, parameters in run.settings["models"].items()
    )
    yield f"Models: {shown}."


def _unless_failed(cell: Callable[[Row], object]) -> Callable[[Row], object]:
    return lambda row: None if row["note"] else cell(row)


DUEL_TABLE: Table[Row] = Table(
    (*fields("model=case | pair | ratio:.3f | 95 % interval=interval | the same placement=same | so"),),
    _duels,
    "What they found, measured again in turns, {duel} pairs of runs for each seed. *ratio* below 1: the first is "
    "faster; the interval is a bootstrap over seeds and pairs (95 %). An interval that holds 1 decides nothing.",
)


def _duel_columns(run: Run) -> list[Column[list[Row]]]:
    """One for each pair."""
    columns: list[Column[list[Row]]] = [Column("model", lambda lines: lines[0]["case"])]
    for pair in dict.fromkeys(line["pair"] for line in _duels(run)):
        columns.append(Column(f"ratio {pair} (95 % interval)", partial(_duel_of, pair)))
    return columns


def _duel_of(pair: str, lines: list[Row]) -> str | None:
    return next((f"{x['ratio']:.3f} ({x['interval']}): {x['so']}" for x in lines if x["pair"] == pair), None)


DUELS_BY_CASE: Table[list[Row]] = Table(_duel_columns, lambda run: grouped(_duels(run), "case").values())
SECTION = Section(
    name="measured",
    title="Measured rewards: placements run for real",
    chapter="real",
    asked="Who finds the best split of a model by measuring it {budget} times on two real devices (OpenVINO's HETERO "
    "on one machine): a search that starts from the policy, from HEFT, or at random? A ratio below 1: "
    "the first is faster.",
    sizes=SIZES,
    measure=measure,
    screen=(DUELS_BY_CASE,),
    losses=_losses,
    blocks=(
        _models,
        "The devices are the CPU's plugin with all cores, and once more with one thread. Each measurement is in turns "
        "with the unsplit model on all cores (*ratio*: median over {rounds} rounds; above 1 is slower). `tight`: "
        "neither device may hold more than 3/5 of the weights, so a placement is a split; `free`: no limit. `random` "
        "draws 2 to 6 pieces, cuts and devices uniformly; `HEFT-started` and `policy-started` are the same search with "
        "other proposals. The policy has min-cut, cPEFT and greedy beside it, so a lead is not the network's alone.",
        Table(
            (
                *fields("model=case | method"),
                Column("best ratio, seed by seed", lambda x: ", ".join(f"{r['ratio']:.3f}" for r in x["ran"]) or None),
                Column(
                    "measurements until within 2 %",
                    lambda line: median(row["first"] for row in line["ran"]) if line["ran"] else None,
                    "g",
                ),
                Column("sub-models", lambda line: ", ".join(str(row["parts"]) for row in line["ran"]) or None),
                Column(
                    "failures",
                    lambda line: f"{sum(r['failures'] for r in line['own'])} of {sum(r['count'] for r in line['own'])}",
                ),
                Column("seconds", lambda x: median(r["seconds"] for r in x["own"]) if x["own"] else None, ".0f"),
            ),
            _searches,
        ),
        DUEL_TABLE,
        _reading,
        Table(
            (
                *fields("model | solver=method"),
                Column("ops on each device", lambda r: r["note"] or " + ".join(map(str, r["ops"].values()))),
                *fields("sub-models=parts | difference:.1e"),
                Column(
                    "measured / predicted, ms",
                    _unless_failed(lambda row: f"{row['measured'] * 1e3:.1f} / {row['predicted'] * 1e3:.1f}"),
                ),
                *fields("measured ratio=measured_ratio:.3f | predicted ratio=predicted_ratio:.3f"),
            ),
            lambda run: run.of(part="hetero"),
            "Plans of the simulator in the case `tight`, run beside the unsplit model; *difference* is the largest of "
            "an output, relative. The costs of these two devices are guesses, so predicted times are, too; ratios "
            "compare better.",
        ),
    ),
    limits=("limit",),
    unused=("placement",),
)
