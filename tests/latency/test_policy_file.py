"""Files of weights: written and read back, and refused when anything is odd."""

import json
import os
from pathlib import Path

import numpy as np
import pytest

from weftline.errors import InputError
from weftline.latency.policy import SHIPPED, load_weights
from weftline.latency.policy import network as policy_file
from weftline.latency.policy.network import first_weights, read_arrays, shapes, write_arrays

SHAPES = {"a": (2, 3), "b": (4,)}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A good file."""
    arrays = {"b": np.arange(4, dtype=np.float32), "a": np.ones((2, 3), np.float32)}
    write_arrays(tmp_path / "weights.safetensors", arrays, {"seed": "7"})
    return tmp_path / "weights.safetensors"


def test_round_trip(path: Path) -> None:
    """Tests that arrays and words come back as they were."""
    arrays, words = read_arrays(path, SHAPES)
    assert arrays["b"].tolist() == [0, 1, 2, 3]
    assert arrays["a"].shape == (2, 3)
    assert words["seed"] == "7"


def test_other_tools_can_read_it(path: Path) -> None:
    """Tests that the library of the format reads the same numbers."""
    from safetensors.numpy import load

    found = load(path.read_bytes())
    assert found["b"].tolist() == [0, 1, 2, 3]
    assert found["a"].shape == (2, 3)


def test_every_cut_is_refused(path: Path) -> None:
    """Tests that a file that ends early is bad input, wherever it ends."""
    data = path.read_bytes()
    for length in range(len(data)):
        path.write_bytes(data[:length])
        with pytest.raises(InputError):
            read_arrays(path, SHAPES)


def _with_header(path: Path, change: dict[str, object]) -> None:
    data = path.read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    text = json.dumps({**header, **change}).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])


@pytest.mark.parametrize(
    "change",
    [
        {"__metadata__": {"format": "other", "version": "1"}},
        {"__metadata__": {"format": "weftline-policy", "version": "99"}},
        {"__metadata__": None},
        {"c": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
        {"a": {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24]}},
        {"a": {"dtype": "F64", "shape": [2, 3], "data_offsets": [0, 24]}},
        {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [-24, 0]}},
        {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [1000, 1024]}},
        {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, True]}},
        {"a": {"dtype": "F32", "shape": [2, 3]}},
        {"a": 3},
        {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [8, 32]}},
        {"a": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24], "more": 1}},
        {"__metadata__": {"format": "weftline-policy", "version": "1", "x": [[[]]]}},
        {"__metadata__": {"format": "weftline-policy", "version": "1", "x": "y" * 2**20}},
    ],
)
def test_odd_headers_are_refused(path: Path, change: dict[str, object]) -> None:
    """Tests that a file of something else, or with arrays elsewhere, is bad input."""
    _with_header(path, change)
    with pytest.raises(InputError):
        read_arrays(path, SHAPES)


def test_arrays_that_overlap_are_refused(path: Path) -> None:
    """Tests that two arrays cannot be the same bytes of the file while others belong to none."""
    data = path.read_bytes()
    _with_header(path, {"b": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}})
    with pytest.raises(InputError, match="each byte once"):
        read_arrays(path, SHAPES)
    length = int.from_bytes(data[:8], "little")
    text = data[8 : 8 + length].replace(b'"a":', b'"a":3,"a":', 1)
    path.write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    with pytest.raises(InputError, match="no JSON"):
        read_arrays(path, SHAPES)


@pytest.mark.parametrize("data", [b"", b"{}", b"\xff" * 64, (2).to_bytes(8, "little") + b"[]", b"PK\x03\x04" * 40])
def test_foreign_files_are_refused(path: Path, data: bytes) -> None:
    """Tests that what is no safetensors file is bad input."""
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"weights\.safetensors"):
        read_arrays(path, SHAPES)


def test_numbers_must_be_finite(path: Path) -> None:
    """Tests that a file with a broken number is refused."""
    write_arrays(path, {"a": np.full((2, 3), np.nan, np.float32), "b": np.zeros(4, np.float32)}, {})
    with pytest.raises(InputError, match="finite"):
        read_arrays(path, SHAPES)


def test_missing_file(tmp_path: Path) -> None:
    """Tests that a path that leads nowhere is bad input."""
    with pytest.raises(InputError, match="no such file"):
        load_weights(tmp_path / "nothing")


def test_shipped_weights_are_small_and_trained() -> None:
    """Tests that the weights of the package load, have another head than an untrained network, and fit in 5 MB."""
    assert SHIPPED.stat().st_size < 5 * 10**6
    weights = load_weights(SHIPPED)
    assert set(weights) == set(shapes()) == set(first_weights(0))
    assert np.abs(weights["op.last.weight"]).max() > 0


def test_paths_that_are_no_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that pipes, devices, long names and large files are bad input, and that nothing waits."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", "/dev/zero", tmp_path, "x" * 5000):
        with pytest.raises(InputError, match=r"regular file|too long"):
            load_weights(path)
    monkeypatch.setattr(policy_file, "MOST_BYTES", 1000)
    with pytest.raises(InputError, match="larger than"):
        load_weights(SHIPPED)
