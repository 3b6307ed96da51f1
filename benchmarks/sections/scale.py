"""How planning grows: 1,000 to 100,000 ops, as pipelines and as placements, each graph in a process of its own.

In: kinds of graphs, sizes, seconds. Out: one row each with value, bound, seconds, peak memory of the process, and
other solvers by themselves: `slice` beside pipelines, HEFT and the best single device beside placements. Simplified:
memory of the devices is unlimited unless the kind says otherwise; peak memory is that of a whole Python process.

    python -m benchmarks.sections.scale OBJECTIVE KIND OPS SECONDS      one row as JSON on stdout
"""

from __future__ import annotations

import json
import resource
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from time import perf_counter, process_time

import msgspec

from benchmarks.clock import exponent
from benchmarks.instances import flat_cluster
from benchmarks.measure import plan_row, row_of_process, run_solver, say, warm_up
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields
from benchmarks.stats import grouped, kept, misses, not_closed, over, ratio, scores
from weftline.cluster import Cluster
from weftline.latency import solvers as place_solvers
from weftline.pipeline import solvers as partition_solvers
from weftline.problem import Problem, asked_rules, build_problem
from weftline.search import Search
from weftline.units import format_bytes, format_time
from weftline.zoo import synthetic, zoo_graph

__all__ = ["PIPELINES", "PLACEMENTS", "main"]

PIPELINE, PLACEMENT = "throughput", "latency"
DEVICES = 8
PRESET = "four-unequal"
LIMITED = ", memory limited"
SEED = 7
WARM = 200
OPS_PER_LAYER = 34
"""Of the zoo's gpt2, roughly; the row has the exact number of ops."""
LONGEST_SLICE, LONGEST = 40.0, 120.0
"""Wall seconds for other solvers alone."""
RIVALS = {"heft": ("heft", "HEFT"), "single": ("single-device", "the best single device")}
"""What columns begin with -> solver, name."""
PIPELINE_SIZES: dict[str, Row] = {
    "tiny": {"kinds": ["layered"], "sizes": {"300": 1.0}},
    "quick": {"kinds": ["layered", "gpt"], "sizes": {"1000": 8.0, "10000": 15.0}},
    "full": {
        "kinds": ["layered", "gpt"],
        "sizes": {"1000": 30.0, "3000": 30.0, "10000": 30.0, "30000": 30.0, "100000": 120.0},
    },
}
PLACEMENT_SIZES: dict[str, Row] = {
    "tiny": {"kinds": ["layered"], "sizes": {"200": 0.5}},
    "quick": {"kinds": ["layered", "transformer_like"], "sizes": {"1000": 5.0, "10000": 10.0}},
    "full": {
        "kinds": ["layered", "transformer_like", f"layered{LIMITED}"],
        "sizes": {"1000": 60.0, "3000": 60.0, "10000": 60.0, "30000": 60.0, "100000": 120.0},
    },
}


def _complete(settings: Row, asked: Namespace) -> Row:
    return {**settings, "sizes": {ops: asked.time_limit or seconds for ops, seconds in settings["sizes"].items()}}


def _measure(objective: str, settings: Row, collect: Collector) -> None:
    """All rows, the small ones first."""
    where = f" on {PRESET}" if objective == PLACEMENT else ""
    for ops, seconds in settings["sizes"].items():
        for kind in settings["kinds"]:
            say(f"scale, {objective}: {kind}, {int(ops):,} ops")
            key = {"kind": kind, "asked_ops": int(ops), "instance": f"{kind} {ops}{where}"}
            words = "sections.scale", objective, kind, ops, seconds
            collect.measure(key, partial(row_of_process, *words, ops=int(ops), seconds=seconds))


