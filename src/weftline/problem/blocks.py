"""Blocks: what one micro-batch does on which devices, the question of every schedule; and blocks.json, its neutral form
(docs/formats.md).

In: blocks with spans, device sets and memory changes; edges with latency; a memory limit per device. Out: `Blocks`,
which passed its rules, and `BlockTable`, its flat arrays for kernels. Simplified: times and memory are whole numbers
(ns and bytes, or units of the user's own); micro-batches do not depend on each other.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from weftline.errors import InputError
from weftline.files import read_limited
from weftline.graph.arrays import Indices, Ints, ready_first
from weftline.problem.model import NO_LIMIT

__all__ = [
    "Block",
    "BlockFile",
    "BlockTable",
    "Blocks",
    "BlocksFile",
    "Lane",
    "LaneFile",
    "blocks_from_json",
    "blocks_of_file",
    "blocks_to_file",
    "read_blocks",
]

KINDS = ("F", "B", "W", "C")
MOST_BLOCKS, MOST_DEVICES, MOST_EDGES = 20_000, 4_096, 200_000
LARGEST_NUMBER = 2**46
"""Spans, latencies and memory changes above this are refused: sums over many micro-batches must stay exact."""


@dataclass(frozen=True)
class Block:
    """A piece of work of one micro-batch that holds all its devices from start to end."""

    kind: str
    """F forward, B backward (or gradients of inputs), W gradients of weights, C communication on a link."""
    span: int
    devices: tuple[int, ...]
    """Numbers of its devices, ascending; several for a tensor-parallel block."""
    memory: tuple[int, ...]
    """Change on each of its devices, when it starts."""
    name: str = ""
    stage: int = -1
    """The part of the model that it computes; a forward block and its backward blocks have the same."""


@dataclass(frozen=True)
class Lane:
    """Something that does one block at a time: a device, or a link (which holds no memory and may idle)."""

    id: str
    memory: int = NO_LIMIT
    """Limit of the sum of changes and of what is reserved."""
    link: bool = False
    reserved: int = 0
    """Memory beside all changes that is kept free for the block that runs: with recompute, the activations that are
    there only meanwhile."""

    @property
    def room(self) -> int:
        """Limit of the sum of changes alone; below 0 nothing can run."""
        return NO_LIMIT if self.link or self.memory >= NO_LIMIT else self.memory - self.reserved


class BlockTable(NamedTuple):
    """Row i of a `*_ptr` / `*_of` pair is `*_of[ptr[i]:ptr[i+1]]`."""

    span: Ints
    kind: Indices
    """0 F, 1 B, 2 W, 3 C."""
    stage: Indices
    device_ptr: Indices
    device_of: Indices
    """Block -> devices."""
    device_memory: Ints
    """Beside `device_of`: change of memory there."""
    before_ptr: Indices
    before_of: Indices
    before_lag: Ints
    """Block -> blocks it waits for, and the latency of each edge."""
    after_ptr: Indices
    after_of: Indices
    after_lag: Ints
    order: Indices
    """The blocks in a topological order."""
    limit: Ints
    """Device -> limit of the sum of changes."""
    is_link: Indices


@dataclass(frozen=True)
class Blocks:
    """One micro-batch on its devices; `Blocks.of` checks everything."""

    name: str
    devices: tuple[Lane, ...]
    blocks: tuple[Block, ...]
    edges: tuple[tuple[int, int, int], ...]
    """From, to, latency: the target starts at the earliest so long after the end of the source."""

    @staticmethod
    def of(
        name: str, devices: Sequence[Lane], blocks: Sequence[Block], edges: Sequence[Sequence[int]], where: str = ""
    ) -> Blocks:
        """Build and check; an `InputError` says which block or edge is wrong."""
        joined: dict[tuple[int, int], int] = {}
        for number, edge in enumerate(edges):
            if len(edge) not in (2, 3):
                raise InputError("an edge is [from, to] or [from, to, latency]", where=f"{where}edges[{number}]")
            source, target, lag = int(edge[0]), int(edge[1]), int(edge[2]) if len(edge) == 3 else 0
            joined[source, target] = max(lag, joined.get((source, target), 0)) if lag >= 0 else lag
        rows = tuple((source, target, lag) for (source, target), lag in sorted(joined.items()))
        made = Blocks(name, tuple(devices), tuple(blocks), rows)
        made._check(where)
        return made

    def with_memory(self, limit: int | Sequence[int]) -> Blocks:
        """The same with a memory limit for every device, or one for each; links have none."""
        count = sum(not lane.link for lane in self.devices)
        limits = [limit] * count if isinstance(limit, int) else list(limit)
        if len(limits) != count or not 0 <= min(limits) <= max(limits) <= NO_LIMIT:
            raise InputError(f"a memory limit is one number from 0 to 2^62, or one for each of the {count} devices")
        left = iter(limits)
        return replace(self, devices=tuple(d if d.link else replace(d, memory=next(left)) for d in self.devices))

    @property
    def n(self) -> int:
        """Number of blocks."""
        return len(self.blocks)

    @cached_property
    def loads(self) -> tuple[int, ...]:
        """Device -> busy time per micro-batch."""
        return tuple(sum(b.span for b in self.blocks if d in b.devices) for d in range(len(self.devices)))

    @cached_property
    def kept(self) -> tuple[int, ...]:
        """Device -> memory that one finished micro-batch leaves; 0 where every change is taken back."""
        left = [0] * len(self.devices)
        for block in self.blocks:
            for device, change in zip(block.devices, block.memory, strict=True):
                left[device] += change
        return tuple(left)

    @property
    def balanced(self) -> bool:
        """Whether micro-batches take back all memory: without that no pattern repeats for ever."""
        return not any(self.kept)

    @cached_property
    def table(self) -> BlockTable:
        """Flat arrays for kernels."""
        n = self.n
        device_ptr = np.zeros(n + 1, np.int32)
        np.cumsum([len(b.devices) for b in self.blocks], out=device_ptr[1:])
        before: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        after: list[list[tuple[int, int]]] = [[] for _ in range(n)]
        for source, target, lag in self.edges:
            before[target].append((source, lag))
            after[source].append((target, lag))
        return BlockTable(
            np.array([b.span for b in self.blocks], np.int64),
            np.array([KINDS.index(b.kind) for b in self.blocks], np.int32),
            np.array([b.stage for b in self.blocks], np.int32),
            device_ptr,
            np.array([d for b in self.blocks for d in b.devices], np.int32),
            np.array([m for b in self.blocks for m in b.memory], np.int64),
            *_rows(before),
            *_rows(after),
            np.array(_topological(n, self.edges), np.int32),
            np.array([d.room for d in self.devices], np.int64),
            np.array([d.link for d in self.devices], np.int32),
        )

    def _check(self, where: str) -> None:
        if not 1 <= self.n <= MOST_BLOCKS or not 1 <= len(self.devices) <= MOST_DEVICES:
            raise InputError(f"needs 1 to {MOST_BLOCKS} blocks and 1 to {MOST_DEVICES} devices", where=where)
        if all(lane.link for lane in self.devices):
            raise InputError("all devices are links, so nothing computes", where=where)
        if len(self.edges) > MOST_EDGES:
            raise InputError(f"has more than {MOST_EDGES} edges", where=where)
        for number, lane in enumerate(self.devices):
            if not 0 <= lane.reserved <= (0 if lane.link else LARGEST_NUMBER):
                raise InputError(
                    "what is reserved is within limits, and 0 on a link", where=f"{where}devices[{number}].reserved"
                )
        for i, block in enumerate(self.blocks):
            place = f"{where}blocks[{i}]"
            if block.kind not in KINDS:
                raise InputError(f"kind is one of {', '.join(KINDS)}, not {block.kind!r}", where=place)
            if not 1 <= block.span <= LARGEST_NUMBER:
                raise InputError(f"span must be 1 to {LARGEST_NUMBER}", where=place)
            if not block.devices or list(block.devices) != sorted(set(block.devices)):
                raise InputError("devices must be different numbers, ascending, at least one", where=place)
            if block.devices[0] < 0 or block.devices[-1] >= len(self.devices):
                raise InputError(f"devices are 0..{len(self.devices) - 1}", where=place)
            if len(block.memory) != len(block.devices) or max(map(abs, block.memory)) > LARGEST_NUMBER:
                raise InputError("memory is one change for each of its devices, within limits", where=place)
            if any(m for d, m in zip(block.devices, block.memory, strict=True) if self.devices[d].link):
                raise InputError("a link holds no memory", where=place)
            if not -1 <= block.stage < MOST_BLOCKS:
                raise InputError(f"stage must be -1 to {MOST_BLOCKS - 1}", where=place)
        for source, target, lag in self.edges:
            if not (0 <= source < self.n and 0 <= target < self.n) or source == target:
                raise InputError(f"edge {source} -> {target} does not join two blocks", where=where)
            if not 0 <= lag <= LARGEST_NUMBER:
                raise InputError(f"edge {source} -> {target}: latency must be 0 to {LARGEST_NUMBER}", where=where)
        if len(_topological(self.n, self.edges)) < self.n:
            raise InputError("the edges form a circle, so no block of it can ever start", where=where)


def _rows(rows: list[list[tuple[int, int]]]) -> tuple[Indices, Indices, Ints]:
    pointer = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=pointer[1:])
    flat = [pair for row in rows for pair in row]
    return pointer, np.array([a for a, _ in flat], np.int32), np.array([b for _, b in flat], np.int64)


def _topological(n: int, edges: Sequence[tuple[int, int, int]]) -> list[int]:
    """The blocks that can ever start, in the order of their numbers as far as edges allow."""
    waits, after = [0] * n, [[] for _ in range(n)]  # type: list[int], list[list[int]]
    for source, target, _ in edges:
        if 0 <= source < n and 0 <= target < n:
            waits[target] += 1
            after[source].append(target)
    return ready_first(after, waits)


MOST_BYTES = 64 * 2**20
DEVICE_ID = re.compile(r"[A-Za-z0-9_.:-]{1,64}")


class BlockFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A block; `memory` is one change for all its devices, or one for each."""

    id: int
    kind: str
    span: int
    devices: tuple[int, ...]
    memory: int | tuple[int, ...] = 0
    name: str = ""
    stage: int = -1


class LaneFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A device or link."""

    id: str
    memory: int | None = None
    link: bool = False
    reserved: int = 0


class BlocksFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The JSON form; `devices` is their number, or a list of them."""

    name: str
    devices: int | tuple[LaneFile, ...]
    blocks: tuple[BlockFile, ...]
    edges: tuple[tuple[int, ...], ...] = ()


def read_blocks(path: Path | str) -> Blocks:
    """Read blocks.json, or say what is wrong with it and where."""
    data = read_limited(path, MOST_BYTES)
    try:
        return blocks_from_json(data)
    except InputError as error:
        raise error.at(str(path)) from None


def blocks_from_json(data: bytes | str) -> Blocks:
    """Decode and check."""
    try:
        return blocks_of_file(msgspec.json.decode(data, type=BlocksFile))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"is not blocks.json: {error}", hint="see docs/formats.md") from error


def blocks_of_file(file: BlocksFile) -> Blocks:
    """Check what was decoded; blocks get the order of their ids, which may be any different numbers."""
    if isinstance(file.devices, int):
        if not 1 <= file.devices <= 4096:
            raise InputError("devices: 1 to 4096 of them")
        lanes = [Lane(str(d)) for d in range(file.devices)]
    else:
        for number, lane in enumerate(file.devices):
            if not DEVICE_ID.fullmatch(lane.id):
                raise InputError("an id has 1 to 64 letters, digits or _.:-", where=f"devices[{number}].id")
            if lane.memory is not None and not 0 <= lane.memory <= NO_LIMIT:
                raise InputError("memory must not be negative", where=f"devices[{number}].memory")
        lanes = [Lane(d.id, NO_LIMIT if d.memory is None else d.memory, d.link, d.reserved) for d in file.devices]
    if len({lane.id for lane in lanes}) < len(lanes):
        raise InputError("two devices have the same id", where="devices")
    rows = sorted(file.blocks, key=lambda block: block.id)
    place = {block.id: i for i, block in enumerate(rows)}
    if len(place) < len(rows):
        raise InputError("two blocks have the same id", where="blocks")
    blocks = []
    for block in rows:
        changes = (block.memory,) * len(block.devices) if isinstance(block.memory, int) else block.memory
        pairs = sorted(zip(block.devices, changes, strict=False)) if len(changes) == len(block.devices) else None
        if pairs is None:
            raise InputError("memory is one change, or one for each device", where=f"blocks[{place[block.id]}].memory")
        name = block.name or f"{block.kind}{block.id}"
        row = tuple(d for d, _ in pairs), tuple(m for _, m in pairs)
        blocks.append(Block(block.kind, block.span, *row, name=name[:200], stage=block.stage))
    edges = []
    for number, edge in enumerate(file.edges):
        if len(edge) not in (2, 3) or edge[0] not in place or edge[1] not in place:
            raise InputError("an edge is [from, to] or [from, to, latency] of block ids", where=f"edges[{number}]")
        edges.append((place[edge[0]], place[edge[1]], *edge[2:]))
    return Blocks.of(file.name[:200], lanes, blocks, edges)


def blocks_to_file(blocks: Blocks) -> dict[str, Any]:
    """The JSON form, as what `json` writes; ids are the blocks' numbers."""
    lanes = [LaneFile(d.id, None if d.memory >= NO_LIMIT else d.memory, d.link, d.reserved) for d in blocks.devices]
    rows = [
        BlockFile(i, b.kind, b.span, b.devices, b.memory[0] if len(set(b.memory)) == 1 else b.memory, b.name, b.stage)
        for i, b in enumerate(blocks.blocks)
    ]
    file = BlocksFile(blocks.name, tuple(lanes), tuple(rows), tuple(e if e[2] else e[:2] for e in blocks.edges))
    made: dict[str, Any] = json.loads(msgspec.json.encode(file))
    return made
