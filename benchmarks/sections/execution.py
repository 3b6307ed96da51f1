"""Plans run for real on two workers of this machine: predicted against measured, planned against even and every cut.

In: models, requests, rounds. Out: one row per model and speeds, and one per model that was cut everywhere. A round is
what a user does: profile the model, plan from the profile (`plan --calibrate`), run the plans. A shared machine changes
its speed over minutes, so there are several rounds, each compared with its own profile, and the mean counts. In the
part `cuts` the model is cut at every place between two kernels in topological order, and every cut is run; runs of the
plan stand between them. Outputs of every run are compared with those of the unsplit model.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import mean, median
from tempfile import TemporaryDirectory
from typing import Any, cast

from benchmarks.every_cut import cuts_row
from benchmarks.measure import first_line, say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.stats import geometric_mean
from weftline.ask import make_plan
from weftline.ask.fleets import make_fleet
from weftline.cluster.detect import worker_cluster
from weftline.cost import Profile
from weftline.errors import WeftlineError
from weftline.fleet import prepare as prepare_fleets
from weftline.graph.arrays import Indices
from weftline.latency.prepare import prepare as prepare_placements
from weftline.measure.calibration import FleetPlanner, Planner, calibrated_fleet, calibrated_plan
from weftline.measure.profiling import profile_model
from weftline.pipeline import prepare as prepare_pipelines
from weftline.plans import FleetPlan, Plan
from weftline.problem import Problem, Rules, build_problem, read_model
from weftline.run.local.run import run_local
from weftline.units import format_time
from weftline.zoo import build, save

__all__ = ["SECTION"]

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
PLANS = (("throughput", "auto"), ("throughput", "fleet"), ("throughput", "even-split"), ("latency", "auto"))
PIPELINE, FLEET = PLANS[:2]
SPEEDS = {"equal": (1.0, 1.0), "unequal": (1.0, 0.5)}
RUNS: Row = {"models": [name for name in MODELS if name != "bert-2"], "size": "full", "requests": 40, "repeats": 20}
SIZES: dict[str, Row] = {
    "tiny": {"models": ["resnet50"], "size": "small", "requests": 10, "repeats": 5, "limit": 1.0}
    | {"seconds": 0.0, "rounds": 1, "cuts": []},
    "quick": {**RUNS, "seconds": 4.0, "rounds": 1, "cuts": [], "limit": 2.0},
    "full": {**RUNS, "seconds": 6.0, "rounds": 2, "cuts": ["unet", "mobilenet-v3", "bert-2"], "limit": 3.0},
}
CALIBRATED = 2
"""Plans that are measured before one is taken."""
FLEET_FLOOR = 0.97
"""A fleet should give at least so much of the better of pipeline and replicas."""


def measure(settings: Row, collect: Collector) -> None:
    """Model by model: pipelines and latency plans on equal and unequal workers, even splits, every cut."""
    prepare_pipelines()
    prepare_fleets()
    prepare_placements()
    with TemporaryDirectory(prefix="weftline-execution-") as folder:
        for part, names in (("runs", settings["models"]), ("cuts", settings["cuts"])):
            for name in names:
                path = Path(folder) / f"{name}.onnx"
                save(build(name.removesuffix("-2"), size=settings["size"], **_parameters(name, settings["size"])), path)
                for kind in SPEEDS if part == "runs" else ("unequal",):
                    _model(settings, collect, part, name, kind, path)
                path.unlink()


def _parameters(name: str, size: str) -> dict[str, Any]:
    return dict(MODELS[name]) if size == "full" else {}


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
                found = {
                    plan: _run(settings, fleet if plan == FLEET else planner(*plan), profile, plan, path, number == 0)
                    for plan in plans
                }
                found[PIPELINE]["predicted_replicas_ns"] = found[PLANS[2]].get("predicted_replicas_ns")
                _compare(found)
                rounds.append(found)
            except WeftlineError as error:
                rounds.append(dict.fromkeys(PLANS, _failed(error)))
        return {"plans": [_row(plan, [each[plan] for each in rounds]) for plan in PLANS]}

    def fleet(profile: Profile, copies: bool) -> FleetPlan:
        solver = "replicas" if copies else "auto"
        return make_fleet(problem(profile, "throughput"), solver=solver, time_limit=settings["limit"])

    def planner(objective: str, solver: str) -> Planner:
        def made(profile: Profile, start: Indices | None, keep: bool) -> Plan:
            limit = 0.0 if keep else settings["limit"]
            return make_plan(problem(profile, objective), solver=solver, start=start, time_limit=limit)

        return made

    def cut() -> Row:
        profile = profiled()
        plan = calibrated_plan(path, profile, planner("throughput", "auto"), rounds=CALIBRATED)
        return cuts_row(problem(profile, "throughput"), plan, path)

    key: Row = {"part": part, "model": name, "speeds": kind}
    say(f"execution: {', '.join(map(str, key.values()))}")
    collect.measure(key, measured if part == "runs" else cut)


def _failed(error: WeftlineError) -> Row:
    return {"note": first_line(error, 160)}


def _run(
    settings: Row,
    make: Planner | FleetPlanner,
    profile: Profile,
    how: tuple[str, str],
    path: Path,
    first: bool,
) -> Row:
    """Plan and run once; `auto` and the fleet are calibrated, and beside baselines: the fleet in every round."""
    _, solver = how
    try:
        plan = _calibrated(make, profile, solver, path)
        requests = max(settings["requests"], round(settings["seconds"] * 1e9 / plan.value_ns))
        beside = solver == "fleet" or (solver == "auto" and first)
        done = run_local(plan, model=path, requests=requests, baselines=beside)
        done.check()
    except WeftlineError as error:
        return _failed(error)
    replicas = plan.baselines.get("replicas")
    if replicas and isinstance(plan, FleetPlan):  # it has rates
        replicas = round(1e9 / replicas)
    return {
        "note": "",
        "measured_ns": done.measured_ns,
        "predicted_ns": plan.value_ns,
        "predicted_replicas_ns": replicas,
        "gap": plan.gap,
        "proof": plan.proof,
        "difference": done.max_output_difference,
        "ops": [device.ops for device in done.devices],
        "segments": [device.segments for device in done.devices],
        "compute_ns": [device.compute_ns for device in done.devices],
        "predicted_compute_ns": [device.predicted_compute_ns for device in done.devices],
        "baselines": done.baselines,
        "lanes": [[lane.requests, list(lane.devices)] for lane in done.lanes],
    }


def _calibrated(make: Planner | FleetPlanner, profile: Profile, solver: str, path: Path) -> Plan | FleetPlan:
    if solver == "fleet":
        return calibrated_fleet(path, profile, cast(FleetPlanner, make), rounds=CALIBRATED)
    planner = cast(Planner, make)
    return (
        calibrated_plan(path, profile, planner, rounds=CALIBRATED)
        if solver == "auto"
        else planner(profile, None, False)
    )


def _compare(found: dict[tuple[str, str], Row]) -> None:
    """Write beside the fleet of one round what the better of pipeline and replicas took."""
    replicas = next((ns for name, ns in found[FLEET].get("baselines", {}).items() if "replicas" in name), None)
    others = [ns for ns in (replicas, found[PIPELINE].get("measured_ns")) if ns]
    found[FLEET]["better_ns"] = min(others, default=None)


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
        "better": [each["better_ns"] for each in ran if each.get("better_ns")],
        "rounds": [None if each["note"] else [each["measured_ns"], each["predicted_ns"]] for each in rounds],
        "difference": max(each["difference"] for each in ran),
    }


def _plans(run: Run) -> list[Row]:
    """One line per model, speeds and plan."""
    rows = run.of(part="runs")
    return [{"model": row["model"], "speeds": row["speeds"], **plan} for row in rows for plan in row["plans"]]


def _ran(run: Run) -> list[Row]:
    return [row for row in _plans(run) if not row["note"]]


def _error(row: Row) -> float:
    return float(row["measured_ns"] / row["predicted_ns"] - 1)


def _error_text(row: Row) -> str | None:
    if row["note"]:
        return None
    errors = [pair[0] / pair[1] - 1 for pair in row["rounds"] if pair]
    failed = len(row["rounds"]) - len(errors)
    spread = f"{min(errors):+.0%} to {max(errors):+.0%}" + (f", {failed} failed" if failed else "")
    return f"{_error(row):+.1%} ({spread})"


def _drift(row: Row) -> float | None:
    """Replicas measured over predicted, less 1."""
    measured = next((ns for name, ns in row.get("baselines", {}).items() if "replicas" in name), None)
    predicted = row.get("predicted_replicas_ns")
    return measured / predicted - 1 if measured and predicted else None


def _against(word: str, row: Row) -> float | None:
    """Of the plan's time to that of one process, or of replicas, in the first round."""
    others = {name.split(",")[0].split()[-1]: ns for name, ns in row.get("baselines", {}).items()}
    return row["first_ns"] / others[word] if others.get(word) and not row["note"] else None


