"""The rows of a plan's tables as text, shared by the terminal and Markdown.

Terminal tables (rich).

Whole texts for a terminal: what it would obey is shown, not sent.

A plan as a Markdown page.

A table of moves for the terminal: an op on each device, and what the plan would be then.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weftline.plans import Move, OpStory, Plan, placed_ops
from weftline.plans.summary import guarantee, measured_words
from weftline.units import format_bytes, format_name, format_time

if TYPE_CHECKING:
    from rich.table import Table

__all__ = [
    "Rows",
    "comparison_rows",
    "comparison_table",
    "device_rows",
    "device_table",
    "moves_table",
    "placement_rows",
    "placement_table",
    "plan_markdown",
    "printable",
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
    rows.append((f"lower bound ({plan.bound_by}, {plan.proof})", format_time(plan.bound_ns), share))
    return ("", what, "against the plan"), rows


def device_rows(plan: Plan) -> tuple[tuple[str, ...], Rows]:
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


def _ends(plan: Plan) -> tuple[dict[str, str], dict[str, str]]:
    """The first and the last op of each device, in the graph's order."""
    first: dict[str, str] = {}
    last: dict[str, str] = {}
    for op, device in plan.placement.items():
        name = format_name(op)
        first.setdefault(device, name)
        last[device] = name
    return first, last


def stage_rows(plan: Plan) -> tuple[tuple[str, ...], Rows]:
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


def device_table(plan: Plan) -> Table:
    """What each device does."""
    return text_table("Devices", *device_rows(plan))


def stage_table(plan: Plan) -> Table:
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
