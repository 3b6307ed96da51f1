"""Instances x solvers x seeds -> rows: value, lower bound, gap, who says so, seconds, ratio to the instance's best.

In: instances, seeds, seconds. Out: one row per instance, solver and seed. Every solver gets the same time limit, only
`auto` for throughput has its own; the value is the simulator's, and the bound is `proved` only where the independent
checker re-computes it from its witness. Replicas of the whole model are no pipeline: they have a row without bound and
without ratio.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterable, Iterator
from functools import partial
from statistics import median

from benchmarks.instances import FAMILIES, Instance, instances
from benchmarks.measure import CLOSE, Judge, run_solver, say
from benchmarks.results import Collector, Row
from benchmarks.section import Block, Column, Run, Section, Table, fields, verdict
from benchmarks.stats import geometric_mean, grouped, is_late, kept, not_closed, scores
from weftline.ask.planning import solvers_for
from weftline.ask.questions import baseline_values
from weftline.problem import Problem
from weftline.search import Search, Solver
from weftline.units import format_time

__all__ = [
    "REPLICAS",
    "SECTION",
    "better_than_baselines",
    "lost_to_baselines",
    "measure_quality",
    "overruns",
    "replica_rows",
    "share_of_budget",
    "solver_rows",
]

REPLICAS = "replicas"
OBJECTIVES = ("latency", "throughput")
BUDGET = 120.0
"""Seconds that solvers may search in all, for one seed, without `auto` on pipelines."""
WHOLE: Row = {"tiny": False, "time_limit": None, "auto_limit": 6.0}
"""`auto` on a pipeline searches until its gap is closed or its time is over."""


def _complete(settings: Row, asked: Namespace) -> Row:
    limit = settings["time_limit"] or share_of_budget(instances(), BUDGET)
    return {**settings, "seeds": asked.seeds, "time_limit": limit}


def measure(settings: Row, collect: Collector) -> None:
    """All rows at once: this section is short."""
    limits = {name: settings[name] for name in ("seeds", "time_limit", "auto_limit")}
    collect.rows = measure_quality(instances(quick=settings["tiny"]), **limits)


def share_of_budget(chosen: list[Instance], budget: float) -> float:
    """Seconds for one run of a solver that searches: an equal share, but neither absurdly short nor long."""
    searching = {name: sum(not s.baseline for s in _asked(name).values()) for name in OBJECTIVES}
    runs = sum(searching[_objective(instance)] for instance in chosen)
    return round(min(10.0, max(0.3, budget / max(runs, 1))), 1)


def _objective(instance: Instance) -> str:
    return "latency" if instance.family == "moirai" or instance.family.endswith("-latency") else "throughput"


def measure_quality(
    chosen: Iterable[Instance], *, seeds: int, time_limit: float, auto_limit: float | None = None
) -> list[Row]:
    """All rows, instance by instance; `auto_limit` is for `auto` as a pipeline solver, which searches until it ends."""
    rows: list[Row] = []
    warm: set[str] = set()
    for instance in chosen:
        problem = instance.make()
        objective = problem.rules.objective
        if objective not in warm:  # compiled kernels load now, not on somebody's clock
            warm.add(objective)
            _ask(instance, problem, _asked(objective), range(1), 0.3, 0.3)
        say(f"{instance.family}: {instance.name}")
        rows += _ask(instance, problem, _asked(objective), range(seeds), time_limit, auto_limit or time_limit)
    return rows


def _asked(objective: str) -> dict[str, Solver]:
    """All but those with networks, which have a section of their own."""
    return {name: solver for name, solver in solvers_for(objective).items() if not solver.learned}


def _ask(
    instance: Instance,
    problem: Problem,
    solvers: dict[str, Solver],
    seeds: range,
    time_limit: float,
    auto_limit: float,
) -> list[Row]:
    """The rows of one instance."""
    judge = Judge(problem)
    start = judge.first_bound
    shape = {
        "family": instance.family,
        "instance": instance.name,
        "objective": problem.rules.objective,
        "ops": len(problem.graph.ops),
        "devices": len(problem.devices),
        "reference_ns": instance.reference_ns,
    }
    rows = []
    for solver in solvers.values():
        for seed in seeds[:1] if solver.baseline else seeds:
            longer = solver.name == "auto" and problem.rules.objective == "throughput"
            limit = auto_limit if longer else time_limit
            search = Search(problem, time_limit=limit, gap=CLOSE, seed=seed, solver=solver.name)
            search.offer_bound(start)
            note = run_solver(solver, search)
            row = {**shape, "solver": solver.name, "baseline": solver.baseline, "seed": seed, "time_limit": limit}
            rows.append({**row, "seconds": round(search.seconds, 4), "note": note, **judge.verdict(search)})
    rows += [{**shape, **row} for row in _replicas(problem)]
    values = [row["value_ns"] for row in rows if row["value_ns"] is not None and row["solver"] != REPLICAS]
    best = min(values, default=None)
    for row in rows:
        counts = row["value_ns"] is not None and row["solver"] != REPLICAS
        row["ratio"] = (row["value_ns"] / best if best else 1.0) if counts else None
    return rows


def _replicas(problem: Problem) -> list[Row]:
    if problem.rules.objective != "throughput":
        return []
    row: Row = {
        "solver": REPLICAS,
        "baseline": True,
        "seed": 0,
        "time_limit": 0.0,
        "seconds": None,
        "bound_ns": None,
        "bound_by": "",
    }
    value = baseline_values(problem, {}, 0, Search(problem))[REPLICAS]
    note = "" if value is not None else "no device holds the whole model"
    return [{**row, "value_ns": value, "proof": "none", "gap": None, "stopped_by": "done", "note": note}]


def solver_rows(rows: list[Row]) -> list[Row]:
    """One line per solver of a family, the best geometric mean first among those that solved most."""
    count = len(grouped(rows, "instance"))
    found = []
    for solver, mine in grouped([row for row in rows if row["solver"] != REPLICAS], "solver").items():
        solved = kept(mine)
        worst = max(solved, key=lambda row: row["ratio"], default=None)
        found.append(
            {
                "solver": solver,
                "baseline": mine[0]["baseline"],
                "solved": len({row["instance"] for row in solved}),
                "instances": count,
                "geometric_mean": geometric_mean(row["ratio"] for row in solved) if solved else None,
                "worst": worst["ratio"] if worst else None,
                "worst_instance": worst["instance"] if worst else "",
                "wins": len({row["instance"] for row in solved if row["ratio"] == 1.0}),
                "median_gap": median(row["gap"] for row in solved) if solved else None,
                "optimal": len({row["instance"] for row in solved if row["gap"] == 0}),
                "median_seconds": median(row["seconds"] for row in mine),
            }
        )
    return sorted(found, key=lambda line: (-line["solved"], line["geometric_mean"] or 0.0))


def _best(rows: list[Row], field: str, wanted: object) -> Row | None:
    """The best plan among rows whose field has this value; replicas are no plan."""
    solved = [row for row in kept(rows) if row[field] == wanted and row["solver"] != REPLICAS]
    return min(solved, key=lambda row: row["value_ns"], default=None)


def lost_to_baselines(rows: list[Row]) -> list[str]:
    """Sentences about the instances on which a baseline is strictly better than `auto`."""
    found = []
    for instance, mine in grouped(rows, "instance").items():
        simple, automatic = _best(mine, "baseline", True), _best(mine, "solver", "auto")
        if simple and automatic and simple["value_ns"] < automatic["value_ns"]:
            factor = automatic["value_ns"] / simple["value_ns"]
            found.append(f"on {instance} the baseline {simple['solver']} beats `auto` by a factor of {factor:.3f}")
        elif simple and not automatic:
            found.append(f"on {instance} the baseline {simple['solver']} finds a plan and `auto` finds none")
    return found


def better_than_baselines(rows: list[Row]) -> tuple[int, int]:
    """On how many instances `auto` is strictly better than every baseline (or alone finds a plan), of how many."""
    better, total = 0, 0
    for mine in grouped(rows, "instance").values():
        simple, automatic = _best(mine, "baseline", True), _best(mine, "solver", "auto")
        total += any(row["solver"] == "auto" for row in mine)
        better += automatic is not None and (simple is None or automatic["value_ns"] < simple["value_ns"])
    return better, total


def replica_rows(rows: list[Row]) -> list[Row]:
    """Replicas of the whole model against the best pipeline, instance by instance."""
    found = []
    for instance, mine in grouped(rows, "instance").items():
        replicas = [row["value_ns"] for row in mine if row["solver"] == REPLICAS]
        pipelines = [row["value_ns"] for row in kept(mine) if row["solver"] != REPLICAS]
        if replicas and pipelines:
            best = min(pipelines)
            ratio = replicas[0] / best if replicas[0] is not None and best else None
            found.append({"instance": instance, "replicas_ns": replicas[0], "best_ns": best, "ratio": ratio})
    return found


def overruns(rows: list[Row]) -> list[str]:
    """Who was still running two seconds after the limit, and how long it took at worst."""
    worst: dict[str, float] = {}
    for row in rows:
        if is_late(row):
            key = f"{row['solver']} ({row['objective']})"
            worst[key] = max(worst.get(key, 0.0), row["seconds"])
    return [f"{who}: {seconds:.1f} s" for who, seconds in worst.items()]


def _known(rows: list[Row]) -> list[Row]:
    """Instances whose optimum is known, beside the best plan of the run."""
    found = []
    for instance, mine in grouped(rows, "instance").items():
        solved = [row for row in kept(mine) if row["solver"] != REPLICAS]
        if mine[0]["reference_ns"] and solved:
            best, reference = min(row["value_ns"] for row in solved), mine[0]["reference_ns"]
            finders = dict.fromkeys(row["solver"] for row in solved if row["value_ns"] == best)
            line = {"instance": instance, "reference": reference, "best": best, "by": ", ".join(finders)}
            found.append({**line, "ratio": best / reference})
    return found


def _replica_text(rows: list[Row]) -> list[str]:
    compared = replica_rows(rows)
    ratios = [line["ratio"] for line in compared if line["ratio"]]
    beaten = sum(ratio < 1 for ratio in ratios)
    if not compared:
        return []
    how = f"on {beaten} of {len(compared)} instances" if beaten else f"on none of {len(compared)} instances"
    bold = "**" if beaten else ""
    mean = (
        f" (geometric mean of replicas / pipeline {geometric_mean(ratios):.3f}, below 1 = replicas are faster)"
        if ratios
        else ""
    )
    return [f"{bold}Replicas beat the best pipeline {how}{bold}{mean}"]


def _remarks(run: Run) -> Iterator[str]:
    yield from verdict("Overran the time limit by more than 2 s (worst case)", overruns(run.rows))
    crashed = sorted({f"{row['solver']} on {row['instance']}" for row in run.rows if row["note"].startswith("crashed")})
    yield from verdict("Crashed", crashed)


def _losses(run: Run) -> Iterator[str]:
    yield from verdict("A baseline wins", lost_to_baselines(run.rows), most=3)
    yield from (f"{text}." for text in _replica_text(run.rows))
    yield from not_closed(run, "auto")
    yield from _remarks(run)


def _absent(run: Run) -> Iterator[str]:
    absent = [name for name in FAMILIES if name not in {row["family"] for row in run.rows}]
    if absent:
        yield (
            "Left out, because the files are not on this machine (WEFTLINE_DATA names their folder): "
            f"{', '.join(absent)}."
        )


def _said(family: str, run: Run) -> Iterator[str]:
    rows = run.of(family=family)
    yield from verdict("A baseline wins", lost_to_baselines(rows))
    better, total = better_than_baselines(rows)
    if total:
        yield f"`auto` is strictly better than every baseline on {better} of {total} instances."
    for text in _replica_text(rows):
        yield (
            f"{text}: the whole model on every device that can hold it, rates added up. Replicas answer another "
            "question (nothing is split, each device holds all weights, one input is no faster), so they have no ratio "
            "in the table above."
        )


def _worst(line: Row) -> str | None:
    where = f" ({line['worst_instance']})" if line["worst"] and line["worst"] > 1 else ""
    return None if line["worst"] is None else f"{line['worst']:.3f}{where}"


SOLVERS: tuple[Column[Row], ...] = (
    Column("solver", lambda line: f"{line['solver']}{' (baseline)' if line['baseline'] else ''}"),
    Column("solved", lambda line: f"{line['solved']}/{line['instances']}"),
    Column("geo. mean ratio", "geometric_mean", ".3f"),
    Column("worst ratio", _worst),
    *fields("best or equal=wins | optimal | median gap=median_gap:.2% | median s=median_seconds:.3f"),
)
KNOWN: tuple[Column[Row], ...] = (
    *fields("instance | known optimum=reference:time | best here=best:time | by | ratio:.4f"),
)
COPIES: tuple[Column[Row], ...] = (
    *fields("instance | best pipeline=best_ns:time"),
    Column("replicas", lambda r: "does not fit" if r["replicas_ns"] is None else format_time(r["replicas_ns"])),
    Column("replicas / pipeline", "ratio", ".3f"),
)
ROWS: tuple[Column[Row], ...] = (
    *fields("instance | ops | devices | solver | seed"),
    Column("value", lambda row: "none" if row["value_ns"] is None else format_time(row["value_ns"])),
    *fields("bound=bound_ns:time | gap:.2%"),
    Column("by", lambda row: row["bound_by"] or None),
    *fields("proof | s=seconds:.3f | ratio:.3f"),
    Column("stopped by", lambda row: row["note"] or row["stopped_by"]),
)


def _of_family(name: str, run: Run) -> list[Row]:
    return run.of(family=name)


def _family(name: str) -> tuple[Block, ...]:
    known = (
        "The optimum known for the file (rounded) beside the best plan of this run. Below 1 is possible for the "
        "throughput files: their reference is optimal among contiguous partitions with at most one CPU."
    )
    return (
        Table(SOLVERS, lambda run: solver_rows(run.of(family=name)), FAMILIES[name], name),
        Table(KNOWN, lambda run: _known(run.of(family=name)), known),
        lambda run: _said(name, run),
        Table(COPIES, lambda run: replica_rows(run.of(family=name))),
    )


SECTION = Section(
    name="quality",
    title="All solvers on all families",
    chapter="tool",
    asked="Every solver on every instance with {time_limit:g} s (`auto` on pipelines {auto_limit:g} s): published "
    "files, the zoo on presets, synthetic graphs. *Best known* is the best of this run or the published optimum.",
    sizes={"tiny": {"tiny": True, "time_limit": 0.2, "auto_limit": 0.5}, "quick": WHOLE, "full": WHOLE},
    measure=measure,
    screen=(scores("family", "family", solver="auto", in_all=True),),
    losses=_losses,
    blocks=(
        "All solvers begin with the same first lower bound; solvers that are marked as baselines have nothing random "
        "and run once. The value is what the simulator says about the plan, never a solver's own objective. A bound is "
        "*proved* if the independent checker re-computes it from its witness, otherwise *claimed*. Ratio = value / "
        "best value that any solver found on the instance in this run: 1 means nobody was better, not that nobody "
        "could be; the gap says how much better may still be possible. Means are over the instances that a solver "
        "solved, so compare them only where the second column agrees. *Optimal* counts values that equal the solver's "
        "own lower bound; a large gap may be the bound's fault. `auto` uses other solvers and has more time for "
        "pipelines, so it hardly loses to them by construction; that it is strictly better is no matter of course. "
        "Times in the tables are simulated; only the columns in seconds were measured here.",
        _absent,
        *(block for name in FAMILIES for block in _family(name)),
        _remarks,
        "## All rows",
        "One row per instance, solver and seed, as measured. *By* names the method of the lower bound; seconds are "
        "wall time of the search alone, without the common first bound.",
        *(Table(ROWS, partial(_of_family, name), f"**{name}**") for name in FAMILIES),
    ),
    limits=("time_limit", "auto_limit"),
    complete=_complete,
    long=False,
    warm=True,
)
