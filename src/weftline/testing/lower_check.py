"""Do action lists come to an end? They are played under three meanings of a send.

In: `ActionLists`. Out: what is wrong with them, as a sentence, or nothing. `buffered`: a send never waits. `batched`:
transfers that stand side by side are started together, and all of them end before the next computation (NCCL groups).
`blocking`: one transfer at a time, and both ends wait for each other. Simplified: no times, only who waits for whom.
"""

from __future__ import annotations

from collections import defaultdict, deque
from itertools import groupby

from weftline.errors import UsageError
from weftline.schedule.lower.lower import COMPUTE, SEND, ActionLists, DeviceAction, data_edges, routes

__all__ = ["SEMANTICS", "check_actions", "safe_under", "what_is_wrong"]

SEMANTICS = ("buffered", "batched", "blocking")

_Transfer = tuple[int, int, int, int, int]
"""Micro-batch, source block, target block, sender, receiver."""


def safe_under(lists: ActionLists) -> tuple[str, ...]:
    """The meanings of a send under which the lists come to an end; none if they are wrong in themselves."""
    if what_is_wrong(lists):
        return ()
    return tuple(semantics for semantics in SEMANTICS if not check_actions(lists, semantics))


def what_is_wrong(lists: ActionLists) -> str:
    """Why the lists are not those of a schedule: something is missing, twice, or on the wrong device."""
    blocks = lists.blocks
    wanted: dict[int, set[DeviceAction]] = defaultdict(set)
    for micro in range(lists.micro_batches):
        for number, block in enumerate(blocks.blocks):
            for device in block.devices:
                if not blocks.devices[device].link:
                    wanted[device].add(DeviceAction(COMPUTE, micro, number))
        for source, target, sender, receiver in routes(blocks):
            wanted[sender].add(DeviceAction(SEND, micro, source, target, receiver))
            wanted[receiver].add(DeviceAction("receive", micro, source, target, sender))
    for device, row in enumerate(lists.actions):
        name = blocks.devices[device].id
        if len(set(row)) < len(row):
            return f"device {name!r} does something twice"
        if set(row) != wanted[device]:
            missing = sorted(map(str, wanted[device] - set(row))) or sorted(map(str, set(row) - wanted[device]))
            return f"device {name!r} lacks actions or has some that it must not have, such as {missing[0]}"
    return ""


def check_actions(lists: ActionLists, semantics: str) -> str:
    """Play the lists -> "" if they end, else who waits for what."""
    if semantics not in SEMANTICS:
        raise UsageError(f"sends are one of {', '.join(SEMANTICS)}")
    return _Play(lists, semantics).run()


class _Play:
    """A device is at one step of its list; a step is a computation or transfers that were started together."""

    def __init__(self, lists: ActionLists, semantics: str) -> None:
        self.lists, self.buffered = lists, semantics == "buffered"
        self.steps = [_steps(row, semantics == "batched") for row in lists.actions]
        self.at = [0] * len(self.steps)
        self.open: dict[int, set[_Transfer]] = defaultdict(set)
        self.posted: set[tuple[_Transfer, bool]] = set()
        self.done: set[tuple[int, int, int]] = set()
        self.got: set[tuple[int, int, int, int]] = set()
        self.sources: dict[int, list[int]] = defaultdict(list)
        for source, target in data_edges(lists.blocks):
            self.sources[target].append(source)
        self.awake = deque(range(len(self.steps)))
        self.problem = ""

    def run(self) -> str:
        for device in range(len(self.steps)):
            self._arrive(device)
        while self.awake:
            device = self.awake.popleft()
            while not self.problem and self.at[device] < len(self.steps[device]):
                step = self.steps[device][self.at[device]]
                if step[0].do == COMPUTE:
                    if not self._compute(device, step[0]):
                        break
                elif self.open[device]:
                    break
                else:
                    self._advance(device)
        if self.problem:
            return self.problem
        stuck = [d for d, steps in enumerate(self.steps) if self.at[d] < len(steps)]
        return "; ".join(self._waiting(device) for device in stuck[:4])

    def _compute(self, device: int, action: DeviceAction) -> bool:
        """Compute, or wait for the other devices of the block."""
        held = [d for d in self.lists.blocks.blocks[action.block].devices if not self.lists.blocks.devices[d].link]
        for source in self.sources[action.block]:
            local = device in self.lists.blocks.blocks[source].devices
            key = (device, action.micro_batch, source)
            if not (key in self.done if local else (*key, action.block) in self.got):
                lacked = f"before it has what {self._title(source)} gives"
                self.problem = f"{self._name(device)} computes {self._block(action)} {lacked}"
                return False
        operation = action.micro_batch, action.block
        if len(held) > 1:
            heads = [self._head(d) for d in held]
            if any(head is None or head.do != COMPUTE or (head.micro_batch, head.block) != operation for head in heads):
                return False
        for other in held:
            self.done.add((other, *operation))
            self._advance(other)
            if other != device:
                self.awake.append(other)
        return True

    def _head(self, device: int) -> DeviceAction | None:
        return self.steps[device][self.at[device]][0] if self.at[device] < len(self.steps[device]) else None

    def _advance(self, device: int) -> None:
        self.at[device] += 1
        self._arrive(device)

    def _arrive(self, device: int) -> None:
        """Start the transfers of a device's new step, and end those whose other end has started too."""
        if self.at[device] == len(self.steps[device]):
            return
        for action in self.steps[device][self.at[device]]:
            if action.do == COMPUTE:
                return
            sends = action.do == SEND
            if sends and (device, action.micro_batch, action.block) not in self.done:
                self.problem = f"{self._name(device)} sends {self._block(action)} before it is computed"
            ends = (device, action.peer) if sends else (action.peer, device)
            transfer = (action.micro_batch, action.block, action.to, *ends)
            self.posted.add((transfer, sends))
            if not (sends and self.buffered):
                self.open[device].add(transfer)
            if (transfer, not sends) in self.posted:
                for end in ends:
                    self.open[end].discard(transfer)
                self.got.add((ends[1], action.micro_batch, action.block, action.to))
                self.awake.append(action.peer)

    def _waiting(self, device: int) -> str:
        action = self.steps[device][self.at[device]][0]
        if action.do == COMPUTE:
            return f"{self._name(device)} waits for the other devices of {self._block(action)}"
        micro, source, _, sender, receiver = min(self.open[device])
        what = f"{self._title(source)} of micro-batch {micro}"
        if sender == device:
            return f"{self._name(device)} waits to send {what} to {self._name(receiver)}"
        return f"{self._name(device)} waits to receive {what} from {self._name(sender)}"

    def _name(self, device: int) -> str:
        return f"device {self.lists.blocks.devices[device].id!r}"

    def _title(self, block: int) -> str:
        return self.lists.blocks.blocks[block].name or f"block {block}"

    def _block(self, action: DeviceAction) -> str:
        return f"{self._title(action.block)} of micro-batch {action.micro_batch}"


def _steps(row: tuple[DeviceAction, ...], batched: bool) -> list[tuple[DeviceAction, ...]]:
    if not batched:
        return [(action,) for action in row]
    steps: list[tuple[DeviceAction, ...]] = []
    for computes, group in groupby(row, key=lambda action: action.do == COMPUTE):
        together = tuple(group)
        steps += [(action,) for action in together] if computes else [together]
    return steps
