"""Plans and schedules for a terminal or Markdown: rows as text, tables (rich), what each device does when.

In: a Plan, a Schedule, or moves of an op. Out: text and tables. What a terminal would obey is shown, not sent.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weftline.graph.describe import model_words
from weftline.plans import Move, OpStory, Plan, placed_ops
from weftline.plans.advice import advise
from weftline.plans.schedule import Schedule
from weftline.plans.schedule_story import device_names, schedule_units
from weftline.plans.score import Score
from weftline.plans.summary import guarantee, measured_words, proof_words
from weftline.units import format_bytes, format_name, format_time

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = [
    "NAMES",
    "Rows",
    "comparison_rows",
    "comparison_table",
    "device_rows",
    "device_table",
    "gantt",
    "left_out",
    "moves_table",
    "placement_rows",
    "placement_table",
    "plan_markdown",
    "printable",
    "schedule_table",
    "stage_rows",
    "stage_table",
    "text_table",
]

Rows = list[tuple[str, ...]]


def comparison_rows(plan: Plan) -> tuple[tuple[str, ...], Rows]:
    """The plan, every baseline, and the bound: value, and how many times as long as the plan."""
    what = "latency" if plan.objective == "latency" else "period"
    rows: Rows = [(f"this plan ({plan.solver})", format_time(plan.value_ns), "1.00x")]
    for name, value in sorted(plan.baselines.items(), key=lambda item: (item[1] is None, item[1] or 0)):
        if value is None:
            rows.append((name, "breaks a limit", ""))
        else:
            rows.append((name, format_time(value), f"{value / plan.value_ns:.2f}x" if plan.value_ns else ""))
    share = f"{plan.bound_ns / plan.value_ns:.2f}x" if plan.value_ns else ""
    rows.append((f"lower bound ({plan.bound_by}, {proof_words(plan)})", format_time(plan.bound_ns), share))
    return ("", what, "against the plan"), rows


def device_rows(plan: Plan | Score) -> tuple[tuple[str, ...], Rows]:
    """Every device: ops, busy time, memory."""
    ops = dict.fromkeys(plan.devices, 0)
    for device in plan.placement.values():
        ops[device] += 1
    rows: Rows = []
    for device, use in plan.devices.items():
        busy = f"{use.load_ns / plan.value_ns:.0%}" if plan.value_ns else ""
        limit = "no limit" if use.memory_limit is None else format_bytes(use.memory_limit)
        rows.append((device, str(ops[device]), format_time(use.load_ns), busy, format_bytes(use.memory_bytes), limit))
    return ("device", "ops", "load", "busy", "memory", "limit"), rows


def _ends(plan: Plan | Score) -> tuple[dict[str, str], dict[str, str]]:
    """The first and the last op of each device, in the graph's order."""
    first: dict[str, str] = {}
    last: dict[str, str] = {}
    for op, device in plan.placement.items():
        name = format_name(op)
        first.setdefault(device, name)
        last[device] = name
    return first, last


def stage_rows(plan: Plan | Score) -> tuple[tuple[str, ...], Rows]:
    """Every stage of a pipeline, in order."""
    first, last = _ends(plan)
    rows: Rows = [
        (
            str(number),
            stage.device,
            f"{stage.ops}: {first[stage.device]} .. {last[stage.device]}",
            format_time(stage.compute_ns),
            format_time(stage.in_ns),
            format_time(stage.out_ns),
            format_time(stage.load_ns),
        )
        for number, stage in enumerate(plan.stages)
    ]
    return ("stage", "device", "ops", "compute", "enters", "leaves", "load"), rows


def placement_rows(plan: Plan) -> tuple[tuple[str, ...], Rows]:
    """Every op in the graph's order."""
    rows: Rows = [(format_name(op.op), op.device, format_time(op.time_ns)) for op in placed_ops(plan)]
    return ("op", "device", "time"), rows


