"""Tests of inputs from files."""

from __future__ import annotations

import io
import os
import zipfile
from pathlib import Path

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


def _npy(shape: tuple[int, ...], data: bytes = b"") -> bytes:
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"shape": shape, "fortran_order": False, "descr": "<f4"})
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