def _kinds(run: Run) -> list[Row]:
    """One line per objective and speeds, and one for fleets: how far predictions of `auto` are off."""
    found = []
    own = [row for row in _ran(run) if row["solver"] in ("auto", "fleet")]
    for objective, solver, speeds in dict.fromkeys((row["objective"], row["solver"], row["speeds"]) for row in own):
        mine = [row for row in own if (row["objective"], row["solver"], row["speeds"]) == (objective, solver, speeds)]
        faster = _even(run, speeds) if (objective, solver) == PIPELINE else []
        better = [x for row in mine if (x := _of_the_better(row)) is not None]
        found.append(
            {
                "objective": f"{objective}, fleet" if solver == "fleet" else objective,
                "better": f"{geometric_mean(better):.3f} (least {min(better):.3f})" if better else None,
                "speeds": speeds,
                "models": len(mine),
                "errors": [abs(_error(row)) for row in mine],
                "far": [f"{row['model']} {_error(row):+.1%}" for row in mine if abs(_error(row)) > 0.15],
                "faster": f"{geometric_mean(faster):.2f} (least {min(faster):.2f})" if faster else None,
                "replicas": [x for row in mine if (x := _against("replicas", row)) is not None],
            }
        )
    return found


def _of_the_better(row: Row) -> float | None:
    """Measured rate of a fleet over that of the better of pipeline and replicas, in the rounds that have all."""
    return mean(row["better"]) / row["measured_ns"] if row.get("better") and not row["note"] else None


