"""Fleet plans for a terminal, a notebook and a page: rows of devices, lanes and what the plan is compared with.

In: a fleet plan of any kind and its simulation. Out: rows as text, tables (rich), and the page's words and pictures.
Simplified: many lanes are cut in tables, and say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from weftline.plans.advice import advise_fleet
from weftline.plans.fleet import AnyFleet, FleetPlan
from weftline.plans.fleet_result import (
    FleetResult,
    held_words,
    rate_words,
    unit_of,
    way_words,
)
from weftline.plans.fleet_story import FleetStory, fleet_guarantee
from weftline.plans.layers import LayerPlan
from weftline.report.tables import Rows, text_table
from weftline.simulate.fleet import RATE_UNITS
from weftline.units import format_bytes, format_time

if TYPE_CHECKING:
    from rich.table import Table

    from weftline.fleet.serving import ServingRow

__all__ = [
    "fleet_comparison_rows",
    "fleet_comparison_table",
    "fleet_device_rows",
    "fleet_device_table",
    "fleet_page",
    "fleet_pictures",
    "front_of",
    "front_table",
    "lane_rows",
    "lane_table",
    "serving_table",
]

MOST_LANES, MOST_DEVICES = 40, 100
"""Rows of a table."""
SIMPLE_PLANS = {
    "single-device": "one pipeline of one stage: the whole model on the device that is best for it",
    "even-split": "one pipeline whose stages have equally many ops",
    "greedy": "one pipeline, each stage filled up to the least compute with which all ops find a place",
    "pipeline": "the best single pipeline of a search of its own",
    "replicas": "a whole copy of the model on every device that can hold one",
}
"""Baseline -> what it is."""


def fleet_device_rows(found: FleetResult) -> tuple[tuple[str, ...], Rows]:
    """Every device: share of its time, what it holds, memory."""
    rows: Rows = []
    for use in found.devices[:MOST_DEVICES]:
        size = "" if use.memory_bytes is None else format_bytes(use.memory_bytes)
        limit = "" if use.memory_bytes is None else "no limit"
        limit = limit if use.memory_limit is None else format_bytes(use.memory_limit)
        rows.append((use.id, f"{use.busy:.1%}", held_words(found, use), size, limit))
    if len(found.devices) > MOST_DEVICES:
        rows.append((f"and {len(found.devices) - MOST_DEVICES} more", "", "", "", ""))
    return ("device", "busy", "holds", "memory", "limit"), rows


def lane_rows(found: FleetResult) -> tuple[tuple[str, ...], Rows]:
    """Every lane, the one with most inputs first."""
    order = sorted(range(len(found.lanes)), key=lambda n: (-found.lanes[n].rate, n))
    rows: Rows = []
    for n in order[:MOST_LANES]:
        lane = found.lanes[n]
        alone = "" if lane.latency_ns is None else format_time(lane.latency_ns)
        rate = rate_words(lane.rate / RATE_UNITS, found.unit)
        rows.append((str(n), f"{lane.share:.2%}", rate, str(lane.depth), alone, way_words(found, lane)))
    if len(order) > MOST_LANES:
        rows.append((f"and {len(order) - MOST_LANES} more", "", "", "", "", ""))
    return ("lane", "share", "rate", "devices in a row", "one input alone", "way"), rows


def fleet_comparison_rows(answer: AnyFleet) -> tuple[tuple[str, ...], Rows]:
    """The fleet, every baseline and the bound: rate, and how much more the fleet gives."""
    unit = unit_of(answer)
    rows: Rows = [(f"this plan ({answer.solver})", rate_words(answer.rate, unit), "")]
    for name, rate in sorted(answer.baselines.items(), key=lambda item: (item[1] is None, -(item[1] or 0.0))):
        rows.append((name, rate_words(rate, unit), f"{answer.rate / rate - 1:+.2%}" if rate else ""))
    if answer.rate_bound:
        share = f"{answer.rate / answer.rate_bound - 1:+.2%}"
        name = f"no deployment gives more ({answer.bound_by}, {answer.proof})"
        rows.append((name, rate_words(answer.rate_bound, unit), share))
    return ("", "rate", "the plan gives"), rows


def fleet_device_table(found: FleetResult) -> Table:
    """What each device does."""
    return text_table("Devices", *fleet_device_rows(found))


def lane_table(found: FleetResult) -> Table:
    """Ways of an input, with their shares."""
    return text_table("Lanes", *lane_rows(found))


def fleet_comparison_table(answer: AnyFleet) -> Table:
    """The fleet against each baseline, with the bound."""
    return text_table("How good is it", *fleet_comparison_rows(answer))


def fleet_pictures(answer: AnyFleet, found: FleetResult) -> dict[str, str]:
    """Where it belongs on the page -> SVG: the lanes, and the rate against the depth where the file has it."""
    from weftline.export.fleet_picture import FleetPicture, FrontPicture
    from weftline.export.picture import to_svg

    drawn = {"lanes": to_svg(FleetPicture(found))}
    return drawn | ({"front": to_svg(FrontPicture(front, found.unit))} if (front := front_of(answer)) else {})


def front_of(answer: AnyFleet) -> list[tuple[int, float, float | None]]:
    """Devices in a row, the rate of a plan with at most so many, and its bound; empty where a file has no front."""
    points = answer.front if isinstance(answer, LayerPlan) else ()
    return [(p.depth, p.rate, p.rate_bound) for p in sorted(points, key=lambda point: point.depth)]


def front_table(answer: AnyFleet, unit: str) -> Table | None:
    """The same for a terminal."""
    rows: Rows = [
        (str(depth), rate_words(rate, unit), "" if bound is None else rate_words(bound, unit))
        for depth, rate, bound in front_of(answer)
    ]
    header = ("devices in a row", "rate", "no such plan gives more")
    return text_table("Rate against devices in a row", header, rows) if rows else None


def serving_table(rows: Sequence[ServingRow]) -> Table:
    """Layouts that were served: rates, and how long anybody waits."""

    def seconds(ns: int) -> str:
        return f"{ns / 10**9:.2f} s"

    lines: Rows = []
    for row in rows:
        run, rates = row.run, (row.table_rate, row.convoy.rate, row.no_convoy.rate)
        shown = [f"{rate / RATE_UNITS:.1f}" for rate in rates]
        waits = ["", "", "", "", ""]
        if run is not None:
            times = (run.first.mean_ns, run.first.p95_ns, run.token.mean_ns, run.token.p95_ns)
            waits = [f"{run.rate / RATE_UNITS:.1f}", *map(seconds, times)]
        lines.append((str(row.depth), *shown, *waits, "best" if row.best else ""))
    header = ("depth", "by tables", "Little", "chunked prompts", "served", "first token", "p95", "per token", "p95", "")
    return text_table("Serving over the front", header, lines)


def fleet_page(answer: AnyFleet, found: FleetResult) -> dict[str, Any]:
    """Everything that the template of the page asks for, but the pictures."""
    from weftline.plans.bound_words import explain_bound
    from weftline.report.html.pack import short_name
    from weftline.report.html.page import bound_title, input_rows

    story = FleetStory(found, fleet_guarantee(answer), answer.rate_bound, dict(answer.baselines))
    used = sum(1 for use in found.devices if use.parts)
    bound = "nothing is known" if answer.rate_bound is None else rate_words(answer.rate_bound, found.unit)
    title = bound_title(answer.proof, explain_bound(answer.bound_by))
    return {
        "kind": "fleet plan",
        "title": short_name(found.model) or "model",
        "subtitle": f"{len(found.names):,} {found.part}s on {used} of {len(found.devices)} devices",
        "model": "",
        "advice": short_name(advise_fleet(answer), 400) if isinstance(answer, FleetPlan) else "",
        "value": rate_words(found.rate, found.unit),
        "value_word": f"one {found.unit.removesuffix('s')} every {format_time(found.value)}",
        "value_noun": "rate",
        "sentence": short_name(story.guarantee, 400),
        "chips": [
            {"tone": "good" if answer.proof == "proved" else "", "text": f"bound {answer.proof}", "title": title},
            {"tone": "", "text": f"{len(found.lanes)} lane{'' if len(found.lanes) == 1 else 's'}"},
        ],
        "gauge": None if answer.rate_bound is None else round(100 * min(1.0, found.rate / answer.rate_bound), 2),
        "bound": bound,
        "bound_noun": "upper bound",
        "bound_words": f"no deployment gives more than {bound}",
        "bound_title": title,
        "gap": f"{answer.gap:.2%}",
        "warnings": [short_name(sentence, 600) for sentence in _warnings(answer)],
        "facts": _facts(answer, found),
        "comparison": _comparison(answer, found),
        "comparison_words": "The plan beside simple ones. Longer is better.",
        "fleet": {
            "words": "From left to right goes the model. A ribbon is a lane, as thick as its share of the "
            f"{found.unit}; it is in the row of the device that runs that part.",
            "binds": [short_name(line, 400) for line in story.lines()],
            "lanes": _cells(lane_rows(found)),
            "holds": _cells((("device", "holds"), [(use.id, held_words(found, use)) for use in found.devices])),
        },
        "run": None,
        "has": dict.fromkeys(("timeline", "memory", "stages", "graph", "progress"), False),
        "device_table": _device_table(found),
        "device_ops": True,
        "part_word": f"{found.part}s",
        "load_word": "busy",
        "helps": [],
        "inputs": input_rows(answer, getattr(answer.problem, "cost_source", "")),
        "contents": [
            {"id": id, "name": name}
            for id, name in (
                ("how-good", "How good is it?"),
                ("lanes", "Lanes"),
                ("devices", "Devices"),
                ("inputs", "Inputs"),
            )
        ],
    }


def _cells(table: tuple[tuple[str, ...], Rows]) -> dict[str, Any]:
    from weftline.report.html.pack import short_name

    header, rows = table
    return {"header": header, "rows": [[short_name(cell, 200) for cell in row] for row in rows]}


def _warnings(answer: AnyFleet) -> list[str]:
    from weftline.plans.summary import guess_words

    better = [(rate, name) for name, rate in answer.baselines.items() if rate and rate > answer.rate * (1 + 1e-6)]
    graph = getattr(answer.problem, "graph", None)
    words = [guess_words(graph)] if graph is not None else []
    if better:
        rate, name = max(better)
        words.append(f"A simple plan is better than this one: {name}, {rate_words(rate, unit_of(answer))}.")
    if answer.stopped_by == "interrupted":
        words.append("The search was interrupted: this is the best plan so far.")
    return [word for word in words if word]


def _facts(answer: AnyFleet, found: FleetResult) -> list[tuple[str, str]]:
    from weftline.report.html.pack import short_name

    facts = [("period", format_time(found.value)), ("devices in a row", f"at most {found.depth}")]
    if found.latency_ns is not None:
        facts.append(("one input alone", " .. ".join(dict.fromkeys(map(format_time, found.latency_ns)))))
    known = [rate for rate in answer.baselines.values() if rate]
    if known:
        facts.append(("against the best simple plan", f"{answer.rate / max(known) - 1:+.2%}"))
    facts.append(("solver", short_name(answer.solver, 40)))
    return facts + ([("searched for", f"{answer.seconds:.1f} s")] if answer.seconds is not None else [])


def _comparison(answer: AnyFleet, found: FleetResult) -> list[dict[str, Any]]:
    from weftline.report.html.pack import short_name

    rows: list[tuple[str, float | None, str, str]] = [("this plan", answer.rate, "plan", "")]
    for name, rate in sorted(answer.baselines.items(), key=lambda item: (item[1] is None, -(item[1] or 0.0))):
        tone = "better" if rate is not None and rate > answer.rate * (1 + 1e-6) else "other"
        rows.append((short_name(name, 60), rate, tone, SIMPLE_PLANS.get(name, "")))
    if answer.rate_bound is not None:
        rows.append((f"no deployment gives more ({answer.proof})", answer.rate_bound, "lower", ""))
    most = max(rate or 0.0 for _, rate, _, _ in rows) or 1.0
    return [
        {
            "name": name,
            "tone": tone,
            "title": title,
            "share": round(100 * (rate or 0.0) / most, 2),
            "sort": rate or 0.0,
            "value": rate_words(rate, found.unit),
            "ratio": f"{rate / answer.rate:.2f}x" if rate else "",
            "longer": False,
        }
        for name, rate, tone, title in rows
    ]


def _device_table(found: FleetResult) -> list[dict[str, Any]]:
    rows = []
    for use in found.devices:
        full = 100 * min(1.0, (use.memory_bytes or 0) / use.memory_limit) if use.memory_limit else 0.0
        rows.append(
            {
                "name": use.id,
                "ops": use.parts,
                "load": f"{use.busy:.1%}",
                "load_sort": use.busy,
                "busy": round(100 * min(1.0, use.busy), 2),
                "memory": "" if use.memory_bytes is None else format_bytes(use.memory_bytes),
                "memory_sort": use.memory_bytes or 0,
                "full": round(full, 2),
                "limit": "none" if use.memory_limit is None else format_bytes(use.memory_limit),
            }
        )
    return rows
