"""Every fused kind against ONNX Runtime: what its CPU kernel makes, or its own types where it has no kernel."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper
from onnxruntime.capi.onnxruntime_pybind11_state import Fail
from onnxruntime.capi.onnxruntime_pybind11_state import NotImplemented as NoKernel

from weftline.graph import Tensor
from weftline.importers.onnx.call import FLOAT, Call, TensorType
from weftline.importers.onnx.fused import FUSED_RULES, MICROSOFT, STANDARD_NAMES
from weftline.importers.onnx.model import graph_of_model
from weftline.importers.registry import ImportOptions

_RANDOM = np.random.default_rng(1)


class Case(NamedTuple):
    """One node: its inputs (None = left out), attributes, which outputs it makes, which inputs are weights."""

    kind: str
    inputs: list[Any]
    attributes: Mapping[str, Any] = MappingProxyType({})
    made: str = "y"
    """One letter per output, - where it is left out; q and t are floats, as ONNX Runtime must be told."""
    weights: tuple[int, ...] = ()
    domain: str = MICROSOFT


def _f(*shape: int) -> Any:
    return _RANDOM.normal(size=shape).astype(np.float32)


def _h(*shape: int) -> Any:
    return _f(*shape).astype(np.float16)


def _u(*shape: int) -> Any:
    return _RANDOM.integers(1, 9, size=shape).astype(np.uint8)


def _i(*shape: int, top: int = 3) -> Any:
    return _RANDOM.integers(0, top, size=shape).astype(np.int32)


def _n(number: Any, kind: Any = np.float32) -> Any:
    return np.asarray(number, kind)


def _grouped(past: int) -> list[Any]:
    """Key, value and their past: two heads of eight numbers."""
    return [_f(2, 1, 16), _f(2, 1, 16), _f(2, 2, past, 8), _f(2, 2, past, 8)]


_ONE, _ZERO = _n(0.5), _n(1, np.uint8)
_SCALED = [_ONE, _ZERO]
_ROW_SCALED = [_n([0.5]), _n([1], np.uint8)]
_BLOCKS = [_n([[0, 1, 3]], np.int32), _n([[0, 0, 1]], np.int32)]
_HEADS = {"num_heads": 2}
_SHARED = {"num_heads": 4, "kv_num_heads": 2}
_WINDOW = {"kernel_shape": [3, 2], "strides": [2, 1], "pads": [1, 0, 1, 1]}
_NONE = [None]

CASES = [
    Case("BiasGelu", [_f(2, 3, 4), _f(4)]),
    Case("FastGelu", [_f(2, 3, 4), _f(4)]),
    Case("Gelu", [_f(2, 3, 4)]),
    Case("QuickGelu", [_f(2, 3, 4)]),
    Case("Inverse", [np.eye(3, dtype=np.float32)[None]]),
    Case("Trilu", [_f(2, 3, 4)]),
    Case("RotaryEmbedding", [_f(2, 3, 8), _n([0], np.int64), _f(5, 2), _f(5, 2)], {"num_heads": 2}),
    Case("QLinearLeakyRelu", [_u(2, 3), *_SCALED, *_SCALED], {"alpha": 0.1}),
    Case("QLinearSigmoid", [_u(2, 3), *_SCALED, *_SCALED], weights=(1, 2, 3, 4)),
    Case("QLinearSoftmax", [_u(2, 3), *_SCALED, *_SCALED], {"axis": -1, "opset": 13}, weights=(1, 2, 3, 4)),
    Case("SimplifiedLayerNormalization", [_f(2, 3, 4), _f(4)], {"axis": -1}, "ys", domain=""),
    Case("SimplifiedLayerNormalization", [_f(2, 3, 4), _f(3, 4)], {"axis": 1}, domain=""),
    Case("SkipLayerNormalization", [_f(2, 3, 4), _f(2, 3, 4), _f(4), _f(4), _f(4)], {}, "yqts"),
    Case("SkipSimplifiedLayerNormalization", [_f(2, 3, 4), _f(2, 3, 4), _f(4)], {}, "yqts"),
    Case(
        "EmbedLayerNormalization",
        [_i(2, 3), _i(2, 3, top=2), _f(5, 4), _f(6, 4), _f(2, 4), _f(4), _f(4), _i(2, 3)],
        {},
        "yms",
    ),
    Case("EmbedLayerNormalization", [_i(2, 3), None, _f(5, 4), _f(6, 4), None, _f(4), _f(4)], {}, "ym"),
    Case(
        "QEmbedLayerNormalization",
        [_i(2, 3), _i(2, 3, top=2), _u(5, 4), _u(6, 4), _u(2, 4), _u(4), _u(4), _i(2, 3)] + [_ONE] * 5 + [_ZERO] * 5,
        {},
        "ym",
        tuple(range(2, 7)) + tuple(range(8, 18)),
    ),
    Case(
        "DynamicQuantizeLSTM",
        [_f(3, 2, 4), _u(1, 4, 20), _u(1, 5, 20), _f(1, 40), *_NONE * 4, *_ROW_SCALED, *_ROW_SCALED],
        {"hidden_size": 5},
        "yhc",
        (1, 2, 3, 8, 9, 10, 11),
    ),
    Case("CDist", [_f(3, 4), _f(5, 4)], {"metric": "sqeuclidean"}),
    Case("NhwcMaxPool", [_u(1, 7, 6, 3)], _WINDOW),
    Case("NhwcMaxPool", [_u(1, 7, 6, 3)], {"kernel_shape": [2, 2], "strides": [2, 3], "ceil_mode": 1}),
    Case("QLinearAveragePool", [_u(1, 3, 7, 6), *_SCALED, *_SCALED], _WINDOW, weights=(1, 2, 3, 4)),
    Case(
        "QLinearAveragePool",
        [_u(1, 7, 6, 3), *_SCALED, *_SCALED],
        {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2], "channels_last": 1},
        weights=(1, 2, 3, 4),
    ),
    Case("QLinearGlobalAveragePool", [_u(1, 3, 7, 6), *_SCALED, *_SCALED], weights=(1, 2, 3, 4)),
    Case("QLinearGlobalAveragePool", [_u(1, 7, 6, 3), *_SCALED, *_SCALED], {"channels_last": 1}, weights=(1, 2, 3, 4)),
    Case("FusedConv", [_f(1, 4, 7, 6), _f(6, 2, 3, 2), _f(6)], {"activation": "Relu", "group": 2, **_WINDOW}),
    Case(
        "QLinearConv",
        [_u(1, 7, 6, 4), *_SCALED, _u(6, 4, 3, 2), *_SCALED, *_SCALED],
        {"channels_last": 1, **_WINDOW},
        weights=(1, 2, 3, 4, 5, 6, 7),
    ),
    Case(
        "QLinearConv",
        [_u(1, 4, 7, 6), *_SCALED, _u(6, 4, 3, 2), *_SCALED, *_SCALED],
        {"dilations": [2, 1]},
        weights=(1, 2, 3, 4, 5, 6, 7),
    ),
    Case(
        "ConvTransposeWithDynamicPads",
        [_f(1, 4, 5, 6), _f(4, 3, 3, 2), _n([1, 0, 1, 1], np.int64)],
        {"strides": [2, 3], "output_padding": [1, 0]},
        weights=(2,),
    ),
    Case("Attention", [_f(2, 3, 8), _f(8, 24), _f(24)], _HEADS, "yp"),
    Case("Attention", [_f(2, 3, 8), _f(8, 24), _f(24), None, _f(2, 2, 2, 5, 4)], {"unidirectional": 1, **_HEADS}, "yp"),
    Case("Attention", [_f(2, 3, 8), _f(8, 20), _f(20)], {"qkv_hidden_sizes": [8, 8, 4], **_HEADS}, "yp"),
    Case(
        "QAttention",
        [_u(2, 3, 8), _u(8, 24), _f(24), _ONE, _ONE, None, _ZERO, _ZERO, _f(2, 2, 2, 5, 4)],
        {"unidirectional": 1, **_HEADS},
        "yp",
    ),
    Case("MultiHeadAttention", [_f(2, 3, 8), _f(2, 5, 8), _f(2, 5, 12)], _HEADS),
    Case(
        "MultiHeadAttention",
        [_f(2, 3, 8), _f(2, 3, 8), _f(2, 3, 8), *_NONE * 3, _f(2, 2, 4, 4), _f(2, 2, 4, 4)],
        _HEADS,
        "ykv",
    ),
    Case("MultiHeadAttention", [_f(2, 3, 8), _f(2, 2, 5, 4), _f(2, 2, 5, 4)], _HEADS),
    Case("MultiHeadAttention", [_f(2, 3, 8), _f(2, 3, 8), _f(2, 3, 12)], _HEADS, "ykv"),
    Case(
        "MultiHeadAttention",
        [_f(2, 1, 8), _f(2, 1, 8), _f(2, 1, 8), *_NONE * 3, _f(2, 2, 9, 4), _f(2, 2, 9, 4), _n([4], np.int32)],
        _HEADS,
        "ykv",
    ),
    Case("DecoderMaskedMultiHeadAttention", [_f(2, 1, 8), _f(2, 2, 5, 4), _f(2, 2, 5, 4)], _HEADS),
    Case("MultiHeadAttention", [_f(2, 3, 8), _f(2, 3, 8), _f(2, 3, 8)], _HEADS, "ykvq"),
    Case(
        "DecoderMaskedMultiHeadAttention",
        [_f(2, 1, 8), _f(2, 1, 8), _f(2, 1, 8), *_NONE * 2, _f(2, 2, 6, 4), _f(2, 2, 6, 4), _n([3], np.int32)],
        {"past_present_share_buffer": 1, "output_qk": 1, **_HEADS},
        "ykvq",
    ),
    Case(
        "GroupQueryAttention", [_f(2, 1, 32), *_grouped(5), _n([5, 5], np.int32), _n(6, np.int32)], _SHARED, "ykv", (6,)
    ),
    Case(
        "GroupQueryAttention", [_f(2, 1, 32), *_grouped(9), _n([5, 5], np.int32), _n(6, np.int32)], _SHARED, "ykv", (6,)
    ),
    Case("GroupQueryAttention", [_f(2, 1, 32), *_grouped(5), _n([5, 5], np.int32), _n(6, np.int32)], _SHARED, "ykv"),
    Case("GroupQueryAttention", [_f(2, 1, 32), *_grouped(9), _n([5, 5], np.int32), _n(6, np.int32)], _SHARED, "ykv"),
    Case(
        "GroupQueryAttention",
        [_f(2, 1, 32), *_grouped(9), _n([5, 5], np.int32), _n(6, np.int32)],
        {"qk_output": 1, **_SHARED},
        "ykvq",
        (6,),
    ),
    Case(
        "GroupQueryAttention",
        [_f(2, 3, 64), *_NONE * 4, _n([2, 2], np.int32), _n(3, np.int32)],
        {"qk_output": 1, **_SHARED},
        "ykvq",
        (6,),
    ),
    Case(
        "SparseAttention",
        [
            _f(1, 3, 32),
            _f(1, 3, 16),
            _f(1, 3, 16),
            _f(1, 2, 32, 8),
            _f(1, 2, 32, 8),
            *_BLOCKS,
            _n(3, np.int32),
            _n([3], np.int32),
        ],
        {"sparse_block_size": 16, **_SHARED},
        "ykv",
    ),
    Case("GatherBlockQuantized", [_u(5, 8), _i(2, 3), _f(5, 1)], {"block_size": 16, "bits": 4}, weights=(0, 2)),
    Case("GatherBlockQuantized", [_u(5, 16), _i(2, 3), _f(5, 1)], {"block_size": 16, "bits": 8}, weights=(0, 2)),
    Case("FusedMatMul", [_f(2, 4, 3), _f(2, 5, 4)], {"transA": 1, "transB": 1, "alpha": 0.5}),
    Case("FusedMatMul", [_f(3, 2, 4), _f(2, 4, 5)], {"transBatchA": 1}),
    Case("TransposeMatMul", [_f(4, 3), _f(4, 5)], {"transA": 1}),
    Case("FusedGemm", [_f(4, 3), _f(5, 4), _f(5)], {"transA": 1, "transB": 1, "activation": "Relu"}),
    Case("MatMulIntegerToFloat", [_u(2, 3, 4), _u(4, 5), _ONE, _ONE]),
    Case("DynamicQuantizeMatMul", [_f(2, 3, 4), _u(4, 5), _ONE, _ZERO]),
    Case("QGemm", [_u(4, 3), *_SCALED, _u(5, 4), *_SCALED], {"transA": 1, "transB": 1}),
    Case("QGemm", [_u(3, 4), *_SCALED, _u(4, 5), *_SCALED, None, *_SCALED]),
    Case(
        "MatMulNBits", [_f(2, 3, 16), _u(5, 1, 8), _f(5)], {"K": 16, "N": 5, "bits": 4, "block_size": 16}, "y", (1, 2)
    ),
    Case("MatMulBnb4", [_f(3, 16), _u(40), _f(5)], {"K": 16, "N": 5, "block_size": 16, "quant_type": 1}, "y", (1, 2)),
    Case("QLinearAdd", [_u(2, 1, 4), *_SCALED, _u(3, 1), *_SCALED, *_SCALED]),
    Case("QLinearMul", [_u(3, 4), *_SCALED, _u(2, 1, 4), *_SCALED, *_SCALED]),
    Case("QLinearWhere", [_u(3, 1) > 4, _u(3, 4), *_SCALED, _u(2, 1, 4), *_SCALED, *_SCALED]),
    Case("QLinearConcat", [*_SCALED, _u(2, 3), *_SCALED, _u(2, 4), *_SCALED], {"axis": 1}, weights=(0, 1, 3, 4, 6, 7)),
    Case("MoE", [_f(6, 8), _f(6, 2), _f(2, 16, 8), None, _f(2, 8, 16)], {"k": 1}),
    Case(
        "QMoE",
        [_f(6, 32), _f(6, 2), _u(2, 64, 16), _f(2, 64), None, _u(2, 32, 32), _f(2, 32)],
        {"k": 1, "activation_type": "relu", "expert_weight_bits": 4},
        weights=(2, 3, 5, 6),
    ),
]

NO_KERNEL = [
    (Case("BiasAdd", [_f(2, 3, 4), _f(4), _f(2, 3, 4)]), [(2, 3, 4)]),
    (Case("BiasDropout", [_f(2, 3, 4), _f(4)], {}, "ym"), [(2, 3, 4), (2, 3, 4)]),
    (Case("BiasSoftmax", [_f(2, 3, 4), _f(2, 1, 4)], {"axis": 2, "is_inner_broadcast": 0}), [(2, 3, 4)]),
    (Case("GroupNorm", [_h(1, 4, 4, 8), _f(8), _f(8)], {"groups": 2, "activation": 0}), [(1, 4, 4, 8)]),
    (
        Case("SkipGroupNorm", [_h(1, 4, 4, 8), _f(8), _f(8), _h(1, 4, 4, 8)], {"groups": 2, "activation": 0}, "ys"),
        [(1, 4, 4, 8), (1, 4, 4, 8)],
    ),
    (
        Case(
            "LongformerAttention",
            [_f(1, 4, 8), _f(8, 24), _f(24), _f(1, 4), _f(8, 24), _f(24), _i(1, 4)],
            {"window": 2, **_HEADS},
        ),
        [(1, 4, 8)],
    ),
    (
        Case(
            "RelativePositionBias", [_f(8, 2), _n([3], np.int64), _n([5], np.int64)], {"max_distance": 8}, "y", (1, 2)
        ),
        [(1, 2, 3, 5)],
    ),
    (
        Case(
            "GatedRelativePositionBias",
            [_f(2, 3, 8), _f(8), _f(1, 2, 3, 3), _f(4, 8), _f(8), _f(1, 2, 1, 1)],
            _HEADS,
        ),
        [(2, 2, 3, 3)],
    ),
    (
        Case(
            "GatedRelativePositionBias",
            [_f(5, 8), _f(8), _f(1, 2, 3, 3), _f(4, 8), _f(8), _f(1, 2, 1, 1), _i(2, 3)],
            _HEADS,
        ),
        [(2, 2, 3, 3)],
    ),
    (Case("RemovePadding", [_f(2, 3, 4), _i(2)], {}, "yocm"), [(6, 4), (2, 3), (3,), (1,)]),
    (Case("RestorePadding", [_f(5, 4), _i(2, 3)]), [(2, 3, 4)]),
    (Case("PackedAttention", [_f(5, 8), _f(8, 24), _f(24), _i(2, 3), _i(3)], _HEADS), [(5, 8)]),
    (
        Case("PackedMultiHeadAttention", [_f(5, 8), _f(5, 8), _f(5, 12), None, _i(2, 3), _i(3)], _HEADS),
        [(5, 12)],
    ),
    (Case("PackedMultiHeadAttention", [_f(5, 2, 3, 4), *_NONE * 3, _i(2, 3), _i(3)], _HEADS), [(5, 8)]),
    (Case("BiasSplitGelu", [_f(2, 3, 8), _f(8)]), [(2, 3, 4)]),
    (Case("NhwcConv", [_f(1, 7, 6, 4), _f(6, 3, 2, 4), _f(6)], _WINDOW), [(1, 4, 6, 6)]),
    (Case("NhwcFusedConv", [_h(1, 7, 6, 4), _h(6, 3, 2, 4), _h(6)], _WINDOW), [(1, 4, 6, 6)]),
    (Case("FusedMatMulActivation", [_f(2, 4, 3), _f(2, 4, 5)], {"transA": 1, "activation": "Relu"}), [(2, 3, 5)]),
    (Case("GemmFloat8", [_f(3, 4), _f(5, 4)], {"transB": 1, "dtype": 10}), [(3, 5)]),
    (Case("GemmFastGelu", [_f(2, 3, 4), _f(4, 5), _f(5)]), [(2, 3, 5)]),
]
"""Kinds without a kernel for the CPU, with the shapes that their documentation says."""


def _model(case: Case, outputs: list[Any] | None = None) -> Any:
    """One node; outputs are declared without a type unless they are given."""
    names = ["" if array is None else f"i{index}" for index, array in enumerate(case.inputs)]
    made = ["" if letter == "-" else letter for letter in case.made]
    node = helper.make_node(case.kind, names, made, domain=case.domain, **case.attributes)
    inputs, stored = [], []
    for index, array in enumerate(case.inputs):
        if index in case.weights:
            stored.append(numpy_helper.from_array(array, names[index]))
        elif array is not None:
            element = helper.np_dtype_to_tensor_dtype(array.dtype)
            inputs.append(helper.make_tensor_value_info(names[index], element, array.shape))
    ends = outputs or [
        helper.make_tensor_value_info(name, 1, None) if name in "qt" else helper.make_empty_tensor_value_info(name)
        for name in made
        if name
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(helper.make_graph([node], "g", inputs, ends, stored), opset_imports=opsets, ir_version=10)


def _session(model: Any) -> Any:
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    options.add_session_config_entry("session.strict_shape_type_inference", "1")
    return ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def _run(case: Case, model: Any) -> dict[str, Any]:
    """Output name -> array. SparseAttention writes its present into the buffers of its past."""
    feeds = {f"i{at}": array for at, array in enumerate(case.inputs) if array is not None and at not in case.weights}
    names, session = [name for name in case.made if name != "-"], _session(model)
    if case.kind != "SparseAttention":
        return dict(zip(names, session.run(names, feeds), strict=True))
    binding, values = session.io_binding(), {name: ort.OrtValue.ortvalue_from_numpy(a) for name, a in feeds.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    binding.bind_output("y")
    binding.bind_ortvalue_output("k", values["i3"])
    binding.bind_ortvalue_output("v", values["i4"])
    session.run_with_iobinding(binding)
    return dict(zip(names, binding.copy_outputs_to_cpu(), strict=True))


def _tensors(case: Case, model: Any) -> list[Tensor]:
    found = {tensor.name: tensor for tensor in graph_of_model(model, ImportOptions()).tensors}
    return [found[name] for name in case.made if name != "-"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.kind)
def test_types_are_those_of_the_arrays(case: Case) -> None:
    """Tests shapes and element types of all outputs; a size that only a run knows is at least the real one."""
    model = _model(case)
    arrays = _run(case, model)
    for tensor in _tensors(case, model):
        array = arrays[tensor.name]
        real = [
            min(size, tensor.shape[axis]) if axis in tensor.dynamic else size for axis, size in enumerate(array.shape)
        ]
        limits = [tensor.shape[axis] if axis in tensor.dynamic else size for axis, size in enumerate(array.shape)]
        assert (tensor.shape, tensor.dtype, tensor.guessed) == (tuple(limits), str(array.dtype), False)
        assert real == list(array.shape)


@pytest.mark.parametrize(("case", "shapes"), NO_KERNEL, ids=lambda value: getattr(value, "kind", ""))
def test_types_without_a_kernel(case: Case, shapes: list[tuple[int, ...]]) -> None:
    """Tests the documented shapes; that there is no kernel; and that ONNX Runtime refuses neither types nor shapes."""
    tensors = _tensors(case, _model(case))
    assert [tensor.shape for tensor in tensors] == shapes
    ends = [
        helper.make_tensor_value_info(
            tensor.name, helper.np_dtype_to_tensor_dtype(np.dtype(tensor.dtype)), tensor.shape
        )
        for tensor in tensors
    ]
    with pytest.raises(NoKernel):
        _session(_model(case, ends))
    ends[0].type.tensor_type.shape.dim[len(shapes[0]) - 1].dim_value += 1
    with pytest.raises(NoKernel if case.kind == "RelativePositionBias" else Fail):  # only there it infers nothing
        _session(_model(case, ends))


def test_every_row_is_held() -> None:
    """Tests that no row of the table is without a case."""
    held = {(case.domain, case.kind) for case in (*CASES, *(case for case, _ in NO_KERNEL))}
    assert held == {*FUSED_RULES, *((MICROSOFT, kind) for kind in STANDARD_NAMES)}


@pytest.mark.parametrize("rank", range(6))
def test_rows_never_fail(rank: int) -> None:
    """Tests every row with inputs of a rank that no such node has, left out, or with values that make no sense."""
    kind = TensorType(FLOAT, (3,) * rank)
    odd = {"kernel_shape": [-3, 0], "strides": [0, -1], "dilations": [-2], "pads": [9], "num_heads": -1, "axis": 99}
    for attributes in ({}, {**odd, "ceil_mode": 1, "channels_last": 1, "transBatchA": 1, "transA": 1, "group": -1}):
        for (domain, name), rule in FUSED_RULES.items():
            proto = helper.make_node(name, [], [], domain=domain, **attributes)
            for inputs in ((), (kind,) * 3, (kind,) * 18, (None, *(kind,) * 17)):
                for value in (None, np.float32(np.nan), np.asarray(["a"]), np.zeros((0, 2))):
                    values = (None if value is None else np.asarray(value),) * len(inputs)
                    assert isinstance(rule(Call(name, domain, proto, inputs, (), values, values)), list)