def comparison_table(plan: Plan) -> Table:
    """The plan against each baseline, with the bound."""
    return text_table("How good is it", *comparison_rows(plan))


def device_table(plan: Plan | Score) -> Table:
    """What each device does."""
    return text_table("Devices", *device_rows(plan))


def stage_table(plan: Plan | Score) -> Table:
    """The stages of a pipeline."""
    return text_table("Stages", *stage_rows(plan))


def placement_table(plan: Plan) -> Table:
    """Every op, where it runs, and how long."""
    return text_table("Placement", *placement_rows(plan))


def text_table(title: str, header: tuple[str, ...], rows: Rows) -> Table:
    """The first column to the left, numbers to the right."""
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", show_edge=False, pad_edge=False)
    for number, name in enumerate(header):
        table.add_column(name, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(Text(format_name(cell, keep="\n")) for cell in row))  # Text: names from files are never markup
    return table


def printable(text: str) -> str:
    """Several lines that may hold names from files."""
    return format_name(text, keep="\n")


def plan_markdown(plan: Plan) -> str:
    """Value, guarantee, comparison, devices, stages, provenance."""
    what = "Latency" if plan.objective == "latency" else "Period"
    parts = [
        f"# {_text(plan.problem.graph.name)}: {plan.objective} plan",
        *(f"**{_text(words)}**" for words in (advise(plan),) if words),
        *(_text(words) for words in (model_words(plan.problem.graph),) if words),
        f"{what} **{format_time(plan.value_ns)}**, lower bound {format_time(plan.bound_ns)}, gap {plan.gap:.2%}. "
        + " ".join(_text(sentence) for sentence in (guarantee(plan), measured_words(plan)) if sentence),
        "## Comparison\n\n" + _table(*comparison_rows(plan)),
        "## Devices\n\n" + _table(*device_rows(plan)),
    ]
    if plan.stages:
        parts.append("## Stages\n\n" + _table(*stage_rows(plan)))
    source = plan.provenance
    parts.append(
        f"Solver {_text(plan.solver)}, stopped by {_text(plan.stopped_by)}, seed {source.seed}; "
        f"weftline {_text(source.version)}; costs: {_text(plan.problem.cost_source)}; "
        f"problem sha256 `{source.problem_sha256[:64].translate({96: None, 10: None})}`."
    )
    return "\n\n".join(parts) + "\n"


def _table(header: tuple[str, ...], rows: Rows) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(_text(cell) for cell in line) + " |" for line in lines)


