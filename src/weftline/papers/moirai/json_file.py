"""Moirai's sample instances, as JSON or as the original .xls: op times per device, memory, a transfer matrix per edge.

In: times read as seconds, memory in the file's unit, read as bytes. Out: the graph and its costs in nanoseconds, one
device class per device. Both forms become one `MoiraiFile`, so they give the same graph and the same costs.
Simplified: a tensor is what the edges of one op with equal matrices carry; sizes in bytes are unknown, hence 0. Times
are exact up to 15 significant digits, and finer than a nanosecond they are rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.importers.registry import DeviceClass, FileCosts, Importer, ImportOptions
from weftline.papers.formats.cost_file import checked, checked_total, contains, decode, numbered
from weftline.units import MAX_QUANTITY

__all__ = ["IMPORTERS", "MoiraiEdge", "MoiraiFile", "MoiraiOp"]

NANOSECONDS = 10**9  # in a second
MAX_DEVICES = 1024
OLE2_MAGIC = bytes.fromhex("d0cf11e0a1b11ae1")

_Identity = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
_Bytes = Annotated[int, msgspec.Meta(ge=0, le=MAX_QUANTITY)]
_Matrix = tuple[tuple[int, ...], ...]


class MoiraiOp(msgspec.Struct):
    """One op: its seconds on every device and the memory it holds wherever it runs."""

    id: _Identity
    time: tuple[float, ...]
    mem: _Bytes
    virtual: bool = False


class MoiraiEdge(msgspec.Struct):
    """One dependency; `comm[a][b]` = seconds from device a to b. Without a `comm_id` it is free."""

    src: _Identity
    dst: _Identity
    comm_id: _Identity | None = None
    comm: tuple[tuple[float, ...], ...] | None = None


class MoiraiFile(msgspec.Struct):
    """One instance, however it was stored."""

    num_devices: Annotated[int, msgspec.Meta(ge=1, le=MAX_DEVICES)]
    device_mem: tuple[_Bytes, ...]
    ops: tuple[MoiraiOp, ...]
    edges: tuple[MoiraiEdge, ...]
    name: Annotated[str, msgspec.Meta(max_length=1_000)] = ""


def _accepts_json(path: Path, head: bytes) -> bool:
    return contains(path, head, b'"num_devices"', b'"ops"')


def _read_json(path: Path, options: ImportOptions) -> tuple[Graph, FileCosts]:
    return _build(decode(path, MoiraiFile), path.stem)


def _accepts_xls(path: Path, head: bytes) -> bool:
    return head.startswith(OLE2_MAGIC)


def _read_xls(path: Path, options: ImportOptions) -> tuple[Graph, FileCosts]:
    from weftline.papers.moirai.xls_file import read_sheet

    return _build(read_sheet(path), path.stem)


def _build(file: MoiraiFile, stem: str) -> tuple[Graph, FileCosts]:
    count = file.num_devices
    if len(file.device_mem) != count:
        raise InputError(f"device_mem has {len(file.device_mem)} entries for {count} devices", where="$.device_mem")
    position = numbered([op.id for op in file.ops], "op", "$.ops")
    times = _times(file.ops, count)
    tensors, matrices = _tensors(file, position)
    names = [f"op{op.id}" for op in file.ops]
    ops = [
        Op(name=name, kind="virtual" if op.virtual else "", weight_bytes=op.mem)
        for name, op in zip(names, file.ops, strict=True)
    ]
    graph = assemble(file.name or stem, ops, tensors)
    time = np.empty_like(times)
    time[[graph.index[name] for name in names]] = times
    rows = {matrix: row for row, matrix in enumerate(dict.fromkeys(matrices))}
    return graph, FileCosts(
        classes=tuple(DeviceClass(f"d{i}", "device", memory=memory) for i, memory in enumerate(file.device_mem)),
        time=time,
        transfer=np.array(list(rows), np.int64).reshape(len(rows), count, count),
        transfer_row=np.array([rows[matrix] for matrix in matrices], np.int32),
        transfers="per-edge",
        memory="static",
        source="Moirai file",
    )


def _times(ops: Sequence[MoiraiOp], count: int) -> NDArray[np.int64]:
    for i, op in enumerate(ops):
        if len(op.time) != count:
            raise InputError(f"{len(op.time)} times for {count} devices", where=f"$.ops[{i}].time")
    rows = [[_seconds(value, "time", f"$.ops[{i}]") for value in op.time] for i, op in enumerate(ops)]
    checked_total((max(row) for row in rows), "times of all ops")
    return np.array(rows, np.int64).reshape(len(ops), count)


def _tensors(file: MoiraiFile, position: dict[int, int]) -> tuple[list[Tensor], list[_Matrix]]:
    """One tensor per producer and matrix, with all consumers whose edge has that matrix."""
    free = ((0,) * file.num_devices,) * file.num_devices
    readers: dict[int, dict[_Matrix, list[int]]] = {}
    seen: set[tuple[int, int]] = set()
    for i, edge in enumerate(file.edges):
        where = f"$.edges[{i}]"
        for field, identity in (("src", edge.src), ("dst", edge.dst)):
            if identity not in position:
                raise InputError(f"{field} {identity} is not the id of an op", where=where)
        if edge.src == edge.dst:
            raise InputError(f"op {edge.src} is its own input", where=where, hint="remove the self-loop")
        if (edge.src, edge.dst) in seen:
            raise InputError(f"a second edge from {edge.src} to {edge.dst}", where=where, hint="merge the two edges")
        seen.add((edge.src, edge.dst))
        matrix = _matrix(edge, free, where)
        readers.setdefault(position[edge.src], {}).setdefault(matrix, []).append(position[edge.dst])
    tensors: list[Tensor] = []
    matrices: list[_Matrix] = []
    for source in sorted(readers):
        for port, (matrix, consumers) in enumerate(readers[source].items()):
            tensors.append(Tensor(f"op{file.ops[source].id}:{port}", source, tuple(consumers)))
            matrices.append(matrix)
    largest = {matrix: max(map(max, matrix)) for matrix in set(matrices)}
    checked_total((largest[m] * len(t.consumers) for m, t in zip(matrices, tensors, strict=True)), "transfer times")
    return tensors, matrices


def _matrix(edge: MoiraiEdge, free: _Matrix, where: str) -> _Matrix:
    if edge.comm is None:
        if edge.comm_id is None:
            return free
        raise InputError(f"comm is missing although comm_id is {edge.comm_id}", where=where)
    count = len(free)
    if len(edge.comm) != count or any(len(row) != count for row in edge.comm):
        raise InputError(f"comm is not a matrix of {count} x {count}", where=f"{where}.comm")
    matrix = tuple(tuple(_seconds(value, "comm", where) for value in row) for row in edge.comm)
    if any(matrix[device][device] for device in range(count)):
        raise InputError("comm is not 0 on the diagonal", where=f"{where}.comm", hint="a device sends itself nothing")
    if edge.comm_id is None and matrix != free:
        raise InputError("comm is not 0 although the edge is free (comm_id is null)", where=where)
    return matrix


def _seconds(value: float, what: str, where: str) -> int:
    return _nanoseconds(checked(value, what, where, MAX_QUANTITY / NANOSECONDS))


@lru_cache(maxsize=65_536)
def _nanoseconds(seconds: float) -> int:
    """Exact where the written number is a whole number of nanoseconds: `repr` gives the digits of the file back."""
    return int((Decimal(repr(seconds)) * NANOSECONDS).to_integral_value())


IMPORTERS = (
    Importer("moirai", "JSON of a Moirai instance with its own devices and costs", _accepts_json, _read_json),
    Importer("moirai-xls", "original .xls of a Moirai instance (first sheet)", _accepts_xls, _read_xls),
)
