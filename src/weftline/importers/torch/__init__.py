"""A live `torch.nn.Module` or `torch.export.ExportedProgram` -> Graph: shapes are worked out, nothing is computed.

In: a module and example inputs; or a program, and sizes of its open dimensions. Out: the graph of its inference in core
ATen operations; an op is named by its module and its node, its block is its module, so that plans can be exported by
layer. Kinds are ONNX's words where there is one (one cost model serves all). What depends on weights alone is part of
them. A size that depends on data, or an open one that is not given, is the limit that PyTorch knows (of `nonzero`: the
size of its input; `Dim("batch", max=512)`), else a stand-in that is called guessed. Simplified: views cost nothing; an
operation of which PyTorch's own counter knows no flops counts one for each element that it makes; numbers cost nothing,
and are waited for where no shape says them already; no weight is looked at.
"""

from __future__ import annotations

import operator
import warnings
from collections.abc import Mapping, Sequence
from math import prod
from types import MappingProxyType
from typing import Any

from msgspec.structs import replace

from weftline.errors import InputError, MissingExtra, UsageError
from weftline.graph import Graph, Op, Tensor, Tied, assemble
from weftline.graph.ir import MODEL_INPUT
from weftline.importers.onnx.sizes import Size, dynamic_axes, is_guessed
from weftline.importers.torch.sizes import OpenSizes, by_data, dim_names

__all__ = ["graph_of_torch"]

_WORDS = {
    "MatMul": "mm bmm dot mv",
    "Gemm": "addmm baddbmm",
    "Conv": "convolution",
    "LayerNormalization": "native_layer_norm",
    "GroupNormalization": "native_group_norm",
    "BatchNormalization": "_native_batch_norm_legit_no_training",
    "Softmax": "_softmax",
    "LogSoftmax": "_log_softmax",
    "Clip": "hardtanh clamp",
    "HardSwish": "hardswish",
    "HardSigmoid": "hardsigmoid",
    "LeakyRelu": "leaky_relu",
    "Gather": "embedding index_select",
    "GatherND": "index",
    "GatherElements": "gather",
    "ScatterElements": "scatter",
    "Concat": "cat",
    "Cast": "_to_copy clone",
    "Pad": "constant_pad_nd",
    "TopK": "topk",
    "NonZero": "nonzero",
    "ReduceSum": "sum",
    "ReduceMean": "mean var",
    "ReduceMax": "amax",
    "MaxPool": "max_pool2d_with_indices",
    "AveragePool": "avg_pool2d _adaptive_avg_pool2d",
    "Resize": "upsample_nearest2d upsample_bilinear2d",
    "Attention": "scaled_dot_product_attention _scaled_dot_product_flash_attention_for_cpu "
    "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention",
    "Reshape": "view _unsafe_view reshape",
    "Unsqueeze": "unsqueeze",
    "Squeeze": "squeeze",
    "Identity": "permute t transpose expand slice select alias detach as_strided diagonal "
    "split_with_sizes split unbind chunk",
}
_KINDS = {name: kind for kind, names in _WORDS.items() for name in names.split()}
"""Name in ATen -> kind; others are their own name, in capitals."""
_FREE = frozenset(("Reshape", "Unsqueeze", "Squeeze", "Identity"))
_PICKS = frozenset(("nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive"))
"""Their outputs have at most as many rows as the first input has elements."""


def graph_of_torch(
    module: Any, inputs: Any = None, name: str = "", dims: Mapping[str, int] = MappingProxyType({})
) -> Graph:
    """The graph of a module for these inputs: one tensor, a tuple of them, or keyword arguments as a dict.

    Of an exported program the inputs say the sizes of open dimensions, as `dims` does by their names in the program.
    """
    try:
        import torch
    except ImportError:
        raise MissingExtra("torch", "torch") from None
    if isinstance(module, torch.export.ExportedProgram):
        sizes = OpenSizes(program := _decomposed(module), inputs, dims, dim_names(module))
        return _Reader(torch, program, sizes).graph(name or "program")
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"a torch.nn.Module is wanted, not {type(module).__name__}")
    if inputs is None:
        raise UsageError("a module needs example inputs: wl.from_torch(module, inputs)")
    if dims:
        raise UsageError("dims are for a torch.export.ExportedProgram; of a module the example inputs say all sizes")
    program = _exported(torch, module, inputs)
    return _Reader(torch, program, OpenSizes(program, None, {}, {})).graph(name or type(module).__name__)


