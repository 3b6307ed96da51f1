"""A timetable -> the job that worker processes run: stages, data on edges, action lists or torch's rows.

In: a `Timetable`, the engine, the user's model and options. Out: a `Job`. Links vanish and devices become ranks, in the
order of devices. Simplified: a communication block on devices hands on one result.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from weftline.errors import InputError, UsageError
from weftline.problem.blocks import Blocks
from weftline.run.train.job import ACTIVATION, GRADIENT, TOKEN, Edge, Job, Work
from weftline.run.train.model import Layout
from weftline.schedule.lower.lower import DeviceAction, NetworkStage, data_edges, lower, stages_of
from weftline.schedule.lower.torch import torch_rows, torch_stages
from weftline.simulate import Timetable

__all__ = ["ENGINES", "make_job"]

ENGINES = ("torch", "weftline")


def make_job(
    timetable: Timetable,
    *,
    engine: str,
    model: str,
    seeds: Sequence[int],
    steps: int,
    rate: float,
    check: bool,
    time_limit: float,
) -> Job:
    """Check that the engine can run the schedule, and write down what its processes need."""
    if engine not in ENGINES:
        raise UsageError(f"unknown engine {engine!r}; there are: {', '.join(ENGINES)}")
    if steps < 1 or not seeds:
        raise UsageError("a run has at least one step and one seed")
    blocks = timetable.blocks
    stages = stages_of(blocks)
    rank_of = {d: k for k, d in enumerate(d for d, lane in enumerate(blocks.devices) if not lane.link)}
    layout = Layout(
        timetable.micro_batches,
        tuple(stage.inputs for stage in stages),
        tuple(len(stage.devices) for stage in stages),
        tuple(stage.backward >= 0 for stage in stages),
    )
    rows: tuple[tuple[str, ...], ...] = ()
    chain: tuple[int, ...] = ()
    actions: list[tuple[tuple[str | int, ...], ...]] = []
    if engine == "torch":
        rows, chain = torch_rows(timetable), tuple(stage.number for stage in torch_stages(blocks))
    else:
        lists = lower(timetable).actions
        actions = [tuple(_row(action, rank_of) for action in lists[device]) for device in rank_of]
    return Job(
        engine,
        model,
        layout,
        len(rank_of),
        _works(blocks, stages, rank_of),
        _edges(blocks, stages),
        tuple(actions),
        rows,
        chain,
        tuple(seeds),
        steps,
        rate,
        check,
        time_limit,
    )


def _row(action: DeviceAction, rank_of: dict[int, int]) -> tuple[str | int, ...]:
    row = action.row()
    return tuple(row) if len(row) == 3 else (*row[:4], rank_of[action.peer])


def _works(blocks: Blocks, stages: Sequence[NetworkStage], rank_of: dict[int, int]) -> tuple[Work, ...]:
    stage_of = {block: s.number for s in stages for block in (s.forward, s.backward, s.weight) if block >= 0}
    found = []
    for number, block in enumerate(blocks.blocks):
        stage = stage_of.get(number, -1)
        ranks = tuple(rank_of[d] for d in block.devices if d in rank_of)
        found.append(Work(block.kind, ranks, stage, stage >= 0 and stages[stage].weight >= 0))
    return tuple(found)


def _edges(blocks: Blocks, stages: Sequence[NetworkStage]) -> tuple[Edge, ...]:
    """What each edge carries: activations forward, gradients back, otherwise only that the source is done."""
    forward = {stage.forward: stage.number for stage in stages}
    backward = {stage.backward: stage.number for stage in stages if stage.backward >= 0}
    pairs = data_edges(blocks)
    before, after = defaultdict(list), defaultdict(list)
    for source, target in pairs:
        before[target].append(source)
        after[source].append(target)
    found = []
    for source, target in pairs:
        origin = _origin(blocks, source, before)
        ends = _ends(blocks, target, after)
        edge = Edge(source, target, TOKEN, -1, -1)
        if origin in forward and any(end in forward for end in ends):
            edge = Edge(source, target, ACTIVATION, forward[origin], -1)
        elif origin in backward:
            giver = backward[origin]
            takers = [backward[end] for end in ends if end in backward and backward[end] in stages[giver].inputs]
            if len(takers) > 1:
                raise InputError("carries gradients for several stages", where=f"blocks[{target}]", hint="split it")
            if takers:
                edge = Edge(source, target, GRADIENT, takers[0], giver)
        found.append(edge)
    return tuple(found)


def _origin(blocks: Blocks, block: int, before: dict[int, list[int]]) -> int:
    """The block whose result a chain of communication blocks carries."""
    while blocks.blocks[block].kind == "C":
        if len(before[block]) != 1:
            raise InputError("a communication block on devices has one input", where=f"blocks[{block}]")
        block = before[block][0]
    return block


def _ends(blocks: Blocks, block: int, after: dict[int, list[int]]) -> list[int]:
    """The blocks that a result is for, past communication."""
    if blocks.blocks[block].kind != "C":
        return [block]
    return sorted({end for target in after[block] for end in _ends(blocks, target, after)})
