"""Tests of the Moirai importer for .xls: on a workbook of our own always, on the published ones where present."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.data import present, published

from weftline.errors import InputError
from weftline.graph import Graph, check_graph
from weftline.importers.registry import FileCosts, ImportOptions
from weftline.papers.moirai.instance import IMPORTERS

PUBLISHED = published("moirai")
BOTH_FORMS = [path for path in PUBLISHED if path.with_suffix(".xls").exists()]

Cell = float | str | None
SECTOR = 512
END_OF_CHAIN, FREE, FAT_SECTOR = 0xFFFFFFFE, 0xFFFFFFFF, 0xFFFFFFFD


def write_xls(rows: Sequence[Sequence[Cell]]) -> bytes:
    """The smallest .xls there is, BIFF8 inside OLE2: its only sheet holds the rows; None leaves a cell out."""
    return _container(_workbook(rows))


def _record(kind: int, payload: bytes) -> bytes:
    return struct.pack("<HH", kind, len(payload)) + payload


def _workbook(rows: Sequence[Sequence[Cell]]) -> bytes:
    begin = struct.pack("<HHHHII", 0x0600, 0x0005, 0x0DBB, 1996, 0, 6)
    name = b"Sheet1"
    end = _record(0x000A, b"")
    start = 4 + len(begin) + 4 + 8 + len(name) + len(end)  # where the sheet's stream starts
    globals_ = _record(0x0809, begin)
    globals_ += _record(0x0085, struct.pack("<IHBB", start, 0, len(name), 0) + name) + end
    sheet = _record(0x0809, struct.pack("<HHHHII", 0x0600, 0x0010, 0x0DBB, 1996, 0, 6))
    for i, row in enumerate(rows):
        for j, cell in enumerate(row):
            if isinstance(cell, str):
                sheet += _record(0x0204, struct.pack("<HHHHB", i, j, 0, len(cell), 1) + cell.encode("utf-16-le"))
            elif cell is not None:
                sheet += _record(0x0203, struct.pack("<HHHd", i, j, 0, cell))
    return globals_ + sheet + end


def _container(stream: bytes) -> bytes:
    """Sector 0 is the allocation table, sector 1 the directory, the rest the stream (too long for a mini stream)."""
    stream = stream.ljust(4096, b"\0")
    count = -(-len(stream) // SECTOR)
    table = [FAT_SECTOR, END_OF_CHAIN, *range(3, count + 2), END_OF_CHAIN]
    assert len(table) <= SECTOR // 4, "one sector of table is enough for a test"
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


def small() -> dict[str, Any]:
    """A virtual source, a fork with two different matrices, and a join."""
    near, far, zero = [[0.0, 0.25926], [0.28772, 0.0]], [[0.0, 1.5], [0.1, 0.0]], [[0.0, 0.0], [0.0, 0.0]]
    times = {0: [0.0, 0.0], 1: [0.014, 0.044], 4: [8.0, 9.0], 5: [0.3, 0.29999], 9: [1e-05, 2.0]}
    edges = [(0, 1, None, zero), (1, 4, 2, near), (1, 5, 3, far), (4, 9, 7, near), (5, 9, 8, zero)]
    return {
        "name": "small",
        "num_devices": 2,
        "device_mem": [14, 16],
        "ops": [{"id": i, "time": time, "mem": i * 1000, "virtual": i == 0} for i, time in times.items()],
        "edges": [{"src": a, "dst": b, "comm_id": identity, "comm": comm} for a, b, identity, comm in edges],
    }


def sheet(instance: dict[str, Any]) -> list[list[Cell]]:
    """The rows of the .xls form: several numbers in a cell are text, device memory stands in the first row."""
    count = instance["num_devices"]
    devices = range(count)
    header = ["task", "c_task", "dir_succ", "dir_succ_add", *(f"p{k}" for k in devices)]
    header += [*(f"pc{a}{b}" for a in devices for b in devices), "mi", *(f"m{k}" for k in devices)]
    rows: list[list[Cell]] = [list(header)]
    for number, each in enumerate(instance["ops"]):
        out = [e for e in instance["edges"] if e["src"] == each["id"]]
        costly = [e for e in out if e["comm_id"] is not None]
        row = [float(each["id"]), joined([e["comm_id"] for e in costly]), joined([e["dst"] for e in out]), None]
        row += each["time"]
        row += [joined([e["comm"][a][b] for e in costly]) for a in devices for b in devices]
        row += [float(each["mem"]), *(map(float, instance["device_mem"]) if number == 0 else [None] * count)]
        rows.append(row)
    return [*rows, [None] * len(header), ["a note under the table"]]


def joined(values: list[Any]) -> float | str | None:
    if len(values) == 1:
        return float(values[0])
    return ",".join(map(str, values)) or None


def write(folder: Path, instance: dict[str, Any]) -> Path:
    path = folder / "small.json"
    path.write_text(json.dumps(instance))
    return path


def write_sheet(folder: Path, rows: list[list[Cell]]) -> Path:
    path = folder / "small.xls"
    path.write_bytes(write_xls(rows))
    return path


def read(path: Path) -> tuple[Graph, FileCosts]:
    with path.open("rb") as file:
        head = file.read(4096)
    (importer,) = (importer for importer in IMPORTERS if importer.accepts(path, head))
    graph, costs = importer.read(path, ImportOptions())
    assert costs is not None
    return graph, costs


def assert_same(left: tuple[Graph, FileCosts], right: tuple[Graph, FileCosts]) -> None:
    assert left[0] == right[0]
    for name in FileCosts.__dataclass_fields__:
        assert np.array_equal(getattr(left[1], name), getattr(right[1], name)), name


@pytest.mark.parametrize("instance", [None, *BOTH_FORMS], ids=lambda p: "own" if p is None else p.stem)
def test_sheet_equals_json(tmp_path: Path, instance: Path | None) -> None:
    """Tests that the .xls and the .json of one instance give the same graph and the same costs."""
    if instance is None:
        assert_same(read(write(tmp_path, small())), read(write_sheet(tmp_path, sheet(small()))))
    else:
        assert_same(read(instance), read(instance.with_suffix(".xls")))


@pytest.mark.parametrize("instance", [None, *PUBLISHED], ids=lambda p: "own" if p is None else p.stem)
def test_written_sheet_equals_json(tmp_path: Path, instance: Path | None) -> None:
    """Tests that an instance written as .xls, with every number of its JSON, is read back the same."""
    raw = json.loads(present(instance).read_text()) if instance else small()
    raw["edges"] = [e for e in raw["edges"] if e["src"] < 60 and e["dst"] < 60]
    raw["ops"] = [o for o in raw["ops"] if o["id"] < 60]
    raw["name"] = "small"
    assert_same(read(write(tmp_path, raw)), read(write_sheet(tmp_path, sheet(raw))))


BAD_CELLS: dict[str, tuple[int, int, float | str | None, str]] = {
    "title": (0, 4, "time0", "'time0' where 'p0'"),
    "task": (2, 0, "one", "row 3, column task"),
    "half a task": (2, 0, 1.5, "row 3, column task.*whole number"),
    "missing time": (2, 4, None, "row 3, column p0.*0 numbers"),
    "two times": (2, 4, "1,2", "row 3, column p0.*2 numbers"),
    "text time": (2, 4, "fast", "row 3, column p0"),
    "negative time": (2, 4, -1.0, "time is negative"),
    "c_task count": (2, 1, "2,3,4", "3 c_task for 2 dir_succ"),
    "pc count": (2, 7, "1,2,3", "row 3, column pc01.*3 numbers for 2"),
    "pc of a free edge": (1, 7, 1.0, "row 2, column pc01"),
    "missing mi": (2, 10, None, "row 3, column mi"),
    "missing m1": (1, 12, None, "row 2, column m1"),
    "unknown successor": (2, 2, "4,77", "dst 77"),
    "duplicate task": (2, 0, 0.0, "used twice"),
    "no ops": (1, 0, None, "no ops"),
}


@pytest.mark.parametrize("case", BAD_CELLS)
def test_bad_cells(tmp_path: Path, case: str) -> None:
    """Tests that each wrong cell of a sheet has an error that says what is wrong and in which cell."""
    row, column, value, message = BAD_CELLS[case]
    rows = sheet(small())
    rows[row][column] = value
    with pytest.raises(InputError, match=message):
        read(write_sheet(tmp_path, rows))


def test_not_a_workbook(tmp_path: Path) -> None:
    """Tests that an OLE2 file that holds no workbook is refused."""
    path = tmp_path / "word.xls"
    path.write_bytes(bytes.fromhex("d0cf11e0a1b11ae1") + bytes(600))
    with pytest.raises(InputError, match=r"not a readable \.xls"):
        read(path)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("sheets")


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_damaged_files(folder: Path, data: st.DataObject) -> None:
    """Tests that a truncated or altered workbook is either read into a valid graph or refused with an InputError."""
    good = write_xls(sheet(small()))
    content = bytearray(good[: data.draw(st.integers(8, len(good)))] if data.draw(st.booleans()) else good)
    for _ in range(data.draw(st.integers(0, 4))):
        content[data.draw(st.integers(8, 2600)) % len(content)] ^= 1 << data.draw(st.integers(0, 7))
    path = folder / "damaged.xls"
    path.write_bytes(content)
    importer = IMPORTERS[1]
    if importer.accepts(path, bytes(content[:4096])):
        try:
            graph, costs = importer.read(path, ImportOptions())
        except InputError:
            return
        assert costs is not None
        assert costs.time.shape == (len(check_graph(graph).ops), len(costs.classes))
