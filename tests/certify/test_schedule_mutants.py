"""Schedules that were changed by chance and on purpose: whatever the checker accepts is true, by other means.

`WEFTLINE_MUTANTS=50000 python -m pytest tests/certify/test_schedule_mutants.py` makes as many as you like.
"""

from __future__ import annotations

import copy
import json
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator
from fractions import Fraction
from functools import cache
from hashlib import sha256
from random import Random
from typing import Any

import msgspec
import pytest
from tests.certify.test_schedule_witness import least_period

from weftline.ask.scheduling import make_schedule
from weftline.certify.check import Refusal
from weftline.certify.check_schedule import ScheduleVerdict, check_schedule
from weftline.errors import InfeasibleError
from weftline.plans.schedule import Schedule
from weftline.problem import Blocks
from weftline.schedule.make_blocks import make_shape
from weftline.simulate.schedule import schedule_violations
from weftline.testing.schedules import optimum, random_blocks

MUTANTS = int(os.environ.get("WEFTLINE_MUTANTS", "3000"))
File = dict[str, Any]
ODD: tuple[Any, ...] = (0, -1, 1, 2, -7, 10**17, 2**62, 2**70, 0.5, 1.0, 1e17, -1e17, True, None, "1", "", [], {})


@cache
def _seeds() -> tuple[str, ...]:
    """Small schedules of every objective, with and without a repetend."""
    made: list[str] = []
    questions: list[tuple[Blocks, int, dict[str, Any]]] = [
        (make_shape("vshape", 2).with_memory(2), 3, {}),
        (make_shape("mshape", 2).with_memory(4), 2, {}),
        (make_shape("vshape", 2, train=False), 3, {"arrivals": 3}),
    ]
    for seed in range(60):
        blocks = random_blocks(seed, max_blocks=4)
        questions.append((blocks, 1 + seed % 3, {"device_span": seed % 4 == 3}))
    for blocks, count, options in questions:
        try:
            found = make_schedule(blocks, count, work_limit=20, proof=2.0, **options)
        except InfeasibleError:
            continue
        made.append(json.dumps(msgspec.to_builtins(found)))
    assert sum('"witnesses": {"' in text for text in made) > 5
    assert sum('"repetend": null' in text for text in made) > 3
    assert sum('"repetend": {' in text for text in made) > 10
    return tuple(made)


def _rehash(file: File) -> None:
    text = json.dumps(file["blocks"], separators=(",", ":"), ensure_ascii=False)
    file["provenance"]["blocks_sha256"] = sha256(text.encode()).hexdigest()


def _actions(file: File) -> list[File]:
    return [action for row in file["actions"] for action in row]


