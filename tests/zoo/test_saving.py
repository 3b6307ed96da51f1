"""Models to files: one file, or two when the weights are large; whole or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from tests.zoo.conftest import Run

from weftline import zoo
from weftline.errors import InputError
from weftline.files import write_atomically


def test_one_file(tmp_path: Path) -> None:
    """Tests that a saved model is read back unchanged and leaves nothing else behind."""
    model = zoo.build("bert", size="small")
    zoo.save(model, tmp_path / "bert.onnx")
    assert onnx.load(tmp_path / "bert.onnx") == model
    assert [path.name for path in tmp_path.iterdir()] == ["bert.onnx"]


def test_large_weights_beside_the_model(tmp_path: Path, run: Run) -> None:
    """Tests that with weights in a second file the model is small, valid, and computes the same."""
    model = zoo.build("swin", size="small")
    before = model.SerializeToString(deterministic=True)
    path = tmp_path / "swin.onnx"
    zoo.save(model, path, inside=10_000)
    assert model.SerializeToString(deterministic=True) == before
    assert sorted(file.name for file in tmp_path.iterdir()) == ["swin.onnx", "swin.onnx.weights"]
    assert path.stat().st_size < len(before) / 2
    onnx.checker.check_model(str(path), full_check=True)
    assert list(onnx.load(path).graph.initializer) != []
    inputs = zoo.example_inputs(model)
    np.testing.assert_array_equal(run(str(path), inputs)["logits"], run(model, inputs)["logits"])


def test_without_weights(tmp_path: Path) -> None:
    """Tests that a model of 13 G parameters is a small file that can be read without its weights."""
    path = tmp_path / "gpt.onnx"
    zoo.save(zoo.build("gpt2", size="13b", weights=False), path)
    assert path.stat().st_size < 4_000_000
    assert len(onnx.load(path, load_external_data=False).graph.node) > 1000


def test_a_broken_write_leaves_the_old_file(tmp_path: Path) -> None:
    """Tests that when writing stops half-way the old file stays and the half one goes."""
    path = tmp_path / "model.onnx"
    path.write_bytes(b"old")

    def chunks() -> Iterator[bytes]:
        yield b"new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, chunks())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_no_such_folder(tmp_path: Path) -> None:
    """Tests that a path that cannot be written is an input error that names it."""
    with pytest.raises(InputError, match=r"missing.*model\.onnx: cannot be written"):
        zoo.save(zoo.build("unet", size="small"), tmp_path / "missing" / "model.onnx")
