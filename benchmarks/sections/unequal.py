"""Unequal devices: the presets and models of the zoo as one pipeline, and as a fleet: copies and pipelines together.

In: models and presets. Out: one row for each pair, with a pipeline, its baselines, and in "fleet" what `--copies auto`
says, whose file has gone through the checker. Simplified: analytic costs.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median

from benchmarks.instances import on_preset
from benchmarks.measure import first_line, fleet_row, plan_row, say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.stats import (
    Group,
    busy_words,
    geometric_mean,
    grouped,
    is_late,
    kept,
    misses,
    not_closed,
    ratio,
    scores,
)
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
CLOSE_FLEET = 0.01
"""The goal for the gap of a fleet."""
ROUNDED_SHARE = 1e-6
"""Rates of lanes are whole numbers of inputs per million seconds, rounded down, periods are rounded up: no defeat."""
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
        return {**shape, **none, "fleet": None}
    fleet = fleet_row(problem, time_limit=time_limit)
    return {**shape, **plan_row(problem, time_limit=time_limit), "fleet": fleet}


def _factor(who: str, row: Row) -> float | None:
    """Value of a baseline / value of the pipeline."""
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


def _fleets(rows: list[Row]) -> list[Row]:
    """Rows whose fleet has been asked for and found."""
    return [row for row in rows if row.get("fleet") and row["fleet"]["value_ns"]]


def _others(row: Row) -> dict[str, int]:
    """Periods of everything that is not the fleet."""
    found = {who: row.get("baselines", {}).get(who) for who in ("replicas", "greedy", "even-split")}
    return {who: value for who, value in {"pipeline": row["value_ns"], **found}.items() if value}


def _best(row: Row) -> tuple[str, int] | None:
    """Whoever has the shortest period but the fleet."""
    others = _others(row)
    return min(others.items(), key=lambda one: one[1]) if others else None


def _gain(row: Row) -> float | None:
    """How many more inputs the fleet answers than the better of one pipeline and copies."""
    both = [value for who, value in _others(row).items() if who in ("pipeline", "replicas")]
    return round(min(both) / row["fleet"]["value_ns"] - 1, 5) + 0.0 if both and _fleets([row]) else None


def _is_behind(row: Row) -> bool:
    best = _best(row)
    return best is not None and (not _fleets([row]) or row["fleet"]["value_ns"] > best[1] * (1 + ROUNDED_SHARE) + 1)


def _is_close(row: Row) -> bool:
    return bool(row["fleet"]["proof"] == "proved" and row["fleet"]["gap"] <= CLOSE_FLEET)


def _verdict(run: Run) -> Iterator[str]:
    """On how many pairs the fleet is as good as anything else, and how near to its bound."""
    found = _fleets(run.rows)
    if not found:
        return
    able = [row for row in run.rows if _best(row)]
    ahead, close = sum(not _is_behind(row) for row in able), sum(map(_is_close, found))
    gains = sorted((gain, row["instance"]) for row in found if (gain := _gain(row)) is not None)
    mean = geometric_mean(1 + gain for gain, _ in gains) - 1
    checked = sum(row["fleet"]["checked"] for row in found)
    yield (
        f"The fleet is at least as good as the best of one pipeline, replicas, greedy and even split on **{ahead} of "
        f"{len(able)}** pairs, and at most 1 % from its proved bound on **{close} of {len(found)}**. Its gain over the "
        f"better of one pipeline and copies is {mean:.1%} (geometric mean), at most {gains[-1][0]:.1%} "
        f"({gains[-1][1]}). The checker accepted {checked} of {len(found)} files."
    )


def _fleet_losses(run: Run) -> Iterator[str]:
    rows = [row for row in run.rows if row.get("fleet")]
    behind = [f"{row['instance']} (behind {best[0]})" for row in rows if _is_behind(row) and (best := _best(row))]
    wide = [f"{row['instance']} {row['fleet']['gap']:.2%}" for row in _fleets(rows) if not _is_close(row)]
    late = [f"{row['instance']} ({row['fleet']['seconds']:.1f} s)" for row in rows if is_late(row["fleet"])]
    yield from verdict("The fleet is worse than something simpler", behind)
    yield from verdict("Fleets more than 1 % from a proved bound", wide)
    yield from verdict("Fleets more than 2 s over the time limit", late)
    noted = [f"{row['instance']}: {row['fleet']['note']}" for row in rows if row["fleet"]["note"]]
    yield from verdict("No fleet, or one that the checker refused", noted)


def _replicas_win(row: Row) -> bool:
    return (_factor("replicas", row) or 1.0) < 1


def _winners(run: Run) -> Iterator[str]:
    winners, rows = [row["instance"] for row in run.rows if _replicas_win(row)], kept(run.rows)
    said = f"**Replicas are faster than one pipeline** on {len(winners)} of {len(rows)}: {', '.join(winners)}."
    yield said if winners else "Replicas are nowhere faster than one pipeline."


def _losses(run: Run) -> Iterator[str]:
    yield from _fleet_losses(run)
    winners, count = sum(map(_replicas_win, run.rows)), len(kept(run.rows))
    if winners:
        mean = next(line["mean"] for line in _against(run) if line["who"] == "replicas")
        yield (
            f"**One pipeline is slower than replicas** on {winners} of {count} (geometric mean of theirs / ours "
            f"{mean:.3f}), which is why fleets are asked for."
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


def _of_fleet(name: str, row: Row) -> object:
    return row["fleet"][name]


def _lines(run: Run) -> list[Group]:
    rows = _fleets(run.rows)
    found = [(str(name), each) for name, each in grouped(rows, "cluster").items()]
    return [*found, ("**all**", rows)] if len(found) > 1 else found


def _gains(group: Group) -> str:
    gains = [gain for row in group[1] if (gain := _gain(row)) is not None]
    mean = round(geometric_mean(1 + gain for gain in gains) - 1, 5) + 0.0
    return f"{mean:.2%} ({min(gains):.2%} to {max(gains):.2%})"


def _bounds(group: Group, fleet: bool) -> str | None:
    found = [1 - row["fleet"]["gap"] if fleet else ratio(row) or 0.0 for row in (group[1] if fleet else kept(group[1]))]
    return f"{geometric_mean(max(one, 1e-9) for one in found):.4f} ({min(found):.3f})" if found else None


BY_CLUSTER: Table[Group] = Table(
    (
        Column("cluster", lambda group: group[0]),
        Column("pairs", lambda group: len(group[1])),
        Column("one pipeline: bound / ours (worst)", partial(_bounds, fleet=False)),
        Column("fleet: bound / ours (worst)", partial(_bounds, fleet=True)),
        Column("fleet at least as good as all others", lambda group: sum(not _is_behind(row) for row in group[1])),
        Column("gap <= 1 %", lambda group: sum(map(_is_close, group[1]))),
        Column("gain over pipeline and copies (least to most)", _gains),
        Column("median s", lambda group: median(row["fleet"]["seconds"] for row in group[1]), ".1f"),
        Column("max s", lambda group: max(row["fleet"]["seconds"] for row in group[1]), ".1f"),
    ),
    _lines,
)
FLEETS: Table[Row] = Table(
    (
        *fields("model | cluster"),
        Column("fleet, inputs/s", partial(_of_fleet, "rate"), ".6g"),
        Column("period", partial(_of_fleet, "value_ns"), format_time),
        Column("proved gap", lambda r: r["fleet"]["gap"] if r["fleet"]["proof"] == "proved" else None, ".2%"),
        Column("gain over pipeline and copies", _gain, ".2%"),
        Column("best of the others", lambda row: _best(row) and _best(row)[0]),  # type: ignore[index]
        Column("its period", lambda row: _best(row) and format_time(_best(row)[1])),  # type: ignore[index]
        Column("lanes", partial(_of_fleet, "lanes")),
        Column("devices in a row", partial(_of_fleet, "depth")),
        Column("bound by", partial(_of_fleet, "bound_by")),
        Column("s", partial(_of_fleet, "seconds"), ".1f"),
        Column("checker", lambda row: "accepts" if row["fleet"]["checked"] else "**refuses**"),
    ),
    lambda run: _fleets(run.rows),
    "`plan --objective throughput --copies auto`, seed 0, at most {time_limit:g} s: each device holds what it needs "
    "for its lanes. *gain*: inputs per second more than the better of one pipeline (`auto` with the same time) and "
    "whole copies. *best of the others*: of one pipeline, replicas, greedy and even split; a millionth is rounding.",
    "The whole cluster",
)
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
    title="Pipelines and fleets on unequal devices",
    chapter="throughput",
    asked="Plan five models on every preset cluster, analytic costs, at most {time_limit:g} s each: as one pipeline, "
    "and as a fleet, which may hold copies and pipelines side by side.",
    sizes=SIZES,
    measure=measure,
    screen=(BY_CLUSTER, lambda run: [" ".join([*_verdict(run), *busy_words(run)])]),
    losses=_losses,
    blocks=(
        _verdict,
        busy_words,
        FLEETS,
        _fleet_losses,
        "## One pipeline",
        "Models of the zoo on the presets, `auto`, seed 0. Columns of baselines are their value / the plan's value: "
        "above 1 the plan is better. Replicas (the whole model on every device that holds it) are no pipeline: no "
        "input is faster and every device holds all weights.",
        scores("cluster", "cluster"),
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
