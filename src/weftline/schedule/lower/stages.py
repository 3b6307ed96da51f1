"""Which blocks are the forward, backward and weight-gradient work of one stage of the model.

In: `Blocks`. Out: `Stage`s with the stages that feed them, for engines that run a real network. Blocks name their
stage; where none does, a backward block is matched with the forward block whose data it gives back. Simplified: a
network has one forward block per stage, and gradients go back exactly where activations came from.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from weftline.errors import InputError
from weftline.problem.blocks import Blocks
from weftline.schedule.lower.lower import data_edges

__all__ = ["Stage", "stages_of"]


@dataclass(frozen=True)
class Stage:
    """A part of the model, and the blocks that compute it (-1 = there is none)."""

    number: int
    devices: tuple[int, ...]
    """Without links."""
    forward: int
    backward: int
    weight: int
    inputs: tuple[int, ...]
    """Stages whose activations it takes, ascending."""
    outputs: tuple[int, ...]
    """Stages that take its activation, ascending."""


def stages_of(blocks: Blocks) -> tuple[Stage, ...]:
    """The stages, numbered 0, 1, ... in the order of their own numbers; `InputError` if this is not a network."""
    links = _links(blocks)
    number = _numbers(blocks, links)
    role: dict[str, dict[int, int]] = {"F": {}, "B": {}, "W": {}}
    for i, block in enumerate(blocks.blocks):
        if block.kind == "C":
            continue
        if number[i] in role[block.kind]:
            raise InputError(f"two {block.kind} blocks compute stage {number[i]}", where=f"blocks[{i}]")
        role[block.kind][number[i]] = i
    rank = {stage: k for k, stage in enumerate(sorted(role["F"]))}
    found = []
    for stage, k in rank.items():
        forward = role["F"][stage]
        backward, weight = role["B"].get(stage, -1), role["W"].get(stage, -1)
        devices = tuple(d for d in blocks.blocks[forward].devices if not blocks.devices[d].link)
        for other in (backward, weight):
            if other >= 0 and tuple(d for d in blocks.blocks[other].devices if not blocks.devices[d].link) != devices:
                what = f"stage {stage} is computed on other devices than its gradients"
                raise InputError(what, where=f"blocks[{other}]", hint="the activations are there")
        inputs = sorted({rank[number[i]] for i in links if forward in links[i] and blocks.blocks[i].kind == "F"})
        outputs = sorted({rank[number[i]] for i in links[forward] if blocks.blocks[i].kind == "F"})
        found.append(Stage(k, devices, forward, backward, weight, tuple(inputs), tuple(outputs)))
    for kind in "BW":
        for stage, lonely in role[kind].items():
            if stage not in rank:
                raise InputError(f"no forward block computes stage {stage}", where=f"blocks[{lonely}]")
    _check_gradients(blocks, found, links)
    return tuple(found)


def _links(blocks: Blocks) -> dict[int, set[int]]:
    """Block -> blocks that need its data, past all communication."""
    after: dict[int, list[int]] = defaultdict(list)
    for source, target in data_edges(blocks):
        after[source].append(target)
    found: dict[int, set[int]] = {}
    for i, block in enumerate(blocks.blocks):
        if block.kind == "C":
            continue
        stack, found[i] = list(after[i]), set()
        while stack:
            target = stack.pop()
            if blocks.blocks[target].kind == "C":
                stack += after[target]
            else:
                found[i].add(target)
    return found


def _numbers(blocks: Blocks, links: dict[int, set[int]]) -> dict[int, int]:
    """Block -> stage: as given, or matched when no block says."""
    given = {i: blocks.blocks[i].stage for i in links}
    if all(stage >= 0 for stage in given.values()):
        return given
    if any(stage >= 0 for stage in given.values()):
        missing = next(i for i, stage in given.items() if stage < 0)
        raise InputError("some blocks name their stage and this one does not", where=f"blocks[{missing}].stage")
    order = [i for i in blocks.table.order.tolist() if i in links]
    forward = [i for i in order if blocks.blocks[i].kind == "F"]
    number = {block: k for k, block in enumerate(forward)}
    free = set(forward)
    before = {i: {j for j in links if i in links[j]} for i in links}
    for i in order:
        if blocks.blocks[i].kind == "F":
            continue
        if blocks.blocks[i].kind == "W":
            mine = sorted({number[j] for j in before[i] if blocks.blocks[j].kind == "B" and j in number})
        else:
            mine = _mirror(blocks, i, before, number, free)
        if len(mine) != 1:
            raise InputError(
                "it is not clear which stage this block belongs to", where=f"blocks[{i}]", hint="give `stage`"
            )
        number[i] = mine[0]
        if blocks.blocks[i].kind == "B":
            free.discard(forward[mine[0]])
    return number


def _mirror(
    blocks: Blocks, block: int, before: dict[int, set[int]], number: dict[int, int], free: set[int]
) -> list[int]:
    """Stages that a backward block can belong to: the forward block before it, or one that fed the stages after it."""
    direct = [j for j in before[block] if j in free]
    fed = [{f for f in free if f in before[_forward(number, number[j])]} for j in before[block] if _is(blocks, j, "B")]
    for candidates in (direct, sorted(set.intersection(*fed)) if fed else []):
        fitting = [j for j in candidates if blocks.blocks[j].devices == blocks.blocks[block].devices]
        if len(fitting) == 1:
            return [number[fitting[0]]]
    return []


def _forward(number: dict[int, int], stage: int) -> int:
    return next(block for block, k in number.items() if k == stage)


def _is(blocks: Blocks, block: int, kind: str) -> bool:
    return blocks.blocks[block].kind == kind


def _check_gradients(blocks: Blocks, stages: list[Stage], links: dict[int, set[int]]) -> None:
    """Gradients go back along the edges of the forward pass; what feeds no trained stage is not trained."""
    for stage in stages:
        if stage.weight >= 0 and stage.backward < 0:
            raise InputError("has gradients of weights without a backward block", where=f"blocks[{stage.weight}]")
        for k in stage.outputs if stage.backward >= 0 else ():
            after = stages[k]
            if after.backward < 0 or stage.backward not in links[after.backward]:
                what = f"stage {stage.number} gets no gradient from stage {k}, which it feeds"
                raise InputError(what, where=f"blocks[{stage.backward}]", hint="add the edge between backward blocks")
