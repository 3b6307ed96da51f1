"""The page's part on unequal devices: the plan beside baselines and replicas."""

from __future__ import annotations

from benchmarks.planned import Row, ratio
from benchmarks.render_paper import misses
from benchmarks.summary import geometric_mean
from benchmarks.table import table
from weftline.units import format_time

__all__ = ["unequal_sections"]

BASELINES = ("even-split", "greedy", "single-device", "replicas")


def unequal_sections(run: Row) -> list[str]:
    """Method, who wins, every instance."""
    rows = run["rows"]
    solved = [row for row in rows if row["value_ns"] is not None]
    text = (
        f"Models of the zoo on the presets, analytic costs, `auto`, seed 0, at most {run['settings']['time_limit']:g} "
        "s. Columns of baselines are their value / the plan's value: above 1 the plan is better. Replicas (the whole "
        "model on every device that holds it) are no pipeline: no input is faster and every device holds all weights."
    )
    return [text, *_verdicts(solved), *misses([row for row in rows if row["value_ns"] is not None]), _table(rows)]


def _verdicts(rows: list[Row]) -> list[str]:
    lines = []
    for who in BASELINES:
        factors = [row["baselines"][who] / row["value_ns"] for row in rows if row["baselines"].get(who)]
        if factors:
            better, same, lost = (sum(test(f) for f in factors) for test in (_is_better, _is_same, _is_lost))
            lines.append((who, str(len(factors)), str(better), str(same), str(lost), f"{geometric_mean(factors):.3f}"))
    header = ("against", "compared", "plan better", "equal", "plan worse", "geo. mean of theirs / plan")
    winners = [row["instance"] for row in rows if _replicas_win(row)]
    said = f"**Replicas win** on {len(winners)} of {len(rows)}: {', '.join(winners)}."
    return [table(header, lines), said if winners else "Replicas win nowhere."]


def _replicas_win(row: Row) -> bool:
    replicas = row["baselines"].get("replicas")
    return replicas is not None and bool(replicas < row["value_ns"])


def _is_better(factor: float) -> bool:
    return factor > 1


def _is_same(factor: float) -> bool:
    return factor == 1


def _is_lost(factor: float) -> bool:
    return factor < 1


def _table(rows: list[Row]) -> str:
    header = ("model", "cluster", "devices", "plan", "stages", "bound / plan", "by", *BASELINES, "best choice", "s")
    return table(header, [_line(row) for row in rows])


def _line(row: Row) -> tuple[str, ...]:
    about = (row["model"], row["cluster"], str(row["devices"]))
    if row["value_ns"] is None:
        return (*about, f"none: {row['note']}", *["-"] * 8, f"{row['seconds']:.1f}")
    values = {who: row["baselines"].get(who) for who in BASELINES}
    choice = "replicas" if _replicas_win(row) else "pipeline" if row["stages_used"] > 1 else "one device"
    return (
        *about,
        format_time(row["value_ns"]),
        str(row["stages_used"]),
        f"{ratio(row):.4f}",
        row["bound_by"],
        *("-" if value is None else f"{value / row['value_ns']:.3f}" for value in values.values()),
        choice,
        f"{row['seconds']:.1f}",
    )
