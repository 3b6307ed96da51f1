"""Moirai's sample instances, as JSON or as the original .xls: op times per device, memory, a transfer matrix per edge.

In: times read as seconds, memory in the file's unit, read as bytes. Out: the graph and its costs in nanoseconds, one
device class per device. Both forms become one `MoiraiFile`, so they give the same graph and the same costs.
Simplified: a tensor is what the edges of one op with equal matrices carry; sizes in bytes are unknown, hence 0. Times
are exact up to 15 significant digits, and finer than a nanosecond they are rounded.

The .xls: the first sheet, one op per row until the first empty `task`. Columns: task (op id), c_task (one id per costly
edge), dir_succ (successor ids), dir_succ_add (both; not needed), p<k> (seconds on device k), pc<a><b> (seconds from a
to b, one number per successor), mi (memory), m<k> (device memory, first row only). A cell with several numbers is text
with commas. An op with successors but no c_task is virtual: its edges are free.
"""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.importers.registry import DeviceClass, FileCosts, Importer, ImportOptions
from weftline.papers.cost_file import checked, checked_total, contains, decode, numbered, read_bytes
from weftline.units import MAX_QUANTITY

__all__ = ["IMPORTERS", "MoiraiEdge", "MoiraiFile", "MoiraiOp", "read_sheet"]

NS_PER_SECOND = 10**9
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
    return _nanoseconds(checked(value, what, where, MAX_QUANTITY / NS_PER_SECOND))


@lru_cache(maxsize=65_536)
def _nanoseconds(seconds: float) -> int:
    """Exact where the written number is a whole number of nanoseconds: `repr` gives the digits of the file back."""
    return int((Decimal(repr(seconds)) * NS_PER_SECOND).to_integral_value())


IMPORTERS = (
    Importer("moirai", "JSON of a Moirai instance with its own devices and costs", _accepts_json, _read_json),
    Importer("moirai-xls", "original .xls of a Moirai instance (first sheet)", _accepts_xls, _read_xls),
)


FIRST_COLUMNS = ("task", "c_task", "dir_succ", "dir_succ_add")
EMPTY_CELL, TEXT_CELL, NUMBER_CELL, BLANK_CELL = 0, 1, 2, 6  # xlrd's cell types
MAX_NUMBERS = 100_000  # in one cell

_NUMBER = re.compile(r"\s*\d{1,30}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,3})?\s*")


def read_sheet(path: Path) -> MoiraiFile:
    """Read the first sheet of a workbook."""
    rows = _cells(read_bytes(path))
    count = _device_count(rows)
    ops: list[MoiraiOp] = []
    edges: list[MoiraiEdge] = []
    for number in range(1, len(rows)):
        row = _Row(rows[number], number, _header(count))
        if row.is_empty("task"):
            break
        op, following = _op(row, count)
        ops.append(op)
        edges.extend(following)
    if not ops:
        raise InputError("the sheet has no ops", where="row 2")
    first = _Row(rows[1], 1, _header(count))
    memory = tuple(first.whole(f"m{device}") for device in range(count))
    return MoiraiFile(num_devices=count, device_mem=memory, ops=tuple(ops), edges=tuple(edges))


def _cells(data: bytes) -> list[list[tuple[int, Any]]]:
    """(type, value) of every cell. xlrd meets broken files with exceptions of many kinds: all mean a broken file."""
    import xlrd

    try:
        book = xlrd.open_workbook(file_contents=data, logfile=io.StringIO(), ragged_rows=True)
        sheet = book.sheet_by_index(0)
        return [
            [(cell.ctype, cell.value) for cell in sheet.row_slice(row, 0, sheet.row_len(row))]
            for row in range(sheet.nrows)
        ]
    except Exception as error:
        detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        raise InputError(f"not a readable .xls workbook: {detail[:200]}", hint="save it again as .xls") from error


def _header(count: int) -> list[str]:
    devices = range(count)
    times = [f"p{device}" for device in devices]
    transfers = [f"pc{a}{b}" for a in devices for b in devices]
    return [*FIRST_COLUMNS, *times, *transfers, "mi", *(f"m{device}" for device in devices)]