def _even(run: Run, speeds: str) -> list[float]:
    """By model: time of the even split / time of the planned pipeline, round by round, the median."""
    ran = {(r["model"], r["solver"]): r for r in _ran(run) if (r["objective"], r["speeds"]) == ("throughput", speeds)}
    found = []
    for (model, solver), row in ran.items():
        other = ran.get((model, "even-split")) if solver == "auto" else None
        both = (
            [one[0] / two[0] for one, two in zip(other["rounds"], row["rounds"], strict=True) if one and two]
            if other
            else []
        )
        found += [median(both)] if both else []
    return found


def _difference(run: Run) -> Iterator[str]:
    worst = max((row["difference"] for row in _ran(run)), default=0.0)
    yield f"Outputs differ from the unsplit model by at most {worst:.1e} (relative)."


def _losses(run: Run) -> Iterator[str]:
    far = [f"{', '.join(line['far'])} ({line['objective']}, {line['speeds']})" for line in _kinds(run) if line["far"]]
    yield from verdict("Off by more than 15 % (objective, workers)", far)
    late = []
    for line in _kinds(run):
        slower = sum(found > 1 for found in line["replicas"])
        if slower:
            count = len(line["replicas"])
            worst = max(line["replicas"])
            late.append(f"{line['speeds']} workers {slower} of {count} (worst {worst:.2f})")
    if late:
        yield f"Slower than replicas: {', '.join(late)}."
    below = [
        f"{row['model']} {row['speeds']} {x:.3f}" for row in _ran(run) if (x := _of_the_better(row) or 1) < FLEET_FLOOR
    ]
    yield from verdict("Fleets that give less than 97 % of the better of pipeline and replicas", below)
    cuts = [f"{r['model']} {_cut_ratio(r):.3f}" for r in run.of(part="cuts") if _cut_ratio(r) > 1]
    yield from verdict("A single cut is better than the plan (plan / best cut)", cuts)
    yield from verdict("Failed", [f"{row['model']}: {row['note']}" for row in _plans(run) if row["note"]], most=3)


