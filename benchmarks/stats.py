"""What rows say: ratios to bounds, means, groups, lateness, and everything that is not as promised.

In: rows of any section whose questions are planned (value, bound, seconds). Out: numbers, and sentences about misses.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import exp, log
from statistics import median
from typing import Any

from benchmarks.results import BestKnown, Row
from benchmarks.section import Column, Run, Table, verdict

__all__ = [
    "CLOSED",
    "GRACE",
    "SCORES",
    "Group",
    "best_known",
    "busy_words",
    "geometric_mean",
    "grouped",
    "is_closed",
    "is_late",
    "kept",
    "mean_of",
    "misses",
    "not_closed",
    "over",
    "ratio",
    "scores",
    "simple_ratio",
]

GRACE = 2.0
"""Seconds after its limit by which every solver promises to have stopped."""
CLOSED = 0.0001
"""The default gap of a search: closer than this counts as optimal."""
BUSY_SHARE = 0.5
"""A load above this share of the cores is the work of others."""


def geometric_mean(values: Iterable[float]) -> float:
    """Of positive numbers."""
    found = list(values)
    return exp(sum(log(value) for value in found) / len(found))


def mean_of(values: Iterable[float | None]) -> float | None:
    """The geometric mean of those that are there and above 0; None of none."""
    found = [value for value in values if value]
    return geometric_mean(found) if found else None


def grouped(rows: Iterable[Row], field: str) -> dict[Any, list[Row]]:
    """Value of a field -> its rows, in order."""
    found: dict[Any, list[Row]] = {}
    for row in rows:
        found.setdefault(row[field], []).append(row)
    return found


def kept(rows: Iterable[Row]) -> list[Row]:
    """Those that have a plan."""
    return [row for row in rows if row["value_ns"] is not None]


def busy_words(run: Run) -> Iterator[str]:
    """That others used the machine, where the load of the run's first moment says so."""
    machine = run.stamp.get("environment", {})
    load, cores = machine.get("load_before") or 0.0, machine.get("cores") or 1
    if load > BUSY_SHARE * cores:
        yield (
            f"The machine was busy with other work: a load of {load:.1f} on {cores} cores when this run began. Seconds "
            "are longer for it, and searches that ended by their time limit could do less."
        )


def over(row: Row, one: str, other: str) -> float | None:
    """One field / another; None where one is missing or there is nothing to divide by."""
    return row[one] / row[other] if row.get(one) is not None and row.get(other) else None


def ratio(row: Row) -> float | None:
    """Best bound / value."""
    return None if row["value_ns"] is None else row["bound_ns"] / row["value_ns"] if row["value_ns"] else 1.0


def simple_ratio(row: Row) -> float | None:
    """Simple bound / value."""
    return None if row["value_ns"] is None else row["simple_ns"] / row["value_ns"] if row["value_ns"] else 1.0


def is_closed(row: Row) -> bool:
    """Value and bound agree up to the default gap."""
    found = ratio(row)
    return found is not None and 1 - found <= CLOSED


def is_late(row: Row) -> bool:
    """Still running two seconds after the limit."""
    return bool(row["seconds"] is not None and row["seconds"] > row["time_limit"] + GRACE)


def best_known(row: Row, best: BestKnown) -> int | None:
    """The best value of any kept run, or the optimum known from outside."""
    found = [value for value in (best.of(row), row.get("reference_ns")) if value]
    return min(found, default=None)


def misses(rows: list[Row], most: int | None = None) -> Iterator[str]:
    """Everything that is not as promised, in plain words."""
    late = [f"{_name(row)} ({row['seconds']:.1f} s)" for row in rows if is_late(row)]
    crashed = [f"{_name(row)}: {row['note']}" for row in rows if row["note"]]
    worse = [f"{_name(row)}: {who}" for row in rows for who in _better_baselines(row)]
    yield from verdict("More than 2 s over the time limit", late, most=most)
    yield from verdict("No plan", crashed, most=most)
    yield from verdict("A baseline is better", worse, most=most)


