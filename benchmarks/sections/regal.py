"""REGAL-like random graphs: how near bound and value come where graphs are wide and nothing can be reduced.

In: families, seeds, numbers of stages. Out: one row per graph and k, beside it what W / k alone says.
Simplified: the graphs are of our own generator, which follows the published recipe.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator
from functools import partial

from benchmarks.measure import plan_row, say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields
from benchmarks.stats import geometric_mean, grouped, kept, misses, not_closed, over, ratio, scores
from weftline.bounds import load_bound
from weftline.cost import devices_of_file, expand_file_costs
from weftline.problem import Problem, asked_rules
from weftline.zoo import regal_costs, synthetic

__all__ = ["SECTION", "regal_draws", "regal_problem"]

FAMILIES = ("erdos_renyi", "barabasi_albert", "watts_strogatz", "block_model")
OPS = (50, 80, 120, 160, 200)
GOALS = {4: 0.94, 8: 0.94, 16: 0.95}
NEAR = 0.01
SIZES: dict[str, Row] = {
    "tiny": {"graphs": 1, "stages": [4], "time_limit": 1.0},
    "quick": {"graphs": 4, "stages": [8], "time_limit": 8.0},
    "full": {"graphs": 20, "stages": [4, 8, 16], "time_limit": 60.0},
}


def _complete(settings: Row, asked: Namespace) -> Row:
    return {**settings, "graphs": asked.graphs or settings["graphs"]}


def regal_draws(count: int) -> list[tuple[str, int, int]]:
    """Family, ops, seed: the families take turns, and each goes through all sizes."""
    return [(FAMILIES[i % 4], OPS[i // 4 % len(OPS)], i) for i in range(count)]


def regal_problem(family: str, ops: int, seed: int, stages: int) -> Problem:
    """One graph with REGAL's unit costs on equal devices."""
    graph = synthetic(family, ops=ops, seed=seed)
    costs = regal_costs(graph, stages)
    rules = asked_rules({"objective": "throughput"})
    return Problem(graph, devices_of_file(costs), expand_file_costs(costs), rules)


def measure(settings: Row, collect: Collector) -> None:
    """All rows, graph by graph."""
    for family, ops, seed in regal_draws(settings["graphs"]):
        for stages in settings["stages"]:
            key = {"family": family, "instance": f"{family} {ops} seed {seed}", "stages": stages}
            say(f"regal: {key['instance']}, k = {stages}")
            collect.measure(key, partial(_row, family, ops, seed, stages, settings["time_limit"]))


def _row(family: str, ops: int, seed: int, stages: int, time_limit: float) -> Row:
    problem = regal_problem(family, ops, seed, stages)
    return {**plan_row(problem, time_limit=time_limit), "load_ns": int(load_bound(problem).value)}


def _mean(rows: list[Row]) -> float:
    return geometric_mean(ratio(row) or 1e-9 for row in rows)


def _work_mean(rows: list[Row]) -> float:
    return geometric_mean(row["load_ns"] / row["value_ns"] for row in rows)


def _by_stages(run: Run) -> list[Row]:
    """One line per k."""
    found = []
    for stages, rows in grouped(kept(run.rows), "stages").items():
        mean, goal = _mean(rows), GOALS.get(stages, 0.94)
        worst = min(rows, key=lambda row: ratio(row) or 0.0)
        compared = [row for row in rows if run.best.is_comparable(row)]
        near = sum(row["value_ns"] <= (run.best.of(row) or row["value_ns"]) * (1 + NEAR) for row in compared)
        found.append(
            {
                "k": stages,
                "graphs": len(rows),
                "work": _work_mean(rows),
                "best": mean,
                "goal": f">= {goal}: {'reached' if mean >= goal else 'missed'}",
                "missed": mean < goal,
                "worst": f"{ratio(worst):.4f} ({worst['instance']})",
                "near": f"{near}/{len(compared)}" if compared else "nothing to compare",
                "far": len(compared) - near,
                "seconds": max(row["seconds"] for row in rows),
            }
        )
    return found


def _family_columns(run: Run) -> list[Column[str]]:
    def cell(stages: int, family: str) -> str | None:
        mine = kept(run.of(family=family, stages=stages))
        return f"{_work_mean(mine):.3f} -> {_mean(mine):.3f}" if mine else None

    return [Column("family", str), *(Column(f"k = {k}", partial(cell, k)) for k in grouped(run.rows, "stages"))]


def _all_columns(run: Run) -> list[Column[Row]]:
    return [
        *fields("graph=instance | k=stages | value=value_ns:time"),
        Column("value / best known", run.best.compared),
        Column("best bound / value", ratio, ".4f"),
        Column("by", "bound_by"),
        Column("W / k", lambda row: over(row, "load_ns", "value_ns"), ".4f"),
        *fields("stopped by=stopped_by | s=seconds:.1f"),
    ]


def _losses(run: Run) -> Iterator[str]:
    for line in _by_stages(run):
        if line["missed"]:
            yield f"**Goal missed at k = {line['k']}:** mean {line['best']:.4f}, worst {line['worst']}; {line['goal']}."
        if line["far"]:
            yield f"More than 1 % behind the best known value at k = {line['k']} on {line['far']} graphs."
    yield from not_closed(run)
    yield from misses(run.rows, most=3)


SECTION = Section(
    name="regal",
    title="Pipelines of random graphs",
    chapter="throughput",
    asked="Cut {graphs} wide random graphs after REGAL's recipe (50 to 200 ops, nothing can be reduced) into k stages; "
    "at most {time_limit:g} s each. The goal is a mean bound / value of 0.94 (0.95 at k = 16).",
    sizes=SIZES,
    measure=measure,
    screen=(scores("k", "stages", in_all=True),),
    losses=_losses,
    blocks=(
        "Our own generator: four families in turn, unit costs around 50 for ops and tensors, seed 0. *W / k* is the "
        "work bound alone over the value; *best* is the best bound over the value; geometric means. The best known "
        "value is over all runs that were ever kept, also longer ones; a graph that was planned once has nothing to be "
        "compared with.",
        Table(
            (
                *fields("k | graphs | W / k=work:.4f | best:.4f | goal | worst best=worst"),
                *fields("within 1 % of best known=near | max s=seconds:.1f"),
            ),
            _by_stages,
        ),
        Table(_family_columns, lambda run: grouped(run.rows, "family"), "W / k -> best, by family:"),
        lambda run: misses(run.rows),
        Table(_all_columns, lambda run: kept(run.rows)),
    ),
    complete=_complete,
    warm=True,
)
