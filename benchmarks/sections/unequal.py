"""Unequal devices: the presets and models of the zoo, planned beside even split, greedy, one device and replicas.

In: models and presets. Out: one row for each pair. Simplified: analytic costs. Replicas answer another question, but a
user wants to know when they win.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from benchmarks.instances import on_preset
from benchmarks.measure import first_line, plan_row, say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields
from benchmarks.stats import geometric_mean, kept, misses, not_closed, ratio, scores
from weftline.cluster import Cluster
from weftline.cluster.model import preset_names
from weftline.errors import InfeasibleError
from weftline.units import format_time

__all__ = ["SECTION"]

MODELS = {
    "resnet50": ("resnet50", "full"),
    "bert": ("bert", "full"),
    "gpt2": ("gpt2", "full"),
    "moe": ("moe", "full"),
    "gpt 6.7b": ("gpt2", "6.7b"),
}
"""Name on the page -> architecture, size; the last one is too large for most single devices."""
BASELINES = ("even-split", "greedy", "single-device", "replicas")
SIZES: dict[str, Row] = {
    "tiny": {"pairs": [["resnet50", "laptop"]], "time_limit": 0.5},
    "quick": {
        "pairs": [["resnet50", "laptop"], ["gpt2", "four-unequal"], ["gpt 6.7b", "two-servers"]],
        "time_limit": 6.0,
    },
    "full": {"pairs": [[model, cluster] for model in MODELS for cluster in preset_names()], "time_limit": 30.0},
}


def measure(settings: Row, collect: Collector) -> None:
    """All rows."""
    for model, cluster in settings["pairs"]:
        say(f"unequal: {model} on {cluster}")
        key = {"model": model, "cluster": cluster, "instance": f"{model} on {cluster}"}
        collect.measure(key, partial(_row, model, cluster, settings["time_limit"]))


def _row(model: str, cluster: str, time_limit: float) -> Row:
    name, size = MODELS[model]
    shape = {"devices": len(Cluster.preset(cluster).devices)}
    try:
        problem = on_preset(name, cluster, "throughput", size)
    except InfeasibleError as error:
        none = {"value_ns": None, "note": first_line(error), "seconds": 0.0, "time_limit": time_limit}
        return {**shape, **none}
    return {**shape, **plan_row(problem, time_limit=time_limit)}


def _factor(who: str, row: Row) -> float | None:
    """Value of a baseline / value of the plan."""
    value = row.get("baselines", {}).get(who)
    return value / row["value_ns"] if value and row["value_ns"] else None


def _against(run: Run) -> list[Row]:
    """One line per baseline."""
    found = []
    for who in BASELINES:
        factors = [factor for row in run.rows if (factor := _factor(who, row)) is not None]
        if factors:
            signs = [(factor > 1) - (factor < 1) for factor in factors]
            found.append(
                {"who": who, "signs": signs, "mean": geometric_mean(factors)},
            )
    return found


def _replicas_win(row: Row) -> bool:
    return (_factor("replicas", row) or 1.0) < 1


def _winners(run: Run) -> Iterator[str]:
    winners, rows = [row["instance"] for row in run.rows if _replicas_win(row)], kept(run.rows)
    said = f"**Replicas win** on {len(winners)} of {len(rows)}: {', '.join(winners)}."
    yield said if winners else "Replicas win nowhere."


def _losses(run: Run) -> Iterator[str]:
    winners, count = sum(map(_replicas_win, run.rows)), len(kept(run.rows))
    if winners:
        mean = next(line["mean"] for line in _against(run) if line["who"] == "replicas")
        yield (
            f"**Replicas win** on {winners} of {count} (geometric mean of theirs / ours {mean:.3f}): where the whole "
            "model fits on each device, copies of it answer more inputs than one pipeline."
        )
    for line in _against(run):
        if line["who"] != "replicas" and -1 in line["signs"]:
            yield f"**{line['who']} is better** on {line['signs'].count(-1)} of {len(line['signs'])}."
    yield from not_closed(run)
    yield from misses(kept(run.rows), most=3)


def _choice(row: Row) -> str | None:
    if row["value_ns"] is None:
        return None
    return "replicas" if _replicas_win(row) else "pipeline" if row["stages_used"] > 1 else "one device"


AGAINST: Table[Row] = Table(
    (
        Column("against", "who"),
        Column("compared", lambda line: len(line["signs"])),
        Column("plan better", lambda line: line["signs"].count(1)),
        Column("equal", lambda line: line["signs"].count(0)),
        Column("plan worse", lambda line: line["signs"].count(-1)),
        Column("geo. mean of theirs / plan", "mean", ".3f"),
    ),
    _against,
)
SECTION = Section(
    name="unequal",
    title="Pipelines on unequal devices",
    chapter="throughput",
    asked="Plan five models on every preset cluster as pipelines, analytic costs, at most {time_limit:g} s, beside "
    "simple ways to do it.",
    sizes=SIZES,
    measure=measure,
    screen=(scores("cluster", "cluster"), AGAINST),
    losses=_losses,
    blocks=(
        "Models of the zoo on the presets, `auto`, seed 0. Columns of baselines are their value / the plan's value: "
        "above 1 the plan is better. Replicas (the whole model on every device that holds it) are no pipeline: no "
        "input is faster and every device holds all weights.",
        AGAINST,
        _winners,
        lambda run: misses(kept(run.rows)),
        Table(
            (
                *fields("model | cluster | devices"),
                Column("plan", lambda r: format_time(r["value_ns"]) if r["value_ns"] else f"none: {r['note']}"),
                Column("stages", "stages_used"),
                Column("bound / plan", ratio, ".4f"),
                Column("by", "bound_by"),
                *(Column(who, partial(_factor, who), ".3f") for who in BASELINES),
                Column("best choice", _choice),
                Column("s", "seconds", ".1f"),
            )
        ),
    ),
    warm=True,
)
