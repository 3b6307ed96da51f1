"""What the rows of the placement section say: who is better than `auto`, and by how much `auto` is faster.

In: rows with instance, solver, value and bound. Out: means, counts and sentences; nothing is hidden by a mean.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median

from benchmarks.results import Row
from benchmarks.section import verdict
from benchmarks.stats import CLOSED, geometric_mean, grouped, is_late

__all__ = [
    "AUTO",
    "Against",
    "against",
    "better_bounds",
    "compared_again",
    "contradictions",
    "defeats",
    "first_runs",
    "mean_ratio",
    "of_auto",
    "verdicts",
    "winner",
    "wins",
]

AUTO = "auto"
Against = dict[str, float | int | str]


def of_auto(rows: list[Row]) -> dict[str, Row]:
    """Instance -> the row of `auto`, where it found a plan."""
    return {row["instance"]: row for row in rows if row["solver"] == AUTO and row["value_ns"] is not None}


def first_runs(rows: list[Row]) -> list[Row]:
    """Without what ran again."""
    return [row for row in rows if not row.get("again")]


def winner(rows: list[Row]) -> str | None:
    """Rows of one instance -> the solver with the best plan, if that is clearly better than the one `auto` has."""
    found = [row for row in rows if row["value_ns"] is not None]
    best = min(found, key=lambda row: row["value_ns"], default=None)
    mine = next((row["value_ns"] for row in found if row["solver"] == AUTO), None)
    return None if best is None or mine is None or mine <= best["value_ns"] * (1 + CLOSED) else str(best["solver"])


def compared_again(rows: list[Row]) -> list[str]:
    """Where `auto` and a winner ran again: how the medians of these runs compare, and who was behind how often."""
    found = []
    for instance, again in grouped([row for row in rows if row.get("again")], "instance").items():
        values = {name: [row["value_ns"] for row in each] for name, each in grouped(again, "solver").items()}
        mine = values.pop(AUTO, [])
        for name, theirs in values.items():
            if mine and None not in (*mine, *theirs):
                factor = median(mine) / max(1, median(theirs))
                worse = "worse than" if factor > 1 else "better than"
                how = "equal to" if factor == 1 else f"{abs(factor - 1):.3%} {worse}"
                behind = sum(one > other for one, other in zip(mine, theirs, strict=True))
                found.append(f"{instance}: `auto` {how} {name} (behind in {behind} of {len(mine)} runs)")
    return found


def _pairs(rows: list[Row], solver: str) -> Iterator[tuple[Row, Row]]:
    """Rows of a solver beside those of `auto`, where both found a plan that takes time."""
    mine = of_auto(rows)
    for row in rows:
        other = mine.get(row["instance"])
        if row["solver"] == solver and row["value_ns"] and other is not None and other["value_ns"]:
            yield row, other


def mean_ratio(rows: list[Row], solver: str) -> float | None:
    """Geometric mean of value / value of `auto`: above 1, `auto` is better."""
    ratios = [row["value_ns"] / mine["value_ns"] for row, mine in _pairs(rows, solver)]
    return geometric_mean(ratios) if ratios else None


def wins(rows: list[Row], solver: str) -> int:
    """Instances on which nobody found anything better."""
    count = 0
    for mine in grouped(rows, "instance").values():
        values = {row["solver"]: row["value_ns"] for row in mine if row["value_ns"] is not None}
        count += bool(values) and values.get(solver) == min(values.values())
    return count


def defeats(rows: list[Row], is_rival: Callable[[Row], bool]) -> tuple[list[str], list[str]]:
    """Where a rival is strictly better than `auto`: by more than the gap at which searches stop, and by less."""
    clear: list[str] = []
    slight: list[str] = []
    mine = of_auto(rows)
    for instance, all_of_it in grouped(rows, "instance").items():
        rivals = [row for row in all_of_it if row["value_ns"] is not None and row["solver"] != AUTO and is_rival(row)]
        best = min(rivals, key=lambda row: row["value_ns"], default=None)
        if best is None or not any(row["solver"] == AUTO for row in all_of_it):
            continue
        if instance not in mine:
            clear.append(f"{instance}: {best['solver']} finds a plan, `auto` finds none")
        elif best["value_ns"] < mine[instance]["value_ns"]:
            factor = mine[instance]["value_ns"] / max(1, best["value_ns"])
            text = f"{instance}: {best['solver']} by {factor - 1:.3%}"
            (slight if factor - 1 <= CLOSED else clear).append(text)
    return clear, slight


def against(rows: list[Row], solver: str) -> Against | None:
    """By what factor the plans of `auto` are faster than those of a solver."""
    found = sorted((row["value_ns"] / mine["value_ns"], row["instance"]) for row, mine in _pairs(rows, solver))
    if not found:
        return None
    return {
        "count": len(found),
        "mean": geometric_mean([factor for factor, _ in found]),
        "least": found[0][0],
        "least_where": found[0][1],
        "most": found[-1][0],
        "most_where": found[-1][1],
        "alone": len(of_auto(rows)) - len(found),
    }


def better_bounds(rows: list[Row]) -> list[str]:
    """Where another solver has proved clearly more than `auto`, in the same time."""
    found = []
    mine = of_auto(rows)
    for instance, others in grouped([row for row in rows if row.get("bound_ns") is not None], "instance").items():
        best = max(others, key=lambda row: row["bound_ns"])
        if instance in mine and best["bound_ns"] > mine[instance]["bound_ns"] * (1 + CLOSED):
            factor = best["bound_ns"] / max(1, mine[instance]["bound_ns"])
            found.append(f"{instance}: {best['solver']} by {factor - 1:.2%}")
    return found


def contradictions(rows: list[Row]) -> list[str]:
    """Bounds above a value that somebody found: one of the two is wrong."""
    found = []
    for instance, mine in grouped([row for row in rows if row["value_ns"] is not None], "instance").items():
        best, bound = min(mine, key=lambda row: row["value_ns"]), max(mine, key=lambda row: row["bound_ns"])
        if bound["bound_ns"] > best["value_ns"]:
            found.append(
                f"{instance}: {bound['solver']} says at least {bound['bound_ns']} ns ({bound['bound_by']}), "
                f"{best['solver']} has {best['value_ns']} ns"
            )
    return found


def verdicts(rows: list[Row], most: int | None = None) -> Iterator[str]:
    """Where `auto` is worse than others, what was late or crashed, and bounds that are better or cannot be true."""
    count = len({row["instance"] for row in rows})
    rivals: dict[str, Callable[[Row], bool]] = {
        "the best single device": lambda row: row["solver"] == "single-device",
        "the best baseline": lambda row: row["baseline"],
        "the best of all other solvers": lambda row: True,
    }
    for who, is_rival in rivals.items():
        clear, slight = defeats(rows, is_rival)
        if clear or slight:
            less = f" ({len(slight)} of them by no more than the 0.01 % at which a search may stop)" if slight else ""
            where = "; ".join([*clear, *slight])
            yield f"**`auto` is worse than {who} on {len(clear) + len(slight)} of {count} instances**{less}: {where}."
        else:
            yield f"`auto` is worse than {who} on none of {count} instances."
    late = [f"{_name(row)} ({row['seconds']:.1f} s)" for row in rows if is_late(row)]
    crashed = [f"{_name(row)}: {row['note']}" for row in rows if row["note"].startswith("crashed")]
    yield from verdict("More than 2 s over the time limit", late, most=most)
    yield from verdict("Crashed", crashed, most=most)
    yield from verdict("A bound contradicts a value", contradictions(rows), most=most)
    yield from verdict("Another solver's bound is higher than that of `auto`", better_bounds(rows), most=most)


def _name(row: Row) -> str:
    return f"{row['solver']} on {row['instance']}"
