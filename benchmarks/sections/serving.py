"""What the rate by tables is worth: layouts of Helix's cluster of 24 nodes, simulated token by token.

In: Helix's instance and profiles (if present). Out: one row for each layout: depth, the rate by tables, by Little's law
and simulated, the time to the first token and the time per token. Layouts: Helix's own, the front over the depth of a
plan, and stages of equal devices, the best of them by Little's law. Simplified: drawn lengths of requests, offline.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any, NamedTuple

from benchmarks.instances import data_folder
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields
from benchmarks.sections.layers import helix_file, helix_problem
from benchmarks.stats import busy_words
from weftline.ask.layers import make_layer_plan
from weftline.errors import InfeasibleError
from weftline.fleet.flows import best_deployment
from weftline.fleet.serving import ServingRow, crossed_lanes, rank_layouts, serve_front, stage_lanes
from weftline.problem.layers import LayerInstance, LayerLane, LayerProblem
from weftline.problem.serving import ServingRules, profile_for, read_serving, sample_requests
from weftline.simulate.serving import Spread

__all__ = ["SECTION"]

CLUSTER, THEIRS = "single24", "Helix's own"
HELIX_COPY_NS = 7373
"""Of a token into the memory of a node: 16,384 bytes at 4 GB/s and again at 5 GB/s, as in Helix's simulator."""
NAMED_STAGES = {"A100 10, L4 7 x 2, T4 4 x 4": "kp1"}
"""The layout that a prototype found by Little's law, always among those simulated."""
HELIX_SIMULATED = {THEIRS: 252.08, "kp1": 298.05}
"""Tokens per second that Helix's own simulator gives, same rules, its own requests (full runs, offline)."""
SIDE_BY_SIDE = (1, 2, 3, 4, 6)
"""Equal devices of a stage."""
SIZES: dict[str, Row] = {
    "tiny": {"requests": 1500, "time_limit": 2.0, "points": 2, "stage_plans": 1, "more_seeds": [1]},
    "quick": {"requests": 1500, "time_limit": 5.0, "points": 4, "stage_plans": 3, "more_seeds": [1]},
    "full": {"requests": 3000, "time_limit": 60.0, "points": 24, "stage_plans": 6, "more_seeds": [1, 2]},
}


class Layout(NamedTuple):
    """What is to be served."""

    instances: tuple[LayerInstance, ...]
    lanes: tuple[LayerLane, ...]


def measure(settings: Row, collect: Collector) -> None:
    """All rows; none where a file is absent."""
    file, problem = helix_file(CLUSTER), helix_problem(CLUSTER)
    profiles = data_folder() / "helix" / "profiles.json"
    if file is None or problem is None or not profiles.is_file():
        return
    profile, rules = profile_for(problem, read_serving(profiles)), ServingRules(copy_ns=HELIX_COPY_NS)
    requests = sample_requests(settings["requests"], seed=0)
    layouts = {THEIRS: _their_layout(problem, file)}
    layouts |= _front(problem, settings)
    stages = _stage_layouts(problem)
    best = rank_layouts(problem, list(stages.values()), profile, requests, rules)[: settings["stage_plans"]]
    chosen = [list(stages)[number] for number, _ in best]
    layouts |= {name: stages[name] for name in (*chosen, *NAMED_STAGES) if name in stages}
    crossed = [Layout(one.instances, crossed_lanes(problem, one)) for one in layouts.values()]
    rows = serve_front(problem, crossed, profile, requests, rules, simulated=len(crossed))
    again: dict[int, list[float]] = {number: [] for number in range(len(crossed))}
    for seed in settings["more_seeds"]:
        drawn = sample_requests(settings["requests"], seed=seed)
        for other in serve_front(problem, crossed, profile, drawn, rules, simulated=len(crossed)):
            if other.run is not None:
                again[other.layout].append(other.run.rate / 10**6)
    for row in rows:
        name = list(layouts)[row.layout]
        found = {**_row(row, name), "again": again[row.layout]}
        collect.measure({"layout": name}, lambda found=found: found)  # type: ignore[misc]