def _device_count(rows: list[list[tuple[int, Any]]]) -> int:
    titles = [str(value).strip() for _, value in rows[0]] if rows else []
    count = sum(re.fullmatch(r"p\d{1,3}", title) is not None for title in titles)
    expected = _header(count) if 0 < count <= 16 else _header(1)
    for column, (title, wanted) in enumerate(zip(titles + [""] * len(expected), expected, strict=False)):
        if title != wanted:
            raise InputError(
                f"column {column + 1} is {title[:40]!r} where {wanted!r} is expected",
                where="row 1",
                hint="a Moirai sheet has columns task, c_task, dir_succ, dir_succ_add, p.., pc.., mi, m..",
            )
    return count


class _Row:
    """One row, its cells by position: with more than ten devices the titles pc<a><b> are ambiguous."""

    def __init__(self, cells: list[tuple[int, Any]], number: int, header: list[str]) -> None:
        self.cells, self.number, self.header = cells, number, header

    def cell(self, column: int) -> tuple[int, Any]:
        return self.cells[column] if column < len(self.cells) else (EMPTY_CELL, "")

    def where(self, column: int) -> str:
        return f"row {self.number + 1}, column {self.header[column]}"

    def is_empty(self, title: str) -> bool:
        kind, value = self.cell(self.header.index(title))
        return kind in (EMPTY_CELL, BLANK_CELL) or (kind == TEXT_CELL and not value.strip())

    def numbers(self, column: int) -> tuple[float, ...]:
        """Every number in a cell; none if it is empty."""
        kind, value = self.cell(column)
        if kind in (EMPTY_CELL, BLANK_CELL) or (kind == TEXT_CELL and not value.strip()):
            return ()
        if kind == NUMBER_CELL:
            return (float(value),)
        parts = value.split(",", MAX_NUMBERS) if kind == TEXT_CELL else []
        if not parts or any(_NUMBER.fullmatch(part) is None for part in parts):
            raise InputError(f"{str(value)[:60]!r} is not a number or numbers with commas", where=self.where(column))
        return tuple(float(part) for part in parts)

    def one(self, column: int) -> float:
        """The only number in a cell."""
        values = self.numbers(column)
        if len(values) != 1:
            raise InputError(f"{len(values)} numbers where one is expected", where=self.where(column))
        return values[0]

    def whole(self, title: str) -> int:
        """The only number in a cell, a whole one (an id, a size)."""
        column = self.header.index(title)
        return _whole(self.one(column), self.where(column))

    def identities(self, title: str) -> tuple[int, ...]:
        """Ids in a cell."""
        column = self.header.index(title)
        return tuple(_whole(value, self.where(column)) for value in self.numbers(column))


def _whole(value: float, where: str) -> int:
    if not 0 <= value <= MAX_QUANTITY or value != int(value):
        raise InputError(f"{value} is not a whole number in 0..2^60", where=where)
    return int(value)


def _op(row: _Row, count: int) -> tuple[MoiraiOp, list[MoiraiEdge]]:
    """One row: the op and the edges that leave it."""
    identity = row.whole("task")
    successors = row.identities("dir_succ")
    transfers = row.identities("c_task")
    if transfers and len(transfers) != len(successors):
        raise InputError(
            f"{len(transfers)} c_task for {len(successors)} dir_succ", where=row.where(row.header.index("c_task"))
        )
    start = len(FIRST_COLUMNS)
    time = tuple(row.one(start + device) for device in range(count))
    op = MoiraiOp(id=identity, time=time, mem=row.whole("mi"), virtual=bool(successors) and not transfers)
    matrices = _matrices(row, start + count, count, len(transfers))
    if not transfers:
        return op, [MoiraiEdge(src=identity, dst=successor) for successor in successors]
    return op, [
        MoiraiEdge(src=identity, dst=successor, comm_id=transfer, comm=matrix)
        for successor, transfer, matrix in zip(successors, transfers, matrices, strict=True)
    ]


def _matrices(row: _Row, start: int, count: int, edges: int) -> list[tuple[tuple[float, ...], ...]]:
    """One matrix per costly edge, from the pc columns, each of which holds one number per edge."""
    columns = range(start, start + count * count)
    cells = [row.numbers(column) for column in columns]
    for column, cell in zip(columns, cells, strict=True):
        if len(cell) != edges:
            raise InputError(f"{len(cell)} numbers for {edges} c_task", where=row.where(column))
    return [
        tuple(tuple(cells[a * count + b][edge] for b in range(count)) for a in range(count)) for edge in range(edges)
    ]
