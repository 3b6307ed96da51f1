"""Placement for latency: every solver on published instances and on the zoo x presets, all with the same time.

In: models, presets, files, seconds. Out: one row per instance and solver: value, bound, seconds. The value is what the
simulator says; all solvers begin with the same first lower bound, which is not on their clock.
Simplified: analytic costs for the zoo; published files keep their own rules.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial
from statistics import median

import msgspec

from benchmarks.instances import MOIRAI, data_folder, on_preset
from benchmarks.measure import Judge, first_line, say, searched
from benchmarks.render import pivot, table
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields
from benchmarks.sections.placement_verdicts import (
    AUTO,
    against,
    compared_again,
    first_runs,
    mean_ratio,
    of_auto,
    verdicts,
    winner,
    wins,
)
from benchmarks.stats import geometric_mean, grouped, is_closed, not_closed, over, ratio, scores
from weftline.ask.questions import lower_bounds
from weftline.cluster import Cluster
from weftline.errors import InfeasibleError
from weftline.latency import solvers
from weftline.latency.prepare import prepare
from weftline.problem import Problem, asked_rules, build_problem, load_problem
from weftline.problem.model import problem_hash, problem_to_file
from weftline.search import Solver
from weftline.units import format_time
from weftline.zoo import architectures, synthetic

__all__ = ["AGAIN", "FILES", "PRESETS", "SECTION", "Question", "measure", "placement_row", "questions"]

FILES = "published"
"""Where a file brings its own devices, this stands for the preset."""
PRESETS = ("laptop", "two-gpus", "four-unequal", "edge")
SECOND = 10**9
WARM_OPS = 40
AGAIN = 3
"""Times that `auto` and the best run again where `auto` was behind."""
RIVALS = (
    "m-sct", "getf", "placeto-greedy", "single-device", "heft", "m-etf", "m-topo", "anneal", "moirai-milp", "cp-sat",
)  # fmt: skip
"""Whose speed-up is shown; Moirai was compared with the first three."""
TRAINED = ("policy", "policy+polish")
"""Solvers with a network that was trained before."""
FULL: Row = {"size": "full", "files": list(MOIRAI)}
SIZES: dict[str, Row] = {
    "tiny": {"size": "small", "models": ["unet"], "presets": ["laptop"], "files": ["example-1"], "time_limit": 0.3},
    "quick": {**FULL, "models": ["inception-v3", "bert"], "presets": ["laptop", "four-unequal"], "time_limit": 3.0},
    "full": {**FULL, "models": None, "presets": list(PRESETS), "time_limit": 15.0},
}


def every_model(settings: Row, _: Namespace | None = None) -> Row:
    """All models of the zoo, where none is named."""
    return {**settings, "models": settings["models"] or list(architectures())}


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
            Question(preset, model, partial(on_preset, model, preset, "latency", settings["size"]))
            for model in settings["models"]
        ]
    return found


def measure(settings: Row, collect: Collector) -> None:
    """All rows, instance by instance."""
    prepare()
    if settings["size"] == "full":
        warm_solvers()
    for question in questions(settings):
        say(f"placement: {question.instance}")
        for solver in asked_solvers():
            key = {"preset": question.preset, "model": question.model, "instance": question.instance}
            make = partial(placement_row, question, solver, settings["time_limit"])
            collect.measure({**key, "solver": solver.name}, make)
        _again(question, settings["time_limit"], collect)


def _again(question: Question, time_limit: float, collect: Collector) -> None:
    """Where `auto` was behind: it and the winner once more, in turn, since near the end one step decides."""
    rows = [row for row in first_runs(collect.rows) if row["instance"] == question.instance]
    best = winner(rows)
    for turn in range(1, AGAIN + 1):
        for name in (best, AUTO) if best is not None else ():
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
        return {**common, "value_ns": None, "note": first_line(error), "seconds": 0.0}
    done = searched(question.problem, solver, time_limit=time_limit, bound=question.judge.first_bound)
    verdict = question.judge.verdict(done.search)
    return {**common, **about, **verdict, "seconds": done.seconds, "note": done.note}


def _file(path: str) -> Problem:
    return load_problem(path, rules={"objective": "latency"})[0]


def _rows(run: Run) -> list[Row]:
    return first_runs(run.rows)


def _said_again(run: Run) -> Iterator[str]:
    found = compared_again(run.rows)
    if found:
        yield (
            "Near the end of a search one step may decide, and a machine is not always equally fast: where `auto` was "
            f"worse, it and the best ran {AGAIN} times again, in turn. Medians of these runs alone: {'; '.join(found)}."
        )


def _none(run: Run) -> Iterator[str]:
    failed = [row for row in _rows(run) if row["value_ns"] is None and not row["note"].startswith("crashed")]
    if failed:
        counts = [f"{solver} {len(rows)}" for solver, rows in grouped(failed, "solver").items()]
        yield f"No plan, by solver and number of instances: {', '.join(counts)}."


def _behind_best(run: Run) -> Iterator[str]:
    behind = [
        f"{row['instance']} {row['value_ns'] / found - 1:.2%}"
        for row in of_auto(_rows(run)).values()
        if (found := run.best.of(row)) and row["value_ns"] > found * 1.0001
    ]
    if behind:
        yield f"Behind the best value that any kept run of any solver has found: {', '.join(behind)}."


def _speed_ups(run: Run) -> list[Row]:
    return [{"who": who, **found} for who in RIVALS if (found := against(_rows(run), who)) is not None]


def _mean_columns(run: Run) -> list[Column[str]]:
    """Of one solver: its mean by preset and in all."""
    rows = _rows(run)

    def cell(part: list[Row], solver: str) -> str | None:
        found = mean_ratio(part, solver)
        if found is None:
            return None
        mine = [row["value_ns"] for row in part if row["solver"] == solver]
        solved = len(mine) - mine.count(None)
        return f"{found:.3f}" if solved == len(mine) else f"{found:.3f} ({solved}/{len(mine)})"

    return [
        Column("solver", str),
        *(Column(name, partial(cell, part)) for name, part in {**grouped(rows, "preset"), "all": rows}.items()),
        Column("best or equal", partial(wins, rows)),
        Column("median s", lambda who: median(row["seconds"] for row in rows if row["solver"] == who), ".2f"),
    ]


def _gaps(run: Run) -> Iterator[str]:
    mine = list(of_auto(_rows(run)).values())
    presets = grouped([row for row in mine if row["preset"] != FILES], "preset")
    found = [max(ratio(row) or 0.0, 1e-9) for row in mine]
    if not found:
        return
    closed = [row for row in mine if is_closed(row)]
    yield "## Bounds of auto"
    yield (
        "Lower bound / value of `auto`, its method, and seconds; 1 means that no better plan exists. Over all "
        f"instances, the published files among them: geometric mean {geometric_mean(found):.4f}, worst "
        f"{min(found):.4f}; closed to 0.01 % on {len(closed)} of {len(mine)} "
        f"({sum(row['proof'] == 'proved' for row in closed)} proved by the independent checker)."
    )
    if presets:
        rows = [row for row in mine if row["preset"] != FILES]
        yield pivot("model", rows, "model", {name: name for name in presets}, lambda row: row["preset"], _gap_cell)
        picks: dict[str, Callable[[list[float]], float]] = {"geo. mean": geometric_mean, "worst": min}
        columns = [[max(ratio(row) or 0.0, 1e-9) for row in each] for each in presets.values()]
        yield table(
            ("all models", *presets), [(name, *(f"{pick(c):.4f}" for c in columns)) for name, pick in picks.items()]
        )


def _gap_cell(row: Row, _: object) -> str:
    return f"{ratio(row):.4f} {row['bound_by']} {row['seconds']:.1f} s"


def _all(run: Run) -> Iterator[str]:
    yield "## All solvers on all instances"
    yield (
        "Value / lower bound at the end of the solver's search / seconds; **bold** where the plan is better than "
        "`auto`'s, `-` where there is none."
    )
    for preset, rows in grouped(_rows(run), "preset").items():
        automatic = of_auto(rows)
        models = {row["model"]: f"{row['model']} ({row.get('ops', 0)} ops)" for row in rows}
        yield f"### {preset}"
        yield pivot("solver", rows, "solver", models, lambda row: row["model"], partial(_cell, automatic))


def _cell(automatic: dict[str, Row], row: Row, _: object) -> str:
    if row["value_ns"] is None:
        return f"- / - / {row['seconds']:.1f}"
    text = f"{format_time(row['value_ns'])} / {format_time(row['bound_ns'])} / {row['seconds']:.1f}"
    mine = automatic.get(row["instance"])
    return f"**{text}**" if mine is None or row["value_ns"] < mine["value_ns"] else text


def _losses(run: Run) -> Iterator[str]:
    yield from (text for text in verdicts(_rows(run), most=3) if text.startswith("**"))
    again = compared_again(run.rows)
    if again:
        yield f"Where `auto` was worse, both ran {AGAIN} times again; medians: {'; '.join(again)}."
    yield from not_closed(run, AUTO)


SHOWN = ("anneal", "policy+polish", "policy", "heft", "single-device", "cp-sat", "moirai-milp", "getf", "m-etf")
"""Of the solvers, those on the screen."""


def _screen_table(run: Run) -> Iterator[str]:
    """One line: how far others are behind, as means over all instances."""
    found = {who: mean_ratio(_rows(run), who) for who in SHOWN}
    shown = [f"{who} {value:.3f}" for who, value in found.items() if value is not None]
    yield f"Geometric means of another solver's value / `auto`'s, in the same time: {', '.join(shown)}."


SECTION = Section(
    name="placement",
    title="Placement for latency",
    chapter="latency",
    asked="Place ten models on four preset clusters, and the published samples of Moirai, so that one input is through "
    "soon; every solver has {time_limit:g} s on each.",
    sizes=SIZES,
    measure=measure,
    screen=(scores("cluster", "preset", solver=AUTO), _screen_table),
    losses=_losses,
    blocks=(
        "All solvers of `weftline plan --solver help`, objective latency, parallel runtime, seed 0, on the wall clock: "
        "`auto` has no more time than any solver that it uses. Models of the zoo at size {size}, without weights, "
        "analytic costs; the published files are the samples of Moirai with their own devices and rules (one transfer "
        "per edge, static memory). Every solver begins with the same first lower bound, which is not on its clock. "
        "Values are the simulator's; no solver reports its own. Simple solvers are done long before the limit and "
        "cannot use more time.",
        lambda run: verdicts(_rows(run)),
        _none,
        _said_again,
        Table(
            (
                Column("against", lambda line: "best single device" if line["who"] == "single-device" else line["who"]),
                Column("instances", "count"),
                Column("geo. mean", "mean", lambda value: f"{value:.3f}x"),
                Column("largest", lambda line: f"{line['most']:.2f}x ({line['most_where']})"),
                Column("smallest", lambda line: f"{line['least']:.3f}x ({line['least_where']})"),
                Column("only auto has a plan", "alone"),
            ),
            _speed_ups,
            "Latency of the other's plan / latency of `auto`'s plan, over the instances on which both have one. Moirai "
            "was compared with the first three and its paper reports 4.28x as its best case; models, devices and "
            "implementations differ, so this is no comparison with Moirai.",
            "Speed-up of auto",
        ),
        Table(
            _mean_columns,
            lambda run: grouped(_rows(run), "solver"),
            "Geometric mean of the solver's value / `auto`'s value (above 1: `auto` is better), over the instances "
            "that the solver solved, whose number stands behind it where it is not all; then on how many instances "
            "nobody has anything better, and the median of its seconds.",
            "Means by preset",
        ),
        _gaps,
        Table(
            (
                *fields("file=instance | known optimum=reference_ns:time | auto=value_ns:time"),
                Column("auto / optimum", lambda row: over(row, "value_ns", "reference_ns"), ".5f"),
                Column("bound / auto", ratio, ".5f"),
                Column("s", "seconds", ".1f"),
            ),
            lambda run: [row for row in of_auto(_rows(run)).values() if row["reference_ns"]],
            "Published files beside their optima, known from outside and rounded:",
        ),
        _behind_best,
        _all,
    ),
    complete=every_model,
)
