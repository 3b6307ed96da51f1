"""The flop table against formulas worked out by hand."""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, defs, helper
from onnxruntime import InferenceSession

from weftline.graph import Op
from weftline.importers.onnx.model import graph_of_model
from weftline.importers.onnx.work import FLOPS
from weftline.importers.registry import ImportOptions

FLOAT, INT64, UINT8, INT8 = TensorProto.FLOAT, TensorProto.INT64, TensorProto.UINT8, TensorProto.INT8
MICROSOFT = "com.microsoft"


def _op(
    kind: str, shapes: list[Any], outputs: int = 1, elements: Any = FLOAT, domain: str = "", **attributes: Any
) -> Op:
    """One node whose inputs are all inputs of the model."""
    each = elements if isinstance(elements, list) else [elements] * len(shapes)
    names = ["" if shape is None else f"i{index}" for index, shape in enumerate(shapes)]
    made = [f"o{index}" for index in range(outputs)]
    node = helper.make_node(kind, names, made, domain=domain, **attributes)
    given = zip(names, each, shapes, strict=True)
    inputs = [helper.make_tensor_value_info(name, element, shape) for name, element, shape in given if name]
    ends = [helper.make_tensor_value_info(name, 0, None) for name in made]
    opsets = [helper.make_opsetid("", 23), helper.make_opsetid(MICROSOFT, 1)]
    model = helper.make_model(helper.make_graph([node], "g", inputs, ends), opset_imports=opsets)
    return graph_of_model(model, ImportOptions()).ops[0]


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "flops"),
    [
        ("Conv", [(1, 8, 10, 10), (16, 8, 3, 3)], {}, 2 * 16 * 8 * 8 * 8 * 9),
        ("Conv", [(2, 8, 10, 10), (16, 8, 3, 3), (16,)], {"pads": [1] * 4, "strides": [2, 2]}, 2 * 2 * 16 * 25 * 72),
        ("Conv", [(1, 8, 10, 10), (8, 1, 3, 3)], {"group": 8, "pads": [1] * 4}, 2 * 8 * 100 * 9),
        ("Conv", [(1, 4, 20), (6, 4, 5)], {}, 2 * 6 * 16 * 20),
        ("ConvTranspose", [(1, 8, 5, 5), (8, 4, 3, 3)], {"strides": [2, 2]}, 2 * 8 * 25 * 4 * 9),
        ("MatMul", [(5, 7), (7, 3)], {}, 2 * 5 * 7 * 3),
        ("MatMul", [(4, 1, 5, 7), (6, 7, 3)], {}, 2 * 4 * 6 * 5 * 7 * 3),
        ("MatMul", [(7,), (7, 3)], {}, 2 * 7 * 3),
        ("MatMul", [(7,), (7,)], {}, 2 * 7),
        ("Gemm", [(5, 7), (3, 7), (3,)], {"transB": 1}, 2 * 5 * 7 * 3),
        ("Gemm", [(7, 5), (7, 3)], {"transA": 1}, 2 * 5 * 7 * 3),
        ("Einsum", [(4, 5, 7), (4, 7, 3)], {"equation": "bij,bjk->bik"}, 2 * 4 * 5 * 7 * 3),
        ("Einsum", [(4, 6, 5, 7), (7, 3)], {"equation": "...ij, jk -> ...ik"}, 2 * 4 * 6 * 5 * 7 * 3),
        ("Einsum", [(5, 7)], {"equation": "ij->i"}, 35),
        ("MaxPool", [(1, 4, 8, 8)], {"kernel_shape": [2, 2], "strides": [2, 2]}, 4 * 16 * 4),
        ("AveragePool", [(1, 4, 8, 8)], {"kernel_shape": [3, 3], "pads": [1] * 4}, 4 * 64 * 9),
        ("GlobalAveragePool", [(1, 4, 8, 8)], {}, 4 * 64),
        ("BatchNormalization", [(2, 4, 8), (4,), (4,), (4,), (4,)], {}, 2 * 64),
        ("LayerNormalization", [(2, 8), (8,)], {}, 8 * 16),
        ("InstanceNormalization", [(2, 4, 8), (4,), (4,)], {}, 8 * 64),
        ("RMSNormalization", [(2, 8), (8,)], {}, 5 * 16),
        ("LRN", [(1, 8, 4, 4)], {"size": 5}, 15 * 128),
        ("Softmax", [(2, 10)], {}, 100),
        ("Relu", [(2, 10)], {}, 20),
        ("Add", [(2, 10), (10,)], {}, 20),
        ("Add", [(2, 1), (1, 10)], {}, 20),
        ("Sum", [(2, 10), (2, 10), (2, 10)], {}, 40),
        ("Erf", [(2, 10)], {}, 80),
        ("Gelu", [(2, 10)], {}, 160),
        ("ReduceMean", [(2, 10)], {}, 20),
        ("ReduceSumSquare", [(2, 10)], {}, 40),
        ("CumSum", [(2, 10), ()], {}, 20),
        ("Transpose", [(2, 10)], {}, 0),
        ("Concat", [(2, 10), (3, 10)], {"axis": 0}, 0),
        ("Resize", [(1, 2, 4, 4), None, (4,)], {"mode": "nearest"}, 0),
        ("NonZero", [(16,)], {}, 16 * 4),
        ("LSTM", [(6, 2, 5), (1, 28, 5), (1, 28, 7)], {"hidden_size": 7}, 12 * (2 * 28 * 12 + 30 * 7)),
        ("GRU", [(6, 2, 5), (2, 21, 5), (2, 21, 7)], {"hidden_size": 7, "direction": "bidirectional"},
         12 * (2 * 2 * 21 * 12 + 25 * 14)),
        ("Attention", [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4)], {}, 2 * 3 * 5 * 7 * (2 * 8 + 2 * 4 + 5)),
        ("Attention", [(2, 5, 24), (2, 7, 24), (2, 7, 12)], {"q_num_heads": 3, "kv_num_heads": 3},
         2 * 3 * 5 * 7 * (2 * 8 + 2 * 4 + 5)),
    ],
)  # fmt: skip
def test_standard_kinds(kind: str, shapes: list[Any], attributes: dict[str, Any], flops: int) -> None:
    """Tests one kind against its formula."""
    elements: Any = [INT64 if shape in ((), (4,)) and kind in ("CumSum", "Resize") else FLOAT for shape in shapes]
    assert _op(kind, shapes, elements=elements, **attributes).flops == flops


