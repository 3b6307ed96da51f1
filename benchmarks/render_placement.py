"""The page's part on placement for latency: all solvers x instances, who beats `auto`, speed-ups, gaps."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from benchmarks.placement import AGAIN, FILES
from benchmarks.placement_summary import (
    against,
    better_bounds,
    compared_again,
    contradictions,
    defeats,
    first_runs,
    grouped,
    mean_ratio,
    of_auto,
    wins,
)
from benchmarks.planned import Row, is_closed, is_late, ratio
from benchmarks.results_file import BestKnown
from benchmarks.summary import geometric_mean
from benchmarks.table import table
from weftline.units import format_time

__all__ = ["placement_sections"]

PAPER = ("m-sct", "getf", "placeto-greedy")
"""What Moirai was compared with."""
RIVALS = (*PAPER, "single-device", "heft", "m-etf", "m-topo", "anneal", "moirai-milp", "cp-sat")


def placement_sections(run: Row, best: BestKnown) -> list[str]:
    """Method, verdicts, tables."""
    rows = first_runs(run["rows"])
    if not rows:
        return ["Nothing was measured."]
    return [
        _method(run),
        *_verdicts(rows),
        *_again(run["rows"]),
        "### Speed-up of auto\n\n" + _speed_up(rows),
        "### Means by preset\n\n" + _means(rows),
        "### Bounds of auto\n\n" + _gaps(rows),
        *_references(rows, best),
        "### All solvers on all instances",
        _LEGEND,
        *_all(rows),
    ]


def _method(run: Row) -> str:
    limit = run["settings"]["time_limit"]
    return (
        f"All solvers of `weftline plan --solver help`, objective latency, parallel runtime, seed 0, {limit:g} s for "
        "each solver on each instance, on the wall clock: `auto` has no more time than any solver that it uses. Models "
        f"of the zoo at size {run['settings']['size']}, without weights, analytic costs; the published files are the "
        "samples of Moirai with their own devices and rules (one transfer per edge, static memory). Every solver "
        "begins with the same first lower bound, which is not on its clock. Values are the simulator's; no solver "
        "reports its own. Simple solvers are done long before the limit and cannot use more time."
    )


def _verdicts(rows: list[Row]) -> Iterator[str]:
    count = len({row["instance"] for row in rows})
    for who, test in (
        ("the best single device", lambda row: row["solver"] == "single-device"),
        ("the best baseline", lambda row: row["baseline"]),
        ("the best of all other solvers", lambda row: True),
    ):
        clear, slight = defeats(rows, test)
        if clear or slight:
            less = f" ({len(slight)} of them by no more than the 0.01 % at which a search may stop)" if slight else ""
            where = "; ".join([*clear, *slight])
            yield f"**`auto` is worse than {who} on {len(clear) + len(slight)} of {count} instances**{less}: {where}."
        else:
            yield f"`auto` is worse than {who} on none of {count} instances."
    late = [f"{_name(row)} ({row['seconds']:.1f} s)" for row in rows if is_late(row)]
    crashed = [f"{_name(row)}: {row['note']}" for row in rows if row["note"].startswith("crashed")]
    none = [f"{solver} {len(mine)}" for solver, mine in grouped([r for r in rows if _failed(r)], "solver").items()]
    for what, found in (
        ("More than 2 s over the time limit", late),
        ("Crashed", crashed),
        ("A bound contradicts a value", contradictions(rows)),
        ("Another solver's bound is higher than that of `auto`", better_bounds(rows)),
    ):
        if found:
            yield f"**{what}:** {'; '.join(found)}."
    if none:
        yield f"No plan, by solver and number of instances: {', '.join(none)}."


def _again(rows: list[Row]) -> Iterator[str]:
    found = compared_again(rows)
    if found:
        yield (
            "Near the end of a search one step may decide, and a machine is not always equally fast: where `auto` was "
            f"worse, it and the best ran {AGAIN} times again, in turn. Medians of these runs alone: {'; '.join(found)}."
        )


def _failed(row: Row) -> bool:
    return row["value_ns"] is None and not row["note"].startswith("crashed")


def _name(row: Row) -> str:
    return f"{row['solver']} on {row['instance']}"


def _speed_up(rows: list[Row]) -> str:
    text = (
        "Latency of the other's plan / latency of `auto`'s plan, over the instances on which both have one. Moirai was "
        "compared with the first three and its paper reports 4.28x as its best case; models, devices and "
        "implementations differ, so this is no comparison with Moirai."
    )
    lines = []
    for solver in RIVALS:
        found = against(rows, solver)
        if found is not None:
            lines.append(
                (
                    "best single device" if solver == "single-device" else solver,
                    str(found["count"]),
                    f"{found['mean']:.3f}x",
                    f"{found['most']:.2f}x ({found['most_where']})",
                    f"{found['least']:.3f}x ({found['least_where']})",
                    str(found["alone"]),
                )
            )
    header = ("against", "instances", "geo. mean", "largest", "smallest", "only auto has a plan")
    return f"{text}\n\n{table(header, lines)}"


def _means(rows: list[Row]) -> str:
    text = (
        "Geometric mean of the solver's value / `auto`'s value (above 1: `auto` is better), over the instances that "
        "the solver solved, whose number stands behind it where it is not all; then on how many instances nobody has "
        "anything better, and the median of its seconds."
    )
    presets = grouped(rows, "preset")
    lines = []
    for solver, mine in grouped(rows, "solver").items():
        cells = [_mean_cell(part, solver) for part in (*presets.values(), rows)]
        seconds = median(row["seconds"] for row in mine)
        lines.append((solver, *cells, str(wins(rows, solver)), f"{seconds:.2f}"))
    return f"{text}\n\n{table(('solver', *presets, 'all', 'best or equal', 'median s'), lines)}"


def _mean_cell(rows: list[Row], solver: str) -> str:
    found = mean_ratio(rows, solver)
    if found is None:
        return "-"
    count = sum(row["solver"] == solver for row in rows)
    solved = sum(row["solver"] == solver and row["value_ns"] is not None for row in rows)
    return f"{found:.3f}" if solved == count else f"{found:.3f} ({solved}/{count})"


def _gaps(rows: list[Row]) -> str:
    presets = [preset for preset in grouped(rows, "preset") if preset != FILES]
    mine = of_auto(rows)
    cells = {(row["preset"], row["model"]): row for row in mine.values()}
    models = dict.fromkeys(row["model"] for row in rows if row["preset"] != FILES)
    lines = [(model, *(_gap_cell(cells.get((preset, model))) for preset in presets)) for model in models]
    columns = [[row for row in mine.values() if row["preset"] == preset] for preset in presets]
    for name, pick in (("geo. mean", geometric_mean), ("worst", _least)):
        lines.append((f"**{name}**", *(f"{pick(found):.4f}" if found else "-" for found in map(_ratios, columns))))
    everything = _ratios(list(mine.values()))
    closed = sum(is_closed(row) for row in mine.values())
    proved = sum(is_closed(row) and row["proof"] == "proved" for row in mine.values())
    text = "Lower bound / value of `auto`, its method, and seconds; 1 means that no better plan exists."
    if everything:
        text += (
            f" Over all instances, the published files among them: geometric mean {geometric_mean(everything):.4f}, "
            f"worst {min(everything):.4f}; closed to 0.01 % on {closed} of {len(mine)} ({proved} proved by the "
            "independent checker)."
        )
    return f"{text}\n\n{table(('model', *presets), lines)}" if models else text


def _least(found: list[float]) -> float:
    return min(found)


def _ratios(rows: list[Row]) -> list[float]:
    return [max(ratio(row) or 0.0, 1e-9) for row in rows]


def _gap_cell(row: Row | None) -> str:
    return "-" if row is None else f"{ratio(row):.4f} {row['bound_by']} {row['seconds']:.1f} s"


def _references(rows: list[Row], best: BestKnown) -> Iterator[str]:
    known = [row for row in of_auto(rows).values() if row["reference_ns"]]
    if known:
        header = ("file", "known optimum", "auto", "auto / optimum", "bound / auto", "s")
        lines = [
            (
                row["instance"],
                format_time(row["reference_ns"]),
                format_time(row["value_ns"]),
                f"{row['value_ns'] / row['reference_ns']:.5f}",
                f"{ratio(row):.5f}",
                f"{row['seconds']:.1f}",
            )
            for row in known
        ]
        yield f"Published files beside their optima, known from outside and rounded:\n\n{table(header, lines)}"
    behind = [
        f"{row['instance']} {row['value_ns'] / found - 1:.2%}"
        for row in of_auto(rows).values()
        if (found := best.of(row)) and row["value_ns"] > found * 1.0001
    ]
    if behind:
        yield f"Behind the best value that any kept run of any solver has found: {', '.join(behind)}."


_LEGEND = (
    "Value / lower bound at the end of the solver's search / seconds; **bold** where the plan is better than `auto`'s, "
    "`-` where there is none."
)


def _all(rows: list[Row]) -> Iterator[str]:
    for preset, mine in grouped(rows, "preset").items():
        automatic = of_auto(mine)
        models = list(dict.fromkeys(row["model"] for row in mine))
        ops = {row["model"]: row.get("ops", 0) for row in mine}
        lines = []
        for solver, its in grouped(mine, "solver").items():
            cells = {row["model"]: _cell(row, automatic.get(row["instance"])) for row in its}
            lines.append((solver, *(cells.get(model, "") for model in models)))
        header = ("solver", *(f"{model} ({ops[model]} ops)" for model in models))
        yield f"#### {preset}\n\n{table(header, lines)}"


def _cell(row: Row, automatic: Row | None) -> str:
    if row["value_ns"] is None:
        return f"- / - / {row['seconds']:.1f}"
    text = f"{format_time(row['value_ns'])} / {format_time(row['bound_ns'])} / {row['seconds']:.1f}"
    better = automatic is None or row["value_ns"] < automatic["value_ns"]
    return f"**{text}**" if better else text
