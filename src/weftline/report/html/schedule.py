"""The page of a schedule: its words and tables, and its pictures as data: what each device does when, which part of it
repeats, memory over time.

In: a Schedule. Out: plain values for the template and the page's scripts. The repetend is marked where the timetable
really repeats: from one repetition to the next every block starts exactly one length later.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weftline.graph.arrays import Ints
from weftline.plans.bound_words import explain_schedule_bound
from weftline.plans.schedule import Schedule
from weftline.plans.schedule_story import schedule_advice, schedule_words
from weftline.problem.blocks import KINDS, Blocks
from weftline.report.html.pack import PageBudget, packed_spans, short_name, short_names, thinned_steps
from weftline.report.html.page import bound_title, bound_words, contents, input_rows, key, run_rows
from weftline.report.html.plan import memory_lane
from weftline.report.html.run import RunTable
from weftline.report.tables import NAMES
from weftline.simulate import Timetable
from weftline.units import format_bytes, format_time

__all__ = ["repeats", "schedule_data", "schedule_page"]


def schedule_data(schedule: Schedule, budget: PageBudget) -> dict[str, Any]:
    """Everything the page draws."""
    blocks, found = schedule.load_blocks(), schedule.timetable()
    total = sum(len(order) for order in found.orders)
    share = min(1.0, budget.spans / max(total, 1))
    lanes, memory = [], []
    for d, (lane, order) in enumerate(zip(blocks.devices, found.orders, strict=True)):
        spans = packed_spans(found.start[order], found.end[order], order, max(200, int(share * len(order))))
        name = short_name(lane.id, 64)
        lanes.append({"device": d, "name": name, "role": "link" if lane.link else "block", **spans})
        if not lane.link:
            steps = thinned_steps(_levels(blocks, found, d), max(100, budget.steps // len(blocks.devices)))
            memory.append(memory_lane(name, np.array(steps, np.int64).reshape(-1, 2), schedule.memory_limit[d]))
    where = repeats(schedule, found)
    return {
        "kind": "schedule",
        "unit": "ns" if "plan" in schedule.provenance.inputs else "",
        "value": schedule.value,
        "bound": schedule.bound,
        "devices": [short_name(lane.id, 64) for lane in blocks.devices],
        "timeline": {
            "end": found.makespan,
            "lanes": lanes,
            "blocks": short_names(
                [block.name or f"block {i}" for i, block in enumerate(blocks.blocks)], budget.characters
            ),
            "kinds": [KINDS.index(block.kind) for block in blocks.blocks],
            "stages": [block.stage for block in blocks.blocks],
            "marks": [] if where is None else _marks(*where, found.makespan),
            "chain": [],
        },
        "repeats": None if where is None else {"from": where[0], "to": where[1], "times": where[2]},
        "memory": {"end": found.makespan, "lanes": memory},
        "progress": [],
    }


def repeats(schedule: Schedule, found: Timetable) -> tuple[int, int, int] | None:
    """The longest stretch that repeats: begin, end, how many lengths of the repetend; None if less than one does."""
    pattern = schedule.repetend
    if pattern is None or pattern.scaled_length % pattern.scale or not 0 < pattern.micro_batches < found.micro_batches:
        return None
    length, shift = pattern.scaled_length // pattern.scale, pattern.micro_batches * found.blocks.n
    good = np.zeros(len(found.start), np.bool_)
    good[:-shift] = found.start[shift:] - found.start[:-shift] == length
    order = np.argsort(found.start, kind="stable")
    start, first = np.unique(found.start[order], return_index=True)
    same = np.logical_and.reduceat(good[order], first)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
    stretches = [(int(start[a]), int(start[b - 1])) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    best = max(stretches, key=lambda stretch: stretch[1] - stretch[0], default=None)
    if best is None:
        return None
    begin, end = best[0], min(best[1] + length, found.makespan)
    times = (end - begin) // length
    return (begin, begin + times * length, times) if times >= 1 else None


def _marks(begin: int, end: int, times: int, makespan: int) -> list[dict[str, Any]]:
    parts = [
        ("warm-up", 0, begin),
        (f"repeats {times} times" if times > 1 else "repeats", begin, end),
        ("cool-down", end, makespan),
    ]
    return [{"name": name, "from": a, "to": b} for name, a, b in parts if b > a]


def _levels(blocks: Blocks, found: Timetable, device: int) -> list[tuple[int, int]]:
    """(time, level): every block changes the memory of its devices when it starts."""
    order: Ints = found.orders[device]
    change = {
        i: block.memory[block.devices.index(device)] for i, block in enumerate(blocks.blocks) if device in block.devices
    }
    level = blocks.devices[device].reserved
    steps = [(0, level)]
    for operation in order.tolist():
        level += change[operation % blocks.n]
        steps.append((int(found.start[operation]), level))
    return steps


CLASS_OF_KIND = {"F": "forward", "B": "backward", "W": "weight", "C": "other"}
"""Kind of block -> its class in the page's style."""


