"""Plans run for real on two workers of this machine: predicted against measured, planned against even and every cut.

A round is what a user does: profile the model, plan from the profile (`plan --calibrate`), run the plans. A shared
machine changes its speed over minutes, so there are several rounds, each compared with its own profile, and the mean
counts. In the part `cuts` the model is cut at every place between two kernels in topological order, and every cut is
run; runs of the plan stand between them. Outputs of every run are compared with those of the unsplit model.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from benchmarks.planned import Row
from benchmarks.results_file import Collector
from weftline.ask import make_plan
from weftline.cluster.detect import worker_cluster
from weftline.cost import ABSENT, CostTable, Profile
from weftline.errors import WeftlineError
from weftline.graph.arrays import Indices
from weftline.latency.prepare import prepare as prepare_placements
from weftline.measure.calibrate import Planner, calibrated_plan
from weftline.measure.profile import profile_model
from weftline.pipeline.prepare import prepare as prepare_pipelines
from weftline.plans import Plan
from weftline.problem import Problem, Rules, build_problem, read_model
from weftline.run.local.run import run_local
from weftline.run.split.segments import cut_places
from weftline.zoo import build, save

__all__ = ["execution_settings", "measure_execution"]

MODELS: dict[str, dict[str, int]] = {
    "resnet50": {"image": 128},
    "mobilenet-v3": {},
    "inception-v3": {"image": 160},
    "unet": {"image": 48},
    "bert": {"layers": 4, "sequence": 64},
    "bert-2": {"layers": 2, "sequence": 64},
    "gpt2": {"layers": 4, "sequence": 32, "vocabulary": 8000},
    "swin": {},
    "mt5": {"layers": 4, "sequence": 64, "target": 64, "vocabulary": 8000},
}
"""Small enough to run in some tens of milliseconds; bert-2 has few enough kernels to run every cut between them."""
PLANS = (("throughput", "auto"), ("throughput", "even-split"), ("latency", "auto"))
SPEEDS = {"equal": (1.0, 1.0), "unequal": (1.0, 0.5)}
SIZES: dict[str, Row] = {
    "tiny": {
        "models": ["resnet50"],
        "size": "small",
        "requests": 10,
        "seconds": 0.0,
        "rounds": 1,
        "cuts": [],
        "limit": 1.0,
        "repeats": 5,
    },
    "quick": {
        "models": [name for name in MODELS if name != "bert-2"],
        "size": "full",
        "requests": 40,
        "seconds": 4.0,
        "rounds": 1,
        "cuts": [],
        "limit": 2.0,
        "repeats": 20,
    },
    "full": {
        "models": [name for name in MODELS if name != "bert-2"],
        "size": "full",
        "requests": 40,
        "seconds": 6.0,
        "rounds": 2,
        "cuts": ["unet", "mobilenet-v3", "bert-2"],
        "limit": 3.0,
        "repeats": 20,
    },
}
CALIBRATED = 2
"""Plans that are measured before one is taken."""
CUT_REQUESTS, AGAIN_REQUESTS = 12, 80
AGAIN = 12
"""Cuts between two runs of the plan."""
TURNS = 9
"""Runs of the plan, and of the best cut, at the end."""


def execution_settings(size: str, time_limit: float | None) -> Row:
    """Models, requests, rounds, models that are cut everywhere, seconds to plan, repeats of a profile."""
    chosen = SIZES[size]
    return {**chosen, "limit": time_limit or chosen["limit"]}


def measure_execution(settings: Row, collect: Collector) -> None:
    """Model by model: pipelines and latency plans on equal and unequal workers, even splits, every cut."""
    prepare_pipelines()
    prepare_placements()
    with TemporaryDirectory(prefix="weftline-execution-") as folder:
        for part, names in (("runs", settings["models"]), ("cuts", settings["cuts"])):
            for name in names:
                path = Path(folder) / f"{name}.onnx"
                save(build(name.removesuffix("-2"), size=settings["size"], **_parameters(name, settings["size"])), path)
                for kind in SPEEDS if part == "runs" else ("unequal",):
                    _model(settings, collect, part, name, kind, path)
                path.unlink()


def _parameters(name: str, size: str) -> dict[str, int]:
    return MODELS[name] if size == "full" else {}


def _model(settings: Row, collect: Collector, part: str, name: str, kind: str, path: Path) -> None:
    cluster, graph = worker_cluster(SPEEDS[kind]), read_model(path)
    assert not isinstance(graph, Problem)

    def problem(profile: Profile, objective: str) -> Problem:
        rules = Rules(objective="latency" if objective == "latency" else "throughput")
        return build_problem(graph, cluster, rules=rules, costs=profile)

    def profiled() -> Profile:
        return profile_model(path, cluster, repeats=settings["repeats"], cache=False)

    def measured() -> Row:
        rounds = []
        for number in range(settings["rounds"]):
            try:
                profile = profiled()
                plans = PLANS if number % 2 == 0 else PLANS[::-1]  # none is always nearest to the profile
                found = {plan: _run(settings, planner, profile, plan, path, number == 0) for plan in plans}
                found[PLANS[0]]["predicted_replicas_ns"] = found[PLANS[1]].get("predicted_replicas_ns")
                rounds.append(found)
            except WeftlineError as error:
                rounds.append(dict.fromkeys(PLANS, _failed(error)))
        return {"plans": [_row(plan, [each[plan] for each in rounds]) for plan in PLANS]}

    def planner(objective: str, solver: str) -> Planner:
        def made(profile: Profile, start: Indices | None, keep: bool) -> Plan:
            limit = 0.0 if keep else settings["limit"]
            return make_plan(problem(profile, objective), solver=solver, start=start, time_limit=limit)

        return made

    def cut() -> Row:
        profile = profiled()
        plan = calibrated_plan(path, profile, planner("throughput", "auto"), rounds=CALIBRATED)
        return _cuts_row(problem(profile, "throughput"), plan, path)

    key: Row = {"part": part, "model": name, "speeds": kind}
    _say(key)
    collect.measure(key, measured if part == "runs" else cut)


def _say(key: Row) -> None:
    print(f"execution: {', '.join(str(word) for word in key.values())}", file=sys.stderr, flush=True)


def _failed(error: WeftlineError) -> Row:
    return {"note": str(error).splitlines()[0][:160]}


def _run(
    settings: Row,
    planner: Callable[[str, str], Planner],
    profile: Profile,
    how: tuple[str, str],
    path: Path,
    first: bool,
) -> Row:
    """Plan and run once; `auto` is calibrated, and in the first round beside baselines."""
    objective, solver = how
    make = planner(objective, solver)
    try:
        if solver == "auto":
            plan = calibrated_plan(path, profile, make, rounds=CALIBRATED)
        else:
            plan = make(profile, None, False)
        requests = max(settings["requests"], round(settings["seconds"] * 1e9 / plan.value_ns))
        done = run_local(plan, model=path, requests=requests, baselines=solver == "auto" and first)
        done.check()
    except WeftlineError as error:
        return _failed(error)
    return {
        "note": "",
        "measured_ns": done.measured_ns,
        "predicted_ns": plan.value_ns,
        "predicted_replicas_ns": plan.baselines.get("replicas"),
        "gap": plan.gap,
        "proof": plan.proof,
        "difference": done.max_output_difference,
        "ops": [device.ops for device in done.devices],
        "segments": [device.segments for device in done.devices],
        "compute_ns": [device.compute_ns for device in done.devices],
        "predicted_compute_ns": [device.predicted_compute_ns for device in done.devices],
        "baselines": done.baselines,
    }


def _row(plan: tuple[str, str], rounds: list[Row]) -> Row:
    """One plan in all rounds: the means of measured and predicted times, and the times of all that ran."""
    head = {"objective": plan[0], "solver": plan[1]}
    ran = [each for each in rounds if not each["note"]]
    if not ran:
        return {**head, **rounds[0]}
    return {
        **head,
        **ran[0],
        **{name: round(mean(each[name] for each in ran)) for name in ("measured_ns", "predicted_ns")},
        "failures": [each["note"] for each in rounds if each["note"]],
        "baselines": rounds[0].get("baselines", {}),
        "first_ns": rounds[0].get("measured_ns"),
        "predicted_replicas_ns": rounds[0].get("predicted_replicas_ns"),
        "rounds": [None if each["note"] else [each["measured_ns"], each["predicted_ns"]] for each in rounds],
        "difference": max(each["difference"] for each in ran),
    }


def _cuts_row(problem: Problem, plan: Plan, path: Path) -> Row:
    """Run every cut, with both orders of the devices; one that fails is not counted."""
    begun = perf_counter()
    planned: list[int] = []
    found: list[tuple[int, list[int]]] = []
    for number, (ops, first) in enumerate(_cuts(problem)):
        if number % AGAIN == 0:
            planned.append(_measured(plan, path))
        with suppress(WeftlineError):
            found.append((_measured(_cut_plan(problem, ops, first), path), [ops, first]))
    planned.append(_measured(plan, path))
    _, cut = min(found)
    again = [_measured(plan_again, path, AGAIN_REQUESTS) for plan_again in (plan, _cut_plan(problem, *cut)) * TURNS]
    return {
        "note": "",
        "count": len(found),
        "best_cut": cut,
        "best_ns": round(mean(again[1::2])),
        "planned_ns": round(mean(again[::2])),
        "planned_between_ns": planned,
        "least_ns": min(found)[0],
        "predicted_ns": plan.value_ns,
        "seconds": round(perf_counter() - begun, 1),
    }


def _measured(plan: Plan, path: Path, requests: int = CUT_REQUESTS) -> int:
    done = run_local(plan, model=path, requests=requests, baselines=False)
    done.check()
    return done.measured_ns


def _cuts(problem: Problem) -> Iterator[tuple[int, int]]:
    """(ops before the cut, device of these): every cut that divides no kernel."""
    for ops in cut_places(problem.group):
        yield from ((ops, 0), (ops, 1))


def _cut_plan(problem: Problem, ops: int, first: int) -> Plan:
    """The plan of one cut: no device can run what the other has."""
    placement: Indices = np.where(np.arange(len(problem.graph.ops)) < ops, first, 1 - first).astype(np.int32)
    time = np.where(placement[:, None] == np.arange(2), problem.cost.time, ABSENT)
    cost = CostTable(time, problem.cost.transfer, problem.cost.transfer_row, problem.cost.source)
    return make_plan(replace(problem, cost=cost), time_limit=2.0)
