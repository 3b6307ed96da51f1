"""The page's part on fusion: plans with and without fusion-aware coarsening, costed alike."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from benchmarks.fusion import ALONE, ORACLE
from benchmarks.placement_summary import grouped
from benchmarks.planned import Row, is_late
from benchmarks.summary import geometric_mean
from benchmarks.table import table
from weftline.units import format_time

__all__ = ["fusion_sections"]

SAME = 0.0001


def fusion_sections(run: Row) -> list[str]:
    """Method, summary by way, where coarsening loses, every instance."""
    rows = run["rows"]
    if not rows:
        return ["Nothing was measured."]
    text = (
        "Each model is planned by `auto` in six ways: on the graph as it is (*none*), with groups that ONNX Runtime "
        "fuses (*oracle*), with fusion rules (*gcof*), with chains or co-placed ops as a first coarse search "
        "(*chains*, *coplace*), and on the best single device; at most "
        f"{run['settings']['time_limit']:g} s each, seed 0. Two values make the plans comparable, both of the "
        "placement on the whole graph: *fused*, where each kernel that ONNX Runtime would fuse and that the plan "
        "leaves on one device has its fused time, and a kernel that is cut pays for its ops one by one; and "
        "*unfused*, where every op runs by itself. A plan that is costed again may keep its order or take the "
        "default one. *Near* is when a search first had a value within 1 % of its last. Fused times are modelled, "
        "not measured."
    )
    return [
        text,
        _by_way(rows),
        *_verdicts(rows),
        f"Fused value: of *oracle* as it is, of the others / *oracle*'s (above 1: *oracle* is better).\n\n"
        f"{_matrix(rows, 'fused_ns')}",
        f"Unfused value: of *none* as it is, of the others / *none*'s.\n\n{_matrix(rows, 'fine_ns', 'none')}",
        f"Search: things to place, kernels cut, seconds until near / in all (and to coarsen).\n\n{_search(rows)}",
    ]


def _by_way(rows: list[Row]) -> str:
    lines = []
    for way, mine in grouped(rows, "way").items():
        solved = [row for row in mine if row["value_ns"] is not None]
        if not solved:
            lines.append((way, f"0/{len(mine)}", *["-"] * 8))
            continue
        near = [row["near_seconds"] for row in solved if row["near_seconds"] is not None]
        lines.append(
            (
                way,
                f"{len(solved)}/{len(mine)}",
                f"{geometric_mean([row['to_place'] / row['ops'] for row in solved]):.2f}",
                _mean(rows, way, "fused_ns", ORACLE),
                str(_wins(rows, way)),
                _mean(rows, way, "fine_ns", "none"),
                f"{geometric_mean([_bound_ratio(row) for row in solved]):.4f}",
                f"{sum(row['cut'] for row in solved)} of {sum(row['kernels'] for row in solved)}",
                f"{median(near):.2f}" if near else "-",
                f"{median(row['seconds'] for row in solved):.2f}",
                f"{median(row['coarsen_seconds'] for row in solved):.2f}",
            )
        )
    header = (
        "coarsened by",
        "solved",
        "to place / ops",
        "fused / oracle's",
        "best fused or equal",
        "unfused / none's",
        "bound / its own value",
        "kernels cut",
        "median s until near",
        "median s",
        "median s to coarsen",
    )
    return table(header, lines)


def _bound_ratio(row: Row) -> float:
    return max(1e-9, row["bound_ns"] / row["value_ns"]) if row["value_ns"] else 1.0


def _values(rows: list[Row], way: str, field: str) -> dict[str, int]:
    return {row["instance"]: row[field] for row in rows if row["way"] == way and row[field]}


def _mean(rows: list[Row], way: str, field: str, against: str) -> str:
    mine, other = _values(rows, way, field), _values(rows, against, field)
    ratios = [mine[name] / other[name] for name in mine if name in other]
    return f"{geometric_mean(ratios):.4f}" if ratios else "-"


def _wins(rows: list[Row], way: str) -> int:
    count = 0
    for mine in grouped(rows, "instance").values():
        values = {row["way"]: row["fused_ns"] for row in mine if row["fused_ns"] is not None}
        count += way in values and values[way] == min(values.values())
    return count


def _verdicts(rows: list[Row]) -> Iterator[str]:
    oracle = _values(rows, ORACLE, "fused_ns")
    for way in ("none", ALONE):
        other = _values(rows, way, "fused_ns")
        both = [name for name in oracle if name in other]
        lost = [f"{name} {oracle[name] / other[name] - 1:.2%}" for name in both if other[name] < oracle[name]]
        won = sum(other[name] > oracle[name] * (1 + SAME) for name in both)
        what = "no coarsening" if way == "none" else "the best single device"
        yield f"*oracle* against {what}: better by more than 0.01 % on {won} of {len(both)}, " + (
            f"**worse on {len(lost)}**: {', '.join(lost)}." if lost else "worse on none."
        )
    late = [f"{row['instance']}, {row['way']} ({row['seconds']:.1f} s)" for row in rows if is_late(row)]
    notes = dict.fromkeys(f"{row['instance']}, {row['way']}: {row['note']}" for row in rows if row["note"])
    fell_back = dict.fromkeys(
        f"{row['instance']}: {row['coarsen_note']}" for row in rows if row["way"] == ORACLE and row["coarsen_note"]
    )
    for what, found in (
        ("More than 2 s over the time limit", late),
        ("No plan", notes),
        ("Of the oracle", fell_back),
    ):
        if found:
            yield f"**{what}:** {'; '.join(found)}."


def _matrix(rows: list[Row], field: str, against: str = ORACLE) -> str:
    ways = list(grouped(rows, "way"))
    lines = []
    for instance, mine in grouped(rows, "instance").items():
        values = {row["way"]: row[field] for row in mine}
        cells = []
        for way in ways:
            value, base = values.get(way), values.get(against)
            if value is None:
                cells.append("-")
            elif way == against or not base:
                cells.append(format_time(value))
            else:
                cells.append(f"**{value / base:.4f}**" if value < base else f"{value / base:.4f}")
        lines.append((instance, *cells))
    return table(("instance", *ways), lines)


def _search(rows: list[Row]) -> str:
    ways = [way for way in grouped(rows, "way") if way != ALONE]
    lines = []
    for instance, mine in grouped(rows, "instance").items():
        found = {row["way"]: row for row in mine}
        lines.append((instance, str(mine[0]["ops"]), *(_search_cell(found.get(way)) for way in ways)))
    return table(("instance", "ops", *ways), lines)


def _search_cell(row: Row | None) -> str:
    if row is None or row["value_ns"] is None:
        return "-"
    near = "-" if row["near_seconds"] is None else f"{row['near_seconds']:.2f}"
    coarsen = f" (+ {row['coarsen_seconds']:.2f})" if row["coarsen_seconds"] else ""
    return f"{row['to_place']}, {row['cut']} cut, {near} / {row['seconds']:.1f} s{coarsen}"