def _their_layout(problem: LayerProblem, file: dict[str, Any]) -> Layout:
    """The layers that Helix's solution puts on each node, with the largest flow through its links."""
    number = {name: device for device, name in enumerate(problem.device_names())}
    instances = [
        LayerInstance(_unit(problem, number[node]), (number[node],), first, last)
        for node, (first, last) in file["theirs"]["layout"].items()
    ]
    found = best_deployment(problem, instances)
    return Layout(found.instances, found.lanes)


def _unit(problem: LayerProblem, device: int) -> int:
    pool = problem.pool_of[device]
    return next(number for number, unit in enumerate(problem.units) if unit.pool == pool)


def _front(problem: LayerProblem, settings: Row) -> dict[str, Layout]:
    """The points of a plan's front, the deepest first."""
    plan = make_layer_plan(problem, time_limit=settings["time_limit"])
    points = sorted(plan.front, key=lambda point: -point.depth)[: settings["points"]]
    return {
        f"plan, at most {point.depth}": Layout(
            tuple(LayerInstance(unit, devices, first, last) for unit, devices, first, last in point.instances),
            point.lanes,
        )
        for point in points
    }


def _stage_layouts(problem: LayerProblem) -> dict[str, Layout]:
    """All devices in stages; those of one kind are all alike: so many layers on so many devices side by side."""
    ways = []
    for number, unit in enumerate(problem.units):
        count = problem.pools[unit.pool].count
        wide = [width for width in SIDE_BY_SIDE if count % width == 0]
        ways.append([(number, held, width) for width in wide for held in range(1, len(unit.rates) + 1)])
    found = {}
    for choice in product(*ways):
        many = [problem.pools[problem.units[u].pool].count // width for u, _, width in choice]
        if sum(held * count for (_, held, _), count in zip(choice, many, strict=True)) == problem.layers:
            order = sorted(zip(choice, many, strict=True), key=lambda one: -one[0][1])
            instances = _staged(problem, [way for way, count in order for _ in range(count)])
            names = [f"{problem.units[u].name} {k}{f' x {w}' if w > 1 else ''}" for (u, k, w), _ in order]
            try:
                found[", ".join(names)] = Layout(instances, stage_lanes(problem, instances))
            except InfeasibleError:  # a unit serves nothing while it holds so many
                continue
    return found


def _staged(problem: LayerProblem, stages: Sequence[tuple[int, int, int]]) -> tuple[LayerInstance, ...]:
    """(unit, layers, devices side by side) of each stage, on the next free devices."""
    free, first, instances = list(problem.offsets), 0, []
    for unit, held, width in stages:
        pool = problem.units[unit].pool
        for _ in range(width):
            instances.append(LayerInstance(unit, (free[pool],), first, first + held))
            free[pool] += 1
        first += held
    return tuple(instances)


def _row(row: ServingRow, name: str) -> Row:
    assert row.run is not None
    return {
        "kind": "theirs" if name == THEIRS else "front" if name.startswith("plan") else "stages",
        "known_as": NAMED_STAGES.get(name, ""),
        "depth": row.depth,
        "table_rate": row.table_rate / 10**6,
        "little": row.convoy.rate / 10**6,
        "rate": row.run.rate / 10**6,
        "first": _spread(row.run.first),
        "token": _spread(row.run.token),
        "best": row.best,
    }


def _spread(spread: Spread) -> list[float]:
    return [spread.mean_ns / 10**9, spread.p95_ns / 10**9]


def _pair(values: list[float]) -> str:
    return f"{values[0]:.2f}, {values[1]:.2f}"


def _name(row: Row) -> str:
    known = f" ({row['known_as']})" if row["known_as"] else ""
    return f"**{row['layout']}**{known}" if row["best"] else f"{row['layout']}{known}"


def _chosen(run: Run) -> list[Row]:
    """What the screen shows: Helix's layout, the plan for the most by tables, and what is best when it is simulated."""
    wanted = run.of(kind="theirs")
    front = run.of(kind="front")
    for rows in (front, run.of(kind="stages")):
        wanted += [max(rows, key=lambda row: row["rate"])] if rows else []
    wanted += [max(front, key=lambda row: row["table_rate"])] if front else []
    wanted += [row for row in run.rows if row["known_as"]]
    wanted += [min(run.rows, key=lambda row: row["first"][0])] if run.rows else []
    return [row for row in run.rows if row in wanted]


def _verdict(run: Run) -> Iterator[str]:
    theirs, ours = run.of(kind="theirs"), [row for row in run.rows if row["kind"] != "theirs"]
    if not theirs or not ours:
        return
    (base,), best = theirs, max(ours, key=lambda row: row["rate"])
    both = [row for row in ours if row["rate"] > base["rate"] and row["first"][0] < base["first"][0]]
    said = (
        f"In our simulator the best of ours makes **{best['rate']:.0f}** tokens per second ({best['layout']}), Helix's "
        f"own layout {base['rate']:.0f} ({best['rate'] / base['rate'] - 1:+.1%}). {len(both)} of our {len(ours)} "
        "layouts are better than Helix's in both, tokens per second and time to the first token."
    )
    if base["again"]:
        more = ", ".join(f"{a / b - 1:+.1%}" for a, b in zip(best["again"], base["again"], strict=True))
        said += f" The best was chosen by seed 0 of the lengths; with other seeds it is {more} against Helix's own."
    yield said


def _losses(run: Run) -> Iterator[str]:
    theirs, front, said = run.of(kind="theirs"), run.of(kind="front"), []
    if front:
        most = max(front, key=lambda row: row["table_rate"])
        against = f", Helix's own {theirs[0]['rate']:.0f}" if theirs else ""
        yield (
            f"**The rate by tables misleads:** the plan with the most ({most['table_rate']:,.0f}, {most['depth']} in a "
            f"row) makes {most['rate']:.0f} tokens per second when it is simulated{against}. Ask with --max-depth, and "
            "rank by serving."
        )
    if theirs:
        slower = [row["layout"] for row in run.rows if row["rate"] < theirs[0]["rate"]]
        later = [row["layout"] for row in run.rows if row["first"][0] > theirs[0]["first"][0]]
        said.append(
            f"Fewer tokens per second than Helix's own: {len(slower)} of {len(run.rows) - 1}; later first tokens: "
            f"{len(later)} of {len(run.rows) - 1}."
        )
    own = [(row, HELIX_SIMULATED.get(row["known_as"] or row["layout"])) for row in run.rows]
    if told := [f"{r['known_as'] or r['layout']} {rate} ({r['rate'] / rate - 1:+.1%})" for r, rate in own if rate]:
        said.append(f"Only these were run in Helix's own simulator (and ours is so far from it): {', '.join(told)}.")
    off = [row["little"] / row["rate"] - 1 for row in run.rows if row["rate"]]
    if off:
        said.append(
            f"Little's law is {min(off):+.0%} to {max(off):+.0%} off the simulation: it ranks, it does not promise."
        )
    if said:
        yield " ".join(said)


COLUMNS = (
    *fields("in a row=depth | by tables=table_rate:,.1f | by Little=little:.1f | simulated tokens/s=rate:.1f"),
    Column("other seeds", "again", lambda rates: ", ".join(f"{rate:.1f}" for rate in rates)),
    *(Column(title, name, _pair) for title, name in (("first token, s", "first"), ("per token, s", "token"))),
)
SECTION = Section(
    name="serving",
    title="Language models, served: what is the rate by tables worth?",
    chapter="throughput",
    asked="Simulate layouts of Helix's cluster of 24 nodes (Llama 2 70B, {requests} requests, offline, 60 s + 600 s). "
    "Times are mean, 95th percentile; bold: no other layout is better in both, tokens per second and first token.",
    sizes=SIZES,
    measure=measure,
    screen=(Table((Column("layout", _name), *COLUMNS), _chosen), _verdict),
    losses=_losses,
    blocks=(
        busy_words,
        _verdict,
        "*by tables*: tokens per second by the tables of Helix's file, prompts and answers together, which is what "
        "[plans](layers.md) have most of. All others count tokens of answers. *by Little*: the estimate of Little's "
        "law with convoys. *simulated*: every request and every token, lanes crossed; lengths drawn with seed 0, in "
        "*other seeds* with others. *plan, at most N*: a point of the front of one plan of {time_limit:g} s. Layouts "
        "of stages: layers of each kind of node, x nodes side by side; of all of them the {stage_plans} best by "
        "Little's law, and kp1, which a prototype found.",
        Table((Column("layout", _name), *COLUMNS)),
    ),
    empty="Left out, because the files are not on this machine (WEFTLINE_DATA names their folder).",
    long=False,
    warm=False,
)
