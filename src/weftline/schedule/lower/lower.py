"""Lowering: a timetable -> for every device the list of what it does: compute, send, receive; and stages of networks.

In: a `Timetable`. Out: `ActionLists`, also as JSON. Data moves along every edge: at the end of a block each of its
devices holds the whole result, and each device of the next block that is not among them gets it sent. Blocks on links
alone are the transfer itself and vanish. Simplified: one transfer per edge and receiving device, buffers are free.

`stages_of` says which blocks are the forward, backward and weight-gradient work of one stage of the model, for engines
that run a real network. Blocks name their stage; where none does, a backward block is matched with the forward block
whose data it gives back. Simplified: a network has one forward block per stage, and gradients go back exactly where
activations came from.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import Any, NamedTuple

from weftline.errors import InputError, UsageError
from weftline.problem.blocks import Blocks
from weftline.simulate import Timetable

__all__ = ["ActionLists", "DeviceAction", "NetworkStage", "Route", "data_edges", "lower", "routes", "stages_of"]

COMPUTE, SEND, RECEIVE = "compute", "send", "receive"


@dataclass(frozen=True)
class DeviceAction:
    """One thing that a device does."""

    do: str
    """compute, send or receive."""
    micro_batch: int
    block: int
    """What is computed, or the block whose result is moved."""
    to: int = -1
    """The block that the moved result is for."""
    peer: int = -1
    """The device at the other end."""

    def row(self) -> list[str | int]:
        """The JSON form: [do, micro-batch, block], and for transfers also the target block and the other device."""
        head: list[str | int] = [self.do, self.micro_batch, self.block]
        return head if self.do == COMPUTE else [*head, self.to, self.peer]


class Route(NamedTuple):
    """A transfer that every micro-batch needs."""

    source: int
    target: int
    sender: int
    receiver: int


@dataclass(frozen=True)
class ActionLists:
    """What every device does, in its order; the list of a link is empty."""

    blocks: Blocks
    micro_batches: int
    actions: tuple[tuple[DeviceAction, ...], ...]

    def rows(self) -> list[list[list[str | int]]]:
        """The JSON form: device -> its actions."""
        return [[action.row() for action in row] for row in self.actions]

    @staticmethod
    def of_rows(blocks: Blocks, micro_batches: int, rows: Any) -> ActionLists:
        """Read the JSON form; what the actions mean is checked by `testing.lower_check`."""
        if not isinstance(rows, list) or len(rows) != len(blocks.devices):
            raise InputError("actions need one list for every device", where="actions")
        lists = []
        for device, row in enumerate(rows):
            where = f"actions[{device}]"
            if not isinstance(row, list):
                raise InputError("is not a list", where=where)
            lists.append(tuple(_read(blocks, micro_batches, item, f"{where}[{i}]") for i, item in enumerate(row)))
        return ActionLists(blocks, micro_batches, tuple(lists))


def lower(timetable: Timetable, *, receives: str = "early") -> ActionLists:
    """Add sends and receives to the order of every device.

    `early`: computations and transfers stand, on all devices, in one common order (by the time at which they can
    start). So whoever waits for a transfer waits for something earlier in that order: no deadlock, whether sends
    block or not. `late`: every receive stands just before the block that needs it, which is safe with buffered sends
    only. In both, the transfers between two devices have the same order at both ends.
    """
    if receives not in ("early", "late"):
        raise UsageError("receives are 'early' or 'late'")
    return _early(timetable) if receives == "early" else _late(timetable)


def data_edges(blocks: Blocks) -> tuple[tuple[int, int], ...]:
    """Pairs of blocks between which data moves: the edges, with blocks on links alone taken out."""
    before: dict[int, list[int]] = defaultdict(list)
    for source, target, _ in blocks.edges:
        before[target].append(source)
    found = set()
    for target in range(blocks.n):
        if not _held(blocks, target):
            continue
        stack, seen = list(before[target]), set()
        while stack:
            source = stack.pop()
            if source in seen:
                continue
            seen.add(source)
            if _held(blocks, source):
                found.add((source, target))
            else:
                stack += before[source]
    return tuple(sorted(found))


def routes(blocks: Blocks) -> tuple[Route, ...]:
    """Who sends to whom: the devices that lack a result get it from the source's devices in turn."""
    found = []
    for source, target in data_edges(blocks):
        holders = _held(blocks, source)
        lacking = [device for device in _held(blocks, target) if device not in holders]
        found += [Route(source, target, holders[k % len(holders)], device) for k, device in enumerate(lacking)]
    return tuple(found)


def _held(blocks: Blocks, block: int) -> list[int]:
    """The devices of a block that are not links."""
    return [device for device in blocks.blocks[block].devices if not blocks.devices[device].link]


