"""The page's part on k equal devices: bound / value by k, and instance by instance."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import mean

from benchmarks.flat import PRESET
from benchmarks.planned import CLOSED, Row, is_closed, is_late, ratio, simple_ratio
from benchmarks.summary import geometric_mean
from benchmarks.table import table

__all__ = ["closed_factor", "misses", "paper_sections"]

GOALS = {2: 0.99, 4: 0.99, 8: 0.99, 16: 0.99, 32: 0.97, 64: 0.97}
PAPER = "Archer et al. report .4598, .9452 and 9.855 at k = 16 on 369 production models of their own"


def paper_sections(run: Row) -> list[str]:
    """Method, the table by k, the same by group, misses, every instance."""
    rows = run["rows"]
    groups = {row["group"]: None for row in rows}
    names = {"zoo": "the zoo at full size", "light": "the light models of the onnx package", "shared": "msr-fiddle's"}
    who = ", ".join(f"{names[g]} ({len({r['instance'] for r in rows if r['group'] == g})})" for g in groups)
    text = (
        f"Models: {who}. The first two are costed for k copies of the GPU of the preset {PRESET} with its NVLink "
        "between all pairs, memory unlimited; the graphs of msr-fiddle have costs of their own and are taken without "
        "CPUs, memory limits and colours. *Simple* = max(W / k, what a single op must cost) / value; *best* = the "
        "best lower bound that the same search found / value, both as geometric means; the factor is "
        "(1 - simple) / (1 - best), by which the optimality gap was closed. "
        f"{PAPER}; models and costs differ (here even the simple bound is nearer), "
        "so this is a goal and not a comparison. *Closed* counts instances whose value and "
        "bound agree to 0.01 %, the default gap. Default settings, seed 0, at most "
        f"{run['settings']['time_limit']:g} s; seconds are the whole call of `make_plan`, kernels compiled "
        "before."
    )
    return [text, _by_stages(rows), *_by_group(rows, list(groups)), *misses(rows), _matrix(rows)]


def closed_factor(simple: float, best: float) -> float | None:
    """By which the gap was closed; None where what is left is below the gap at which searches stop."""
    return None if 1 - best < CLOSED else (1 - simple) / (1 - best)


def _by_stages(rows: list[Row]) -> str:
    header = ("k", "instances", "simple", "best", "gap closed by", "worst best", "goal", "closed", "mean s", "max s")
    return table(header, [_line(k, mine) for k, mine in _split(rows)])


def _split(rows: list[Row]) -> Iterator[tuple[int, list[Row]]]:
    for stages in dict.fromkeys(row["stages"] for row in rows):
        yield stages, [row for row in rows if row["stages"] == stages]


def _line(stages: int, rows: list[Row]) -> tuple[str, ...]:
    solved = [row for row in rows if ratio(row) is not None]
    if not solved:
        return (str(stages), f"0/{len(rows)}", *["-"] * 8)
    best = geometric_mean([ratio(row) or 0.0 for row in solved])
    simple = geometric_mean([simple_ratio(row) or 0.0 for row in solved])
    worst = min(solved, key=lambda row: ratio(row) or 0.0)
    factor, goal = closed_factor(simple, best), GOALS.get(stages, 0.99)
    under = [row for row in solved if (ratio(row) or 0.0) < goal]
    return (
        str(stages),
        f"{len(solved)}/{len(rows)}" if len(solved) < len(rows) else str(len(rows)),
        f"{simple:.4f}",
        f"{best:.5f}",
        "all of it" if factor is None else f"{factor:,.1f}x",
        f"{ratio(worst):.4f} ({worst['instance']})",
        f">= {goal}: {'reached' if best >= goal else 'missed'}, {len(under)} of {len(solved)} below",
        f"{sum(is_closed(row) for row in solved)} ({sum(_is_proved(row) for row in solved)} proved)",
        f"{mean(row['seconds'] for row in rows):.1f}",
        f"{max(row['seconds'] for row in rows):.1f}",
    )


def _is_proved(row: Row) -> bool:
    return is_closed(row) and row["proof"] == "proved"


def _by_group(rows: list[Row], groups: list[str]) -> Iterator[str]:
    if len(groups) < 2:
        return
    lines = []
    for stages, mine in _split(rows):
        cells = [str(stages)]
        for group in groups:
            solved = [row for row in mine if row["group"] == group and ratio(row) is not None]
            cells += (
                [
                    f"{geometric_mean([simple_ratio(row) or 0.0 for row in solved]):.4f}",
                    f"{geometric_mean([ratio(row) or 0.0 for row in solved]):.5f}",
                ]
                if solved
                else ["-", "-"]
            )
        lines.append(cells)
    yield table(("k", *(f"{group}: {what}" for group in groups for what in ("simple", "best"))), lines)


def misses(rows: list[Row]) -> Iterator[str]:
    """Everything that is not as promised, in plain words."""
    late = [f"{_name(row)} ({row['seconds']:.1f} s)" for row in rows if is_late(row)]
    crashed = [f"{_name(row)}: {row['note']}" for row in rows if row["note"]]
    worse = [f"{_name(row)}: {who}" for row in rows for who in _better_baselines(row)]
    for what, found in (
        ("More than 2 s over the time limit", late),
        ("No plan", crashed),
        ("A baseline is better", worse),
    ):
        if found:
            yield f"**{what}:** {'; '.join(found)}."


def _name(row: Row) -> str:
    return f"{row['instance']}, k = {row['stages']}" if row.get("stages") else str(row["instance"])


def _better_baselines(row: Row) -> Iterator[str]:
    for who, value in row.get("baselines", {}).items():
        if value is not None and who != "replicas" and row["value_ns"] is not None and value < row["value_ns"]:
            yield who


def _matrix(rows: list[Row]) -> str:
    stages = list(dict.fromkeys(row["stages"] for row in rows))
    found = {(row["instance"], row["stages"]): row for row in rows}
    ops = {row["instance"]: row["ops"] for row in rows}
    lines = [
        (name, str(count), *(_cell(found.get((name, k)), k) for k in stages)) for name, count in sorted(ops.items())
    ]
    text = "Best bound / value, and seconds; **bold** where the goal for k is missed."
    return f"{text}\n\n{table(('instance', 'ops', *(f'k = {k}' for k in stages)), lines)}"


def _cell(row: Row | None, stages: int) -> str:
    if row is None:
        return "-"
    found = ratio(row)
    if found is None:
        return "**none**"
    text = f"{found:.4f}" if found < 1 else "1"
    return f"**{text}** {row['seconds']:.1f} s" if found < GOALS.get(stages, 0.99) else f"{text} {row['seconds']:.1f} s"
