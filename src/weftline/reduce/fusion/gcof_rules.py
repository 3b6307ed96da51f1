"""The table of fusion rules, and which backend a device has.

A rule is a pattern of ops, written as steps: `name=Kind|Kind(inputs)`; the last step has no name and is what the rule
makes visible. Inputs are earlier steps, or letters for tensors from outside (the same letter is the same tensor); `*`
asks for a constant operand as well, `...` allows any further inputs; `_` is any kind. Order of inputs does not matter.
`gives` is the kind of the result, under which other rules find it; `=a` is the kind of step a.
Which entries were checked against an installed backend stands in docs/design/0014-fusion.md.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BACKENDS", "RULES", "Rule", "backend_of"]

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