def _early(timetable: Timetable) -> ActionLists:
    blocks, n = timetable.blocks, timetable.blocks.n
    events: list[tuple[int, int, int, int, int, tuple[tuple[int, DeviceAction], ...]]] = []
    for route in routes(blocks):
        for micro in range(timetable.micro_batches):
            ready = int(timetable.end[micro * n + route.source])
            events.append(
                (
                    ready,
                    0,
                    micro,
                    route.source,
                    route.target * len(blocks.devices) + route.receiver,
                    _both(route, micro),
                )
            )
    for op in range(timetable.micro_batches * n):
        micro, block = divmod(op, n)
        parts = tuple((device, DeviceAction(COMPUTE, micro, block)) for device in _held(blocks, block))
        events.append((int(timetable.start[op]), 1, micro, block, 0, parts))
    lists: list[list[DeviceAction]] = [[] for _ in blocks.devices]
    for *_, parts in sorted(events, key=lambda event: event[:5]):
        for device, action in parts:
            lists[device].append(action)
    return ActionLists(blocks, timetable.micro_batches, tuple(map(tuple, lists)))


def _late(timetable: Timetable) -> ActionLists:
    blocks, n = timetable.blocks, timetable.blocks.n
    into: dict[tuple[int, int], list[Route]] = defaultdict(list)
    out_of: dict[tuple[int, int], list[Route]] = defaultdict(list)
    for route in routes(blocks):
        into[route.target, route.receiver].append(route)
        out_of[route.source, route.sender].append(route)
    lists: list[list[DeviceAction]] = [[] for _ in blocks.devices]
    channel: dict[tuple[int, int], list[DeviceAction]] = defaultdict(list)
    for sender, order in enumerate(timetable.orders):
        for op in order.tolist():
            for route in out_of[op % n, sender]:
                channel[sender, route.receiver].append(_both(route, op // n)[1][1])
    taken: dict[tuple[int, int], int] = defaultdict(int)
    for device, order in enumerate(timetable.orders):
        if blocks.devices[device].link:
            continue
        for op in order.tolist():
            micro, block = divmod(op, n)
            for route in into[block, device]:
                pair, wanted = (route.sender, device), _both(route, micro)[1][1]
                # Those that were sent before it are taken first: a channel has one order.
                position = channel[pair].index(wanted)
                lists[device] += channel[pair][taken[pair] : position + 1]
                taken[pair] = max(taken[pair], position + 1)
            lists[device].append(DeviceAction(COMPUTE, micro, block))
            lists[device] += [_both(route, micro)[0][1] for route in out_of[block, device]]
    return ActionLists(blocks, timetable.micro_batches, tuple(map(tuple, lists)))


def _both(route: Route, micro: int) -> tuple[tuple[int, DeviceAction], tuple[int, DeviceAction]]:
    """The two ends of a transfer: the sender's action and the receiver's."""
    send = DeviceAction(SEND, micro, route.source, route.target, route.receiver)
    return (route.sender, send), (
        route.receiver,
        DeviceAction(RECEIVE, micro, route.source, route.target, route.sender),
    )


def _read(blocks: Blocks, micro_batches: int, item: Any, where: str) -> DeviceAction:
    length = {COMPUTE: 3, SEND: 5, RECEIVE: 5}.get(str(item[0]) if isinstance(item, list) and item else "")
    if length is None or len(item) != length or not all(type(x) is int for x in item[1:]):
        raise InputError("an action is [compute, micro-batch, block] or [send|receive, ..., to, peer]", where=where)
    action = DeviceAction(*item)
    fits = 0 <= action.micro_batch < micro_batches and 0 <= action.block < blocks.n
    if length == 5:
        fits = fits and 0 <= action.to < blocks.n and 0 <= action.peer < len(blocks.devices)
    if not fits:
        raise InputError("names a micro-batch, block or device that does not exist", where=where)
    return action


@dataclass(frozen=True)
class NetworkStage:
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


def stages_of(blocks: Blocks) -> tuple[NetworkStage, ...]:
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
        found.append(NetworkStage(k, devices, forward, backward, weight, tuple(inputs), tuple(outputs)))
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


def _check_gradients(blocks: Blocks, stages: list[NetworkStage], links: dict[int, set[int]]) -> None:
    """Gradients go back along the edges of the forward pass; what feeds no trained stage is not trained."""
    for stage in stages:
        if stage.weight >= 0 and stage.backward < 0:
            raise InputError("has gradients of weights without a backward block", where=f"blocks[{stage.weight}]")
        for k in stage.outputs if stage.backward >= 0 else ():
            after = stages[k]
            if after.backward < 0 or stage.backward not in links[after.backward]:
                what = f"stage {stage.number} gets no gradient from stage {k}, which it feeds"
                raise InputError(what, where=f"blocks[{stage.backward}]", hint="add the edge between backward blocks")