def _cut_ratio(row: Row) -> float:
    return float(row["planned_ns"] / row["best_ns"])


KINDS: Table[Row] = Table(
    (
        *fields("objective | workers=speeds | models"),
        Column("median error", lambda line: median(line["errors"]), ".1%"),
        Column("worst error", lambda line: max(line["errors"]), ".1%"),
        Column("times as fast as even splits", "faster"),
        Column("rate, of the better of pipeline and replicas", "better"),
    ),
    _kinds,
)
CUTS: Table[Row] = Table(
    (
        *fields("model | cuts=count | the plan=planned_ns:time | the best cut=best_ns:time"),
        Column("ratio", _cut_ratio, ".3f"),
        Column("least of all runs", "least_ns", format_time),
    ),
    lambda run: run.of(part="cuts"),
    "Unequal workers: every cut between two kernels in topological order was run, both ways round. Then the plan and "
    "the best of them several times in turns; *ratio* is the plan's period over that of the best cut, by these runs. "
    "The cut that was best of many is lucky by some noise, which the runs in turns take away.",
)
SECTION = Section(
    name="execution",
    title="Plans, run for real",
    chapter="real",
    asked="Run plans on two worker processes of one machine, speeds 1 : 1 (*equal*) and 1 : 0.5 (*unequal*): how far "
    "is the predicted time off, are planned pipelines faster than even splits, and fleets as fast as the better of "
    "pipeline and replicas?",
    sizes=SIZES,
    measure=measure,
    screen=(KINDS,),
    losses=_losses,
    blocks=(
        "One core each (`weftline run`); the second worker stretches its computing time where speeds are unequal. A "
        "round: the model is profiled, planned from the profile, split and run for {seconds:g} s ({requests} requests "
        "at least); *error* is measured over predicted, less 1. The means of {rounds} rounds stand here, with the "
        "least and the largest error of them. Columns after it are of the first round: *drift* is the error of "
        "whole-model replicas, which have no cut: by how much the machine was slower in the run than in its profile; "
        "*one process* has both cores and, with unequal workers, their mean speed; *replicas* are whole models on both "
        "workers. *fleet* is `plan --copies auto`, or whole copies where these were measured to be faster, calibrated "
        "as pipelines are; *rate of the better* is its measured "
        "rate over that of the better of the measured pipeline and the replicas that ran right after it, in the same "
        "rounds.",
        _difference,
        Table(
            (
                *fields("model | workers=speeds | objective | solver"),
                Column("measured", lambda row: row["note"] or format_time(row["measured_ns"])),
                Column("predicted", "predicted_ns", format_time),
                Column("error", _error_text),
                Column("drift", _drift, "+.1%"),
                Column("of one process", partial(_against, "process"), ".2f"),
                Column("of replicas", partial(_against, "replicas"), ".2f"),
                Column("rate of the better", _of_the_better, ".3f"),
            ),
            _plans,
        ),
        KINDS,
        _losses,
        CUTS,
    ),
    limits=("limit",),
)