def _decomposed(program: Any) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return program.run_decompositions()
    except Exception as error:  # PyTorch has many of its own
        raise InputError(f"the program cannot be read: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


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
        hint = "torch.export needs a module without control flow that depends on data"
        raise InputError(f"the module cannot be traced: {_first_line(error)}", hint=hint) from error
    finally:
        for part in trained:
            part.training = True


class _Reader:
    """Nodes of an exported program, one after another."""

    def __init__(self, torch: Any, program: Any, sizes: OpenSizes) -> None:
        from torch.utils.flop_counter import flop_registry

        self._tensor, self._flops, self._program, self._sizes = torch.Tensor, flop_registry, program, sizes
        self._ops: list[Op] = []
        self._tensors: list[dict[str, Any]] = []
        self._moved: list[int] = []  # bytes of each
        self._made: dict[Any, list[int]] = {}  # node -> its tensors
        self._parts: dict[tuple[Any, int], int] = {}  # the same by place, where a node has several outputs
        self._weights: dict[Any, frozenset[str]] = {}  # node that is known before any input is -> weights it is made of
        self._bytes: dict[str, int] = {}
        self._used: dict[str, list[int]] = {}
        self._counted: dict[Any, list[int]] = {}  # node that makes a number out of data -> tensors that hold it

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
        ops = [self._weighted(op, number) for number, op in enumerate(self._ops)]
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
            self._bytes[word] = max(self._bytes.get(word, 0), int(self._size(node.meta["val"])))

    def _read(self, node: Any) -> None:
        if node.target is operator.getitem:
            source, index = node.args
            if source in self._weights:
                self._weights[node] = self._weights[source]
            elif (source, index) in self._parts:
                self._made[node] = [self._parts[source, index]]
            return
        given = self._nodes((node.args, node.kwargs))
        value, number = node.meta.get("val"), len(self._ops)
        reads = dict.fromkeys(self._reads(given))
        if not self._values(value):
            if by_data(value):
                self._counted[node] = list(reads)
            return
        words = frozenset().union(*(self._weights.get(other, frozenset()) for other in given))
        if not reads:
            self._weights[node] = words
            return
        block, kind = _block(node), self._kind(node)
        for tensor in reads:
            self._tensors[tensor]["consumers"] += (number,)
        for word in sorted(words):
            self._used.setdefault(word, []).append(number)
        self._limit_by_input(node, given)
        written = sum(self._size(part) for part in self._values(value))
        read = sum(self._moved[tensor] for tensor in reads) + sum(self._bytes[word] for word in words)
        if kind == "Gather":  # of a table only the rows that are wanted
            read = written
        name = f"{block}.{node.name}" if block else node.name
        traffic = 0 if kind in _FREE else read + written
        flops = self._flops_of(node, kind, value)
        guessed = kind not in _FREE and (is_guessed(traffic) or is_guessed(flops))
        self._ops.append(Op(name, kind, int(flops), 0, 0, int(traffic), block, guessed=guessed))
        self._made[node] = self._add(node, name, number)

    def _limit_by_input(self, node: Any, given: Sequence[Any]) -> None:
        """What is picked out of a tensor is no more than it has."""
        if getattr(node.target, "overloadpacket", node.target).__name__ not in _PICKS:
            return
        source = self._values(given[0].meta.get("val"))
        most = prod(self._sizes.shape(source[0])) if source else Size(0, guessed=True)
        if not is_guessed(most):
            for part in self._values(node.meta.get("val")):
                self._sizes.limit(part, int(most))

    def _reads(self, given: Sequence[Any]) -> list[int]:
        """Tensors that a node waits for: for a number only where no shape that it reads says that already."""
        found = [tensor for other in given for tensor in self._made.get(other, ())]
        known = set().union(*(by_data(other.meta.get("val")) for other in given if other in self._made))
        for other in given:
            if other in self._counted and not by_data(other.meta.get("val")) <= known:
                found += self._counted[other]
        return found

    def _add(self, node: Any, name: str, producer: int) -> list[int]:
        """Tensors of a node; of several outputs only those that somebody takes."""
        value, first = node.meta.get("val"), len(self._tensors)
        several = isinstance(value, tuple | list)
        taken = {user.args[1] for user in node.users if user.target is operator.getitem}
        for place, part in enumerate(value if several else (value,)):
            if not isinstance(part, self._tensor) or (several and place not in taken):
                continue
            self._parts[node, place] = len(self._tensors)
            shape, moved = self._sizes.shape(part), self._size(part)
            self._moved.append(moved)
            self._tensors.append(
                {
                    "name": f"{name}.{place}" if several else name,
                    "producer": producer,
                    "consumers": (),
                    "bytes": int(moved),
                    "shape": tuple(map(int, shape)),
                    "dtype": str(part.dtype).removeprefix("torch."),
                    "output": False,
                    "dynamic": dynamic_axes(shape),
                    "guessed": any(map(is_guessed, shape)),
                }
            )
        return list(range(first, len(self._tensors)))

    def _size(self, value: Any) -> int:
        """In bytes."""
        return prod(self._sizes.shape(value)) * int(value.element_size())

    def _weighted(self, op: Op, number: int) -> Op:
        """With its own weights; what reads the weights of one module inside its own (positions, looked up before there
        is any input) belongs to that module."""
        own = [word for word, used in self._used.items() if used == [number]]
        homes = {word.rpartition(".")[0] for word in own}
        home = homes.pop() if len(homes) == 1 else ""
        inside = home.startswith(f"{op.block}." if op.block else "")
        return replace(
            op, weight_bytes=sum(self._bytes[word] for word in own), block=home if inside and home else op.block
        )

    def _kind(self, node: Any) -> str:
        word = getattr(node.target, "overloadpacket", node.target).__name__
        return _KINDS.get(word, "".join(part.capitalize() for part in word.split("_") if part))

    def _flops_of(self, node: Any, kind: str, value: Any) -> int:
        if kind in _FREE:
            return 0
        counter = self._flops.get(getattr(node.target, "overloadpacket", None))
        made = sum(prod(self._sizes.shape(part)) for part in self._values(value)[:1])
        if counter is None:
            return made
        given = self._nodes((node.args, node.kwargs))
        parts = [part for other in (node, *given) for part in self._values(other.meta.get("val"))]
        inexact = [size for part in parts for size in self._sizes.shape(part) if isinstance(size, Size)]
        if all(isinstance(size, int) for part in parts for size in part.shape):
            return int(counter(*_mapped(node.args), **_mapped(node.kwargs), out_val=value))
        try:  # PyTorch's formulas take shapes in the place of tensors
            found = counter(*self._shaped(node.args), **self._shaped(node.kwargs), out_val=self._shaped(value))
        except Exception:  # one that asks more of a tensor
            return made
        return Size(int(found), guessed=any(map(is_guessed, inexact))) if inexact else int(found)

    def _shaped(self, found: Any) -> Any:
        """Arguments with shapes and numbers instead of nodes and tensors."""
        if isinstance(found, Mapping):
            return {key: self._shaped(part) for key, part in found.items()}
        if isinstance(found, tuple | list):
            return [self._shaped(part) for part in found]
        if hasattr(found, "meta") and hasattr(found, "op"):
            return self._shaped(found.meta.get("val"))
        if isinstance(found, self._tensor):
            return tuple(map(int, self._sizes.shape(found)))
        return int(self._sizes.of(found)) if hasattr(found, "node") else found

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


def _block(node: Any) -> str:
    """The innermost module of a node: `layers.0.attention`."""
    stack = list(node.meta.get("nn_module_stack", {}).values())
    path = str(stack[-1][0]) if stack else ""
    return path.replace("L['self']", "").strip(".")
