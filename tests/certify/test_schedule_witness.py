"""Witnesses of schedules against everything tried: no bound above the least makespan, no period above the least one.

`WEFTLINE_TINY=20000` and `WEFTLINE_MUTANTS=50000` try so many blocks and so many witnesses that were changed by chance.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from fractions import Fraction
from functools import cache
from itertools import permutations, product
from random import Random
from typing import Any

import msgspec
import pytest

from weftline.ask.prove_orders import order_tree
from weftline.ask.scheduling import make_schedule
from weftline.certify.allowance import Allowance
from weftline.certify.check import Refusal
from weftline.certify.check_schedule import bound_of, check_schedule, has_least_period, period_bound_of
from weftline.certify.schedule_blocks import ScheduleBlocks
from weftline.errors import InfeasibleError
from weftline.problem.blocks import Block, Blocks, BlocksFile, Lane, blocks_to_file
from weftline.schedule.bounds.makespan import bound_witnesses, device_span_bound, makespan_bound
from weftline.schedule.bounds.period import period_bound, period_witness
from weftline.schedule.cyclic.exact import exact_period, least_linear_period, linear_pipeline
from weftline.schedule.cyclic.order import make_pattern, order_of_starts
from weftline.schedule.make_blocks import chunked, make_shape
from weftline.schedule.repetend import repetend_of_starts, repetend_peaks
from weftline.testing.schedules import optimum, random_blocks

TINY = int(os.environ.get("WEFTLINE_TINY", "240"))
MUTANTS = int(os.environ.get("WEFTLINE_MUTANTS", "1500"))
Form = dict[str, Any]


def form(blocks: Blocks, count: int = 1, objective: str = "makespan", **witnesses: Any) -> Form:
    """What the checker reads of a schedule to see its bounds."""
    file = msgspec.to_builtins(msgspec.convert(blocks_to_file(blocks), BlocksFile))
    about = {"objective": objective, "micro_batches": count, "repetend": None, "period_exact": "1"}
    return {"blocks": file, **about, "witnesses": witnesses}


def pattern_form(blocks: Blocks, period: Fraction, kind: str, size: int = 1) -> Form:
    """The same for the period of a pattern."""
    made = form(blocks, period={"kind": kind})
    return made | {"repetend": {"micro_batches": size}, "period_exact": str(period)}


def least_period(blocks: Blocks, most_lag: int = 3) -> Fraction | None:
    """Of one micro-batch, by trying every order and every lag up to a limit; None where memory allows none."""
    pattern, n = make_pattern(blocks, 1), blocks.n
    best: Fraction | None = None
    for rest in permutations(range(1, n)):
        rank = {item: place for place, item in enumerate((0, *rest))}
        for lags in product(range(most_lag + 1), repeat=n):
            if min(lags) or any(lags[a] > lags[b] + (rank[a] > rank[b]) for a, b, _ in blocks.edges):
                continue
            starts = [Fraction(rank[i] + n * lags[i]) for i in range(n)]
            orders = repetend_of_starts(blocks, 1, Fraction(n), starts)
            if any(peak > lane.room for peak, lane in zip(repetend_peaks(blocks, orders), blocks.devices, strict=True)):
                continue
            found = exact_period(pattern, order_of_starts(pattern, starts, Fraction(n)))
            if found is not None and (best is None or found[0] < best):
                best = found[0]
    return best


def linear(seed: int) -> Blocks:
    """A small linear pipeline with unequal times, latencies, and little memory."""
    dice = Random(f"linear {seed}")
    stages = dice.choice((1, 2, 2))
    halves = dice.random() < 0.4
    spans = [[dice.randint(1, 4) for _ in range(stages)] for _ in range(3)]
    if halves and stages == 1:
        return chunked("l", [0], spans[0], spans[1], spans[2]).with_memory(dice.randint(2, 5))
    blocks, edges, lanes = [], [], []
    for d in range(stages):
        taken = dice.randint(1, 2)
        blocks.append(Block("F", spans[0][d], (d,), (taken,)))
        lanes.append(Lane(f"d{d}", taken * dice.randint(1, stages + 1)))
    for d in range(stages):
        blocks.append(Block("B", spans[1][d], (d,), (-blocks[d].memory[0],)))
    for d in range(stages - 1):
        edges += [(d, d + 1, dice.randint(0, 2)), (stages + d + 1, stages + d, dice.randint(0, 2))]
    return Blocks.of("l", lanes, blocks, [*edges, (stages - 1, 2 * stages - 1, 0)])


@pytest.mark.parametrize("part", range(4))
def test_bounds_of_makespans(part: int) -> None:
    """Tests that witnesses prove what the bounds say, and never more than the least makespan or device span."""
    kinds: set[str] = set()
    for seed in range(part, TINY, 4):
        blocks = random_blocks(seed, max_blocks=4, tight=None if seed % 3 else True)
        count = min(1 + seed % 3, 8 // blocks.n)
        for objective, bound in (("makespan", makespan_bound), ("device-span", device_span_bound)):
            least = optimum(blocks, count, device_span=objective == "device-span")
            best = 0
            for value, witness in bound_witnesses(blocks, count, device_span=objective == "device-span"):
                proved = bound_of(form(blocks, count, objective, bound=witness))
                assert proved >= value, (seed, objective, witness)
                assert least is None or proved <= least, (seed, objective, witness)
                best = max(best, proved)
                kinds.add(witness["kind"])
            assert best >= bound(blocks, count)[0] or not best, (seed, objective)
    assert kinds == {"load", "ramp", "area"}


@pytest.mark.parametrize("part", range(4))
def test_trees_over_orders(part: int) -> None:
    """Tests that trees prove every least makespan, and that no tree is made, or accepted, for one more."""
    for seed in range(part, TINY, 4):
        blocks = random_blocks(seed, max_blocks=5, tight=None if seed % 3 else True)
        count = min(1 + seed % 4, 10 // blocks.n)
        made, least = form(blocks, count), optimum(blocks, count)
        read = ScheduleBlocks(made["blocks"])
        if least is None:  # nothing fits at all
            assert order_tree(read, count, 10**6, 20.0) is not None, seed
            continue
        tree = order_tree(read, count, least, 20.0)
        assert tree is not None, seed
        made["witnesses"] = {"bound": {"kind": "orders", "target": least, "tree": tree}}
        assert bound_of(made) == least, seed
        for more in (1, 2, 5):
            assert order_tree(read, count, least + more, 20.0) is None, seed
            made["witnesses"]["bound"]["target"] = least + more
            with pytest.raises(Refusal):
                bound_of(made)


def test_trees_leave_schedules_that_exist() -> None:
    """Tests larger blocks, where trees branch: what somebody has found is never refuted."""
    tried = 0
    for seed in range(max(12, min(150, TINY // 20))):
        blocks = random_blocks(seed, max_blocks=6, tight=True)
        try:
            value = make_schedule(blocks, 4, solver="list", work_limit=20).value
        except InfeasibleError:
            continue
        read = ScheduleBlocks(form(blocks)["blocks"])
        for more in (1, 3):
            assert order_tree(read, 4, value + more, 1.0) is None, seed
            tried += 1
    assert tried > 5


@pytest.mark.parametrize("part", range(2))
def test_bounds_of_periods(part: int) -> None:
    """Tests that memory proves what the bound says, and never more than the least period of one micro-batch."""
    met = 0
    for seed in range(part, 4 * TINY, 2):
        blocks = random_blocks(seed, max_blocks=4, tight=True)
        witness = period_witness(blocks) if blocks.balanced else None
        if witness is None:
            continue
        proved, least = period_bound_of(form(blocks, period_bound=witness)), least_period(blocks)
        assert proved == period_bound(blocks)[0] > max(blocks.loads), seed
        assert least is None or proved <= least, seed
        met += proved == least
    assert met > 3


@pytest.mark.parametrize("part", range(2))
def test_linear_pipelines(part: int) -> None:
    """Tests that the least period is proved by one kind or the other, and that no larger one is."""
    linear_only = 0
    for seed in range(part, TINY, 2):
        blocks = linear(seed)
        pipeline, least = linear_pipeline(blocks), least_period(blocks)
        assert pipeline is not None
        found = least_linear_period(pipeline, period_bound(blocks)[0])
        assert (found is None) == (least is None), seed
        if found is None or least is None:
            continue
        assert found.period == least, seed
        assert has_least_period(pattern_form(blocks, least, "linear")), seed
        for more in (Fraction(1, 7), Fraction(1, 2), Fraction(1), Fraction(3)):
            assert not has_least_period(pattern_form(blocks, least + more, "linear")), (seed, more)
        linear_only += not _accepts(pattern_form(blocks, least, "between")) and least > max(blocks.loads)
    assert linear_only > 3


def _accepts(made: Form) -> bool:
    try:
        return has_least_period(made, Allowance(20.0))
    except Refusal:
        return False


def test_ratios_between_periods() -> None:
    """Tests that no pattern is shorter than a length that is accepted: the next smaller ratio lies below the bound."""
    accepted = refused = 0
    for seed in range(4 * TINY):
        blocks = random_blocks(seed, max_blocks=4, tight=True)
        bound, witness = period_bound(blocks), period_witness(blocks) if blocks.balanced else None
        if witness is None or bound[0].denominator == 1:
            continue
        least = least_period(blocks)
        for part in (1, 2, 3, 4):
            period = Fraction(int(bound[0] * part) + 1, part)
            made = pattern_form(blocks, period, "between")
            made["witnesses"]["period_bound"] = witness
            if _accepts(made):
                assert least is None or period <= least, seed
                accepted += 1
            else:
                refused += 1
    assert accepted
    assert refused


def test_what_is_no_linear_pipeline() -> None:
    """Tests that stages that wait inside, shared blocks, and further edges are refused."""
    pair = [Block("F", 3, (0,), (1,)), Block("B", 3, (0,), (-1,))]
    for blocks, why in (
        (Blocks.of("1", [Lane("0", 1)], pair, [(0, 1, 1)]), "waits between"),
        (Blocks.of("2", [Lane("0", 1)], [*pair, Block("W", 1, (0,), (0,))], [(0, 1, 0), (0, 2, 0)]), "W behind it"),
        (make_shape("mshape", 2).with_memory(4), "several devices"),
        (make_shape("zigzag", 2).with_memory(8), "F, B and W"),
    ):
        with pytest.raises(Refusal, match=why):
            has_least_period(pattern_form(blocks, Fraction(50), "linear"))


TREES = (("mshape", 3, 3, 3, 26), ("linear", 4, 6, 6, 24))
"""Shape, devices, memory, micro-batches, least makespan: a schedule has it, and a tree shows that none is shorter."""


@cache
def _witnesses() -> tuple[tuple[Blocks, int, str, Form], ...]:
    """Blocks, micro-batches, what is proved, witness."""
    found: list[tuple[Blocks, int, str, Form]] = []
    for seed in range(60):
        blocks = random_blocks(seed, max_blocks=4, tight=True)
        count = min(1 + seed % 3, 8 // blocks.n)
        for objective in ("makespan", "device-span"):
            spans = objective == "device-span"
            if optimum(blocks, count, device_span=spans) is not None:
                each = bound_witnesses(blocks, count, device_span=spans)
                found += [(blocks, count, objective, witness) for _, witness in each]
        witness = period_witness(blocks) if blocks.balanced else None
        if witness is not None:
            found.append((blocks, count, "period", witness))
    for name, devices, memory, count, least in TREES:
        blocks = make_shape(name, devices).with_memory(memory)
        tree = order_tree(ScheduleBlocks(form(blocks)["blocks"]), count, least, 20.0)
        assert tree is not None
        assert len(tree) > 20
        found += 8 * [(blocks, count, f"at most {least}", {"kind": "orders", "target": least, "tree": tree})]
    assert {witness["kind"] for *_, witness in found} == {"load", "ramp", "area", "memory", "orders"}
    return tuple(found)


@cache
def _least_period(number: int) -> Fraction | None:
    return least_period(_witnesses()[number][0])


def _places(given: Any) -> Iterator[tuple[Any, Any]]:
    """Every place in a witness that holds a number, or a list."""
    for key, value in list(given.items() if isinstance(given, dict) else enumerate(given)):
        if isinstance(value, dict | list):
            yield from _places(value)
        if not isinstance(value, dict | str):
            yield given, key


def _change(witness: Form, dice: Random) -> None:
    places = list(_places(witness))
    given, key = dice.choice(places)
    if isinstance(given[key], list):
        row = given[key]
        step = dice.randrange(4)
        if step == 0 and row:
            row.pop(dice.randrange(len(row)))
        elif step == 1 and row:
            row.append(json.loads(json.dumps(dice.choice(row))))
        elif step == 2:
            dice.shuffle(row)
        else:
            row[:] = [dice.randint(-3, 6) if type(x) is int else x for x in row]
    elif dice.random() < 0.1:
        given[key] = dice.choice((None, True, 1.5, "1", [], 2**62, -1, 10**30))
    elif type(given[key]) is int:
        given[key] += dice.choice((-3, -2, -1, 1, 1, 2, 3, 10))


@pytest.mark.parametrize("part", range(4))
def test_changed_witnesses_prove_nothing_wrong(part: int) -> None:
    """Tests that whatever the checker accepts of a changed witness lies at or below what is possible."""
    seeds, accepted, refused = _witnesses(), 0, 0
    for turn in range(part, MUTANTS, 4):
        dice = Random(f"witness of a schedule {turn}")
        number = dice.randrange(len(seeds))
        blocks, count, objective, witness = seeds[number]
        changed = json.loads(json.dumps(witness))
        for _ in range(dice.choice((1, 1, 2, 3))):
            _change(changed, dice)
        if dice.random() < 0.2 and objective != "period":
            changed["kind"] = dice.choice(("load", "ramp", "area"))
        least: Fraction | int | None
        try:
            if objective == "period":
                least, proved = _least_period(number), period_bound_of(form(blocks, period_bound=changed))
            else:
                known, spans = objective.startswith("at most"), objective == "device-span"
                least = int(objective.split()[-1]) if known else optimum(blocks, count, device_span=spans)
                asked = "device-span" if spans else "makespan"
                proved = Fraction(bound_of(form(blocks, count, asked, bound=changed)))
        except (Refusal, KeyError, TypeError, IndexError, AttributeError, ValueError):
            refused += 1
            continue
        accepted += 1
        assert least is None or proved <= least, (turn, changed)
    assert accepted > 20
    assert refused > 20


def test_a_schedule_holds_its_witnesses() -> None:
    """Tests the whole way: bounds by memory and area are proved in the file, and not without their witnesses."""
    made = make_schedule(make_shape("vshape", 4).with_memory(1), 6, time_limit=1, proof=20.0)
    assert (made.value, made.bound, made.proof, made.period_exact) == (96, 96, "proved", "16")
    file = msgspec.to_builtins(made)
    assert {name: witness["kind"] for name, witness in file["witnesses"].items()} == {
        "bound": "area",
        "period_bound": "memory",
    }
    verdict = check_schedule(file)
    assert (verdict.proved_bound, verdict.proved_period_bound, verdict.least_period) == (96, "16", True)
    with pytest.raises(Refusal, match="proof"):
        check_schedule({name: field for name, field in file.items() if name != "witnesses"})
    for part in ("bound", "period_bound"):
        broken = json.loads(json.dumps(file))
        broken["witnesses"][part]["plan"][0][2] += 1
        with pytest.raises(Refusal, match="witness"):
            check_schedule(broken)


def test_a_tree_raises_the_bound() -> None:
    """Tests that a few micro-batches are closed by a tree where no search had a bound so high."""
    made = make_schedule(make_shape("mshape", 3).with_memory(3), 3, time_limit=3, proof=60.0)
    assert (made.value, made.bound, made.bound_by, made.proof, made.gap) == (26, 26, "orders", "proved", 0.0)
    file = msgspec.to_builtins(made)
    assert file["witnesses"]["bound"]["target"] == 26
    tree = file["witnesses"]["bound"]["tree"]
    for broken in (tree[:-1], [*tree, 0], [0], [], [[0, 0], 0, 0], [[0, 10**9], 0, 0], [True], tree[1:]):
        file["witnesses"]["bound"]["tree"] = broken
        with pytest.raises(Refusal):
            check_schedule(file)


def test_what_is_too_much_to_check() -> None:
    """Tests witnesses that would keep the checker busy: too many operations, closed sets, ratios, nodes, steps."""
    many = Blocks.of("many", [Lane("0", 4)], [Block("F", 1, (0,), (1,)) for _ in range(12)], [])
    side = {"time": 1, "price": [1, 1]}
    late = Blocks.of("late", [Lane("0", 1)], [Block("F", 1, (0,), (1,)), Block("B", 1, (0,), (-1,))], [(0, 1, 10**9)])
    pair = make_shape("vshape", 2).with_memory(2)
    for made in (
        form(pair, 101, bound={"kind": "orders", "target": 5, "tree": [0]}),
        form(many, 3, bound={"kind": "ramp", "device": 0, "begin": side, "end": {"time": 1, "exact": True}}),
    ):
        with pytest.raises(Refusal, match="witness-size"):
            bound_of(made)
    with pytest.raises(Refusal, match="witness-size"):
        has_least_period(pattern_form(late, Fraction(10**9), "linear"))
    slow = form(make_shape("linear", 4).with_memory(6), 6, bound={"kind": "orders", "target": 24, "tree": [[0, 12]]})
    with pytest.raises(Refusal, match="takes too long"):
        bound_of(slow, Allowance(0.0))


def test_without_time_for_proofs() -> None:
    """Tests that no witness is made under a limit of work or without time, unless it is asked for."""
    blocks = make_shape("vshape", 4).with_memory(1)
    for options in ({"work_limit": 20}, {"time_limit": 1, "proof": 0.0}):
        made = make_schedule(blocks, 4, **options)
        assert made.witnesses is msgspec.UNSET
        assert made.proof == "claimed"
    assert make_schedule(blocks, 4, work_limit=20, proof=5.0).proof == "proved"


def test_a_linear_pipeline_in_its_file() -> None:
    """Tests that the least period of all patterns of one micro-batch is proved where no bound reaches it."""
    blocks = chunked("l", [0, 1, 2], [5, 7, 6], [6, 5, 8], [4, 5, 3], latency=2).with_memory(4)
    made = make_schedule(blocks, 6, solver="cyclic", time_limit=2, proof=6.0, settings={"most_micro_batches": "1"})
    assert made.period_proved
    assert Fraction(made.period_exact) > Fraction(made.period_bound_exact)
    file = msgspec.to_builtins(made)
    assert file["witnesses"]["period"]["kind"] in ("linear", "between")
    assert check_schedule(file).least_period
    file["period_proved"] = False
    with pytest.raises(Refusal, match="witness"):
        check_schedule(file)
