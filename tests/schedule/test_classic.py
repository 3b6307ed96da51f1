"""Tests of the classic schedules: the published bubbles and memory, and to what they apply."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.classic.classic import CLASSICS, SCHEDULERS, classic_schedules
from weftline.schedule.make_blocks import SHAPES, chunked, make_shape
from weftline.schedule.search import ScheduleSearch
from weftline.simulate import Timetable, simulate_schedule

TIMES = [(1, 1, 1), (10, 11, 8)]


def pipeline(devices: Sequence[int], times: tuple[int, int, int], *, split: bool = True) -> Blocks:
    """Equal stages; without `split` the backward pass takes both times at once."""
    f, b, w = times
    count = len(devices)
    if split:
        return chunked("split", devices, [f] * count, [b] * count, [w] * count)
    return chunked("whole", devices, [f] * count, [b + w] * count)


def run(name: str, blocks: Blocks, micro_batches: int) -> Timetable:
    return simulate_schedule(blocks, micro_batches, CLASSICS[name].make(blocks, micro_batches))


def there_and_back(p: int) -> list[int]:
    return [*range(p), *reversed(range(p))]


@pytest.mark.parametrize("p", [4, 8])
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("factor", [2, 4])
def test_gpipe_and_1f1b(p: int, times: tuple[int, int, int], factor: int) -> None:
    """Tests that both wait (p - 1)(f + b + w), GPipe with N activations and rank r of 1F1B with p - r."""
    blocks, n = pipeline(range(p), times, split=False), factor * p
    for name in ("gpipe", "1f1b"):
        assert set(run(name, blocks, n).bubbles) == {(p - 1) * sum(times)}
    assert run("gpipe", blocks, n).peak_memory == (2 * n,) * p
    assert run("1f1b", blocks, n).peak_memory == tuple(2 * (p - r) for r in range(p))


@pytest.mark.parametrize("p", [4, 8])
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("chunks", [2, 3])
def test_interleaved(p: int, times: tuple[int, int, int], chunks: int) -> None:
    """Tests that interleaving divides the bubble of whole stages by the chunks, for p(1 + (p - 1)/(pv)) activations."""
    found = run("interleaved-1f1b", pipeline([*range(p)] * chunks, times, split=False), 2 * p)
    assert found.bubble == (p - 1) * chunks * sum(times) // chunks
    assert found.peak_memory[0] == 2 * (p * chunks + p - 1)


@pytest.mark.parametrize("p", [4, 8])
@pytest.mark.parametrize("times", TIMES)
@pytest.mark.parametrize("factor", [2, 4])
def test_zero_bubble_schedules(p: int, times: tuple[int, int, int], factor: int) -> None:
    """Tests bubbles and memory of ZB-H1 and ZB-H2 against their formulas."""
    f, b, w = times
    blocks, n = pipeline(range(p), times), factor * p
    first, second = run("zb-h1", blocks, n), run("zb-h2", blocks, n)
    assert first.bubble == (p - 1) * (f + b - w)
    assert max(first.peak_memory) == 2 * p
    assert second.device_span_bubble == (p - 1) * (f + b - 2 * w)
    assert second.bubble == (p - 1) * f
    assert max(second.peak_memory) == 2 * (2 * p - 1)


@pytest.mark.parametrize(("p", "times", "span", "whole"), [
    (4, (1, 1, 1), 0, 3),
    (8, (1, 1, 1), 0, 7),
    (4, (10, 11, 8), 18, 33),
    (8, (10, 11, 8), 42, 77),
])  # fmt: skip
@pytest.mark.parametrize("factor", [2, 4])
def test_zb_v(p: int, times: tuple[int, int, int], span: int, whole: int, factor: int) -> None:
    """Tests that ZB-V does not wait with equal times, waits as measured with others, and fills all memory alike."""
    found = run("zb-v", pipeline(there_and_back(p), times), factor * p)
    assert (found.device_span_bubble, found.bubble) == (span, whole)
    assert set(found.peak_memory) == {4 * p}


@pytest.mark.parametrize(("p", "times", "bubble"), [
    (4, (1, 1, 1), 3),
    (8, (1, 1, 1), 7),
    (4, (10, 11, 8), 39),
    (8, (10, 11, 8), 91),
])  # fmt: skip
def test_dualpipe_v(p: int, times: tuple[int, int, int], bubble: int) -> None:
    """Tests the waits and the memory (half an activation more than p) of DualPipeV without overlap."""
    found = run("dualpipe-v", pipeline(there_and_back(p), times), 3 * p)
    assert found.bubble == bubble
    assert set(found.peak_memory) == {4 * p + 2}


@pytest.mark.parametrize("p", [2, 4, 8])
def test_chimera(p: int) -> None:
    """Tests Chimera's bubble of one unit, its memory, and that equal times let units interlock without a gap."""
    blocks = make_shape("xshape", p)
    twice = replace(blocks, blocks=tuple(replace(b, span=2) if b.kind == "B" else b for b in blocks.blocks))
    unit = run("chimera", twice, p // 2)
    assert unit.bubble == 2 * (p - 2)  # of 3p + 2(p - 2): the published share at N = p
    assert min(unit.peak_memory) == p // 2 + 1
    assert max(unit.peak_memory) == p
    equal = replace(blocks, blocks=tuple(replace(b, span=1) for b in blocks.blocks))
    assert run("chimera", equal, 5 * p).bubble == p - 2


def test_1f1b_plus_inserts_steps() -> None:
    """Tests on three micro-batches that an embedding stands before the first stage, its backward pass behind it."""
    blocks = make_shape("mshape", 2)
    orders = CLASSICS["1f1b-plus"].make(blocks, 3)
    names = [[f"{blocks.blocks[op % blocks.n].name}.{op // blocks.n}" for op in order] for order in orders]
    embed, first, second, last, back, out = (block.name for block in blocks.blocks)
    assert names[0] == [
        f"{embed}.0", f"{first}.0", f"{embed}.1", f"{first}.1", f"{back}.0", f"{out}.0",
        f"{embed}.2", f"{first}.2", f"{back}.1", f"{out}.1", f"{back}.2", f"{out}.2",
    ]  # fmt: skip
    assert [name for name in names[1] if name[:-2] in (embed, out)] == [
        name for name in names[0] if name[:-2] in (embed, out)
    ]
    assert {name[:-2] for name in names[1]} == {embed, second, last, out}


APPLY = {
    "vshape": {"gpipe", "1f1b"},
    "xshape": {"gpipe", "chimera"},
    "mshape": {"gpipe", "1f1b-plus"},
    "nnshape": {"gpipe", "1f1b-plus"},
    "nnshape-eager": {"gpipe", "1f1b-plus"},
    "kshape": {"gpipe", "1f1b-plus"},
    "mllm": {"gpipe", "1f1b-plus"},
    "finetune": {"gpipe", "1f1b-plus"},
    "alphafold": {"gpipe"},
    "linear": {"gpipe", "1f1b", "zb-h1", "zb-h2"},
    "zigzag": {"gpipe", "zb-v", "dualpipe-v"},
    "interleaved": {"gpipe", "interleaved-1f1b"},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("micro_batches", [1, 3, 9])
def test_what_applies(shape: str, micro_batches: int) -> None:
    """Tests that structure decides what applies, for any number of micro-batches, and that nothing waits for ever."""
    found = classic_schedules(make_shape(shape, 4), micro_batches)
    assert set(found) == APPLY[shape]
    assert "gpipe" in classic_schedules(make_shape(shape, 4, train=False), micro_batches)


def test_names_and_numbers_do_not_matter() -> None:
    """Tests that blocks without names and stages, in any order and on any devices, give the same makespans."""
    rows = {shape: make_shape(shape, 4) for shape in ("linear", "zigzag", "xshape", "mshape", "interleaved")}
    for blocks in rows.values():
        number = [(5 * i + 3) % blocks.n if blocks.n % 5 else blocks.n - 1 - i for i in range(blocks.n)]
        place = [2, 0, 3, 1]
        moved: list[Block] = [blocks.blocks[0]] * blocks.n
        for i, block in enumerate(blocks.blocks):
            devices = tuple(sorted(place[d] for d in block.devices))
            moved[number[i]] = replace(block, name="", stage=-1, devices=devices)
        edges = [(number[a], number[b], lag) for a, b, lag in blocks.edges]
        other = Blocks.of("moved", blocks.devices, moved, edges)
        wanted = {name: run(name, blocks, 8).makespan for name in classic_schedules(blocks, 8)}
        found = {name: run(name, other, 8).makespan for name in classic_schedules(other, 8)}
        assert {**found, "gpipe": 0} == {**wanted, "gpipe": 0}


def test_links_serve_as_it_comes() -> None:
    """Tests that transfers on a link of their own do not hide the pipeline, and that the link gets an order."""
    lanes = [Lane("0"), Lane("1"), Lane("link", link=True)]
    blocks = Blocks.of(
        "links",
        lanes,
        [
            Block("F", 2, (0,), (1,)),
            Block("C", 1, (2,), (0,)),
            Block("F", 2, (1,), (1,)),
            Block("B", 4, (1,), (-1,)),
            Block("C", 1, (2,), (0,)),
            Block("B", 4, (0,), (-1,)),
        ],
        [(i, i + 1) for i in range(5)],
    )
    assert set(classic_schedules(blocks, 6)) == {"gpipe", "1f1b"}
    found = run("1f1b", blocks, 6)
    assert found.peak_memory[:2] == (2, 1)
    assert found.makespan == 48  # by hand


def test_schedulers_offer_or_say_why() -> None:
    """Tests that each is a scheduler: its orders are costed, a limit or a wrong structure is an error."""
    by_name = {scheduler.name: scheduler for scheduler in SCHEDULERS}
    assert list(by_name) == list(CLASSICS)
    search = ScheduleSearch(make_shape("linear", 4).with_memory(8), 16)
    search.run(by_name["zb-h1"])
    assert search.best is not None
    assert search.best.makespan == 51
    with pytest.raises(InfeasibleError, match="does not fit"):
        by_name["zb-h2"].solve(search)
    with pytest.raises(InfeasibleError, match="split"):
        by_name["zb-v"].solve(ScheduleSearch(make_shape("vshape", 4), 4))


def test_1f1b_of_branches() -> None:
    """Tests that separate and joined branches, with several sources and sinks, run 1F1B by their depth."""
    lanes = [Lane(str(d)) for d in range(4)]
    kinds = ["F"] * 4 + ["B"] * 4
    blocks = [Block(kind, 1, (i % 4,), (1 if kind == "F" else -1,)) for i, kind in enumerate(kinds)]
    edges = [(0, 1), (1, 2), (3, 2), (2, 6), (6, 5), (5, 4), (6, 7)]
    joined = Blocks.of("joined", lanes, blocks, edges)
    assert run("1f1b", joined, 9).peak_memory == (3, 2, 1, 2)
    apart = Blocks.of("apart", lanes, blocks, [(0, 1), (1, 5), (5, 4), (2, 6), (3, 7)])
    assert run("1f1b", apart, 9).peak_memory == (2, 1, 1, 1)


def test_groups_of_devices_are_stages() -> None:
    """Tests that stages on several devices each run the classic schedules, all devices of a stage alike."""
    one = make_shape("linear", 3)
    groups = [(0, 3), (1,), (2, 4, 5)]
    rows = [
        replace(block, devices=groups[block.devices[0]], memory=block.memory * len(groups[block.devices[0]]))
        for block in one.blocks
    ]
    blocks = Blocks.of("groups", [Lane(str(d)) for d in range(6)], rows, one.edges)
    found = classic_schedules(blocks, 7)
    assert set(found) == APPLY["linear"]
    for name, orders in found.items():
        assert simulate_schedule(blocks, 7, orders).makespan == run(name, one, 7).makespan
        assert orders[2].tolist() == orders[5].tolist()
