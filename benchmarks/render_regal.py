"""The page's part on random graphs: bound / value by k and family, and how near values come to the best known."""

from __future__ import annotations

from benchmarks.planned import Row, ratio
from benchmarks.render_paper import misses
from benchmarks.results_file import BestKnown
from benchmarks.summary import geometric_mean
from benchmarks.table import table
from weftline.units import format_time

__all__ = ["regal_sections"]

GOALS = {4: 0.94, 8: 0.94, 16: 0.95}
NEAR = 0.01


def regal_sections(run: Row, best: BestKnown) -> list[str]:
    """Method, tables by k and by family, every graph."""
    rows, settings = run["rows"], run["settings"]
    text = (
        f"{settings['graphs']} graphs of our own generator after REGAL's recipe (four families in turn, 50 to 200 ops, "
        f"unit costs around 50 for ops and tensors), seed 0, at most {settings['time_limit']:g} s each. *W / k* is the "
        "work bound alone over the value; *best* is the best bound over the value; geometric means. The best known "
        "value is over all runs that were ever kept, also longer ones; "
        "a graph that was planned once has nothing to be compared with."
    )
    return [text, _by_stages(rows, best), _by_family(rows), *misses(rows), _all(rows, best)]


def _by_stages(rows: list[Row], best: BestKnown) -> str:
    lines = []
    for stages in dict.fromkeys(row["stages"] for row in rows):
        mine = [row for row in rows if row["stages"] == stages and row["value_ns"] is not None]
        if not mine:
            continue
        mean = _mean(mine)
        worst = min(mine, key=lambda row: ratio(row) or 0.0)
        goal = GOALS.get(stages, 0.94)
        compared = [row for row in mine if best.is_comparable(row)]
        near = sum(row["value_ns"] <= (best.of(row) or row["value_ns"]) * (1 + NEAR) for row in compared)
        lines.append(
            (
                str(stages),
                str(len(mine)),
                f"{_work_mean(mine):.4f}",
                f"{mean:.4f}",
                f">= {goal}: {'reached' if mean >= goal else 'missed'}",
                f"{ratio(worst):.4f} ({worst['instance']})",
                f"{near}/{len(compared)}" if compared else "nothing to compare",
                f"{max(row['seconds'] for row in mine):.1f}",
            )
        )
    header = ("k", "graphs", "W / k", "best", "goal", "worst best", "within 1 % of best known", "max s")
    return table(header, lines)


def _by_family(rows: list[Row]) -> str:
    stages = list(dict.fromkeys(row["stages"] for row in rows))
    lines = []
    for family in dict.fromkeys(row["family"] for row in rows):
        cells = [family]
        for k in stages:
            mine = [r for r in rows if r["family"] == family and r["stages"] == k and r["value_ns"] is not None]
            cells.append(f"{_work_mean(mine):.3f} -> {_mean(mine):.3f}" if mine else "-")
        lines.append(cells)
    return f"W / k -> best, by family:\n\n{table(('family', *(f'k = {k}' for k in stages)), lines)}"


def _mean(rows: list[Row]) -> float:
    return geometric_mean([ratio(row) or 1e-9 for row in rows])


def _work_mean(rows: list[Row]) -> float:
    return geometric_mean([row["load_ns"] / row["value_ns"] for row in rows])


def _all(rows: list[Row], best: BestKnown) -> str:
    header = ("graph", "k", "value", "value / best known", "best bound / value", "by", "W / k", "stopped by", "s")
    lines = [
        (
            row["instance"],
            str(row["stages"]),
            format_time(row["value_ns"]),
            best.compared(row),
            f"{ratio(row):.4f}",
            row["bound_by"],
            f"{row['load_ns'] / row['value_ns']:.4f}",
            row["stopped_by"],
            f"{row['seconds']:.1f}",
        )
        for row in rows
        if row["value_ns"] is not None
    ]
    return table(header, lines)
