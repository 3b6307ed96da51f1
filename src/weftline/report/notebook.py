"""What notebooks show of a value (`_repr_html_`): a line, a small table, a picture where it helps.

In: a Plan, fleet plan, Schedule, Score, Graph, Cluster or Problem. Out: HTML of a few kilobytes, everything escaped,
without scripts, links or classes. Simplified: long lists are cut, and say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import Any

from weftline.cluster import Cluster, Device
from weftline.export.fit_picture import FitPicture
from weftline.export.fleet_picture import FleetPicture
from weftline.export.picture import picture_of, to_svg
from weftline.graph import Graph
from weftline.plans import Plan
from weftline.plans.fit import FitPlan
from weftline.plans.fit_words import bound_sentence
from weftline.plans.fleet import AnyFleet
from weftline.plans.fleet_result import rate_words, simulate_fleet
from weftline.plans.fleet_story import fleet_guarantee
from weftline.plans.schedule import Schedule
from weftline.plans.schedule_story import schedule_words
from weftline.plans.score import Score
from weftline.plans.summary import guarantee
from weftline.problem import Problem
from weftline.report.fit import fit_baseline_rows, fit_device_rows
from weftline.report.fleet import fleet_comparison_rows, fleet_device_rows, lane_rows
from weftline.report.tables import comparison_rows, device_rows, stage_rows
from weftline.units import format_bytes, format_name, format_time

__all__ = ["html_of"]

MOST_ROWS = 12
MOST_PICTURED = 5_000
"""Ops or operations of a picture."""


def html_of(value: object) -> str:
    """The HTML of one of our values."""
    for kind, tell in _TOLD.items():
        if isinstance(value, kind):
            return str(tell(value))
    assert isinstance(value, AnyFleet)
    return _fleet(value)


def _plan(plan: Plan) -> str:
    graph = plan.problem.graph
    word = "latency" if plan.objective == "latency" else "period"
    head = f"{graph.name}: {word} {format_time(plan.value_ns)} ({len(graph.ops)} ops, {len(plan.devices)} devices)"
    tables = [_table(*comparison_rows(plan)), _table(*(stage_rows(plan) if plan.stages else device_rows(plan)))]
    return _page(head, guarantee(plan), *tables, _picture(plan, len(graph.ops)))


def _fit(plan: FitPlan) -> str:
    head = f"{plan.model.name}: {rate_words(plan.rate, 'tokens')} on {len(plan.devices)} devices"
    tables = [_table(*fit_baseline_rows(plan)), _table(*fit_device_rows(plan))]
    return _page(head, bound_sentence(plan), *tables, to_svg(FitPicture(plan)))


def _fleet(plan: AnyFleet) -> str:
    found = simulate_fleet(plan)
    head = f"{found.model}: {rate_words(found.rate, found.unit)} over {len(found.lanes)} lanes"
    rows = (fleet_comparison_rows(plan), fleet_device_rows(found), lane_rows(found))
    return _page(head, fleet_guarantee(plan), *(_table(*each) for each in rows), to_svg(FleetPicture(found)))


def _score(score: Score) -> str:
    word = "latency" if score.objective == "latency" else "period"
    head = f"{score.problem.graph.name}: {word} {format_time(score.value_ns)} with this placement"
    return _page(head, "", _table(*device_rows(score)), _picture(score, len(score.placement)))


def _schedule(schedule: Schedule) -> str:
    first, *rest = schedule_words(schedule)
    picture = _picture(schedule, schedule.micro_batches * len(schedule.blocks.blocks))
    return _page(f"{schedule.name}: {first}", " ".join(rest[:1]), picture)


def _graph(graph: Graph) -> str:
    kinds = Counter(op.kind or "?" for op in graph.ops)
    flops, weights = Counter[str](), Counter[str]()
    for op in graph.ops:
        flops[op.kind or "?"] += op.flops
        weights[op.kind or "?"] += op.weight_bytes
    rows = [
        (kind, str(count), f"{flops[kind] / 1e9:,.3f}", format_bytes(weights[kind]))
        for kind, count in kinds.most_common()
    ]
    whole = sum(weights.values()) + sum(tied.bytes for tied in graph.tied)
    head = f"{graph.name}: {len(graph.ops)} ops, {sum(flops.values()) / 1e9:,.3f} GFLOP, weights {format_bytes(whole)}"
    return _page(head, "", _table(("kind", "ops", "GFLOP", "weights"), rows))


def _cluster(cluster: Cluster) -> str:
    rows = [
        (
            device.id,
            device.kind,
            "no limit" if device.capacity is None else format_bytes(device.capacity),
            device.runtime,
        )
        for device in cluster.devices
    ]
    head = f"{cluster.name}: {len(cluster.devices)} devices, {len(cluster.links)} links"
    return _page(head, "", _table(("device", "kind", "memory", "runtime"), rows))


def _problem(problem: Problem) -> str:
    rules = problem.rules
    rows = [(device.id, device.kind, _memory(device)) for device in problem.devices]
    head = f"{problem.graph.name}: {len(problem.graph.ops)} ops on {len(problem.devices)} devices, {rules.objective}"
    sets = f"{len(problem.together)} sets of ops stay together. " if problem.together else ""
    return _page(head, f"{sets}Costs: {problem.cost.source}", _table(("device", "kind", "memory"), rows))


def _memory(device: Device) -> str:
    return "no limit" if device.capacity is None else format_bytes(device.capacity)


def _page(head: str, words: str, *parts: str) -> str:
    said = f"<p>{_text(words)}</p>" if words else ""
    return f"<div><p><b>{_text(head)}</b></p>{said}{''.join(parts)}</div>"


def _text(words: str) -> str:
    return escape(format_name(words[:400]))


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    every = list(rows)
    lines = [f"<tr>{''.join(f'<th>{_text(cell)}</th>' for cell in header)}</tr>"]
    lines += [f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in every[:MOST_ROWS]]
    if len(every) > MOST_ROWS:
        lines.append(f'<tr><td colspan="{len(header)}">and {len(every) - MOST_ROWS} more</td></tr>')
    return f"<table>{''.join(lines)}</table>"


def _picture(answer: Plan | Score | Schedule, size: int) -> str:
    return to_svg(picture_of(answer)) if size <= MOST_PICTURED else ""


_TOLD: dict[type, Callable[[Any], str]] = {
    Plan: _plan,
    Score: _score,
    Schedule: _schedule,
    Graph: _graph,
    Cluster: _cluster,
    Problem: _problem,
    FitPlan: _fit,
}
"""Kind of value -> its HTML; fleet plans are of several kinds, which `AnyFleet` names."""
