"""Detection of ONNX files by their first bytes."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from weftline.importers.onnx.scope import looks_like_onnx

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"


def _model(producer: str = "test", nodes: int = 1) -> bytes:
    made = [helper.make_node("Relu", [f"t{i}"], [f"t{i + 1}"]) for i in range(nodes)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        made, "g", [value("t0", TensorProto.FLOAT, [1])], [value(f"t{nodes}", TensorProto.FLOAT, [1])]
    )
    return bytes(helper.make_model(graph, producer_name=producer).SerializeToString())


@pytest.mark.parametrize("path", sorted(LIGHT.glob("*.onnx")), ids=lambda path: path.stem)
def test_real_models_are_recognised(path: Path) -> None:
    """Tests that models from several exporters are recognised by their head."""
    assert looks_like_onnx(path.read_bytes()[:4096])


@pytest.mark.parametrize("nodes", [1, 5, 100, 1000])
@pytest.mark.parametrize("producer", ["", "pytorch", "Ünïcode " * 600])
def test_made_models_are_recognised(nodes: int, producer: str) -> None:
    """Tests that long producer names and small or large graphs do not hide a model."""
    assert looks_like_onnx(_model(producer, nodes)[:4096])


def test_head_cut_anywhere() -> None:
    """Tests that a head that ends in the middle of any field after the first two is still recognised."""
    data = _model("pytorch", 3)
    start = data.index(b"pytorch")
    assert all(looks_like_onnx(data[:end]) for end in range(start, len(data)))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x08",
        b"\x08\x07",
        b'{"format": "weftline-graph"}',
        b"<?xml version='1.0'?><net/>",
        b"PK\x03\x04" + bytes(40),
        b"\x80\x04\x95" + bytes(40),
        b"\x7fELF\x02\x01\x01",
        b"\x08\x00\x12\x01a",
        b"\x08\xff\xff\xff\x7f\x12\x01a",
        b"\x08\x07\x12\x02\xff\xfe\x3a\x00",
        b"\x08\x07\x0d\x00\x00\x00\x00",
    ],
)
def test_other_files_are_not(data: bytes) -> None:
    """Tests that text, archives, pickles and protobuf of another kind are refused."""
    assert not looks_like_onnx(data)


@given(st.binary(max_size=200))
def test_never_raises(data: bytes) -> None:
    """Tests that the answer to any bytes is yes or no, and that yes needs the field of the IR version."""
    assert looks_like_onnx(data) in (True, False)
    assert not looks_like_onnx(data) or b"\x08" in data


@given(st.text(min_size=1, max_size=300))
def test_text_is_never_onnx(text: str) -> None:
    """Tests that no text without control characters is taken for a model."""
    printable = "".join(char for char in text if char.isprintable() or char in "\r\n\t")
    assert not looks_like_onnx(printable.encode("utf-8", "ignore"))
