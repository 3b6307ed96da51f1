"""The policy on graphs and clusters it was not trained on, as ratios to annealing with 100,000 steps.

In: how many of each kind. Out: one row per instance, with the value of every method and the seconds of those that are
compared at equal time; `policy_summary` makes geometric means and worst cases of them. Both controls stand beside the
policy: as many random decodes, and annealing for as long. Simplified: one seed; the clock is the wall's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import perf_counter

import numpy as np

from benchmarks.instances import on_preset
from benchmarks.measure import say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.sections.placement import PRESETS, every_model
from benchmarks.stats import geometric_mean
from weftline.errors import InfeasibleError
from weftline.latency import solvers
from weftline.latency.anneal import anneal_starts
from weftline.latency.anneal.annealer import PlacementAnnealer
from weftline.latency.anneal.backfill import backfill
from weftline.latency.policy import Policy, PolicyParameters, asked_weights, offer_plans, polish
from weftline.latency.policy.forward_backward import booked_again
from weftline.latency.policy.instances import draw_cluster, draw_graph
from weftline.latency.policy.network import PolicyOutput, Weights
from weftline.latency.policy.samples import no_bias
from weftline.latency.prepare import prepare
from weftline.problem import Problem
from weftline.search import Search
from weftline.simulate.tables import tables
from weftline.zoo import synthetic, zoo_graph

__all__ = ["HELD_OUT", "METHODS", "SECTION", "policy_instances", "policy_summary"]

HELD_OUT = ("transformer_like", "watts_strogatz", "block_model", "chain")
"""Families of the zoo that training never sees."""
KINDS = ("real", "held-out family", "training family", "all")
STEPS = 100_000
"""Of the annealing that everything is compared with."""
SEED = 20_000
SHOWN = (
    "best heuristic", "policy, best of 64", "control 1: as many random decodes", "control 1 + 2k steps",
    "policy + 2k steps",
)  # fmt: skip
"""On the screen, out of METHODS."""
METHODS = (
    "best single device", "HEFT", "cPEFT", "best heuristic", "policy, argmax", "policy, one decode",
    "policy, one decode booked again, or a single device",
    "policy, one decode and one look back, or a single device",
    "control: cPEFT and one look back, or a single device",
    "policy, best of 64", "control 1: as many random decodes", "control 2: annealing for the same time",
    "best heuristic + 2k steps", "control 1 + 2k steps", "policy + 2k steps", "policy + 20k steps",
)  # fmt: skip
WHOLE: Row = {"ops": [60, 150, 400], "size": "full", "steps": STEPS}
SIZES: dict[str, Row] = {
    "tiny": {"ops": [30], "size": "small", "steps": 2_000, "models": ["unet"], "presets": ["laptop"]}
    | {"per_family": 1, "fresh": 1},
    "quick": {**WHOLE, "models": ["inception-v3", "bert"], "presets": ["laptop"], "per_family": 4, "fresh": 8},
    "full": {**WHOLE, "models": None, "presets": list(PRESETS), "per_family": 13, "fresh": 24},
}


def policy_instances(settings: Row) -> Iterator[tuple[str, str, Callable[[], Problem]]]:
    """(kind, name, problem): real networks, held-out families, and fresh graphs of the training families."""
    for model in settings["models"]:
        for preset in settings["presets"]:
            yield "real", f"{model} on {preset}", partial(on_preset, model, preset, "latency", settings["size"])
        number = sum(map(ord, model))
        yield "real", f"{model} on a drawn cluster", partial(_drawn_real, model, settings["size"], number)
    for family in HELD_OUT:
        for number in range(settings["per_family"]):
            ops, devices = settings["ops"][number % len(settings["ops"])], 2 + number % 4
            name = f"{family} {ops} on {devices} devices, {number}"
            yield "held-out family", name, partial(_held_out, family, ops, devices, number)
    for number in range(settings["fresh"]):
        yield "training family", f"fresh {number}", partial(_fresh, number)


def measure(settings: Row, collect: Collector) -> None:
    """All rows, instance by instance."""
    prepare()
    for warm in (False, True):
        for kind, name, make in policy_instances(settings):
            if not warm:  # kernels are loaded now, not on somebody's clock
                _row(make, 100)
                break
            say(f"policy: {name}")
            collect.measure({"kind": kind, "instance": name}, partial(_row, make, settings["steps"]))


def policy_summary(rows: list[Row]) -> list[Row]:
    """Method by method: geometric mean and worst ratio to annealing, for each kind and for all."""
    found = []
    for method in METHODS:
        line: Row = {"method": method}
        for kind in KINDS:
            ratios = [
                row["values"][method] / row["reference_ns"]
                for row in rows
                if kind in ("all", row["kind"]) and row["values"].get(method) and row["reference_ns"]
            ]
            if ratios:
                line[kind] = {"count": len(ratios), "mean": geometric_mean(ratios), "worst": max(ratios)}
        found.append(line)
    return found


def _row(make: Callable[[], Problem], steps: int) -> Row:
    problem = make()
    values: dict[str, int | None] = {}
    begun = perf_counter()
    simple = {name: _solved(problem, name) for name in ("single-device", "greedy", "heft", "cpeft")}
    values["best single device"], values["HEFT"], values["cPEFT"] = (
        _value(simple[name]) for name in ("single-device", "heft", "cpeft")
    )
    best = min((each for each in simple.values() if each.best is not None), key=lambda each: _value(each) or 0)
    values["best heuristic"] = _value(best)
    polish(best, 2_000)
    values["best heuristic + 2k steps"] = _value(best)
    seconds = _ask_policy(problem, values)
    timed = Search(problem, time_limit=seconds["policy"])
    with suppress(InfeasibleError):
        solvers()["anneal"].solve(timed)
    values["control 2: annealing for the same time"] = _value(timed)
    reference = _anneal(problem, steps)
    about = {"ops": len(problem.graph.ops), "devices": len(problem.devices), "reference_ns": reference}
    return {**about, "values": values, "policy_seconds": seconds, "seconds": round(perf_counter() - begun, 3)}


def _ask_policy(problem: Problem, values: dict[str, int | None]) -> dict[str, float]:
    """Fill the values of the policy and of random decodes -> seconds of one decode, one mended, the best of 64."""
    weights = asked_weights({})
    begun = perf_counter()
    policy = Policy.of(problem, weights)
    if policy is None:
        return {"one": 0.0, "mended": 0.0, "policy": 0.01}
    plan = policy.decode(policy.output.one)
    one = perf_counter() - begun
    assert plan.timeline is not None
    values["policy, one decode"] = plan.timeline.value
    argmax = Search(problem)
    argmax.offer(policy.argmax())
    values["policy, argmax"] = _value(argmax)
    again = booked_again(problem, plan.timeline).value
    values["policy, one decode booked again, or a single device"] = min(
        again, values.get("best single device") or again
    )
    plain = no_bias(policy.seen)
    unlearnt = Policy(problem, policy.seen, PolicyOutput(plain, plain, plain.bias))
    for asked, name in ((unlearnt, "control: cPEFT"), (None, "policy, one decode")):
        begun, either = perf_counter(), Search(problem)
        offer_plans(either, asked or _policy(problem, weights), PolicyParameters(decodes=1))
        values[f"{name} and one look back, or a single device"] = _value(either)
    mended = perf_counter() - begun
    begun = perf_counter()
    search = Search(problem)
    others = offer_plans(search, _policy(problem, weights), PolicyParameters())
    many = perf_counter() - begun
    values["policy, best of 64"] = _value(search)
    longer = replace(search)
    polish(search, 2_000, others)
    values["policy + 2k steps"] = _value(search)
    polish(longer, 20_000, others)
    values["policy + 20k steps"] = _value(longer)
    control = Search(problem)
    others = offer_plans(control, unlearnt, PolicyParameters())
    values["control 1: as many random decodes"] = _value(control)
    polish(control, 2_000, others)
    values["control 1 + 2k steps"] = _value(control)
    return {"one": round(one, 5), "mended": round(mended, 5), "policy": round(many, 5)}


def _policy(problem: Problem, weights: Weights) -> Policy:
    found = Policy.of(problem, weights)
    assert found is not None
    return found


def _solved(problem: Problem, name: str) -> Search:
    search = Search(problem)
    with suppress(InfeasibleError):
        solvers()[name].solve(search)
    return search


def _value(search: Search) -> int | None:
    return None if search.best is None else int(search.best.value)


def _anneal(problem: Problem, steps: int) -> int | None:
    """Annealing from single devices and HEFT, with a fixed number of steps."""
    table = tables(problem)
    starts = anneal_starts(Search(problem))
    annealer = PlacementAnnealer(table, capacity=problem.capacity, group=problem.group, start=starts)
    annealer.run(steps, np.zeros(1, np.int64))
    if annealer.best is None:
        return None
    placement, order, value = annealer.best
    filled = backfill(table, placement, order)
    return value if filled is None else min(value, filled.value)


def _drawn_real(model: str, size: str, number: int) -> Problem:
    random = np.random.default_rng([SEED, number])
    return draw_cluster(random, zoo_graph(model, size=size), 2 + number % 4)


def _held_out(family: str, ops: int, devices: int, number: int) -> Problem:
    random = np.random.default_rng([SEED + 1, HELD_OUT.index(family), number])
    return draw_cluster(random, synthetic(family, ops=ops, seed=SEED + number), devices)


def _fresh(number: int) -> Problem:
    random = np.random.default_rng([SEED + 2, number])
    return draw_cluster(random, draw_graph(random, int(random.integers(40, 300))), 2 + number % 4)


def _cell(kind: str, line: Row) -> str | None:
    return f"{line[kind]['mean']:.3f} / {line[kind]['worst']:.2f} ({line[kind]['count']})" if kind in line else None


def _times(run: Run) -> Iterator[str]:
    slow = max(run.rows, key=lambda row: row["policy_seconds"]["one"])
    text = (
        f"One decode, network included, took at most {slow['policy_seconds']['one'] * 1e3:.0f} ms "
        f"({slow['instance']}: {slow['ops']} ops, {slow['devices']} devices)"
    )
    mended = [row["policy_seconds"]["mended"] for row in run.rows if "mended" in row["policy_seconds"]]
    more = f", with one look back and the simulation of the plan at most {max(mended) * 1e3:.0f} ms" if mended else ""
    yield f"{text}{more}."


def _mean(run: Run, method: str, kind: str) -> float:
    line = next(line for line in policy_summary(run.rows) if line["method"] == method)
    return float(line[kind]["mean"]) if kind in line else 0.0


def _losses(run: Run) -> Iterator[str]:
    means = {line["method"]: line["all"]["mean"] for line in policy_summary(run.rows) if "all" in line}
    pairs = (
        ("policy, best of 64", "control 1: as many random decodes"),
        ("policy, best of 64", "control 2: annealing for the same time"),
        ("policy + 2k steps", "control 1 + 2k steps"),
        ("policy + 2k steps", "best heuristic + 2k steps"),
    )
    for one, other in pairs:
        if one in means and other in means:
            if means[one] > means[other]:
                yield f"`{one}` is **worse** than `{other}`: {means[one]:.3f} against {means[other]:.3f}."
            kinds = [kind for kind in KINDS[:-1] if _mean(run, one, kind) > _mean(run, other, kind)]
            yield from verdict(f"`{one}` is worse than `{other}` on one kind", kinds)
    worst = max((line["all"]["worst"], line["method"]) for line in policy_summary(run.rows) if "all" in line)
    yield f"Worst single case: {worst[1]}, {worst[0]:.2f} times annealing."


BY_METHOD: Table[Row] = Table(
    (Column("method", "method"), *(Column(kind, partial(_cell, kind)) for kind in KINDS)),
    lambda run: policy_summary(run.rows),
)


def _of_reference(name: str, row: Row) -> float | None:
    value = row["values"].get(name)
    return value / row["reference_ns"] if value and row["reference_ns"] else None


SECTION = Section(
    name="policy",
    title="One policy for unseen graphs and clusters",
    chapter="latency",
    asked="What does one network, trained before, find on graphs and clusters it never saw? Ratio to annealing with "
    "{steps:,} steps: geometric mean / worst (instances). Both controls have no network.",
    sizes=SIZES,
    measure=measure,
    screen=(
        Table(BY_METHOD.columns, lambda run: [line for line in policy_summary(run.rows) if line["method"] in SHOWN]),
    ),
    losses=_losses,
    blocks=(
        "Trained on synthetic graphs and drawn clusters; asked about the zoo on presets and drawn clusters, families "
        "of graphs that it does not know, and fresh graphs of those that it does. The annealing starts from single "
        "devices and HEFT. The controls: as many decodes with random biases, and annealing for as long as the policy's "
        "best of 64 took. *Booked again*: the same placement in the order of its late starts. *Looks back*: decodes "
        "that see the late starts and busy links of the plan before; of the 64, and of control 1's, half are such. "
        "Steps of annealing are followed by 8 of them in every row.",
        BY_METHOD,
        _times,
        Table(
            (
                *fields("instance | kind | ops | devices"),
                *(
                    Column(name, partial(_of_reference, name), ".3f")
                    for name in ("best heuristic", "policy, one decode", "policy, best of 64", "policy + 2k steps")
                ),
            ),
            text="Instance by instance, some of the methods:",
        ),
    ),
    limits=(),
    complete=every_model,
)
