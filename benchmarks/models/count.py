"""Floating-point operations, counted without weftline: by torch's counter, or from shapes that ONNX Runtime measured.

In: a module and its inputs, or an ONNX file and its feeds. Out: operations of products and convolutions, two for each
multiplication with an addition. From a file: every value is made an output, the model runs once, and shapes are read
off the arrays; the branch of an If that was taken is put in its place, and a Loop gives the shapes of every round.
Simplified: bodies inside bodies of loops are not seen, nor Scan; a fast Fourier transform is 5 n log2 n, half of it for
real numbers; ops of other domains count only where listed.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import log2, prod
from pathlib import Path
from typing import Any

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
Sizes = dict[str, tuple[int, ...]]


def count_by_runtime(path: Path, feeds: Feeds) -> int:
    """By shapes of a real run."""
    import onnx

    graph = onnx.load(str(path))
    _take_branches(graph, feeds)
    loops = [_reported(node, n) for n, node in enumerate(graph.graph.node) if node.op_type == "Loop"]
    given = _stored(graph.graph) | {name: values.shape for name, values in feeds.items()}
    nodes = [node for node in graph.graph.node if _counts(node)]
    wanted = {name for node in nodes for name in (*node.input, *node.output) if name} - given.keys()
    reported = {made for rounds, _ in loops for made in rounds.values()}
    found = _values_of(graph, sorted(wanted | reported), feeds)
    sizes = given | {name: found[name].shape for name in wanted}
    work = sum(_work(node, sizes) for node in nodes)
    for rounds, body in loops:
        known = sizes | _stored(body)
        times = len(found[next(iter(rounds.values()))]) if rounds else 0
        for turn in range(times):
            now = known | {name: tuple(map(int, found[made][turn])) for name, made in rounds.items()}
            work += sum(_work(node, now) for node in body.node if _counts(node))
    return work


def _values_of(model: Any, names: list[str], feeds: Feeds) -> dict[str, Any]:
    """What one run makes of these; weights are given as they are."""
    import onnx

    if not names:
        return {}
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    del asked.graph.output[:]
    asked.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = _session(asked.SerializeToString(), optimised=False)
    return dict(zip(names, session.run(names, feeds), strict=True))


def _stored(graph: Any) -> Sizes:
    sizes = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].HasField("t"):
            sizes[node.output[0]] = tuple(node.attribute[0].t.dims)
    return sizes


def _take_branches(model: Any, feeds: Feeds) -> None:
    """Put the nodes of the branch that is taken in the place of every If, until none is left."""
    import onnx

    while choices := [node for node in model.graph.node if node.op_type == "If"]:
        stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        asked = sorted({node.input[0] for node in choices} - stored.keys() - feeds.keys())
        known = {**stored, **feeds, **_values_of(model, asked, feeds)}
        nodes: list[Any] = []
        for node in model.graph.node:
            if node.op_type != "If":
                nodes.append(node)
                continue
            taken = "then_branch" if known[node.input[0]].all() else "else_branch"
            body = next(each.g for each in node.attribute if each.name == taken)
            model.graph.initializer.extend(body.initializer)
            pairs = zip(body.output, node.output, strict=True)
            ends = [onnx.helper.make_node("Identity", [end.name], [name]) for end, name in pairs if name]
            nodes.extend([*body.node, *ends])
        kept = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
        del model.graph.node[:]
        model.graph.node.extend(kept)


def _reported(loop: Any, number: int) -> tuple[dict[str, str], Any]:
    """A Loop also gives the shapes of what its products read and make, round by round -> name: output, the body."""
    import onnx

    body = next(each.g for each in loop.attribute if each.name == "body")
    stored = _stored(body)
    counted = [node for node in body.node if _counts(node)]
    inside = {value.name for value in body.input} | {name for node in body.node for name in node.output}
    wanted = {name for node in counted for name in (*node.input, *node.output) if name} & inside
    found = {}
    for place, name in enumerate(sorted(wanted - stored.keys())):
        made = f"shape of round {number} {place}"
        body.node.append(onnx.helper.make_node("Shape", [name], [f"{made} inside"]))
        body.output.append(onnx.helper.make_tensor_value_info(f"{made} inside", onnx.TensorProto.INT64, None))
        loop.output.append(made)
        found[name] = made
    return found, body


def _counts(node: Any) -> bool:
    return node.op_type in COUNTED | FUSED | RECURRENT.keys() | {"STFT"}


def _work(node: Any, sizes: Mapping[str, tuple[int, ...]]) -> int:
    kind, first, result = node.op_type, sizes[node.input[0]], sizes.get(node.output[0], ())
    said = {attribute.name: attribute for attribute in node.attribute}
    if kind == "STFT":
        length = sizes[node.input[2]][0]
        real = len(first) == 2 or first[-1] == 1
        return int(5 * prod(result[:2]) * length * log2(length)) // (2 if real else 1)
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
