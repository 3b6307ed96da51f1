"""GCOF, graph coarsening by operator fusion (Moirai): the fusion rules of backends, and where they match in a graph.

In: a graph and a backend. Out: the kernel of every op. Rules are tried longest first, ops in topological order, until
nothing matches; what a rule joined is found by other rules as one op. Every tensor inside a pattern is read inside it
alone and is no output of the model, so only the last op of a pattern is seen from outside, and no path that leaves the
pattern can come back: joining keeps the graph acyclic.
Simplified: a graph does not say which input of an op is which, and has no attributes, so patterns do not ask for them.

A rule is a pattern of ops, written as steps: `name=Kind|Kind(inputs)`; the last step has no name and is what the rule
makes visible. Inputs are earlier steps, or letters for tensors from outside (the same letter is the same tensor); `*`
asks for a constant operand as well, `...` allows any further inputs; `_` is any kind. Order of inputs does not matter.
`gives` is the kind of the result, under which other rules find it; `=a` is the kind of step a.
Which entries were checked against an installed backend stands in docs/design/0014-fusion.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise, permutations
from typing import NamedTuple

import numpy as np

from weftline.graph import Graph
from weftline.graph.arrays import Indices

__all__ = ["BACKENDS", "RULES", "Rule", "backend_of", "matches", "pattern_of"]

CPU, CUDA, TENSORRT, OPENVINO, GENERIC = "ort-cpu", "ort-cuda", "tensorrt", "openvino", "generic"
BACKENDS = (CPU, CUDA, TENSORRT, OPENVINO, GENERIC)
"""`generic` stands for a backend that we know nothing about: what nearly all of them do."""

_ORT = (CPU, CUDA)
_ALL = BACKENDS
_COMPILERS = (TENSORRT, OPENVINO)

_ACTIVATION = "Relu|LeakyRelu|Sigmoid|Tanh"
_SOFT = "SiLU|QuickGelu|HardSwish|Gelu|FastGelu|Mish|Elu|Softplus|PRelu"
_MOVE = "Reshape|Squeeze|Unsqueeze|Flatten"
_POINTWISE = (
    "Add|Sub|Mul|Div|Pow|Sqrt|Exp|Log|Abs|Neg|Erf|Reciprocal|Min|Max|Relu|LeakyRelu|Sigmoid|Tanh|Clip|Elu|Floor|Ceil|"
    "Softplus|HardSigmoid|HardSwish|Gelu|FastGelu|QuickGelu|SiLU|PointWise"
)


@dataclass(frozen=True)
class Rule:
    """One fusion."""

    name: str
    gives: str
    pattern: str
    backends: tuple[str, ...]
    swaps_last_two: str = ""
    """A step that must swap the last two axes, and no others (a Transpose that a product can take in)."""


RULES = (
    # conv
    Rule("conv-bn", "Conv", "c=Conv(x) BatchNormalization(c)", _ALL),
    Rule("conv-add", "Conv", "c=Conv(x) Add(c,*)", _ALL),
    Rule("conv-mul", "Conv", "c=Conv(x) Mul(c,*)", (*_ORT, *_COMPILERS)),
    Rule("pad-conv", "Conv", "p=Pad(x) Conv(p)", (*_ORT, *_COMPILERS)),
    Rule("conv-sum-relu", "FusedConv", "c=Conv(x) a=Add(c,y) Relu(a)", (CUDA, *_COMPILERS)),
    Rule("conv-sum", "FusedConv", "c=Conv(x) Add(c,y)", _COMPILERS),
    Rule("conv-activation", "FusedConv", f"c=Conv(x) {_ACTIVATION}|Clip(c)", (CPU, *_COMPILERS, GENERIC)),
    Rule("conv-hard-sigmoid", "FusedConv", "c=Conv(x) HardSigmoid(c)", (CPU,)),
    Rule("conv-relu", "FusedConv", "c=Conv(x) Relu(c)", (CUDA,)),
    Rule("conv-soft-activation", "FusedConv", f"c=Conv(x) {_SOFT}(c)", _COMPILERS),
    Rule("bn-relu", "BatchNormalization", "b=BatchNormalization(x) Relu(b)", _COMPILERS),
    # gemm
    Rule("matmul-add", "Gemm", "m=MatMul(x) Add(m,*)", _ALL),
    Rule("gemm-activation", "FusedGemm", f"g=Gemm(x) {_ACTIVATION}(g)", (CPU, *_COMPILERS, GENERIC)),
    Rule(
        "gemm-more-activations",
        "FusedGemm",
        "g=Gemm(x) HardSigmoid|Elu|Selu|Softplus|Softsign|ThresholdedRelu(g)",
        (CPU,),
    ),
    Rule("gemm-soft-activation", "FusedGemm", f"g=Gemm(x) {_SOFT}(g)", _COMPILERS),
    Rule("matmul-scale", "FusedMatMul", "m=MatMul|FusedMatMul(x,...) Mul|Div(m,*)", (*_ORT, TENSORRT)),
    Rule("scale-matmul", "FusedMatMul", "s=Mul|Div(x,*) MatMul|FusedMatMul(s,...)", _ORT),
    Rule("transpose-matmul", "FusedMatMul", "t=Transpose(x) MatMul|FusedMatMul(t,...)", (*_ORT, *_COMPILERS), "t"),
    Rule("transpose-gemm", "Gemm", "t=Transpose(x) Gemm(t)", (*_ORT, TENSORRT), "t"),
    # activation
    Rule("gelu", "Gelu", "d=Div|Mul(x,*) e=Erf(d) a=Add(e,*) m=Mul(x,a) Mul(m,*)", (*_ORT, *_COMPILERS)),
    Rule("gelu-half-first", "Gelu", "h=Mul(x,*) d=Div|Mul(x,*) e=Erf(d) a=Add(e,*) Mul(h,a)", (*_ORT, *_COMPILERS)),
    Rule("gelu-half-last", "Gelu", "d=Div|Mul(x,*) e=Erf(d) a=Add(e,*) m=Mul(a,*) Mul(x,m)", _COMPILERS),
    Rule(
        "fast-gelu",
        "FastGelu",
        "p=Pow(x,*) c=Mul(p,*) s=Add(x,c) k=Mul(s,*) t=Tanh(k) a=Add(t,*) h=Mul(x,*) Mul(h,a)",
        (*_ORT, *_COMPILERS),
    ),
    Rule(
        "fast-gelu-half-last",
        "FastGelu",
        "p=Pow(x,*) c=Mul(p,*) s=Add(x,c) k=Mul(s,*) t=Tanh(k) a=Add(t,*) h=Mul(a,*) Mul(x,h)",
        _COMPILERS,
    ),
    Rule("bias-gelu", "BiasGelu", "a=Add(x,*) Gelu|FastGelu(a)", _ORT),
    Rule("quick-gelu", "QuickGelu", "m=Mul(x,*) s=Sigmoid(m) Mul(x,s)", (*_ORT, *_COMPILERS)),
    Rule("silu", "SiLU", "s=Sigmoid(x) Mul(x,s)", (*_ORT, *_COMPILERS)),
    Rule("hard-swish", "HardSwish", "a=Add(x,*) c=Clip(a) m=Mul(x,c) Div|Mul(m,*)", _COMPILERS),
    Rule("relu-clip", "Clip", "r=Relu(x) Clip(r)", (*_ORT, *_COMPILERS)),
    # norm
    Rule(
        "layer-norm",
        "LayerNormalization",
        "m=ReduceMean(x) d=Sub(x,m) p=Pow(d,*) v=ReduceMean(p) a=Add(v,*) s=Sqrt(a) q=Div(d,s) g=Mul(q,*) Add(g,*)",
        (*_ORT, *_COMPILERS),
    ),
    Rule(
        "layer-norm-square",
        "LayerNormalization",
        "m=ReduceMean(x) d=Sub(x,m) p=Mul(d) v=ReduceMean(p) a=Add(v,*) s=Sqrt(a) q=Div(d,s) g=Mul(q,*) Add(g,*)",
        _COMPILERS,
    ),
    Rule(
        "layer-norm-two-subs",
        "LayerNormalization",
        "m=ReduceMean(x) d=Sub(x,m) f=Sub(x,m) p=Pow(d,*) v=ReduceMean(p) a=Add(v,*) s=Sqrt(a) q=Div(f,s) g=Mul(q,*) "
        "Add(g,*)",
        (*_ORT, *_COMPILERS),
    ),
    Rule("skip-layer-norm", "SkipLayerNormalization", "a=Add(x,y) LayerNormalization(a)", (*_ORT, TENSORRT)),
    Rule(
        "embed-layer-norm",
        "EmbedLayerNormalization",
        "w=Gather(i) p=Gather(j) t=Gather(k) a=Add(w,p) b=Add(a,t) LayerNormalization(b)",
        (TENSORRT,),
    ),
    Rule(
        "rms-norm",
        "SimplifiedLayerNormalization",
        "p=Pow(x,*) v=ReduceMean(p) a=Add(v,*) s=Sqrt(a) q=Div(x,s) Mul(q,*)",
        (*_ORT, *_COMPILERS),
    ),
    Rule(
        "rms-norm-reciprocal",
        "SimplifiedLayerNormalization",
        "p=Pow(x,*) v=ReduceMean(p) a=Add(v,*) s=Sqrt(a) r=Reciprocal(s) q=Mul(x,r) Mul(q,*)",
        _COMPILERS,
    ),
    # attention
    Rule(
        "attention-masked",
        "Attention",
        "s=MatMul(q,k) d=Div|Mul(s,*) a=Add(d,m) p=Softmax(a) MatMul(p,v)",
        _COMPILERS,
    ),
    Rule(
        "attention-constant-mask",
        "Attention",
        "s=MatMul(q,k) d=Div|Mul(s,*) a=Add(d,*) p=Softmax(a) MatMul(p,v)",
        _COMPILERS,
    ),
    Rule("attention", "Attention", "s=MatMul(q,k) d=Div|Mul(s,*) p=Softmax(d) MatMul(p,v)", _COMPILERS),
    Rule("attention-masked-unscaled", "Attention", "s=MatMul(q,k) a=Add(s,m) p=Softmax(a) MatMul(p,v)", _COMPILERS),
    Rule("attention-unscaled", "Attention", "s=MatMul(q,k) p=Softmax(s) MatMul(p,v)", _COMPILERS),
    # shape-only
    Rule("eliminate-behind", "=a", "a=_(x,...) Identity|Dropout(a)", _ALL),
    Rule("eliminate-before", "=b", "a=Identity|Dropout(x) b=_(a,...)", _ALL),
    Rule("cast-pair", "Cast", "a=Cast(x) Cast(a)", (*_ORT, *_COMPILERS)),
    Rule("reshape-chain", "Reshape", f"a={_MOVE}(x) {_MOVE}(a)", (*_ORT, *_COMPILERS)),
    Rule("transpose-chain", "Transpose", "a=Transpose(x) Transpose(a)", (*_ORT, *_COMPILERS)),
    Rule(
        "shape-reshape",
        "Reshape",
        "s=Shape(x) g=Gather(s) u=Unsqueeze(g) c=Concat(u,...) Reshape(y,c)",
        (*_ORT, *_COMPILERS),
    ),
    Rule("shape-reshape-more", "Reshape", "s=Shape(x) g=Gather(s) u=Unsqueeze(g) Reshape(u,...)", (*_ORT, *_COMPILERS)),
    # pointwise and reduce
    Rule("pointwise", "PointWise", f"a={_POINTWISE}(x,...) {_POINTWISE}(a,...)", _COMPILERS),
    Rule("square-reduce", "ReduceMean", "p=Pow|Mul(x) ReduceMean|ReduceSum(p)", (TENSORRT,)),
    Rule("l2-norm", "ReduceL2", "r=ReduceSum(x) Sqrt(r)", _COMPILERS),
)
"""Rules of equal length are tried in this order."""

_BY_PROVIDER = {
    "CUDAExecutionProvider": CUDA,
    "ROCMExecutionProvider": CUDA,
    "MIGraphXExecutionProvider": GENERIC,
    "TensorrtExecutionProvider": TENSORRT,
    "NvTensorRTRTXExecutionProvider": TENSORRT,
    "OpenVINOExecutionProvider": OPENVINO,
}


def backend_of(runtime: str) -> str:
    """`Device.runtime` -> the backend whose rules hold there; ONNX Runtime on the CPU where nothing is said."""
    engine, _, rest = runtime.partition(":")
    provider = rest.partition(":")[0]
    if engine in ("", "ort"):
        return _BY_PROVIDER.get(provider, CPU if provider in ("", "CPUExecutionProvider") else GENERIC)
    return engine if engine in (TENSORRT, OPENVINO) else GENERIC


ANY = frozenset({"_"})
LAST = ""
"""Name of the step that is seen from outside, where the rule gives it none."""
MAX_INPUTS = 16
"""Ops with more inputs are compared with patterns of one named input only."""


class Step(NamedTuple):
    """One op of a pattern."""

    name: str
    kinds: frozenset[str]
    inputs: tuple[str, ...]
    constant: bool
    more: bool


class FusionPattern(NamedTuple):
    """A rule, read."""

    rule: Rule
    steps: dict[str, Step]
    last: Step
    before: tuple[frozenset[str], ...]
    """Kinds that must be among the makers of what the last step reads: a quick test."""


@cache
def pattern_of(rule: Rule) -> FusionPattern:
    """Read the words of a rule."""
    steps: dict[str, Step] = {}
    for word in rule.pattern.split():
        head, _, inside = word.rstrip(")").partition("(")
        name, _, kinds = head.rpartition("=")
        given = inside.split(",")
        inputs = tuple(item for item in given if item not in ("*", "..."))
        steps[name] = Step(name, frozenset(kinds.split("|")), inputs, "*" in given, "..." in given)
    last = steps[name]
    before = (steps[given].kinds for given in last.inputs if given in steps)
    return FusionPattern(rule, steps, last, tuple(kinds for kinds in before if kinds != ANY))


def matches(graph: Graph, backend: str, rules: Sequence[Rule] = RULES) -> Indices:
    """(n,): ops with the same number are one kernel of the backend."""
    board = _Board.of(graph)
    by_length: dict[int, dict[str, list[FusionPattern]]] = {}
    for pattern in _possible(set(board.kind), [pattern_of(rule) for rule in rules if backend in rule.backends]):
        for kind in pattern.last.kinds:
            by_length.setdefault(len(pattern.steps), {}).setdefault(kind, []).append(pattern)
    found = True
    while found:
        found = False
        for length in sorted(by_length, reverse=True):
            patterns = by_length[length]
            for node in range(len(graph.ops)):
                kind = board.kind[node]
                while kind and (kind in patterns or "_" in patterns) and _join_one(board, patterns, node):
                    found, kind = True, board.kind[node]
    kernel = np.empty(len(graph.ops), np.int32)
    for node, members in enumerate(board.members):
        kernel[members] = node
    return kernel


def _possible(kinds: set[str], patterns: list[FusionPattern]) -> list[FusionPattern]:
    """The patterns whose kinds all occur in the graph, or are made by other patterns that are possible."""
    while True:
        fit = [pattern for pattern in patterns if all(step.kinds & (kinds | ANY) for step in pattern.steps.values())]
        made = {pattern.rule.gives for pattern in fit}
        if made <= kinds:
            return fit
        kinds = kinds | made


def _join_one(board: _Board, patterns: dict[str, list[FusionPattern]], node: int) -> bool:
    makers = {board.kind[board.maker[tensor]] for tensor in board.inputs[node] if board.maker[tensor] >= 0}
    for pattern in (*patterns.get(board.kind[node], ()), *patterns.get("_", ())):
        if any(makers.isdisjoint(kinds) for kinds in pattern.before):
            continue
        for bound in _bindings(board, pattern, [(pattern.last, node)], {}, {}):
            if _accepted(board, pattern, bound, node):
                board.join(bound, node, pattern)
                return True
    return False


def _bindings(
    board: _Board, pattern: FusionPattern, todo: list[tuple[Step, int]], bound: dict[str, int], outside: dict[str, int]
) -> Iterator[dict[str, int]]:
    """Every way to find the steps that are left, as step -> node; `outside` are the tensors of the letters."""
    if not todo:
        yield bound
        return
    (step, node), rest = todo[0], todo[1:]
    if step.name in bound:
        if bound[step.name] == node:
            yield from _bindings(board, pattern, rest, bound, outside)
        return
    inputs = board.inputs[node]
    fits = len(inputs) == len(step.inputs) or (step.more and len(inputs) > len(step.inputs))
    if not fits or node in bound.values() or (step.constant and not board.constant[node]):
        return
    if (step.kinds != ANY and board.kind[node] not in step.kinds) or (
        len(inputs) > MAX_INPUTS and len(step.inputs) > 1
    ):
        return
    for choice in permutations(inputs, len(step.inputs)):
        further, letters = list(rest), dict(outside)
        for name, tensor in zip(step.inputs, choice, strict=True):
            if name in pattern.steps:
                further.append((pattern.steps[name], board.maker[tensor]))
            elif letters.setdefault(name, tensor) != tensor:
                break
        else:
            if all(maker >= 0 for _, maker in further):
                yield from _bindings(board, pattern, further, {**bound, step.name: node}, letters)


def _accepted(board: _Board, pattern: FusionPattern, bound: dict[str, int], last: int) -> bool:
    """Is everything inside read inside alone?"""
    nodes = set(bound.values())
    for node in nodes - {last}:
        for tensor in board.outputs[node]:
            if board.kept[tensor] or not board.readers[tensor] <= nodes:
                return False
    swap = pattern.rule.swaps_last_two
    return not swap or board.swaps_last_two(bound[swap])


@dataclass(frozen=True)
class _Board:
    """The graph while it shrinks. A joined node has the number of its last op; the others have no kind any more."""

    graph: Graph
    kind: list[str]
    members: list[list[int]]
    inputs: list[list[int]]
    """Node -> tensors from outside."""
    outputs: list[list[int]]
    constant: list[bool]
    """Node -> has it a constant operand?"""
    maker: list[int]
    readers: list[set[int]]
    kept: list[bool]
    """Tensor -> is it an output of the model?"""

    @staticmethod
    def of(graph: Graph) -> _Board:
        arrays = graph.arrays
        tied = {op for weight in graph.tied for op in weight.ops}
        return _Board(
            graph=graph,
            kind=[op.kind or "?" for op in graph.ops],
            members=[[op] for op in range(len(graph.ops))],
            inputs=_rows(arrays.input_ptr, arrays.input_of),
            outputs=_rows(arrays.output_ptr, arrays.output_of),
            constant=[op.weight_bytes > 0 or number in tied for number, op in enumerate(graph.ops)],
            maker=arrays.producer.tolist(),
            readers=[set(tensor.consumers) for tensor in graph.tensors],
            kept=[tensor.output for tensor in graph.tensors],
        )

    def join(self, bound: dict[str, int], last: int, pattern: FusionPattern) -> None:
        """Make one node of several."""
        gives = pattern.rule.gives
        kind = self.kind[bound[gives[1:]]] if gives.startswith("=") else gives
        others = [node for node in bound.values() if node != last]
        inside = {tensor for node in others for tensor in self.outputs[node]}
        inputs = dict.fromkeys(tensor for node in (*others, last) for tensor in self.inputs[node])
        for node in others:
            for tensor in self.inputs[node]:
                self.readers[tensor].discard(node)
                self.readers[tensor].add(last)
            self.members[last] += self.members[node]
            self.constant[last] |= self.constant[node]
            self.members[node], self.inputs[node], self.outputs[node], self.kind[node] = [], [], [], ""
        self.inputs[last] = [tensor for tensor in inputs if tensor not in inside]
        self.kind[last] = kind

    def swaps_last_two(self, node: int) -> bool:
        """True for a Transpose whose shapes fit a swap of the last two axes."""
        if len(self.inputs[node]) != 1 or not self.outputs[node]:
            return False
        before = self.graph.tensors[self.inputs[node][0]].shape
        after = self.graph.tensors[self.outputs[node][0]].shape
        return len(before) > 1 and after == (*before[:-2], before[-1], before[-2])


def _rows(pointer: Indices, row_of: Indices) -> list[list[int]]:
    ends, values = pointer.tolist(), row_of.tolist()
    return [values[a:b] for a, b in pairwise(ends)]