@pytest.mark.parametrize(
    ("kind", "shapes", "attributes", "flops"),
    [
        ("Attention", [(2, 5, 24), (24, 72), (72,)], {"num_heads": 3},
         2 * 10 * 24 * 72 + 2 * 3 * 5 * 5 * (2 * 8 + 2 * 8 + 5)),
        ("MultiHeadAttention", [(2, 5, 24), (2, 7, 24), (2, 7, 24)], {"num_heads": 3}, 2 * 3 * 5 * 7 * (16 + 16 + 5)),
        ("GroupQueryAttention", [(1, 5, 24), (1, 5, 8), (1, 5, 8)], {"num_heads": 3, "kv_num_heads": 1},
         3 * 5 * 5 * (16 + 16 + 5)),
        ("FusedMatMul", [(4, 7, 5), (4, 3, 7)], {"transA": 1, "transB": 1}, 2 * 4 * 5 * 7 * 3),
        ("MatMulNBits", [(2, 5, 64), (32, 2, 16), (64,)], {"K": 64, "N": 32, "bits": 4, "block_size": 32},
         2 * 10 * 64 * 32),
        ("SkipLayerNormalization", [(2, 8), (2, 8), (8,)], {}, 9 * 16),
        ("FastGelu", [(2, 8)], {}, 8 * 16),
        ("BiasGelu", [(2, 8), (8,)], {}, 8 * 16),
        ("QuickGelu", [(2, 8)], {}, 6 * 16),
        ("FusedConv", [(1, 8, 10, 10), (16, 8, 3, 3)], {"activation": "Relu"}, 2 * 16 * 64 * 72),
        ("DynamicQuantizeLSTM", [(6, 2, 5), (1, 5, 28), (1, 7, 28)], {"hidden_size": 7}, 12 * (2 * 28 * 12 + 30 * 7)),
        ("CDist", [(3, 4), (5, 4)], {}, 3 * 15 * 4),
        ("NhwcMaxPool", [(1, 8, 8, 4)], {"kernel_shape": [2, 2], "strides": [2, 2]}, 4 * 16 * 4),
        ("NhwcConv", [(1, 10, 10, 8), (16, 3, 3, 8)], {}, 2 * 16 * 64 * 72),
        ("ConvTransposeWithDynamicPads", [(1, 8, 5, 5), (8, 4, 3, 3)], {"strides": [2, 2]}, 2 * 8 * 25 * 4 * 9),
        ("PackedAttention", [(5, 8), (8, 24), (24,), (2, 3), (3,)], {"num_heads": 2},
         2 * 5 * 8 * 24 + 5 * 2 * 3 * (8 + 8 + 5)),
        ("PackedMultiHeadAttention", [(5, 8), (5, 8), (5, 8), None, (2, 3), (3,)], {"num_heads": 2},
         5 * 2 * 3 * (8 + 8 + 5)),
        ("LongformerAttention", [(1, 4, 8), (8, 24), (24,)], {"num_heads": 2, "window": 2},
         2 * 4 * 8 * 24 + 4 * 2 * 5 * (8 + 8 + 5)),
        ("DecoderMaskedMultiHeadAttention", [(2, 1, 24)] * 3 + [None, None] + [(2, 3, 6, 8)] * 2, {"num_heads": 3},
         2 * 3 * 7 * (16 + 16 + 5)),
        ("SparseAttention", [(1, 3, 32), (1, 3, 16), (1, 3, 16), (1, 2, 32, 8), (1, 2, 32, 8)],
         {"num_heads": 4, "kv_num_heads": 2}, 4 * 3 * 32 * (16 + 16 + 5)),
        ("GatedRelativePositionBias", [(2, 3, 8), (8,), (1, 2, 3, 3), (4, 8), (8,), (1, 2, 1, 1)], {"num_heads": 2},
         2 * 48 * 8 + 3 * 36),
        ("RestorePadding", [(5, 8), (2, 3)], {}, 0),
        ("Inverse", [(2, 3, 3)], {}, 2 * 18 * 3),
        ("NoSuchKind", [(2, 8)], {}, 16),
    ],
)  # fmt: skip
def test_fused_kinds(kind: str, shapes: list[Any], attributes: dict[str, Any], flops: int) -> None:
    """Tests the fused kinds that ONNX Runtime's optimiser writes."""
    assert _op(kind, shapes, domain=MICROSOFT, **attributes).flops == flops


