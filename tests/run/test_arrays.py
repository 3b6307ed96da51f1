"""Tests of inputs from files."""

from __future__ import annotations

import io
import os
import resource
import struct
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weftline.errors import InputError
from weftline.run import inputs as arrays
from weftline.run.inputs import read_arrays


def test_arrays_come_back(tmp_path: Path) -> None:
    """Tests names, types and values."""
    np.savez(tmp_path / "x.npz", a=np.arange(3), b=np.ones((2, 2), np.float32))
    found = read_arrays(tmp_path / "x.npz")
    assert sorted(found) == ["a", "b"]
    assert found["a"].tolist() == [0, 1, 2]
    assert found["b"].dtype == np.float32


def test_what_is_no_input_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests missing files, other files, pickled objects, and archives that are too large."""
    (tmp_path / "text.npz").write_text("no archive")
    np.savez(tmp_path / "object.npz", a=np.array([{}], dtype=object))
    np.savez(tmp_path / "large.npz", a=np.zeros(1000))
    for name, says in (("none.npz", "no such file"), ("text.npz", "not an .npz"), ("object.npz", "not an .npz")):
        with pytest.raises(InputError, match=says):
            read_arrays(tmp_path / name)
    monkeypatch.setattr(arrays, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="more than"):
        read_arrays(tmp_path / "large.npz")


def _npy(shape: tuple[int, ...], data: bytes = b"", descr: object = "<f4") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": descr})
    return file.getvalue() + data


def _archive(content: bytes, name: str = "a.npy", method: int = zipfile.ZIP_STORED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        archive.writestr(name, content)
    return file.getvalue()


def _changed(data: bytes, local: int, central: int, value: int) -> bytes:
    """Change one byte of the entry's two headers."""
    changed = bytearray(data)
    changed[local] = changed[data.index(b"PK\x01\x02") + central] = value
    return bytes(changed)


def _scrambled(data: bytes) -> bytes:
    """Overwrite what is compressed, behind a local header of 30 bytes and a name of 5."""
    return data[:35] + b"\xff" * (data.index(b"PK\x01\x02") - 35) + data[data.index(b"PK\x01\x02") :]


PLAIN = _archive(_npy((2,), bytes(8)))


@pytest.mark.parametrize(
    "data",
    [
        _archive(_npy((10**10,))),
        _archive(_npy((10**30,))),
        _archive(_npy((10**30, 0))),
        _archive(_npy((-1,), bytes(8))),
        _archive(_npy((3,), bytes(8))),
        _archive(b"text", "readme.txt"),
        _archive(b"", "folder/"),
        _archive(b"\x93NUMPY\x09\x00" + bytes(100)),
        _scrambled(_archive(_npy((2,), bytes(8)), method=zipfile.ZIP_DEFLATED)),
        _scrambled(_archive(_npy((2,), bytes(8)), method=zipfile.ZIP_LZMA)),
        _scrambled(_archive(_npy((2,), bytes(8)), method=zipfile.ZIP_BZIP2)),
        _changed(PLAIN, 6, 8, 1),
        _changed(PLAIN, 8, 10, 77),
        PLAIN[:60],
    ],
    ids=[
        "huge", "absurd", "absurd and empty", "negative", "too short", "text", "folder", "unknown version",
        "broken deflate", "broken lzma", "broken bzip2", "encrypted", "unknown method", "cut off",
    ],
)  # fmt: skip
def test_archives_that_lie(data: bytes, tmp_path: Path) -> None:
    """Tests shapes without values, members that are no arrays, broken compression, encryption, and unknown methods."""
    path = tmp_path / "x.npz"
    path.write_bytes(PLAIN)
    assert read_arrays(path)["a"].tolist() == [0, 0]
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"x\.npz: (is not an \.npz|cannot be read)"):
        read_arrays(path)


def test_arrays_from_a_pipe(tmp_path: Path) -> None:
    """Tests that a pipe is an error instead of a long wait."""
    os.mkfifo(tmp_path / "x.npz")
    with pytest.raises(InputError, match="not a regular file"):
        read_arrays(tmp_path / "x.npz")


def _claiming(data: bytes, size: int) -> bytes:
    """The only member says of itself that it has so many bytes."""
    changed, central = bytearray(data), data.index(b"PK\x01\x02")
    changed[22:26] = changed[central + 24 : central + 28] = struct.pack("<I", size)
    return bytes(changed)


def _many(count: int) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for number in range(count):
            archive.writestr(zipfile.ZipInfo(f"{number}.npy"), b"")
    return file.getvalue()


HEADER = _npy((2,), bytes(8))


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (_claiming(_archive(HEADER + bytes(2**26), method=zipfile.ZIP_BZIP2), len(HEADER)), "packed in another way"),
        (_claiming(_archive(HEADER + bytes(2**26), method=zipfile.ZIP_LZMA), len(HEADER)), "packed in another way"),
        (_claiming(_archive(_npy((2**29,)), method=zipfile.ZIP_DEFLATED), 2**31 + 128), "larger than its bytes can be"),
        (_claiming(_archive(_npy((2**29,))), 2**31 + 128), "larger than its bytes can be"),
        (_many(20_000), "list of its members is absurdly long"),
        (_archive(_npy((10**9,), descr="|S0")), "no plain numbers or texts"),
        (_archive(_npy((10**9,), descr=[("a", "<U0")])), "no plain numbers or texts"),
        (_archive(_npy((4,), bytes(64), descr=("<f4", (4,)))), "no plain numbers or texts"),
        (_archive(_npy((2**24 + 1,), bytes(2**24 + 1), descr="|S1")), "more than 16777216 texts"),
        (_archive(_npy((-1, -2), bytes(8))), "shorter than its shape says"),
        (_archive(_archive(HEADER)), "is not an .npz"),
    ],
    ids=[
        "bzip2 bomb", "lzma bomb", "deflated claim", "stored claim", "many members", "elements of no size",
        "fields of no size", "arrays in arrays", "texts", "negative twice", "nested",
    ],
)  # fmt: skip
def test_archives_that_would_fill_the_memory(data: bytes, says: str, tmp_path: Path) -> None:
    """Tests that they are refused before anything is unpacked, or made of what they say."""
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(InputError, match=says):
        read_arrays(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**15  # KiB


def test_what_numpy_writes_is_read(tmp_path: Path) -> None:
    """Tests zeros, which deflate makes a thousand times smaller, large arrays, and texts."""
    made: dict[str, Any] = {
        "zeros": np.zeros((1000, 1000)),
        "text": np.array(["a", "bc"]),
        "bytes": np.array([b"x"]),
        "one": np.ones(()),
    }
    np.savez_compressed(tmp_path / "c.npz", **made)
    np.savez(tmp_path / "s.npz", **made)
    for name in ("c.npz", "s.npz"):
        found = read_arrays(tmp_path / name)
        assert all((found[key] == value).all() and found[key].dtype == value.dtype for key, value in made.items())


def test_a_file_that_becomes_a_pipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that nobody waits for a pipe that takes the file's place after somebody has looked at it."""
    path = tmp_path / "x.npz"
    path.write_bytes(PLAIN)
    looked = Path.is_file

    def look(self: Path) -> bool:
        found = looked(self)
        if self == path and found:
            path.unlink()
            os.mkfifo(path)
        return found

    monkeypatch.setattr(Path, "is_file", look)
    path.is_file()
    with pytest.raises(InputError, match="not a regular file"):
        read_arrays(path)
