"""Sweeps for a terminal, each as a table and what follows from it in words: over numbers of stages (with a curve of the
speed-up), over numbers of devices, over many questions, and memory against period (with a bar for each limit).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from weftline.ask.device_sweep import DeviceSweep
from weftline.ask.scheduling import MemorySweep
from weftline.ask.stages import GOOD_ENOUGH, Sweep, SweepRow
from weftline.grid.compare import compared_solvers
from weftline.grid.grid import PlanSweep
from weftline.grid.job import Row
from weftline.plans.fleet_result import rate_words
from weftline.plans.schedule_story import schedule_units
from weftline.report.tables import Rows, text_table
from weftline.units import format_name, format_time

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "device_sweep_table",
    "device_sweep_words",
    "memory_table",
    "memory_words",
    "plan_sweep_rows",
    "plan_sweep_table",
    "plan_sweep_words",
    "ratio_table",
    "sweep_curve",
    "sweep_rows",
    "sweep_table",
    "sweep_words",
]

BAR_WIDTH = 48
"""Columns of the longest bar."""
_EIGHTHS = " ▏▎▍▌▋▊▉"


def sweep_table(sweep: Sweep) -> Table:
    """One line for each number of stages."""
    return text_table("Numbers of stages", *sweep_rows(sweep))


def sweep_rows(sweep: Sweep) -> tuple[tuple[str, ...], Rows]:
    """Period, bound, gap, speed-up and efficiency of each number of stages."""
    rows = [_row(sweep, row) for row in sweep.rows]
    return ("stages", "period", "bound", "gap", "speed-up", "efficiency", "proof", ""), rows


def _row(sweep: Sweep, row: SweepRow) -> tuple[str, ...]:
    bound = format_time(row.bound_ns) if row.bound_ns else ""
    guess = " for these guessed costs" if sweep.plan.guessed else ""
    proof = f"{row.proof}{guess} by {row.bound_by}" if row.bound_ns else row.proof
    if row.value_ns is None:
        return (str(row.stages), row.stopped_by, bound, "", "", "", proof, "")
    faster, efficiency = sweep.speed_up(row.value_ns), sweep.efficiency(row)
    return (
        str(row.stages),
        format_time(row.value_ns),
        bound,
        f"{row.gap:.2%}" if row.gap is not None and row.bound_ns else "",
        "" if faster is None else f"{faster:.2f}x",
        "" if efficiency is None else f"{efficiency:.0%}",
        proof,
        "best" if row.stages == sweep.best_stages else "",
    )


def sweep_curve(sweep: Sweep, *, ascii_only: bool = False) -> list[str]:
    """A bar for each number of stages: the speed-up that was found, then lighter what the bound still allows."""
    bars = [(row.stages, sweep.speed_up(row.value_ns), sweep.speed_up(row.bound_ns)) for row in sweep.rows]
    reached = [found for _, found, _ in bars if found is not None]
    if not reached:
        return []
    # A weak bound may allow anything; it must not squeeze what was found.
    longest = min(2 * max(reached), max([*reached, *(allowed for _, _, allowed in bars if allowed is not None)]))
    digits = len(str(bars[-1][0]))
    lines = [f"Speed-up against {_stages(sweep.base.stages)}; lighter: not ruled out by the bound"]
    for stages, found, allowed in bars:
        if found is None:
            lines.append(f"{stages:>{digits}} no plan")
            continue
        bar = _bar(found / longest, min((allowed or longest) / longest, 1.0), ascii_only)
        lines.append(f"{stages:>{digits}} {bar} {found:.2f}x")
    return lines


def _bar(found: float, allowed: float, ascii_only: bool) -> str:
    solid, light, eighths = ("#", ".", " ") if ascii_only else ("█", "░", _EIGHTHS)
    whole, part = divmod(round(found * BAR_WIDTH * len(eighths)), len(eighths))
    bar = solid * whole + (eighths[part] if part else "")
    return bar + light * (round(allowed * BAR_WIDTH) - len(bar))


def sweep_words(sweep: Sweep) -> list[str]:
    """Which number of stages is best, and what one more device would bring."""
    best = sweep.best_stages
    verb = "is" if best == 1 else "are"
    why = f"the fewest whose period is within {GOOD_ENOUGH:.0%} of the shortest one found"
    return [f"{_stages(best)} {verb} best here: {why}.", _one_more(sweep)]


def _one_more(sweep: Sweep) -> str:
    more, value = sweep.one_more, sweep.plan.value_ns
    ordinal = _ordinal(sweep.best_stages + 1)
    device = f"{_article(ordinal)} {ordinal} device"
    if more is None:
        return f"There is no {ordinal} device to add."
    if value == 0:
        return f"{device} would bring nothing: the period is 0 already."
    if more.bound_ns == 0:
        return f"{device}: nothing is known about what it could bring."
    proof = f"{more.proof} by {more.bound_by}"
    if more.bound_ns >= value:
        return f"{device} would bring nothing ({proof})."
    at_most = f"{device} would bring at most {value / more.bound_ns - 1:.1%} more throughput ({proof})"
    return f"{at_most}; {_reached(value, more.value_ns)}."


def _reached(value: int, with_it: int | None) -> str:
    if with_it is None:
        return "no plan with it was looked for"
    return "no plan found with it is better" if with_it == value else f"the plan found brings {value / with_it - 1:.1%}"


def _stages(number: int) -> str:
    return "1 stage" if number == 1 else f"{number} stages"


def _article(ordinal: str) -> str:
    """An 8th, an 11th, an 18th, an 80th; a 5th."""
    number = ordinal[:-2]
    return "An" if number.startswith("8") or number in ("11", "18") else "A"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def device_sweep_table(sweep: DeviceSweep) -> Table:
    """One line for each number of devices."""
    first = next((row.rate for row in sweep.rows if row.rate), None)
    lines: Rows = []
    for number, row in enumerate(sweep.rows):
        names = ", ".join(_joining(sweep, number))
        bound = "" if row.rate_bound is None else rate_words(row.rate_bound)
        if row.rate is None:
            lines.append((str(row.devices), names, row.stopped_by, bound, "", row.proof, ""))
            continue
        best = "best" if row.devices == sweep.best_devices else ""
        faster = f"{row.rate / first:.2f}x" if first else ""
        lines.append((str(row.devices), names, rate_words(row.rate), bound, faster, row.proof, best))
    header = ("devices", "joins", "rate", "at most", "speed-up", "proof", "")
    return text_table("Numbers of devices", header, lines)


def _joining(sweep: DeviceSweep, number: int) -> list[str]:
    """Who is there that was not in the row before."""
    before = set(sweep.rows[number - 1].names) if number else set[str]()
    return [format_name(name) for name in sweep.rows[number].names if name not in before]


def device_sweep_words(sweep: DeviceSweep) -> list[str]:
    """How many devices are enough, and what one more would bring."""
    best, plan = sweep.best_devices, sweep.plan
    names = ", ".join(format_name(device.id) for device in plan.problem.devices[:MOST_NAMES])
    more = f" and {best - MOST_NAMES} more" if best > MOST_NAMES else ""
    why = f"the fewest whose rate is within {GOOD_ENOUGH:.0%} of the highest found"
    words = [f"{best} device{' is' if best == 1 else 's are'} best here ({names}{more}): {why}."]
    row = sweep.one_more
    if row is None:
        return [*words, "There is no further device to add."]
    ordinal = _ordinal(row.devices)
    device = f"{_article(ordinal)} {ordinal} device"
    if row.rate is None:
        return [*words, f"{device}: nothing is known about what it could bring."]
    found = f"{device} brings {max(0.0, row.rate / plan.rate - 1):.1%} more"
    most = row.rate_bound
    return [*words, f"{found}." if most is None else f"{found}, and at most {most / plan.rate - 1:.1%} ({row.proof})."]


MOST_NAME, MOST_NAMES = 40, 8


def plan_sweep_table(sweep: PlanSweep) -> Table:
    """One line for each finished question."""
    return text_table("Plans", *plan_sweep_rows(sweep))


def plan_sweep_rows(sweep: PlanSweep) -> tuple[tuple[str, ...], Rows]:
    """What was asked, value, bound, gap, proof, and why the search ended or what went wrong."""
    asked = ("model", "cluster", "objective", "stages", "solver", "seed")
    header = (*asked, "ops", "value", "bound", "gap", "proof", "stopped by", "took")
    return header, [_plan_sweep_row(row) for row in sweep.rows]


def plan_sweep_words(sweep: PlanSweep) -> list[str]:
    """How many are finished, and where the answers are."""
    without = Counter(row.error.text for row in sweep.rows if row.error is not None)
    lines = [f"{text} ({'1 question' if count == 1 else f'{count} questions'})" for text, count in without.items()]
    before = f", {sweep.repeated} of them before" if sweep.repeated else ""
    lines.append(f"{len(sweep.rows)} of {sweep.asked} finished{before}; {without.total()} without a plan.")
    if sweep.interrupted:
        lines.append("Interrupted: the same call goes on from here.")
    return [*lines, f"written to {sweep.folder}"]


def _plan_sweep_row(row: Row) -> tuple[str, ...]:
    asked = (
        _short(row.model),
        _short(row.cluster or ""),
        row.objective,
        str(row.stages or ""),
        row.solver,
        str(row.seed),
    )
    if row.error is not None or row.value_ns is None or row.bound_ns is None or row.gap is None:
        return (*asked, "", "", "", "", "", row.error.kind if row.error is not None else "", "")
    bound = format_time(row.bound_ns) if row.bound_ns else ""
    found = (format_time(row.value_ns), bound, f"{row.gap:.2%}", row.proof or "", row.stopped_by or "")
    took = "" if row.took_seconds is None else f"{row.took_seconds:.1f} s"
    return (*asked, "" if row.ops is None else str(row.ops), *found, took)


def ratio_table(sweep: PlanSweep) -> Table | None:
    """Solvers against the first one, None where there is nothing to compare."""
    found = compared_solvers(sweep.rows)
    if not found:
        return None
    rows: Rows = []
    for one in found:
        mean, best, worst = (
            "" if value is None else f"{value:.3f}x" for value in (one.geometric_mean, one.best, one.worst)
        )
        missing = f", {one.without_plan} without a plan" if one.without_plan else ""
        counts = f"{one.wins} faster, {one.losses} slower of {one.questions}{missing}"
        rows.append((one.solver, one.objective, mean, best, worst, "" if one.solver == one.against else counts))
    title = f"Values against {found[0].against}: geometric mean, least, largest (below 1 is faster)"
    return text_table(title, ("solver", "objective", "mean", "least", "largest", "questions"), rows)


def _short(word: str) -> str:
    """The end of a long path, which says more than its beginning."""
    word = format_name(word)
    return word if len(word) <= MOST_NAME else f"...{word[3 - MOST_NAME :]}"


def memory_table(sweep: MemorySweep) -> Table:
    """One line for each limit."""
    rows: Rows = []
    time, size = schedule_units(sweep.best)
    for row in sweep.rows:
        found = row.schedule
        if found is None:
            rows.append((size(row.memory), "does not fit", "", "", "", "", ""))
            continue
        rows.append(
            (
                size(row.memory),
                *(f"{p:g}" if time is str else time(round(p)) for p in (found.period, found.period_bound)),
                "yes" if found.period_proved else "",
                time(found.makespan),
                f"{found.gap:.2%}",
                "less is slower" if row.best else "",
            )
        )
    titles = ("memory limit", "period", "its bound", "proved", "makespan", "its gap", "")
    return text_table("Memory against period, per micro-batch", titles, rows)


def memory_words(sweep: MemorySweep) -> list[str]:
    """Which memory is enough."""
    best = [row for row in sweep.rows if row.best]
    last = best[-1]
    assert last.schedule is not None
    time, size = schedule_units(last.schedule)
    period = last.schedule.period_exact if time is str else time(round(last.schedule.period))
    words = [f"memory {size(last.memory)} reaches the least period found, {period}"]
    if len(best) > 1:
        first = best[0]
        assert first.schedule is not None
        slower = first.schedule.period / last.schedule.period
        words.append(f"memory {size(first.memory)} is the least that fits; its period is {slower:.2f} times as long")
    return words
