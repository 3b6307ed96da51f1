"""A timetable -> the rows that torch.distributed.pipelining runs, one per rank.

In: a `Timetable` of a chain of stages, each on one device. Out: rows of cells `<stage><op><micro-batch>` with F
forward, B whole backward, I gradients of inputs, W gradients of weights. Anything else is refused with a sentence that
names what torch cannot express. Simplified: torch knows an order only, so times and latencies are left out.
"""

from __future__ import annotations

from weftline.errors import InputError
from weftline.problem.blocks import Blocks
from weftline.schedule.lower_stages import Stage, stages_of
from weftline.schedule.lower_torch_rules import check_torch_rows
from weftline.simulate import Timetable

__all__ = ["torch_rows", "torch_stages"]

INSTEAD = "run it with --engine weftline, the interpreter of action lists"


def torch_rows(timetable: Timetable) -> tuple[tuple[str, ...], ...]:
    """Rank -> its cells; they pass the strict rules of `lower_torch_rules`."""
    blocks, n = timetable.blocks, timetable.blocks.n
    stages = torch_stages(blocks)
    cell: dict[int, str] = {}
    for k, stage in enumerate(stages):
        cell[stage.forward] = f"{k}F"
        cell[stage.backward] = f"{k}B" if stage.weight < 0 else f"{k}I"
        if stage.weight >= 0:
            cell[stage.weight] = f"{k}W"
    rows = []
    for device, order in enumerate(timetable.orders):
        if not blocks.devices[device].link:
            rows.append(tuple(f"{cell[op % n]}{op // n}" for op in order.tolist() if op % n in cell))
    try:
        check_torch_rows(rows, ranks=len(rows), stages=len(stages), micro_batches=timetable.micro_batches)
    except InputError as error:
        raise InputError(f"torch cannot run this order: {error.what}", where=error.where, hint=INSTEAD) from None
    return tuple(rows)


def torch_stages(blocks: Blocks) -> tuple[Stage, ...]:
    """The stages along the chain, or an `InputError` that says why there is no such chain."""
    stages = stages_of(blocks)
    for stage in stages:
        if len(stage.devices) != 1:
            raise _refused(f"stage {stage.number} on several devices: a stage has one rank")
    if all(stage.backward < 0 for stage in stages):
        raise _refused("a schedule without backward blocks (inference): it expects one backward for every forward")
    for stage in stages:
        if stage.backward < 0:
            raise _refused(f"stage {stage.number} without a backward block: it expects one backward for every forward")
        if len(stage.inputs) > 1 or len(stage.outputs) > 1:
            raise _refused(f"branches (at stage {stage.number}): data goes from a stage to the next one only")
    first = [stage for stage in stages if not stage.inputs]
    if len(first) != 1:
        raise _refused("several pipelines in one schedule (bidirectional): there is one chain of stages")
    chain = [first[0]]
    while chain[-1].outputs:
        chain.append(stages[chain[-1].outputs[0]])
    used = {stage.devices[0] for stage in chain}
    for device, lane in enumerate(blocks.devices):
        if not lane.link and device not in used:
            raise _refused(f"device {lane.id!r} without a stage: every rank has one")
    return tuple(chain)


def _refused(what: str) -> InputError:
    return InputError(f"torch.distributed.pipelining cannot express {what}", hint=INSTEAD)