def schedule_page(schedule: Schedule, data: dict[str, Any], run: RunTable | None) -> dict[str, Any]:
    """Everything the template asks for."""
    time = format_time if data["unit"] else str
    what = schedule.objective.replace("-", " ")
    words = [_capital(sentence) for sentence in schedule_words(schedule)]
    used = [kind for kind in CLASS_OF_KIND if any(block.kind == kind for block in schedule.blocks.blocks)]
    page: dict[str, Any] = {
        "kind": "schedule",
        "title": short_name(schedule.name) or "schedule",
        "subtitle": f"{schedule.micro_batches:,} micro-batches on {len(data['memory']['lanes'])} devices",
        "value": time(schedule.value),
        "value_word": what,
        "value_noun": what,
        "sentence": " ".join(short_name(sentence, 400) for sentence in words[:2]),
        "chips": _chips(schedule),
        "gauge": round(100 * min(1.0, schedule.bound / schedule.value), 2) if schedule.value else None,
        "bound": time(schedule.bound),
        "bound_words": bound_words(time(schedule.bound), schedule.proof, schedule.bound_by).replace("plan", "schedule"),
        "bound_title": bound_title(schedule.proof, explain_schedule_bound(schedule.bound_by)),
        "model": "",
        "advice": short_name(schedule_advice(schedule), 400),
        "gap": f"{schedule.gap:.2%}",
        "warnings": [],
        "facts": _facts(schedule, data),
        "comparison": _comparison(schedule, time),
        "comparison_words": "What each method reached by itself, within memory.",
        "run": run_rows(run),
        "has": {"timeline": True, "memory": True, "stages": False, "graph": False, "progress": False},
        "timeline_title": "Schedule",
        "timeline_words": _repeats_words(schedule, data, time),
        "timeline_keys": [key(CLASS_OF_KIND[kind], NAMES[kind]) for kind in used] + [key("idle", "waits")],
        "stages_words": "",
        "stage_table": ((), []),
        "memory_words": "What blocks hold on each device. The dashed line is the limit, where it is near. "
        "The picture follows the schedule above.",
        "graph_title": "",
        "graph_words": "",
        "device_table": _device_table(schedule, data, time),
        "device_ops": False,
        "load_word": "works",
        "progress_words": "",
        "helps": [],
        "helps_words": "",
        "inputs": input_rows(schedule),
    }
    return page | {"contents": contents(page)}


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _chips(schedule: Schedule) -> list[dict[str, str]]:
    title = bound_title(schedule.proof, explain_schedule_bound(schedule.bound_by))
    chips = [{"tone": "good" if schedule.proof == "proved" else "", "text": f"bound {schedule.proof}", "title": title}]
    if schedule.value == schedule.bound:
        chips.append({"tone": "good", "text": f"least {schedule.objective.replace('-', ' ')}"})
    if schedule.period_proved:
        words = explain_schedule_bound(schedule.period_bound_by)
        title = "no pattern that repeats is faster" + (f": {words}" if words else "")
        chips.append({"tone": "good", "text": "least period", "title": title})
    return chips


def _facts(schedule: Schedule, data: dict[str, Any]) -> list[tuple[str, str]]:
    time = format_time if data["unit"] else str
    period = time(round(schedule.period)) if data["unit"] else schedule.period_exact
    least = time(round(schedule.period_bound)) if data["unit"] else schedule.period_bound_exact
    facts = [("period per micro-batch", period), ("no period can be below", least)]
    facts += [
        ("makespan", time(schedule.makespan)),
        ("longest wait", f"{schedule.bubble / max(schedule.makespan, 1):.1%}"),
    ]
    facts.append(("latency of a micro-batch", f"at most {time(schedule.latency)}"))
    if schedule.seconds is not None:
        facts.append(("searched for", f"{schedule.seconds:.1f} s"))
    return facts


def _comparison(schedule: Schedule, time: Any) -> list[dict[str, Any]]:
    rows = [("this schedule", schedule.value, "plan")]
    found = sorted(schedule.reached.items(), key=lambda item: (item[1] is None, item[1] or 0))
    rows += [(short_name(name, 60), -1 if value is None else value, "other") for name, value in found]
    rows.append((f"lower bound ({schedule.proof})", schedule.bound, "lower"))
    most = min(max(value for _, value, _ in rows), 3 * schedule.value) or 1
    return [
        {
            "name": name,
            "tone": tone,
            "title": bound_title(schedule.proof, explain_schedule_bound(schedule.bound_by)) if tone == "lower" else "",
            "share": round(100 * min(1.0, max(0, value) / most), 2),
            "sort": value if value >= 0 else 2**62,
            "value": "nothing within memory" if value < 0 else time(value),
            "ratio": "" if value < 0 or not schedule.value else f"{value / schedule.value:.2f}x",
            "longer": value > most,
        }
        for name, value, tone in rows
    ]


def _repeats_words(schedule: Schedule, data: dict[str, Any], time: Any) -> str:
    words = "Numbers in the blocks are micro-batches; plain is forward, striped backward, dotted gradients of weights. "
    where = data["repeats"]
    if where is None:
        return words + "No part of this schedule repeats exactly, so no warm-up or cool-down is marked."
    count = schedule.repetend.micro_batches if schedule.repetend else 1
    several = "es" if count > 1 else ""
    return words + (
        f"From {time(where['from'])} to {time(where['to'])} a pattern of {count} micro-batch{several} repeats; "
        "before it the devices warm up, after it they cool down."
    )


def _device_table(schedule: Schedule, data: dict[str, Any], time: Any) -> list[dict[str, Any]]:
    size = format_bytes if data["unit"] else str
    rows = []
    for number, (name, actions) in enumerate(zip(data["devices"], schedule.actions, strict=True)):
        busy = sum(action.end - action.start for action in actions)
        peak, limit = schedule.peak_memory[number], schedule.memory_limit[number]
        rows.append(
            {
                "name": name,
                "ops": len(actions),
                "load": time(busy),
                "load_sort": busy,
                "busy": round(100 * min(1.0, busy / max(schedule.makespan, 1)), 2),
                "memory": size(peak),
                "memory_sort": peak,
                "full": round(100 * min(1.0, max(0, peak) / limit), 2) if limit else 0.0,
                "limit": "none" if limit is None else size(limit),
            }
        )
    return rows