def _name(row: Row) -> str:
    return f"{row['instance']}, k = {row['stages']}" if row.get("stages") else str(row["instance"])


def _better_baselines(row: Row) -> Iterator[str]:
    for who, value in row.get("baselines", {}).items():
        if value is not None and who != "replicas" and row["value_ns"] is not None and value < row["value_ns"]:
            yield who


def not_closed(run: Run, solver: str | None = None) -> Iterator[str]:
    """How many plans have a gap to their bound, and how many are behind the best known value, in one line."""
    rows, said = _with_best(run, solver), []
    wide = [row for row in kept(rows) if not is_closed(row)]
    if wide:
        worst = min(wide, key=lambda row: ratio(row) or 0.0)
        least = f"{ratio(worst):.3f} ({_name(worst)})"
        said.append(f"Not closed to 0.01 %: {len(wide)} of {len(rows)}; least bound / value {least}.")
    late = [row for row in kept(rows) if (over(row, "value_ns", "best_known_ns") or 1.0) > 1 + CLOSED]
    if late:
        worst = max(late, key=lambda row: over(row, "value_ns", "best_known_ns") or 1.0)
        most = f"{(over(worst, 'value_ns', 'best_known_ns') or 1.0) - 1:.2%} ({_name(worst)})"
        said.append(f"Behind the best known value: {len(late)} of {len(rows)}, at most by {most}.")
    if said:
        yield " ".join(said)


def _with_best(run: Run, solver: str | None) -> list[Row]:
    """Rows of a solver (first runs alone), each with the best value known for its question."""
    first = [row for row in run.rows if not row.get("again")]
    here: dict[object, int] = {}
    for row in kept(first):
        if row.get("solver") != "replicas":  # which are no plan
            here[_key(row)] = min(here.get(_key(row), row["value_ns"]), row["value_ns"])
    return [
        {**row, "best_known_ns": min(filter(None, (best_known(row, run.best), here.get(_key(row)))), default=None)}
        for row in first
        if solver in (None, row.get("solver"))
    ]


Group = tuple[str, list[Row]]
"""What the standard score is made of: a name, and rows that each have the value of their best known plan."""


def _key(row: Row) -> tuple[object, ...]:
    """What tells one question of a section from another."""
    return tuple(row.get(name) for name in ("family", "table", "instance", "stages"))


def _behind(group: Group) -> str | None:
    found = [row["value_ns"] / row["best_known_ns"] for row in kept(group[1]) if row.get("best_known_ns")]
    return f"{geometric_mean(found):.4f} ({max(found):.3f})" if found else None


def _count(group: Group) -> str:
    solved = len(kept(group[1]))
    return str(solved) if solved == len(group[1]) else f"{solved} of {len(group[1])}"


def _bound(group: Group) -> str | None:
    found = [max(ratio(row) or 0.0, 1e-9) for row in kept(group[1])]
    return f"{geometric_mean(found):.4f} ({min(found):.3f})" if found else None


SCORES: tuple[Column[Group], ...] = (
    Column("solved", _count),
    Column("ours / best known (worst)", _behind),
    Column("bound / ours (worst)", _bound),
    Column("closed to 0.01 %", lambda group: sum(is_closed(row) for row in group[1])),
    Column("median s", lambda group: median(row["seconds"] for row in group[1]), ".1f"),
    Column("max s", lambda group: max(row["seconds"] for row in group[1]), ".1f"),
)


def scores(title: str, field: str, *, solver: str | None = None, text: str = "", in_all: bool = False) -> Table[Group]:
    """The standard table of a screen: best known, ours, bound and time, by the value of a field and in all (or only
    that, where the page has the rest)."""

    def lines(run: Run) -> list[Group]:
        rows = _with_best(run, solver)
        found = [(str(name), each) for name, each in grouped(rows, field).items()]
        if in_all:
            return [("**all**", rows)]
        return [*found, ("**all**", rows)] if len(found) > 3 else found

    return Table((Column(title, lambda group: group[0]), *SCORES), lines, text)
