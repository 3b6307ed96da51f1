"""Rows -> what they say: means, worst cases and wins by solver; where a baseline wins; who needed too long."""

from __future__ import annotations

from math import exp, log
from statistics import median
from typing import Any

from benchmarks.quality import REPLICAS

__all__ = [
    "better_than_baselines",
    "by_family",
    "by_instance",
    "geometric_mean",
    "lost_to_baselines",
    "overruns",
    "replica_rows",
    "solver_rows",
]

Row = dict[str, Any]
GRACE = 2.0
"""Seconds after its limit by which every solver promises to have stopped."""


def geometric_mean(values: list[float]) -> float:
    """Of positive numbers."""
    return exp(sum(log(value) for value in values) / len(values))


def by_family(rows: list[Row]) -> dict[str, list[Row]]:
    """Family -> its rows, in order."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["family"], []).append(row)
    return found


def by_instance(rows: list[Row]) -> dict[str, list[Row]]:
    """Instance -> its rows, in order; the rows are of one family."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        found.setdefault(row["instance"], []).append(row)
    return found


def solver_rows(rows: list[Row]) -> list[Row]:
    """One line per solver of a family, the best geometric mean first among those that solved most."""
    count = len(by_instance(rows))
    found = []
    for solver in dict.fromkeys(row["solver"] for row in rows if row["solver"] != REPLICAS):
        mine = [row for row in rows if row["solver"] == solver]
        solved = [row for row in mine if row["value_ns"] is not None]
        ratios = [row["ratio"] for row in solved]
        worst = max(solved, key=lambda row: row["ratio"], default=None)
        found.append(
            {
                "solver": solver,
                "baseline": mine[0]["baseline"],
                "solved": len({row["instance"] for row in solved}),
                "instances": count,
                "geometric_mean": geometric_mean(ratios) if ratios else None,
                "worst": worst["ratio"] if worst else None,
                "worst_instance": worst["instance"] if worst else "",
                "wins": len({row["instance"] for row in solved if row["ratio"] == 1.0}),
                "median_gap": median(row["gap"] for row in solved) if solved else None,
                "optimal": len({row["instance"] for row in solved if row["gap"] == 0}),
                "median_seconds": median(row["seconds"] for row in mine),
            }
        )
    return sorted(found, key=lambda line: (-line["solved"], line["geometric_mean"] or 0.0))


def lost_to_baselines(rows: list[Row]) -> list[str]:
    """Sentences about the instances on which a baseline is strictly better than `auto`."""
    found = []
    for instance, mine in by_instance(rows).items():
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
    for mine in by_instance(rows).values():
        simple, automatic = _best(mine, "baseline", True), _best(mine, "solver", "auto")
        total += any(row["solver"] == "auto" for row in mine)
        better += automatic is not None and (simple is None or automatic["value_ns"] < simple["value_ns"])
    return better, total


def _best(rows: list[Row], field: str, wanted: object) -> Row | None:
    """The best plan among rows whose field has this value; replicas are no plan."""
    solved = [row for row in rows if row[field] == wanted and row["value_ns"] is not None and row["solver"] != REPLICAS]
    return min(solved, key=lambda row: row["value_ns"], default=None)


def replica_rows(rows: list[Row]) -> list[Row]:
    """Replicas of the whole model against the best pipeline, instance by instance."""
    found = []
    for instance, mine in by_instance(rows).items():
        replicas = [row["value_ns"] for row in mine if row["solver"] == REPLICAS]
        pipelines = [row for row in mine if row["solver"] != REPLICAS and row["value_ns"] is not None]
        if replicas and pipelines:
            best = min(pipelines, key=lambda row: row["value_ns"])
            ratio = replicas[0] / best["value_ns"] if replicas[0] is not None and best["value_ns"] else None
            found.append(
                {"instance": instance, "replicas_ns": replicas[0], "best_ns": best["value_ns"], "ratio": ratio}
            )
    return found


def overruns(rows: list[Row]) -> list[str]:
    """Who was still running two seconds after the limit, and how long it took at worst."""
    worst: dict[str, float] = {}
    for row in rows:
        if row["seconds"] is not None and row["seconds"] > row["time_limit"] + GRACE:
            key = f"{row['solver']} ({row['objective']})"
            worst[key] = max(worst.get(key, 0.0), row["seconds"])
    return [f"{who}: {seconds:.1f} s" for who, seconds in worst.items()]
