"""The original .xls of a Moirai instance -> `MoiraiFile`: the first sheet, one op per row until the first empty `task`.

Columns: task (op id), c_task (one id per costly edge), dir_succ (successor ids), dir_succ_add (both; not needed),
p<k> (seconds on device k), pc<a><b> (seconds from a to b, one number per successor), mi (memory), m<k> (device memory,
first row only). A cell with several numbers is text with commas. An op with successors but no c_task is virtual: its
edges are free.
"""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

from weftline.errors import InputError
from weftline.papers.formats.cost_file import read_bytes
from weftline.papers.moirai.json_file import MoiraiEdge, MoiraiFile, MoiraiOp
from weftline.units import MAX_QUANTITY

__all__ = ["read_sheet"]

FIRST_COLUMNS = ("task", "c_task", "dir_succ", "dir_succ_add")
EMPTY, TEXT, NUMBER, BLANK = 0, 1, 2, 6  # xlrd's cell types
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
        return self.cells[column] if column < len(self.cells) else (EMPTY, "")

    def where(self, column: int) -> str:
        return f"row {self.number + 1}, column {self.header[column]}"

    def is_empty(self, title: str) -> bool:
        kind, value = self.cell(self.header.index(title))
        return kind in (EMPTY, BLANK) or (kind == TEXT and not value.strip())

    def numbers(self, column: int) -> tuple[float, ...]:
        """Every number in a cell; none if it is empty."""
        kind, value = self.cell(column)
        if kind in (EMPTY, BLANK) or (kind == TEXT and not value.strip()):
            return ()
        if kind == NUMBER:
            return (float(value),)
        parts = value.split(",", MAX_NUMBERS) if kind == TEXT else []
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