def _text(name: str) -> str:
    """Names come from files: nothing in them may be Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]<>#|&])", r"\\\1", name.replace("\n", " ")).replace("\\_", "_")


def moves_table(story: OpStory, objective: str) -> Table:
    """One row for each device."""
    word = "latency" if objective == "latency" else "period"
    here = next(move.value_ns or 0 for move in story.moves if move.here)
    header = ("on device", "its time", "ops moved", word, "change", "memory there", "")
    return text_table("If it stood elsewhere", header, [_row(move, here) for move in story.moves])


def _row(move: Move, value: int) -> tuple[str, ...]:
    own = "" if move.time_ns is None else format_time(move.time_ns)
    if move.value_ns is None:
        return (move.device, own, "", "", "", "", move.breaks[0])
    change = "" if move.here or not value else f"{move.value_ns / value - 1:+.2%}"
    limit = "" if move.memory_limit is None else f" of {format_bytes(move.memory_limit)}"
    memory = f"{format_bytes(move.memory_bytes or 0)}{limit}"
    says = "here" if move.here else "breaks: " + "; ".join(move.breaks) if move.breaks else ""
    return (move.device, own, "" if move.here else str(move.ops), format_time(move.value_ns), change, memory, says)


COLOURS = {"F": "blue", "B": "green", "W": "yellow", "C": "white"}
NAMES = {"F": "forward", "B": "backward", "W": "gradients of weights", "C": "sends"}
"""Kind of block -> what it does, for people."""
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
IDLE = "."
QUIET_LINK = 0.05
"""Links that are busy for a smaller share of the time are left out unless somebody asks."""


def gantt(schedule: Schedule, width: int = 100, *, colour: bool = True, links: bool = True) -> list[Text]:
    """One line per device; a digit or letter is the micro-batch (modulo 36), its colour the kind of block.

    Without colour a second line says the kind: F forward, B backward, W gradients of weights, C sends. A long schedule
    is drawn coarser: a column shows what the device does in the middle of its time. Without `links` those that are
    nearly idle are left out.
    """
    from rich.text import Text

    kinds = [block.kind for block in schedule.blocks.blocks]
    names, shown = device_names(schedule), _shown(schedule, links)
    margin = max(len(names[number]) for number in shown) + 1
    columns = max(10, min(width - margin, schedule.makespan))
    lines = []
    for number in shown:
        line = Text(names[number].ljust(margin), no_wrap=True)
        below = Text(" " * margin, no_wrap=True)
        row, place = schedule.actions[number], 0
        for column in range(columns):
            time = ((2 * column + 1) * schedule.makespan) // (2 * columns)
            while place < len(row) and row[place].end <= time:
                place += 1
            if place < len(row) and row[place].start <= time:
                kind = kinds[row[place].block]
                mark = DIGITS[row[place].micro_batch % len(DIGITS)]
                line.append(mark, style=f"black on {COLOURS[kind]}" if colour else "")
                below.append(kind)
            else:
                line.append(IDLE)
                below.append(" ")
        lines += [line] if colour else [line, below]
    return [*lines, _legend(schedule, kinds, margin, colour=colour)]


def _shown(schedule: Schedule, links: bool) -> list[int]:
    """Devices, and links that are not nearly idle."""
    lanes = schedule.blocks.devices
    if links or isinstance(lanes, int):
        return list(range(len(schedule.actions)))
    busy = [sum(action.end - action.start for action in row) for row in schedule.actions]
    return [n for n, lane in enumerate(lanes) if not lane.link or busy[n] >= QUIET_LINK * schedule.makespan]


def _legend(schedule: Schedule, kinds: list[str], margin: int, *, colour: bool) -> Text:
    """What colours and letters mean."""
    from rich.text import Text

    time, _ = schedule_units(schedule)
    legend = Text(" " * margin)
    for kind in (kind for kind in COLOURS if kind in kinds):
        if colour:
            legend.append(f" {NAMES[kind]} ", style=f"black on {COLOURS[kind]}")
            legend.append(" ")
        else:
            legend.append(f"{kind} {NAMES[kind]}; ")
    legend.append(f"0-9a-z micro-batch; {IDLE} idle; width {time(schedule.makespan)}")
    return legend


def schedule_table(schedule: Schedule, *, links: bool = True) -> Table:
    """What each device does and holds."""
    rows: Rows = []
    time, size = schedule_units(schedule)
    names = device_names(schedule)
    for number in _shown(schedule, links):
        row = schedule.actions[number]
        busy = sum(action.end - action.start for action in row)
        limit = schedule.memory_limit[number]
        rows.append(
            (
                names[number],
                time(busy),
                f"{busy / schedule.makespan:.1%}",
                time(row[0].start) if row else "",
                time(row[-1].end) if row else "",
                size(schedule.peak_memory[number]),
                "" if limit is None else size(limit),
            )
        )
    return text_table("Devices", ("device", "busy", "of makespan", "first start", "last end", "memory", "limit"), rows)


def left_out(schedule: Schedule) -> str:
    """A sentence about links that are not shown unless asked for; empty if all are."""
    count = len(schedule.actions) - len(_shown(schedule, False))
    if not count:
        return ""
    are = "links are" if count > 1 else "link is"
    return f"{count} {are} busy for less than {QUIET_LINK:.0%} of the time and not shown; --links shows all."