def test_embedding_normalization() -> None:
    """Tests the fused embedding: ten flops per element of what it makes."""
    ids = [INT64, INT64, FLOAT, FLOAT, FLOAT, FLOAT, FLOAT]
    shapes = [(2, 5), (2, 5), (100, 8), (50, 8), (2, 8), (8,), (8,)]
    op = _op("EmbedLayerNormalization", shapes, outputs=2, elements=ids, domain=MICROSOFT)
    assert op.flops == 10 * 2 * 5 * 8


@pytest.mark.parametrize(
    ("kind", "shapes", "elements", "flops"),
    [
        ("ConvInteger", [(1, 8, 10, 10), (16, 8, 3, 3)], [UINT8, INT8], 2 * 16 * 64 * 72),
        ("QLinearConv", [(1, 8, 10, 10), (), (), (16, 8, 3, 3), (), (), (), ()],
         [UINT8, FLOAT, UINT8, INT8, FLOAT, INT8, FLOAT, UINT8], 2 * 16 * 64 * 72),
        ("MatMulInteger", [(5, 7), (7, 3)], [UINT8, INT8], 2 * 5 * 7 * 3),
        ("QLinearMatMul", [(5, 7), (), (), (7, 3), (), (), (), ()],
         [UINT8, FLOAT, UINT8, INT8, FLOAT, INT8, FLOAT, UINT8], 2 * 5 * 7 * 3),
        ("QuantizeLinear", [(5, 7), (), ()], [FLOAT, FLOAT, UINT8], 70),
        ("DequantizeLinear", [(5, 7), (), ()], [UINT8, FLOAT, UINT8], 70),
    ],
)  # fmt: skip
def test_quantised_kinds(kind: str, shapes: list[Any], elements: list[int], flops: int) -> None:
    """Tests the quantised kinds."""
    assert _op(kind, shapes, elements=elements).flops == flops


