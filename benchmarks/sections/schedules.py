"""Schedules: periods and makespans of `cyclic` and `auto` beside Tessel's own algorithms and the classic schedules.

In: shapes and pipelines. Out: one row per case and method. Simplified: one seed; classics are only simulated.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from benchmarks.measure import say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.sections.schedules_cases import (
    Case,
    cpu_until,
    fine_cases,
    formula_cases,
    schedule_row,
    shape_cases,
    warm_up_schedules,
)
from benchmarks.stats import geometric_mean, grouped
from weftline.schedule.classic import classic_schedules
from weftline.schedule.make_blocks import make_shape
from weftline.simulate import schedule_violations, simulate_schedule

__all__ = ["SECTION"]

SIZES: dict[str, Row] = {
    "tiny": {"shapes": [], "cases": ["vshape 4, memory 4", "vshape 4, memory 20"], "fine": [], "formulas": []}
    | {"limit": 1.0, "tessel": 5.0},
    "quick": {"shapes": [4, 8], "cases": [], "fine": [4], "formulas": [4], "limit": 5.0, "tessel": 30.0},
    "full": {"shapes": [4, 8, 16], "cases": [], "fine": [4, 8, 16], "formulas": [4, 8], "limit": 60.0, "tessel": 300.0},
}
SHORT = 10.0
"""Seconds for `cyclic` on a shape, and for `auto` on a shape: they are asked how fast they are."""


def measure(settings: Row, collect: Collector) -> None:
    """All rows, part by part."""
    if settings["shapes"]:
        warm_up_schedules(make_shape("kshape", 4).with_memory(6), ("cyclic", "auto", "tessel-lazy", "tessel-fast"))
    limit = settings["limit"]
    cases = [case for case in shape_cases((4,)) if case.name in settings["cases"]]
    for case in [*cases, *shape_cases(tuple(settings["shapes"]))]:
        for method in ("cyclic", "auto"):
            most = min(limit, SHORT) if case.tessel else limit
            _measure(collect, "shapes", case, method, most)
        for method in case.tessel:
            _measure(collect, "shapes", case, method, settings["tessel"])
    for part, found in (
        ("formulas", formula_cases(tuple(settings["formulas"]))),
        ("fine", fine_cases(tuple(settings["fine"]))),
    ):
        for case in found:
            _measure(collect, part, case, "auto", limit)


def _measure(collect: Collector, part: str, case: Case, method: str, time_limit: float) -> None:
    say(f"schedules: {case.name}, {method}")
    key = {"part": part, "instance": case.name, "method": method}
    collect.measure(key, partial(_row, case, method, time_limit))


def _row(case: Case, method: str, time_limit: float) -> Row:
    blocks = case.blocks
    row = schedule_row(blocks, case.micro_batches, method, time_limit)
    about = {"blocks": blocks.n, "micro_batches": case.micro_batches, "limit": max(d.memory for d in blocks.devices)}
    return {**about, **row, "classics": _classics(case) if method == "auto" else {}}


def _classics(case: Case) -> dict[str, Row]:
    """Classic schedules that apply: makespan, device-span bubble, largest memory, whether it fits."""
    found: dict[str, Row] = {}
    for name, orders in classic_schedules(case.blocks, case.micro_batches).items():
        timetable = simulate_schedule(case.blocks, case.micro_batches, orders)
        found[name] = {
            "makespan": timetable.makespan,
            "device_span_bubble": timetable.device_span_bubble,
            "peak": max(timetable.peak_memory),
            "fits": not schedule_violations(timetable),
        }
    return found


GOAL = 50
"""Times less processor time than Tessel's algorithms."""
TESSEL = ("tessel-lazy", "tessel-fast")
METHODS = {"cyclic": "cyclic", "auto": "auto", "tessel-lazy": "lazy", "tessel-fast": "fast"}
Line = dict[str, Row]
"""Method -> row, of one case."""


def _shapes(run: Run) -> list[Line]:
    rows = grouped(run.of(part="shapes"), "instance")
    return [{row["method"]: row for row in each} for each in rows.values()]


def _name(line: Line) -> str:
    return str(next(iter(line.values()))["instance"])


def _bound(line: Line) -> float:
    ours = [line[method]["period_bound"] for method in ("cyclic", "auto") if method in line]
    return float(max(ours, default=next(iter(line.values()))["period_bound"]))


def _period(row: Row) -> str:
    if row["period"] is None:
        return row.get("note") or "none"
    return f"{row['period']:.4g}{' proved' if row['period_proved'] else ''}"