def _paths(form: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where there is a number, anywhere."""
    if isinstance(form, dict | list):
        for key, value in form.items() if isinstance(form, dict) else enumerate(form):
            yield from _paths(value, (*path, key))
    elif isinstance(form, int | float):
        yield path


def _put(file: File, path: tuple[Any, ...], change: Callable[[Any], Any]) -> None:
    for key in path[:-1]:
        file = file[key]
    file[path[-1]] = change(file[path[-1]])


def _any_number(file: File, dice: Random) -> None:
    step = dice.choice((-2, -1, 1, 2, 100))
    _put(file, dice.choice(list(_paths(file))), lambda number: number + step)


def _any_type(file: File, dice: Random) -> None:
    odd = dice.choice(ODD)
    _put(file, dice.choice(list(_paths(file))), lambda _: copy.deepcopy(odd))


def _same_as_float(file: File, dice: Random) -> None:
    _put(file, dice.choice(list(_paths(file))), float)


def _a_field(file: File, dice: Random) -> None:
    forms = [file, file["provenance"], file["blocks"], *_actions(file), _pattern(file)]
    form = dice.choice(forms)
    if dice.random() < 0.5:
        del form[dice.choice(list(form))]
    else:
        form[dice.choice(("note", "bound", "link", "stage"))] = dice.choice(ODD)


def _other_order(file: File, dice: Random) -> None:
    row = dice.choice([row for row in file["actions"] if row])
    i, j = dice.randrange(len(row)), dice.randrange(len(row))
    row[i], row[j] = row[j], row[i]


def _lost_or_twice(file: File, dice: Random) -> None:
    row = dice.choice([row for row in file["actions"] if row])
    action = dice.choice(row)
    row.remove(action) if dice.random() < 0.5 else row.insert(dice.randrange(len(row)), dict(action))


def _other_device(file: File, dice: Random) -> None:
    row = dice.choice([row for row in file["actions"] if row])
    target = dice.choice(file["actions"])
    target.append(row.pop(dice.randrange(len(row))))
    target.sort(key=lambda action: action["start"])


def _waits_on_purpose(file: File, dice: Random) -> None:
    """Everything from some time on is later, and every sum says so."""
    late = dice.choice((1, 3, 1000))
    after = dice.choice(_actions(file))["start"]
    for action in _actions(file):
        if action["start"] >= after:
            action["start"] += late
            action["end"] += late
    _true_sums(file)


def _true_sums(file: File) -> None:
    """Makespan, spans and period as the actions have them."""
    file["makespan"] = max(action["end"] for action in _actions(file))
    link = [lane.get("link", False) for lane in file["blocks"]["devices"]]
    spans = [row[-1]["end"] - row[0]["start"] if row else 0 for row in file["actions"]]
    busy = [sum(a["end"] - a["start"] for a in row) for row in file["actions"]]
    file["device_span"] = max(s for s, is_link in zip(spans, link, strict=True) if not is_link)
    file["device_span_bubble"] = max(0 if is_link else s - b for s, b, is_link in zip(spans, busy, link, strict=True))
    file["bubble"] = max(0 if is_link else file["makespan"] - b for b, is_link in zip(busy, link, strict=True))
    if file["repetend"] is None:
        _set_period(file, Fraction(file["makespan"], file["micro_batches"]))
    _set_bound(file, min(file["bound"], _value(file)))


def _value(file: File) -> int:
    fields = {"makespan": "makespan", "device-span": "device_span", "latency": "latency"}
    return int(file[fields.get(file["objective"], "makespan")])


def _set_period(file: File, period: Fraction, field: str = "period") -> None:
    file[f"{field}_exact"] = str(period)
    file[field] = int(period) if period.denominator == 1 else float(period)


def _set_bound(file: File, bound: int) -> None:
    value = _value(file)
    file["bound"] = bound
    file["gap"] = (value - bound) / value if value else 0.0


def _other_period(file: File, dice: Random) -> None:
    if dice.random() < 0.5:
        file["repetend"] = None
    _set_period(file, Fraction(dice.choice((1, 2, 3, 5, 7, 12)), dice.choice((1, 1, 2, 3))))
    file["period_proved"], file["period_proof"] = dice.random() < 0.5, "because"


def _other_period_bound(file: File, dice: Random) -> None:
    _set_period(file, Fraction(dice.choice((0, 1, 3, 8, 100)), dice.choice((1, 2))), "period_bound")


def _other_bound(file: File, dice: Random) -> None:
    _set_bound(file, max(0, file["bound"] + dice.choice((-3, -1, 1, 2, 5))))
    file["proof"] = dice.choice(("proved", "proved", "claimed", "certain"))


def _pattern(file: File) -> File:
    return file["repetend"] or {"lags": [0], "scaled_starts": [0], "orders": [[]]}


def _other_lag(file: File, dice: Random) -> None:
    lags = _pattern(file)["lags"]
    lags[dice.randrange(len(lags))] += dice.choice((-1, 1, 1, 5))


def _other_start(file: File, dice: Random) -> None:
    starts = _pattern(file)["scaled_starts"]
    starts[dice.randrange(len(starts))] += dice.choice((-1, 1, 2, 50))


def _later_pattern(file: File, dice: Random) -> None:
    """A copy of a block runs windows later."""
    pattern = _pattern(file)
    i = dice.randrange(len(pattern["lags"]))
    pattern["lags"][i] += 1
    pattern["scaled_starts"][i] += pattern.get("scaled_length", 1)


def _other_length(file: File, dice: Random) -> None:
    pattern = file["repetend"]
    if pattern:
        pattern["scaled_length"] = max(1, pattern["scaled_length"] + dice.choice((-2, -1, 1, 3)))
        length = Fraction(pattern["scaled_length"], pattern["scale"])
        pattern["length"] = int(length) if length.denominator == 1 else float(length)
        _set_period(file, length / pattern["micro_batches"])


def _other_orders(file: File, dice: Random) -> None:
    order = dice.choice(_pattern(file)["orders"])
    dice.shuffle(order)


def _other_memory(file: File, dice: Random) -> None:
    block = dice.choice(file["blocks"]["blocks"])
    block["memory"] = dice.choice((0, 1, -1, 3, [1], [0, 1]))
    _rehash(file)


def _other_limit(file: File, dice: Random) -> None:
    number = dice.randrange(len(file["blocks"]["devices"]))
    file["blocks"]["devices"][number]["memory"] = file["memory_limit"][number] = dice.choice((0, 1, 2, 50))
    _rehash(file)


def _other_span(file: File, dice: Random) -> None:
    dice.choice(file["blocks"]["blocks"])["span"] = dice.choice((1, 2, 3, 0, -1))
    _rehash(file)


def _other_edges(file: File, dice: Random) -> None:
    edges = file["blocks"].setdefault("edges", [])
    if edges and dice.random() < 0.5:
        edges.pop(dice.randrange(len(edges)))
    else:
        ids = [block["id"] for block in file["blocks"]["blocks"]]
        edges.append([dice.choice(ids), dice.choice(ids), dice.choice((0, 1, 2, -1))][: dice.choice((2, 3))])
    _rehash(file)


def _idle_device(file: File, dice: Random) -> None:
    """One more device that does nothing, and perhaps another value where nobody looks."""
    lane = {"id": "idle", **dice.choice(({}, {"memory": 3}, {"link": True}))}
    file["blocks"]["devices"].append(lane)
    file["actions"].append([])
    file["peak_memory"].append(0)
    file["memory_limit"].append(lane.get("memory"))
    if file["repetend"]:
        file["repetend"]["orders"].append([])
    _rehash(file)
    _true_sums(file)
    if dice.random() < 0.7:
        field = dice.choice(("device_span", "device_span_bubble", "bubble"))
        file[field] = dice.choice((0, 1, file[field] + 1))


def _other_objective(file: File, dice: Random) -> None:
    file["objective"] = dice.choice(("makespan", "device-span", "latency", "energy"))
    _set_bound(file, min(file["bound"], _value(file)))


def _other_witness(file: File, dice: Random) -> None:
    """One that is gone, is for something else, or says something else."""
    found = file.setdefault("witnesses", {})
    what = dice.choice(("bound", "period_bound", "period", *found))
    if what in found and dice.random() < 0.7:
        places = list(_paths(found[what], ()))
        if dice.random() < 0.2 or not places:
            found[dice.choice(("bound", "period_bound", "period", "value"))] = found.pop(what)
        else:
            _put(found[what], dice.choice(places), lambda number: number + dice.choice((-2, -1, 1, 1, 3)))
    else:
        found[what] = dice.choice(
            (
                {"kind": "linear"},
                {"kind": "between"},
                {"kind": "load", "device": 0, "head": dice.randrange(4), "tail": dice.randrange(4)},
                {"kind": "orders", "target": dice.randrange(1, 40), "tree": [0]},
                {"kind": "area", "device": 0, "plan": []},
                {},
            )
        )
    _set_bound(file, min(file["bound"] + dice.choice((0, 0, 1, 2)), _value(file)))
    file["proof"] = dice.choice(("proved", "claimed"))


def _other_count(file: File, dice: Random) -> None:
    file["micro_batches"] += dice.choice((-1, 1, 2))


KINDS: tuple[Callable[[File, Random], None], ...] = (
    _any_number,
    _any_type,
    _same_as_float,
    _a_field,
    _other_order,
    _lost_or_twice,
    _other_device,
    _waits_on_purpose,
    _other_period,
    _other_period_bound,
    _other_bound,
    _other_lag,
    _other_start,
    _later_pattern,
    _other_length,
    _other_orders,
    _other_memory,
    _other_limit,
    _other_span,
    _other_edges,
    _idle_device,
    _other_objective,
    _other_witness,
    _other_count,
)


def holds(file: File, verdict: ScheduleVerdict) -> None:
    """Decoded by another reader, timed by the simulator, unrolled window by window, compared with the optimum."""
    schedule = msgspec.json.decode(json.dumps(file), type=Schedule)
    blocks, count = schedule.load_blocks(), schedule.micro_batches
    found = schedule.timetable()
    assert not schedule_violations(found)
    for row in schedule.actions:
        for action in row:
            op = action.micro_batch * blocks.n + [b.id for b in _by_id(schedule)].index(action.block)
            assert (action.start, action.end) == (found.start[op], found.end[op])
    assert schedule.makespan == found.makespan
    assert schedule.device_span == found.device_span
    assert schedule.device_span_bubble == found.device_span_bubble
    assert schedule.bubble == found.bubble
    assert schedule.peak_memory == found.peak_memory
    late = schedule.objective == "latency"
    assert schedule.latency == (found.latency_after(blocks.n - 1) if late else found.longest_latency)
    period = Fraction(schedule.period_exact)
    assert period == (Fraction(schedule.makespan, count) if schedule.repetend is None else unrolled(schedule, blocks))
    proved = Fraction(verdict.proved_period_bound)
    assert period >= max(blocks.loads) <= proved
    assert schedule.repetend is None or period >= proved
    assert not (schedule.period_proved and schedule.repetend is None)
    if blocks.n <= 4 and blocks.balanced and proved > max(blocks.loads):
        of_one = least_period(blocks, 2)
        assert of_one is None or proved <= of_one
    if verdict.least_period and schedule.repetend is not None and blocks.n <= 4:
        of_one = least_period(blocks, 2)
        assert schedule.repetend.micro_batches > 1 or of_one is None or period <= of_one
    if not late and count * blocks.n <= 9:
        least = optimum(blocks, count, device_span=schedule.objective == "device-span")
        assert least is not None
        assert verdict.proved_bound <= least <= schedule.value
        assert schedule.proof != "proved" or schedule.bound <= least


def _by_id(schedule: Schedule) -> list[Any]:
    return sorted(schedule.blocks.blocks, key=lambda block: block.id)


def unrolled(schedule: Schedule, blocks: Blocks) -> Fraction:
    """The period of a repetend that was repeated: nothing overlaps, nothing comes early, memory stays."""
    pattern = schedule.repetend
    assert pattern is not None
    n, scale, length = blocks.n, pattern.scale, pattern.scaled_length
    reach = 2 + (max(pattern.scaled_starts) - min(pattern.scaled_starts)) // length
    groups = 2 * reach + 4
    for copy_of in range(0, n * pattern.micro_batches, n):
        for a, b, lag in blocks.edges:
            end = pattern.scaled_starts[copy_of + a] + scale * (blocks.blocks[a].span + lag)
            assert pattern.scaled_starts[copy_of + b] >= end
    begin = min(pattern.scaled_starts)
    for device, lane in enumerate(blocks.devices):
        rows = []
        for c, start in enumerate(pattern.scaled_starts):
            block = blocks.blocks[c % n]
            if device in block.devices:
                change = block.memory[block.devices.index(device)]
                rows += [(start + g * length, scale * block.span, change) for g in range(groups)]
        rows.sort()
        level, at = 0, []
        for (start, span, change), (after, _, _) in zip(rows, [*rows[1:], (math.inf, 0, 0)], strict=False):
            assert start + span <= after, "two at once"
            level += change
            at.append((start, level))
        steady = [(t, x) for t, x in at if begin + (reach + 1) * length <= t < begin + groups * length]
        assert lane.link or all(x <= lane.memory for _, x in steady)
        ends = [max((t, x) for t, x in at if t < begin + g * length) for g in range(reach + 1, groups) if at]
        assert len({x for _, x in ends}) <= 1, "memory grows"
    return Fraction(length, scale * pattern.micro_batches)


@pytest.mark.parametrize("part", range(4))
def test_what_is_accepted_is_true(part: int) -> None:
    """Tests mutants of every kind, alone and two after another; some of every kind must be refused."""
    seeds, accepted, refused = _seeds(), Counter[str](), Counter[str]()
    for number in range(part, MUTANTS, 4):
        dice = Random(f"schedule mutant {number}")
        file = json.loads(dice.choice(seeds))
        kinds = [KINDS[number // 4 % len(KINDS)], *dice.sample(KINDS, k=dice.choice((0, 0, 1)))]
        try:
            for kind in kinds:
                kind(file, dice)
        except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError, OverflowError):
            continue  # the first change left nothing that the second could change
        try:
            verdict = check_schedule(file)
        except Refusal:
            refused[kinds[0].__name__] += 1
            continue
        accepted[kinds[0].__name__] += 1
        holds(file, verdict)
    assert all(refused[kind.__name__] for kind in KINDS), refused
    assert sum(accepted.values()) > sum(refused.values()) // 50
