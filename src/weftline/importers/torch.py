"""A live `torch.nn.Module` -> Graph, through torch.export: shapes are worked out, nothing is computed.

In: a module and example inputs. Out: the graph of its inference in core ATen operations; an op is named by its module
and its node, its block is its module, so that plans can be exported by layer. Kinds are ONNX's words where there is one
(one cost model serves all). What depends on weights alone is part of them. Simplified: views cost nothing; an operation
of which PyTorch's own counter knows no flops counts one for each element that it makes; no weight is looked at.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from weftline.errors import InputError, MissingExtra, UsageError
from weftline.graph import Graph, Op, Tensor, Tied, assemble
from weftline.graph.ir import MODEL_INPUT

__all__ = ["graph_of_torch"]

_KINDS = {
    **dict.fromkeys(("mm", "bmm", "dot", "mv"), "MatMul"),
    **dict.fromkeys(("addmm", "baddbmm"), "Gemm"),
    "convolution": "Conv",
    "native_layer_norm": "LayerNormalization",
    "native_group_norm": "GroupNormalization",
    "_native_batch_norm_legit_no_training": "BatchNormalization",
    "_softmax": "Softmax",
    "_log_softmax": "LogSoftmax",
    "hardtanh": "Clip",
    "clamp": "Clip",
    "hardswish": "HardSwish",
    "hardsigmoid": "HardSigmoid",
    "leaky_relu": "LeakyRelu",
    "embedding": "Gather",
    "index_select": "Gather",
    "index": "GatherND",
    "gather": "GatherElements",
    "scatter": "ScatterElements",
    "cat": "Concat",
    "_to_copy": "Cast",
    "clone": "Cast",
    "constant_pad_nd": "Pad",
    "topk": "TopK",
    "sum": "ReduceSum",
    "mean": "ReduceMean",
    "amax": "ReduceMax",
    "var": "ReduceMean",
    "max_pool2d_with_indices": "MaxPool",
    "avg_pool2d": "AveragePool",
    "_adaptive_avg_pool2d": "AveragePool",
    "upsample_nearest2d": "Resize",
    "upsample_bilinear2d": "Resize",
    **dict.fromkeys(
        (
            "scaled_dot_product_attention",
            "_scaled_dot_product_flash_attention_for_cpu",
            "_scaled_dot_product_flash_attention",
            "_scaled_dot_product_efficient_attention",
        ),
        "Attention",
    ),
    **dict.fromkeys(("view", "_unsafe_view", "reshape"), "Reshape"),
    "unsqueeze": "Unsqueeze",
    "squeeze": "Squeeze",
    **dict.fromkeys(
        ("permute", "t", "transpose", "expand", "slice", "select", "alias", "detach", "as_strided", "diagonal"),
        "Identity",
    ),
    **dict.fromkeys(("split_with_sizes", "split", "unbind", "chunk"), "Identity"),
}
"""Name in ATen -> kind; others are their own name, in capitals."""
_FREE = frozenset(("Reshape", "Unsqueeze", "Squeeze", "Identity"))


def graph_of_torch(module: Any, inputs: Any, name: str = "") -> Graph:
    """The graph of a module for these inputs: one tensor, a tuple of them, or keyword arguments as a dict."""
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch", "torch") from None
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"a torch.nn.Module is wanted, not {type(module).__name__}")
    program = _exported(torch, module, inputs)
    return _Reader(torch, program).graph(name or type(module).__name__)


def _exported(torch: Any, module: Any, inputs: Any) -> Any:
    named = dict(inputs) if isinstance(inputs, Mapping) else {}
    given = () if named else tuple(inputs) if isinstance(inputs, Sequence) else (inputs,)
    trained = [part for part in module.modules() if part.training]
    module.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of PyTorch about itself
            return torch.export.export(module, given, named, strict=False).run_decompositions()
    except Exception as error:  # torch.export has many of its own
        why = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        hint = "torch.export needs a module without control flow that depends on data"
        raise InputError(f"the module cannot be traced: {why}", hint=hint) from error
    finally:
        for part in trained:
            part.training = True


class _Reader:
    """Nodes of an exported program, one after another."""

    def __init__(self, torch: Any, program: Any) -> None:
        from torch.utils.flop_counter import flop_registry

        self._tensor, self._flops, self._program = torch.Tensor, flop_registry, program
        self._ops: list[Op] = []
        self._tensors: list[dict[str, Any]] = []
        self._made: dict[Any, list[int]] = {}  # node -> its tensors
        self._parts: dict[tuple[Any, int], int] = {}  # the same by place, where a node has several outputs
        self._weights: dict[Any, frozenset[str]] = {}  # node that is known before any input is -> weights it is made of
        self._bytes: dict[str, int] = {}
        self._used: dict[str, list[int]] = {}

    def graph(self, name: str) -> Graph:
        """All of it."""
        self._read_inputs()
        for node in self._program.graph.nodes:
            if node.op == "call_function":
                self._read(node)
            elif node.op == "output":
                for given in self._nodes(node.args):
                    for number in self._made.get(given, ()):
                        self._tensors[number]["output"] = True
        ops = [
            Op(op.name, op.kind, op.flops, self._own(number), 0, op.traffic_bytes, op.block)
            for number, op in enumerate(self._ops)
        ]
        tied = [Tied(word, self._bytes[word], tuple(used)) for word, used in self._used.items() if len(used) > 1]
        return assemble(name, ops, [Tensor(**tensor) for tensor in self._tensors], tied)

    def _read_inputs(self) -> None:
        places = {node.name: node for node in self._program.graph.nodes if node.op == "placeholder"}
        known: dict[int, str] = {}
        for spec in self._program.graph_signature.input_specs:
            node = places.get(getattr(spec.arg, "name", ""))
            if node is None:
                continue
            if spec.kind.name == "USER_INPUT":
                self._made[node] = self._add(node, node.name, MODEL_INPUT)
                continue
            held = self._program.state_dict.get(spec.target)
            place = 0 if held is None or held.is_meta else held.untyped_storage().data_ptr()
            word = known.setdefault(place, spec.target) if place else spec.target or node.name
            self._weights[node] = frozenset({word})
            self._bytes[word] = max(self._bytes.get(word, 0), _size(node.meta["val"]))

    def _read(self, node: Any) -> None:
        if node.target is operator.getitem:
            source, index = node.args
            if source in self._weights:
                self._weights[node] = self._weights[source]
            elif (source, index) in self._parts:
                self._made[node] = [self._parts[source, index]]
            return
        given = self._nodes((node.args, node.kwargs))
        if not any(other in self._made for other in given):
            self._weights[node] = frozenset().union(*(self._weights.get(other, frozenset()) for other in given))
            return
        value, number = node.meta.get("val"), len(self._ops)
        block, kind = _block(node), self._kind(node)
        reads = dict.fromkeys(tensor for other in given for tensor in self._made.get(other, ()))
        words = frozenset().union(*(self._weights.get(other, frozenset()) for other in given))
        for tensor in reads:
            self._tensors[tensor]["consumers"] += (number,)
        for word in sorted(words):
            self._used.setdefault(word, []).append(number)
        written = sum(_size(part) for part in self._values(value))
        read = sum(self._tensors[tensor]["bytes"] for tensor in reads) + sum(self._bytes[word] for word in words)
        if kind == "Gather":  # of a table only the rows that are wanted
            read = written
        name = f"{block}.{node.name}" if block else node.name
        traffic = 0 if kind in _FREE else read + written
        self._ops.append(Op(name, kind, self._flops_of(node, kind, value), 0, 0, traffic, block))
        self._made[node] = self._add(node, name, number)

    def _add(self, node: Any, name: str, producer: int) -> list[int]:
        """Tensors of a node; of several outputs only those that somebody takes."""
        value, first = node.meta.get("val"), len(self._tensors)
        several = isinstance(value, tuple | list)
        taken = {user.args[1] for user in node.users if user.target is operator.getitem}
        for place, part in enumerate(value if several else (value,)):
            if not isinstance(part, self._tensor) or (several and place not in taken):
                continue
            self._parts[node, place] = len(self._tensors)
            self._tensors.append(
                {
                    "name": f"{name}.{place}" if several else name,
                    "producer": producer,
                    "consumers": (),
                    "bytes": _size(part),
                    "shape": tuple(int(size) for size in part.shape),
                    "dtype": str(part.dtype).removeprefix("torch."),
                    "output": False,
                }
            )
        return list(range(first, len(self._tensors)))

    def _own(self, number: int) -> int:
        return sum(self._bytes[word] for word, used in self._used.items() if used == [number])

    def _kind(self, node: Any) -> str:
        word = getattr(node.target, "overloadpacket", node.target).__name__
        return _KINDS.get(word, "".join(part.capitalize() for part in word.split("_") if part))

    def _flops_of(self, node: Any, kind: str, value: Any) -> int:
        if kind in _FREE:
            return 0
        counter = self._flops.get(getattr(node.target, "overloadpacket", None))
        if counter is None:
            return sum(int(part.numel()) for part in self._values(value)[:1])
        return int(counter(*_mapped(node.args), **_mapped(node.kwargs), out_val=value))

    def _values(self, value: Any) -> list[Any]:
        """The tensors of an output."""
        parts = value if isinstance(value, tuple | list) else (value,)
        return [part for part in parts if isinstance(part, self._tensor)]

    def _nodes(self, found: Any) -> list[Any]:
        """All nodes in arguments, however deep."""
        if isinstance(found, Mapping):
            found = found.values()
        elif not isinstance(found, tuple | list):
            return [found] if hasattr(found, "meta") and hasattr(found, "op") else []
        return [node for part in found for node in self._nodes(part)]


def _mapped(found: Any) -> Any:
    """Arguments with the values of nodes instead of nodes."""
    if isinstance(found, Mapping):
        return {key: _mapped(part) for key, part in found.items()}
    if isinstance(found, tuple | list):
        return type(found)(_mapped(part) for part in found) if type(found) in (tuple, list) else [*map(_mapped, found)]
    return found.meta.get("val") if hasattr(found, "meta") and hasattr(found, "op") else found


def _size(value: Any) -> int:
    return int(value.numel()) * int(value.element_size())


def _block(node: Any) -> str:
    """The innermost module of a node: `layers.0.attention`."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path = str(stack[-1][0]) if stack else ""
    return path.replace("L['self']", "").strip(".")