def _cpu(row: Row) -> str:
    late = " (time over)" if row["seconds"] >= row["time_limit"] else ""
    crashed = f" ({row['note']})" if row.get("note", "").startswith("crashed") else ""
    return f"{row['cpu']:.3g}{crashed or late}"


def _shape_columns(run: Run) -> list[Column[Line]]:
    def of(method: str, cell: Callable[[Row], object]) -> Callable[[Line], object]:
        return lambda line: cell(line[method]) if method in line else None

    parts: dict[str, Callable[[Row], object]] = {
        "period: ": _period,
        "makespan: ": lambda row: row["makespan"],
        "CPU s: ": _cpu,
    }
    return [
        Column("case", _name),
        Column("bound", _bound, ".4g"),
        *(
            Column(f"{title if method == 'cyclic' else ''}{short}", of(method, cell))
            for title, cell in parts.items()
            for method, short in METHODS.items()
        ),
    ]


def _until(method: str, line: Line) -> float | str | None:
    """Processor seconds until `cyclic` was as good as Tessel was in the end."""
    ours, theirs = line.get("cyclic"), line.get(method)
    if ours is None or theirs is None or theirs["period"] is None or theirs["makespan"] is None:
        return None
    found = cpu_until(ours, theirs["period"], theirs["makespan"])
    return "not as good" if found is None else max(found, 0.0001)


def _factor(method: str, line: Line) -> float | None:
    found = _until(method, line)
    return line[method]["cpu"] / found if isinstance(found, float) else None


def _until_text(found: float | str) -> str:
    return found if isinstance(found, str) else f"{found:.4f}"


def _factors(run: Run) -> Iterator[str]:
    words = []
    for method in TESSEL:
        lines = [line for line in _shapes(run) if isinstance(_until(method, line), float)]
        ratios = [_factor(method, line) or 0.0 for line in lines]
        if ratios:
            theirs = sum(line[method]["cpu"] for line in lines)
            ours = sum(float(_until(method, line) or 0.0) for line in lines)
            words.append(
                f"`{method}`: geometric mean {geometric_mean(ratios):.0f}, all cases together {theirs / ours:.0f}, "
                f"at least {GOAL} in {sum(ratio >= GOAL for ratio in ratios)} of {len(ratios)}"
            )
    if words:
        yield f"Ratio of processor times: {'; '.join(words)}."


def _named(fits: bool, row: Row) -> str | None:
    found = [
        f"{name} {about['makespan']} ({about['makespan'] / row['makespan']:.3f})"
        for name, about in row["classics"].items()
        if about["fits"] == fits and row["makespan"]
    ]
    return ", ".join(found) or (row["note"] or None if not fits else None)


def _above(row: Row) -> float | None:
    return row["makespan"] / row["bound"] - 1 if row["makespan"] and row["bound"] else None


def _classics_table(part: str, text: str) -> Table[Row]:
    return Table(
        (
            Column("case", "instance"),
            Column("period", _period),
            *fields("bound=period_bound:.6g | makespan of auto=makespan"),
            Column("bound", lambda row: row["bound"] or None),
            Column("above", _above, ".2%"),
            Column("device-span bubble", "device_span_bubble"),
            Column("peak / limit", lambda r: None if r["makespan"] is None else f"{r['peak']} / {r['limit']}"),
            Column("classics that fit", partial(_named, True)),
            Column("classics that do not", partial(_named, False)),
        ),
        lambda run: run.of(part=part),
        text,
    )


def _best_other(rows: list[Row]) -> int | None:
    """The best makespan of a classic that fits, or of another method, on one case."""
    found = [row["makespan"] for row in rows if row["method"] != "auto" and row["makespan"]]
    for row in rows:
        found += [about["makespan"] for about in row["classics"].values() if about["fits"]]
    return min(found, default=None)


def _summary(run: Run) -> list[Row]:
    """One line per part: `auto` beside the best of all others and its bound."""
    found = []
    for part, rows in grouped(run.rows, "part").items():
        cases = list(grouped(rows, "instance").values())
        auto = [row for row in rows if row["method"] == "auto" and row["makespan"]]
        pairs = [(mine["makespan"], _best_other(each)) for each in cases for mine in each if mine in auto]
        both = [(mine, other) for mine, other in pairs if other]
        bounds = [1 / (1 + above) for row in auto if (above := _above(row)) is not None]
        found.append(
            {
                "part": part,
                "solved": f"{len(auto)} of {len(cases)}",
                "others": geometric_mean(other / mine for mine, other in both) if both else None,
                "better": sum(mine < other for mine, other in both),
                "equal": sum(mine == other for mine, other in both),
                "worse": sum(mine > other for mine, other in both),
                "bound": f"{geometric_mean(bounds):.4f} ({min(bounds):.3f})" if bounds else None,
                "proved": sum(bool(row["period_proved"]) for row in auto),
            }
        )
    return found


