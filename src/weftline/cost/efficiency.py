"""The one table of efficiency factors of the analytic model: which share of a device's peak an op kind reaches.

`compute` is the share of the peak FLOP/s, `memory` the share of the peak bandwidth. Sources: rules of thumb for
vendor libraries at batch 1; replace them by measurement (`weftline profile`) wherever a plan matters.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FREE_KINDS", "Efficiency", "efficiency"]


@dataclass(frozen=True)
class Efficiency:
    """Shares of the peak, between 0 and 1."""

    compute: float
    memory: float


_DENSE = Efficiency(compute=0.60, memory=0.80)
_CONVOLUTION = Efficiency(compute=0.50, memory=0.75)
_ATTENTION = Efficiency(compute=0.45, memory=0.75)
_RECURRENT = Efficiency(compute=0.15, memory=0.50)
_NORMALISATION = Efficiency(compute=0.10, memory=0.60)
_POINTWISE = Efficiency(compute=0.20, memory=0.75)
_MOVEMENT = Efficiency(compute=1.0, memory=0.60)
_IRREGULAR = Efficiency(compute=0.05, memory=0.20)

_TABLE: dict[str, Efficiency] = {
    **dict.fromkeys(("MatMul", "Gemm", "FusedMatMul", "FusedGemm", "Einsum", "MatMulInteger", "QLinearMatMul"), _DENSE),
    **dict.fromkeys(("Conv", "ConvTranspose", "FusedConv", "ConvInteger", "QLinearConv", "DeformConv"), _CONVOLUTION),
    **dict.fromkeys(("Attention", "MultiHeadAttention", "GroupQueryAttention", "QAttention"), _ATTENTION),
    **dict.fromkeys(("LSTM", "GRU", "RNN", "Loop", "Scan", "If"), _RECURRENT),
    **dict.fromkeys(
        (
            "BatchNormalization",
            "LayerNormalization",
            "SkipLayerNormalization",
            "EmbedLayerNormalization",
            "SimplifiedLayerNormalization",
            "RMSNormalization",
            "InstanceNormalization",
            "GroupNormalization",
            "LRN",
            "Softmax",
            "LogSoftmax",
            "ReduceMean",
            "ReduceSum",
            "ReduceMax",
        ),
        _NORMALISATION,
    ),
    **dict.fromkeys(
        ("Transpose", "Concat", "Split", "Slice", "Pad", "Gather", "Expand", "Tile", "Cast", "Resize", "DepthToSpace"),
        _MOVEMENT,
    ),
    **dict.fromkeys(
        (
            "TopK",
            "NonMaxSuppression",
            "ScatterND",
            "ScatterElements",
            "GatherElements",
            "GatherND",
            "NonZero",
            "Unique",
        ),
        _IRREGULAR,
    ),
}

FREE_KINDS = frozenset(
    {"Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Dropout", "Shape", "Size", "virtual"}
)
"""Kinds that move no data and launch no kernel: 0 ns."""


def efficiency(kind: str) -> Efficiency:
    """The factors of an op kind; what the table does not know counts as pointwise."""
    return _TABLE.get(kind, _POINTWISE)
