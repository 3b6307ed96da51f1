"""Tests of inputs from files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from weftline.errors import InputError
from weftline.execute import arrays
from weftline.execute.arrays import read_arrays


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
    for name, says in (("none.npz", "cannot be read"), ("text.npz", "not an .npz"), ("object.npz", "not an .npz")):
        with pytest.raises(InputError, match=says):
            read_arrays(tmp_path / name)
    monkeypatch.setattr(arrays, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="more than"):
        read_arrays(tmp_path / "large.npz")
