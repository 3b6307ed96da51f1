"""Floating-point operations, counted without weftline: by torch's counter, or from shapes that ONNX Runtime measured.

In: a module and its inputs, or an ONNX file and its feeds. Out: operations of products and convolutions, two for each
multiplication with an addition. From a file: every value is made an output, the model runs once, and shapes are read
off the arrays. Simplified: bodies of If and Loop are not seen, and ops of other domains count only where listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models.source import Feeds

__all__ = ["count_by_runtime", "count_by_torch", "plain_run"]


def count_by_torch(module: Any, inputs: Any) -> int:
    """By `torch.utils.flop_counter`; attention by products, for the fused one of CPUs is unknown to it."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        if isinstance(inputs, dict):
            module(**inputs)
        else:
            module(*inputs)
    return int(counter.get_total_flops())


def plain_run(path: Path, feeds: Feeds, *, optimised: bool = True) -> list[Any]:
    """Outputs of one session with one thread."""
    return list(_session(str(path), optimised=optimised).run(None, feeds))


def _session(model: str | bytes, *, optimised: bool) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    if not optimised:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


COUNTED = {"Conv", "ConvTranspose", "MatMul", "Gemm", "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul"}
FUSED = {"FusedMatMul", "FusedConv", "FusedGemm", "DynamicQuantizeMatMul", "MatMulIntegerToFloat", "MatMulNBits"}
RECURRENT = {"LSTM": 4, "GRU": 3, "RNN": 1, "DynamicQuantizeLSTM": 4}


def count_by_runtime(path: Path, feeds: Feeds) -> int:
    """By shapes of a real run."""
    import onnx

    model = onnx.load(str(path))
    sizes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            sizes[node.output[0]] = tuple(node.attribute[0].t.dims)
    wanted = {name for node in model.graph.node if _counts(node) for name in (*node.input, *node.output) if name}
    del model.graph.output[:]
    asked = sorted(wanted - sizes.keys() - feeds.keys())
    sizes |= {name: values.shape for name, values in feeds.items()}
    if asked:
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in asked)
        session = _session(model.SerializeToString(), optimised=False)
        sizes |= {name: np.shape(found) for name, found in zip(asked, session.run(asked, feeds), strict=True)}
    return sum(_work(node, sizes) for node in model.graph.node if _counts(node))


def _counts(node: Any) -> bool:
    return node.op_type in COUNTED | FUSED | RECURRENT.keys()


def _work(node: Any, sizes: Mapping[str, tuple[int, ...]]) -> int:
    kind, first, result = node.op_type, sizes[node.input[0]], sizes.get(node.output[0], ())
    said = {attribute.name: attribute for attribute in node.attribute}
    if kind in RECURRENT:
        length, batch, wide = first
        hidden = said["hidden_size"].i
        directions = 2 if "direction" in said and said["direction"].s == b"bidirectional" else 1
        return int(2 * RECURRENT[kind] * length * batch * hidden * (wide + hidden) * directions)
    if "Conv" in kind:
        weight = sizes[node.input[3 if kind == "QLinearConv" else 1]]
        return int(2 * prod(first if kind == "ConvTranspose" else result) * prod(weight[1:]))
    if kind in ("Gemm", "FusedGemm"):
        inner = first[0] if "transA" in said and said["transA"].i else first[1]
    elif kind == "FusedMatMul" and "transA" in said and said["transA"].i:
        inner = first[-2]
    else:
        inner = first[-1]
    return int(2 * prod(result) * inner)
