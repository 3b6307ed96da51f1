"""One small ONNX network for every fusion rule that ONNX Runtime may know, all in one model, side by side.

In: nothing. Out: `samples()`: rule or variant -> its nodes, and `model_of`: one model that holds them all. Node and
tensor names begin with the name of the sample, so that one call of ONNX Runtime checks them all.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

Constants = dict[str, NDArray[np.generic]]
IMAGE, TOKENS, MATRIX = (1, 8, 10, 10), (1, 4, 8), (4, 8)


@dataclass
class Sample:
    """A network that a rule should join into one kernel; the last node makes its output."""

    inputs: dict[str, tuple[int, ...]]
    nodes: list[tuple[str, str, str]]
    """(kind, inputs, output), names separated by spaces."""
    constants: Constants = field(default_factory=dict)
    attributes: dict[str, dict[str, object]] = field(default_factory=dict)
    """Output -> attributes of its node."""
    integers: tuple[str, ...] = ()
    """Inputs that are indices."""


def _constant(*shape: int) -> NDArray[np.float32]:
    return np.random.default_rng(sum(shape)).uniform(0.5, 1.5, shape).astype(np.float32)


def _number(value: float) -> NDArray[np.float32]:
    return np.array(value, np.float32)


W, B = _constant(8, 8, 3, 3), _constant(8)
CONV = ("Conv", "x w b", "c")
NORM: Constants = {f"n{i}": _constant(8) for i in range(4)}
LAST = np.array([-1], np.int64)
GELU: Constants = {"root": _number(2**0.5), "one": _number(1), "half": _number(0.5)}
FAST: Constants = {
    "three": _number(3),
    "k": _number(0.044715),
    "s": _number((2 / np.pi) ** 0.5),
    "one": _number(1),
    "half": _number(0.5),
}


def _conv(*nodes: tuple[str, str, str], **constants: NDArray[np.generic]) -> Sample:
    return Sample({"x": IMAGE}, [CONV, *nodes], {"w": W, "b": B, **constants})


def _gemm(kind: str) -> Sample:
    nodes = [("Gemm", "x w b", "g"), (kind, "g", "y")]
    return Sample({"x": MATRIX}, nodes, {"w": _constant(8, 8), "b": B})


def _layer_norm(square: tuple[str, str, str], *, again: bool = False) -> Sample:
    nodes = [("ReduceMean", "x axes", "m"), ("Sub", "x m", "d")]
    nodes += [("Sub", "x m", "f")] if again else []
    nodes += [square, ("ReduceMean", "p axes", "v"), ("Add", "v eps", "a"), ("Sqrt", "a", "r")]
    nodes += [("Div", f"{'f' if again else 'd'} r", "q"), ("Mul", "q scale", "g"), ("Add", "g bias", "y")]
    constants: Constants = {"axes": LAST, "two": _number(2), "eps": _number(1e-5), "scale": _constant(8), "bias": B}
    return Sample({"x": TOKENS}, nodes, constants)


def _rms(*end: tuple[str, str, str]) -> Sample:
    nodes = [("Pow", "x two", "p"), ("ReduceMean", "p axes", "v"), ("Add", "v eps", "a"), ("Sqrt", "a", "r"), *end]
    return Sample({"x": TOKENS}, nodes, {"axes": LAST, "two": _number(2), "eps": _number(1e-5), "scale": _constant(8)})


def samples() -> dict[str, Sample]:
    """Rule, or rule and variant behind a slash -> sample."""
    found = {
        "conv-bn": _conv(("BatchNormalization", "c n0 n1 n2 n3", "y"), **NORM),
        "conv-add": _conv(("Add", "c k", "y"), k=_constant(1, 8, 1, 1)),
        "conv-mul": _conv(("Mul", "c k", "y"), k=_constant(1, 8, 1, 1)),
        "pad-conv": Sample(
            {"x": IMAGE},
            [("Pad", "x pads", "p"), ("Conv", "p w b", "y")],
            {"pads": np.array([0, 0, 1, 1, 0, 0, 1, 1], np.int64), "w": W, "b": B},
        ),
        "conv-sum": Sample({"x": IMAGE, "z": (1, 8, 8, 8)}, [CONV, ("Add", "c z", "y")], {"w": W, "b": B}),
        "conv-sum-relu": Sample(
            {"x": IMAGE, "z": (1, 8, 8, 8)}, [CONV, ("Add", "c z", "a"), ("Relu", "a", "y")], {"w": W, "b": B}
        ),
        "conv-activation/Clip": _conv(("Clip", "c low high", "y"), low=_number(0), high=_number(6)),
        "matmul-add": Sample(
            {"x": TOKENS}, [("MatMul", "x w", "m"), ("Add", "m b", "y")], {"w": _constant(8, 8), "b": B}
        ),
        "matmul-scale": Sample(
            {"x": (1, 2, 4, 8), "z": (1, 2, 8, 4)}, [("MatMul", "x z", "m"), ("Div", "m k", "y")], {"k": _number(3)}
        ),
        "scale-matmul": Sample(
            {"x": (1, 2, 4, 8), "z": (1, 2, 8, 4)}, [("Mul", "x k", "s"), ("MatMul", "s z", "y")], {"k": _number(3)}
        ),
        "transpose-matmul": Sample(
            {"x": (1, 2, 4, 8), "z": (1, 2, 3, 8)},
            [("Transpose", "z", "t"), ("MatMul", "x t", "y")],
            attributes={"t": {"perm": [0, 1, 3, 2]}},
        ),
        "transpose-gemm": Sample(
            {"x": (8, 4)},
            [("Transpose", "x", "t"), ("Gemm", "t w b", "y")],
            {"w": _constant(8, 8), "b": B},
            {"t": {"perm": [1, 0]}},
        ),
        "gelu": Sample(
            {"x": TOKENS},
            [
                ("Div", "x root", "d"),
                ("Erf", "d", "e"),
                ("Add", "e one", "a"),
                ("Mul", "x a", "m"),
                ("Mul", "m half", "y"),
            ],
            GELU,
        ),
        "gelu-half-first": Sample(
            {"x": TOKENS},
            [
                ("Mul", "x half", "h"),
                ("Div", "x root", "d"),
                ("Erf", "d", "e"),
                ("Add", "e one", "a"),
                ("Mul", "h a", "y"),
            ],
            GELU,
        ),
        "gelu-half-last": Sample(
            {"x": TOKENS},
            [
                ("Div", "x root", "d"),
                ("Erf", "d", "e"),
                ("Add", "e one", "a"),
                ("Mul", "a half", "m"),
                ("Mul", "x m", "y"),
            ],
            GELU,
        ),
        "fast-gelu": Sample(
            {"x": TOKENS},
            [
                *[("Pow", "x three", "p"), ("Mul", "p k", "c"), ("Add", "x c", "u"), ("Mul", "u s", "v")],
                *[("Tanh", "v", "t"), ("Add", "t one", "a"), ("Mul", "x half", "h"), ("Mul", "h a", "y")],
            ],
            FAST,
        ),
        "fast-gelu-half-last": Sample(
            {"x": TOKENS},
            [
                *[("Pow", "x three", "p"), ("Mul", "p k", "c"), ("Add", "x c", "u"), ("Mul", "u s", "v")],
                *[("Tanh", "v", "t"), ("Add", "t one", "a"), ("Mul", "a half", "h"), ("Mul", "x h", "y")],
            ],
            FAST,
        ),
        "bias-gelu": Sample(
            {"x": TOKENS},
            [
                *[("Add", "x b", "z"), ("Div", "z root", "d"), ("Erf", "d", "e"), ("Add", "e one", "a")],
                *[("Mul", "z a", "m"), ("Mul", "m half", "y")],
            ],
            {**GELU, "b": B},
        ),
        "quick-gelu": Sample(
            {"x": TOKENS},
            [("Mul", "x k", "m"), ("Sigmoid", "m", "s"), ("Mul", "x s", "y")],
            {"k": _number(1.702)},
        ),
        "silu": Sample({"x": TOKENS}, [("Sigmoid", "x", "s"), ("Mul", "x s", "y")]),
        "hard-swish": Sample(
            {"x": TOKENS},
            [("Add", "x k", "a"), ("Clip", "a low high", "c"), ("Mul", "x c", "m"), ("Div", "m high", "y")],
            {"k": _number(3), "low": _number(0), "high": _number(6)},
        ),
        "relu-clip": Sample(
            {"x": TOKENS}, [("Relu", "x", "r"), ("Clip", "r low high", "y")], {"low": _number(0), "high": _number(6)}
        ),
        "layer-norm": _layer_norm(("Pow", "d two", "p")),
        "layer-norm-square": _layer_norm(("Mul", "d d", "p")),
        "layer-norm-two-subs": _layer_norm(("Pow", "d two", "p"), again=True),
        "skip-layer-norm": Sample(
            {"x": TOKENS, "z": TOKENS},
            [("Add", "x z", "a"), ("LayerNormalization", "a scale bias", "y")],
            {"scale": _constant(8), "bias": B},
        ),
        "rms-norm": _rms(("Div", "x r", "q"), ("Mul", "q scale", "y")),
        "rms-norm-reciprocal": _rms(("Reciprocal", "r", "i"), ("Mul", "x i", "q"), ("Mul", "q scale", "y")),
        "cast-pair": Sample(
            {"x": TOKENS},
            [("Cast", "x", "c"), ("Cast", "c", "y")],
            attributes={"c": {"to": TensorProto.DOUBLE}, "y": {"to": TensorProto.FLOAT}},
        ),
        "reshape-chain": Sample(
            {"x": TOKENS},
            [("Reshape", "x u", "r"), ("Reshape", "r v", "y")],
            {"u": np.array([8, 4], np.int64), "v": np.array([2, 16], np.int64)},
        ),
        "transpose-chain": Sample(
            {"x": TOKENS},
            [("Transpose", "x", "t"), ("Transpose", "t", "y")],
            attributes={"t": {"perm": [1, 2, 0]}, "y": {"perm": [2, 1, 0]}},
        ),
        "shape-reshape": Sample(
            {"x": TOKENS, "z": (32,)},
            [
                *[("Shape", "x", "s"), ("Gather", "s zero", "g"), ("Unsqueeze", "g axis", "u")],
                *[("Concat", "u rest", "c"), ("Reshape", "z c", "y")],
            ],
            {"zero": np.array(1, np.int64), "axis": np.array([0], np.int64), "rest": LAST},
            {"c": {"axis": 0}},
        ),
        "eliminate-behind/Identity": Sample({"x": TOKENS}, [("Neg", "x", "n"), ("Identity", "n", "y")]),
        "eliminate-behind/Dropout": Sample({"x": TOKENS}, [("Neg", "x", "n"), ("Dropout", "n", "y")]),
        "attention": Sample(
            {"q": (1, 2, 4, 8), "k": (1, 2, 8, 4), "v": (1, 2, 4, 8)},
            [("MatMul", "q k", "s"), ("Div", "s c", "d"), ("Softmax", "d", "p"), ("MatMul", "p v", "y")],
            {"c": _number(3)},
        ),
        "bn-relu": Sample({"x": IMAGE}, [("BatchNormalization", "x n0 n1 n2 n3", "n"), ("Relu", "n", "y")], NORM),
        "square-reduce": Sample(
            {"x": TOKENS}, [("Pow", "x two", "p"), ("ReduceMean", "p axes", "y")], {"two": _number(2), "axes": LAST}
        ),
        "l2-norm": Sample({"x": TOKENS}, [("ReduceSum", "x axes", "r"), ("Sqrt", "r", "y")], {"axes": LAST}),
        "pointwise": Sample({"x": TOKENS, "z": TOKENS}, [("Add", "x z", "a"), ("Exp", "a", "y")]),
        "embed-layer-norm": Sample(
            {"i": (1, 4), "j": (1, 4), "k": (1, 4)},
            [
                *[("Gather", "u i", "w"), ("Gather", "v j", "p"), ("Gather", "t k", "o")],
                *[("Add", "w p", "a"), ("Add", "a o", "b"), ("LayerNormalization", "b scale bias", "y")],
            ],
            {"u": _constant(9, 8), "v": _constant(9, 8), "t": _constant(2, 8), "scale": _constant(8), "bias": B},
            integers=("i", "j", "k"),
        ),
    }
    for kind in ("Relu", "LeakyRelu", "Sigmoid", "Tanh"):
        found[f"conv-activation/{kind}"] = _conv((kind, "c", "y"))
        found[f"gemm-activation/{kind}"] = _gemm(kind)
    for kind in ("HardSwish", "Elu"):
        found[f"conv-soft-activation/{kind}"] = _conv((kind, "c", "y"))
    found["conv-hard-sigmoid"] = _conv(("HardSigmoid", "c", "y"))
    for kind in ("HardSigmoid", "Elu", "Selu", "Softplus", "Softsign", "ThresholdedRelu"):
        found[f"gemm-more-activations/{kind}"] = _gemm(kind)
    found["gemm-soft-activation/HardSwish"] = _gemm("HardSwish")
    return found


def model_of(chosen: dict[str, Sample]) -> onnx.ModelProto:
    """All samples in one model; node `<sample>:<output>` makes tensor `<sample>:<output>`.

    Another op stands before every input and behind every output: some fusions do not happen at the edge of a model.
    """
    nodes, inputs, outputs, weights = [], [], [], []
    for name, sample in chosen.items():
        for given, shape in sample.inputs.items():
            kind = TensorProto.INT64 if given in sample.integers else TensorProto.FLOAT
            inputs.append(helper.make_tensor_value_info(f"{name}<{given}", kind, shape))
            nodes.append(helper.make_node("Neg", [f"{name}<{given}"], [f"{name}:{given}"], f"{name}<{given}"))
        weights += [numpy_helper.from_array(value, f"{name}:{key}") for key, value in sample.constants.items()]
        for kind, read, made in sample.nodes:
            words = [f"{name}:{word}" for word in read.split()]
            attributes = sample.attributes.get(made, {})
            nodes.append(helper.make_node(kind, words, [f"{name}:{made}"], f"{name}:{made}", **attributes))
        nodes.append(helper.make_node("Neg", [f"{name}:y"], [f"{name}>"], f"{name}>"))
        outputs.append(helper.make_empty_tensor_value_info(f"{name}>"))
    graph = helper.make_graph(nodes, "samples", inputs, outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