def _proofs(run: Run) -> Iterator[str]:
    """How much of what is closed the checker re-computes."""
    rows = [row for row in run.rows if row["method"] in ("cyclic", "auto") and row.get("checked")]
    if not rows:
        return
    at_bound = [row for row in rows if row["period"] and row["period"] <= row["period_bound"] + 1e-9]
    least = [row for row in rows if row["period_proved"]]
    bounded = [row for row in rows if row["bound"] is not None]
    closed = [row for row in bounded if row["makespan"] == row["bound"]]
    told = [
        (at_bound, "periods that equal a bound", "least_period", "loads_least_period"),
        (least, "least periods", "least_period", "loads_least_period"),
    ]
    words = []
    for each, what, now, old in told:
        count, before = (sum(bool(row["checked"][name]) for row in each) for name in (now, old))
        words.append(f"{count} of {len(each)} {what} (by loads alone {before})")
    count, before = (sum(r["checked"][n] >= r["bound"] for r in closed) for n in ("bound", "loads_bound"))
    words.append(f"{count} of {len(closed)} least makespans (by loads alone {before})")
    count = sum(r["checked"]["bound"] >= r["bound"] for r in bounded)
    words.append(f"{count} of all {len(bounded)} bounds of makespans")
    most, slowest = (max(r["checked"][name] for r in rows) for name in ("bytes", "checking"))
    sizes = f"witnesses have at most {most} bytes, checking takes at most {slowest:.2f} s"
    yield f"The checker re-computes {', '.join(words)}; {sizes}."


def _losses(run: Run) -> Iterator[str]:
    behind = []
    for instance, rows in grouped(run.rows, "instance").items():
        other = _best_other(rows)
        mine = next((row["makespan"] for row in rows if row["method"] == "auto"), None)
        if other is not None and (mine is None or other < mine):
            behind.append(f"{instance}: {other} against {mine or 'none'}")
    yield from verdict("Another method or classic has a shorter makespan than `auto`", behind, most=4)
    for method in TESSEL:
        worse = [_name(line) for line in _shapes(run) if _until(method, line) == "not as good"]
        yield from verdict(f"`cyclic` is not as good as `{method}` in both period and makespan", worse, most=4)
    unproved = [r["instance"] for r in run.rows if r["method"] == "auto" and r["period"] and not r["period_proved"]]
    if unproved:
        yield f"The period is not proved on {len(unproved)} of {len([*grouped(run.rows, 'instance')])} cases."


EXPLAIN = (
    "Period is the time per micro-batch of the pattern that repeats; its bound is valid for every pattern. "
    "`tessel-lazy` and `tessel-fast` are our implementations of the published algorithms with z3. They get the same "
    "blocks and memory; `tessel-fast`, which does not look at memory, is asked where memory is 20. The orders they "
    "find are costed by the same simulator, which lets their phases interlock: their makespans are at most the "
    "published ones. Processor seconds are those of the whole process, with warm kernels. *as good* is the processor "
    "time until `cyclic` had at least the period and the makespan with which Tessel ended; ratio = Tessel's processor "
    "time until it ended / that."
)
SECTION = Section(
    name="schedules",
    title="Schedules for many micro-batches",
    chapter="schedule",
    asked="Order the blocks of many micro-batches on 4 to 16 devices with little memory: Tessel's shapes, the "
    "published schedules at their own memory (*formulas*), and fine times on unequal stages (*fine*).",
    sizes=SIZES,
    measure=measure,
    screen=(
        Table(
            (
                *fields("cases=part | solved | best of others / ours=others:.4f | better | equal | worse"),
                *fields("bound / ours (worst)=bound | period proved=proved"),
            ),
            _summary,
        ),
        _factors,
        _proofs,
    ),
    losses=_losses,
    blocks=(
        EXPLAIN,
        Table(_shape_columns, _shapes),
        _factors,
        Table(
            (
                Column("case", _name),
                Column("as good as lazy, CPU s", partial(_until, "tessel-lazy"), _until_text),
                Column("ratio", partial(_factor, "tessel-lazy"), ".0f"),
                Column("as good as fast, CPU s", partial(_until, "tessel-fast"), _until_text),
                Column("ratio", partial(_factor, "tessel-fast"), ".0f"),
            ),
            lambda run: [line for line in _shapes(run) if any(_until(method, line) for method in TESSEL)],
        ),
        _classics_table("formulas", "The published schedules at their own memory:"),
        _classics_table("fine", "Fine times, unequal stages, N = 4p:"),
    ),
    limits=("limit", "tessel"),
)