def test_dynamic_quantisation() -> None:
    """Tests a kind with several outputs."""
    assert _op("DynamicQuantizeLinear", [(5, 7)], outputs=3).flops == 5 * 35


def test_bilinear_resize() -> None:
    """Tests that interpolation counts the axes that change only."""
    node = helper.make_node("Resize", ["x", "", "scales"], ["y"], mode="linear")
    scales = helper.make_tensor("scales", FLOAT, [4], [1.0, 1.0, 2.0, 2.0])
    value = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [value("x", FLOAT, [1, 3, 4, 4])], [value("y", FLOAT, None)], [scales])
    op = graph_of_model(helper.make_model(graph), ImportOptions()).ops[0]
    assert op.flops == 2 * 4 * prod((1, 3, 8, 8))


@pytest.mark.parametrize(
    ("signal", "attributes", "wide", "frame", "flops"),
    [
        ([1, 1600, 1], {}, 129, True, 5 * 9 * 256 * 8 // 2),
        ([1, 1600], {}, 129, True, 5 * 9 * 256 * 8 // 2),
        ([1, 1600, 1], {"onesided": 0}, 256, True, 5 * 9 * 256 * 8 // 2),
        ([1, 1600, 2], {"onesided": 0}, 256, True, 5 * 9 * 256 * 8),
        ([2, 1600, 1], {"onesided": 1}, 129, False, 2 * 5 * 9 * 256 * 8 // 2),
    ],
)
def test_frames_of_a_signal(signal: list[int], attributes: dict[str, int], wide: int, frame: bool, flops: int) -> None:
    """Tests STFT against ONNX Runtime's own shape and n log n: without a word it gives one side."""
    stored = [
        helper.make_tensor("step", INT64, [], [160]),
        helper.make_tensor("window", FLOAT, [256], [1.0] * 256),
        helper.make_tensor("frame", INT64, [], [256]),
    ]
    names = ["x", "step", "window"] if frame else ["x", "step", "", "frame"]
    node = helper.make_node("STFT", names, ["y"], **attributes)
    given = [helper.make_tensor_value_info("x", FLOAT, signal)]
    body = helper.make_graph([node], "g", given, [helper.make_tensor_value_info("y", FLOAT, None)], stored)
    model = helper.make_model(body, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    graph = graph_of_model(model, ImportOptions())
    (made,) = InferenceSession(model.SerializeToString()).run(None, {"x": np.zeros(signal, np.float32)})
    shape = next(tensor.shape for tensor in graph.tensors if tensor.name == "y")
    assert shape == made.shape == (signal[0], 9, wide, 2)
    assert graph.ops[0].flops == flops


@pytest.mark.parametrize(
    ("shape", "attributes", "flops"),
    [
        ((1, 256, 2), {"axis": 1}, 5 * 256 * 8),
        ((3, 256, 1), {"axis": 1, "onesided": 1}, 3 * 5 * 256 * 8 // 2),
        ((3, 8, 256, 1), {"axis": 2}, 3 * 8 * 5 * 256 * 8 // 2),
    ],
)
def test_transforms(shape: tuple[int, ...], attributes: dict[str, int], flops: int) -> None:
    """Tests DFT against n log n along its axis."""
    node = helper.make_node("DFT", ["x"], ["y"], **attributes)
    value = helper.make_tensor_value_info
    graph = helper.make_graph([node], "g", [value("x", FLOAT, shape)], [value("y", FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    assert graph_of_model(model, ImportOptions()).ops[0].flops == flops


def test_the_table_knows_the_standard() -> None:
    """Tests that the kinds of the standard which the table leaves out are the rare ones that we know of."""
    rare = {
        *("If", "Loop", "Scan", "SequenceMap"),  # counted by their bodies
        *("BlackmanWindow", "HammingWindow", "HannWindow", "MelWeightMatrix", "Multinomial", "TfIdfVectorizer"),
    }
    standard = {schema.name for schema in defs.get_all_schemas() if schema.domain == "" and not schema.deprecated}
    assert standard - set(FLOPS) <= rare
