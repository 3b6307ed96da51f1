"""The smallest .xls there is, BIFF8 inside OLE2, with one sheet: a seed for the reader of Moirai's workbooks."""

from __future__ import annotations

import struct
from collections.abc import Sequence

__all__ = ["small_sheet"]

SECTOR = 512
END_OF_CHAIN, FREE, FAT_SECTOR = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD


def small_sheet() -> bytes:
    """Four ops on two devices: a fork and a join."""
    rows: list[list[float | str | None]] = [
        ["task", "c_task", "dir_succ", "dir_succ_add", "p0", "p1", "pc00", "pc01", "pc10", "pc11", "mi", "m0", "m1"],
        [1.0, "2,3", "4,5", None, 0.014, 0.044, "0,0", "0.26,1.5", "0.29,0.1", "0,0", 1000.0, 14e6, 16e6],
        [4.0, 7.0, 9.0, None, 8.0, 9.0, 0.0, 0.26, 0.29, 0.0, 4000.0, None, None],
        [5.0, 8.0, 9.0, None, 0.3, 0.29999, 0.0, 0.1, 0.1, 0.0, 5000.0, None, None],
        [9.0, None, None, None, 1e-05, 2.0, None, None, None, None, 9000.0, None, None],
    ]
    return _container(_workbook(rows))


def _record(kind: int, payload: bytes) -> bytes:
    return struct.pack("<HH", kind, len(payload)) + payload


def _workbook(rows: Sequence[Sequence[float | str | None]]) -> bytes:
    begin = struct.pack("<HHHHII", 0x0600, 0x0005, 0x0DBB, 1996, 0, 6)
    name = b"Sheet1"
    end = _record(0x000A, b"")
    start = 4 + len(begin) + 4 + 8 + len(name) + len(end)  # where the sheet's stream starts
    stream = _record(0x0809, begin) + _record(0x0085, struct.pack("<IHBB", start, 0, len(name), 0) + name) + end
    stream += _record(0x0809, struct.pack("<HHHHII", 0x0600, 0x0010, 0x0DBB, 1996, 0, 6))
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            if isinstance(cell, str):
                stream += _record(0x0204, struct.pack("<HHHHB", i, j, 0, len(cell), 1) + cell.encode("utf-16-le"))
            elif cell is not None:
                stream += _record(0x0203, struct.pack("<HHHd", i, j, 0, cell))
    return stream + end


def _container(stream: bytes) -> bytes:
    """Sector 0 is the allocation table, sector 1 the directory, the rest the stream (too long for a mini stream)."""
    stream = stream.ljust(4096, b"\0")
    count = -(-len(stream) // SECTOR)
    table = [FAT_SECTOR, END_OF_CHAIN, *range(3, count + 2), END_OF_CHAIN]
    header = bytes.fromhex("d0cf11e0a1b11ae1") + bytes(16)
    header += struct.pack("<HHHHH", 0x3E, 3, 0xFFFE, 9, 6) + bytes(6)
    header += struct.pack("<IIIIIIIII", 0, 1, 1, 0, 4096, END_OF_CHAIN, 0, END_OF_CHAIN, 0)
    header += struct.pack("<109I", 0, *[FREE] * 108)
    directory = _entry("Root Entry", 5, child=1, start=END_OF_CHAIN, size=0)
    directory += _entry("Workbook", 2, child=FREE, start=2, size=len(stream))
    sectors = struct.pack("<128I", *table, *[FREE] * (128 - len(table)))
    return header + sectors + directory.ljust(SECTOR, b"\0") + stream.ljust(count * SECTOR, b"\0")


def _entry(name: str, kind: int, *, child: int, start: int, size: int) -> bytes:
    text = name.encode("utf-16-le")
    entry = text.ljust(64, b"\0") + struct.pack("<HBB", len(text) + 2, kind, 1)
    return entry + struct.pack("<III", FREE, FREE, child) + bytes(36) + struct.pack("<IQ", start, size)
