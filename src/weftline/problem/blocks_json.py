"""Blocks <-> blocks.json, the neutral form of the question of a schedule (docs/formats.md)."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import msgspec

from weftline.errors import InputError
from weftline.files import read_limited
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.problem.model import UNLIMITED

__all__ = ["BlockFile", "BlocksFile", "LaneFile", "blocks_from_json", "blocks_of_file", "blocks_to_file", "read_blocks"]

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
            if lane.memory is not None and not 0 <= lane.memory <= UNLIMITED:
                raise InputError("memory must not be negative", where=f"devices[{number}].memory")
        lanes = [Lane(d.id, UNLIMITED if d.memory is None else d.memory, d.link) for d in file.devices]
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
    lanes = [LaneFile(d.id, None if d.memory >= UNLIMITED else d.memory, d.link) for d in blocks.devices]
    rows = [
        BlockFile(i, b.kind, b.span, b.devices, b.memory[0] if len(set(b.memory)) == 1 else b.memory, b.name, b.stage)
        for i, b in enumerate(blocks.blocks)
    ]
    file = BlocksFile(blocks.name, tuple(lanes), tuple(rows), tuple(e if e[2] else e[:2] for e in blocks.edges))
    made: dict[str, Any] = json.loads(msgspec.json.encode(file))
    return made
