"""The page's part on schedules: periods, makespans and processor time beside Tessel's algorithms and the classics."""

from __future__ import annotations

from typing import Any

from benchmarks.planned import Row
from benchmarks.schedules_search import cpu_until
from benchmarks.summary import geometric_mean
from benchmarks.table import table

__all__ = ["schedule_sections"]

GOAL = 50
TESSEL = ("tessel-lazy", "tessel-fast")
EXPLAIN = (
    "Period is the time per micro-batch of the pattern that repeats; its bound is valid for every pattern. "
    "`tessel-lazy` and `tessel-fast` are our implementations of the published algorithms with z3. They get the same "
    "blocks and memory; `tessel-fast`, which does not look at memory, is asked where memory is 20. The orders they "
    "find are costed by the same simulator, which lets their phases interlock: their makespans are at most the "
    "published ones. Processor seconds are those of the whole process, with warm kernels. *as good* is the processor "
    "time until `cyclic` had at least the period and the makespan with which Tessel ended; ratio = Tessel's processor "
    "time until it ended / that."
)


def schedule_sections(run: dict[str, Any]) -> list[str]:
    """All tables."""
    rows = {(row["part"], row["instance"], row["method"]): row for row in run["rows"]}
    parts: dict[str, list[str]] = {}
    for part, instance, _ in rows:
        if instance not in parts.setdefault(part, []):
            parts[part].append(instance)
    found = [EXPLAIN]
    if "shapes" in parts:
        found += [_shapes(rows, parts["shapes"]), *_ratios(rows, parts["shapes"])]
    if "formulas" in parts:
        found += ["The published schedules at their own memory:", _classics(rows, "formulas", parts["formulas"])]
    if "fine" in parts:
        found += ["Fine times, unequal stages, N = 4p:", _classics(rows, "fine", parts["fine"])]
    return found


Rows = dict[tuple[str, str, str], Row]


def _shapes(rows: Rows, instances: list[str]) -> str:
    header = (
        "case", "bound", "period: cyclic", "auto", "lazy", "fast", "makespan: cyclic", "auto", "lazy", "fast",
        "CPU s: cyclic", "auto", "lazy", "fast",
    )  # fmt: skip
    methods = ("cyclic", "auto", *TESSEL)
    lines = []
    for name in instances:
        mine = [rows.get(("shapes", name, method)) for method in methods]
        first = next(row for row in mine if row is not None)
        bounds = [row["period_bound"] for row in mine[:2] if row is not None]
        bound = f"{max(bounds, default=first['period_bound']):.4g}"
        cells = [name, bound, *map(_period, mine), *map(_makespan, mine), *map(_cpu, mine)]
        lines.append(cells)
    return table(header, lines)


def _period(row: Row | None) -> str:
    if row is None or row["period"] is None:
        return "-" if row is None else row["note"] or "none"
    return f"{row['period']:.4g}{' proved' if row['period_proved'] else ''}"


def _makespan(row: Row | None) -> str:
    return "-" if row is None or row["makespan"] is None else str(row["makespan"])


def _cpu(row: Row | None) -> str:
    if row is None:
        return "-"
    late = " (time over)" if row["seconds"] >= row["time_limit"] else ""
    crashed = f" ({row['note']})" if row.get("note", "").startswith("crashed") else ""
    return f"{row['cpu']:.3g}{crashed or late}"


def _ratios(rows: Rows, instances: list[str]) -> list[str]:
    """How much cheaper `cyclic` is than each of Tessel's algorithms, case by case."""
    lines, all_ratios = [], {method: [] for method in TESSEL}  # type: list[list[str]], dict[str, list[float]]
    total: dict[str, list[float]] = {method: [0.0, 0.0] for method in TESSEL}
    for name in instances:
        ours = rows.get(("shapes", name, "cyclic"))
        cells = [name]
        for method in TESSEL:
            theirs = rows.get(("shapes", name, method))
            if ours is None or theirs is None or theirs["period"] is None or theirs["makespan"] is None:
                cells += ["-", "-"]
                continue
            until = cpu_until(ours, theirs["period"], theirs["makespan"])
            if until is None:
                cells += ["not as good", "-"]
                continue
            until = max(until, 0.0001)
            all_ratios[method].append(theirs["cpu"] / until)
            total[method][0] += theirs["cpu"]
            total[method][1] += until
            cells += [f"{until:.4f}", f"{theirs['cpu'] / until:.0f}"]
        if len(set(cells[1:])) > 1:
            lines.append(cells)
    if not lines:
        return []
    header = ("case", "as good as lazy, CPU s", "ratio", "as good as fast, CPU s", "ratio")
    words = [
        f"`{method}`: geometric mean {geometric_mean(ratios):.0f}, all cases together "
        f"{total[method][0] / total[method][1]:.0f}, "
        f"at least {GOAL} in {sum(ratio >= GOAL for ratio in ratios)} of {len(ratios)}"
        for method, ratios in all_ratios.items()
        if ratios
    ]
    return [f"Ratio of processor times: {'; '.join(words)}.", table(header, lines)]


def _classics(rows: Rows, part: str, instances: list[str]) -> str:
    header = (
        "case", "period", "bound", "makespan of auto", "bound", "above", "device-span bubble", "peak / limit",
        "classics that fit", "classics that do not",
    )  # fmt: skip
    lines = []
    for name in instances:
        row = rows[part, name, "auto"]
        if row["makespan"] is None:
            lines.append([name, *["-"] * 7, "-", row["note"]])
            continue
        bound = row["bound"] or 0
        over = f"{100 * (row['makespan'] / bound - 1):.2f} %" if bound else "-"
        lines.append(
            [
                name,
                _period(row),
                f"{row['period_bound']:.6g}",
                str(row["makespan"]),
                str(bound or "-"),
                over,
                str(row["device_span_bubble"]),
                f"{row['peak']} / {row['limit']}",
                _named(row, fits=True),
                _named(row, fits=False),
            ]
        )
    return table(header, lines)


def _named(row: Row, *, fits: bool) -> str:
    found = [
        f"{name} {about['makespan']} ({about['makespan'] / row['makespan']:.3f})"
        for name, about in row["classics"].items()
        if about["fits"] == fits
    ]
    return ", ".join(found) or "-"