def main(words: list[str]) -> int:
    """Warm up, build, plan, then other solvers by themselves."""
    objective, kind, ops, seconds = words[0], words[1], int(words[2]), float(words[3])
    warm_up(_problem(objective, kind, WARM), min(3.0, seconds))
    begun = perf_counter()
    problem = _problem(objective, kind, ops)
    built = perf_counter() - begun
    row = plan_row(problem, time_limit=seconds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    others = _slice(problem) if objective == PIPELINE else _rivals(problem)
    edges = sum(len(tensor.consumers) for tensor in problem.graph.tensors if tensor.producer >= 0)
    more = {"edges": edges, "build_seconds": round(built, 3), "peak_bytes": peak}
    print(json.dumps({**row, **others, **more}))
    return 0


def _problem(objective: str, kind: str, ops: int) -> Problem:
    cluster = flat_cluster(DEVICES) if objective == PIPELINE else Cluster.preset(PRESET)
    if not kind.endswith(LIMITED):
        devices = tuple(msgspec.structs.replace(device, memory=None, reserve=0) for device in cluster.devices)
        cluster = msgspec.structs.replace(cluster, devices=devices)
    if kind == "gpt":
        graph = zoo_graph("gpt2", layers=max(1, ops // OPS_PER_LAYER))
    else:
        graph = synthetic(kind.removesuffix(LIMITED), ops=ops, seed=SEED)
    return build_problem(graph, cluster, rules=asked_rules({"objective": objective}))


def _slice(problem: Problem) -> Row:
    """The slice solver by itself, until it is done or takes too long; processor time."""
    search = Search(problem, time_limit=LONGEST_SLICE, solver="slice")
    begun = process_time()
    partition_solvers()["slice"].solve(search)
    value = None if search.best is None else search.best.value
    taken = round(process_time() - begun, 4)
    return {"slice_seconds": taken, "slice_ns": value, "slice_done": not search.stopped_by}


def _rivals(problem: Problem) -> Row:
    found: Row = {}
    for column, (name, _) in RIVALS.items():
        search = Search(problem, time_limit=LONGEST, solver=name)
        run_solver(place_solvers()[name], search)
        value = None if search.best is None else int(search.best.value)
        found |= {f"{column}_ns": value, f"{column}_seconds": round(search.seconds, 3)}
    return found


def _value(row: Row) -> str:
    return f"none: {row['note']}" if row["value_ns"] is None else format_time(row["value_ns"])


def _of_plan(cell: Callable[[Row], object]) -> Callable[[Row], object]:
    """Nothing where there is no plan."""
    return lambda row: None if row["value_ns"] is None else cell(row)


def _common(run: Run) -> tuple[Column[Row], ...]:
    return (
        *fields("graph=kind | ops:, | edges:, | limit s=time_limit:g"),
        Column("value", _value),
        Column("bound / value", ratio, ".4f"),
        Column("by", "bound_by"),
        Column("value / best known", _of_plan(run.best.compared)),
    )


SECONDS: tuple[Column[Row], ...] = (
    Column("search s", "search_seconds", ".1f"),
    Column("call s", _of_plan(lambda row: row["seconds"]), ".1f"),
    Column("peak memory", "peak_bytes", format_bytes),
)


def _slice_text(row: Row) -> str | None:
    done = row.get("slice_done", True)
    return f"{'' if done else '> '}{row['slice_seconds']:.2f}" if "slice_seconds" in row else None


def _pipeline_columns(run: Run) -> list[Column[Row]]:
    more: tuple[Column[Row], ...] = (
        Column("slice s", _slice_text),
        Column("slice / plan", lambda r: over(r, "slice_ns", "value_ns"), ".4f"),
    )
    return [*_common(run), *SECONDS, *more]


def _factor(column: str, row: Row) -> object:
    """Of another solver's value to the plan's."""
    return "no plan" if row[f"{column}_ns"] is None else f"{over(row, f'{column}_ns', 'value_ns') or 0:.3f}"


def _placement_columns(run: Run) -> list[Column[Row]]:
    factors = [Column(f"{column} / plan", _of_plan(partial(_factor, column))) for column in RIVALS]
    proof: tuple[Column[Row], ...] = (
        Column("bound", _of_plan(lambda row: row["bound_ns"]), format_time),
        Column("proof", "proof"),
    )
    return [*_common(run), *proof, *factors, *SECONDS, Column("heft s", "heft_seconds", ".2f")]


def _growth(run: Run) -> Iterator[str]:
    """Exponents of the slice solver; one that was stopped says nothing about growth."""
    found = []
    for kind, rows in grouped(kept(run.rows), "kind").items():
        mine = [row for row in rows if row["slice_seconds"] > 0 and row.get("slice_done", True)]
        if len(mine) > 1:
            slope = exponent([float(row["ops"]) for row in mine], [row["slice_seconds"] for row in mine])
            found.append(f"{kind} {slope:.2f}")
    text = "Fitted exponent of the slice solver's time against the number of ops (1 = linear)"
    if found:
        yield f"{text}: {', '.join(found)}."


def _against(run: Run) -> Iterator[str]:
    solved, said = kept(run.rows), []
    for column, (_, name) in RIVALS.items():
        both = [row for row in solved if row[f"{column}_ns"] is not None]
        better = sum(row["value_ns"] < row[f"{column}_ns"] for row in both)
        equal = sum(row["value_ns"] == row[f"{column}_ns"] for row in both)
        worse = [row["instance"] for row in both if row["value_ns"] > row[f"{column}_ns"]]
        alone = f", {name} has no plan on {len(solved) - len(both)} more" if len(both) < len(solved) else ""
        lost = f"**worse on {len(worse)}: {', '.join(worse)}**" if worse else "worse on none"
        said.append(f"Against {name}: better on {better} of {len(both)}, equal on {equal}, {lost}{alone}.")
    yield " ".join(said)


def _losses(run: Run) -> Iterator[str]:
    yield from not_closed(run)
    yield from misses(run.rows, most=3)


PIPELINES = Section(
    name="scale",
    title="Pipelines of large graphs",
    chapter="throughput",
    asked="Plan graphs of 1,000 to 100,000 ops as pipelines on eight equal devices, each in a process of its own.",
    sizes=PIPELINE_SIZES,
    measure=partial(_measure, PIPELINE),
    screen=(scores("asked ops", "asked_ops", in_all=True),),
    losses=_losses,
    blocks=(
        "Synthetic graphs and deep GPTs; the GPU and NVLink of the preset eight-gpus, memory unlimited. *Search* is "
        "the search with its bounds; *call* is the whole of `make_plan`. Peak memory is the resident set of the "
        "process, which holds Python, all libraries, the graph and the plan. *Slice* is the slice solver alone: "
        "processor seconds, and its value / the plan's; > means that it was stopped after 40 s of wall time.",
        Table(_pipeline_columns),
        lambda run: misses(run.rows),
        _growth,
    ),
    limits=(),
    complete=_complete,
)
PLACEMENTS = Section(
    name="placement-scale",
    title="Placement of large graphs",
    chapter="latency",
    asked="Place graphs of 1,000 to 100,000 ops on four unequal devices for latency, each in a process of its own.",
    sizes=PLACEMENT_SIZES,
    measure=partial(_measure, PLACEMENT),
    screen=(scores("asked ops", "asked_ops", in_all=True), _against),
    losses=_losses,
    blocks=(
        "Synthetic graphs on the preset four-unequal, parallel runtime, `auto`. The devices' memory is unlimited (the "
        "largest graphs fit on no device, some not even on all), except where the kind says *memory limited*. *Search* "
        "is the search with its bounds; *call* is the whole of `make_plan`, with baselines, the plan and, up to 5,000 "
        "ops, its check. Peak memory is the resident set of the process, which holds Python, all libraries, the graph "
        "and the plan. HEFT and single devices run by themselves afterwards; their columns are their value / the "
        "plan's: above 1 the plan is better.",
        _against,
        lambda run: misses(run.rows),
        Table(_placement_columns),
    ),
    limits=(),
    complete=_complete,
)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
