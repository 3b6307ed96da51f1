"""Shapes of a stack of layers: what a configuration says, in one form for all architectures.

In: filled by the readers of configurations. Out: `StackShape`, which `build` turns into tensors. Simplified: what all
layers share (biases, norms) is said once, in `TensorStyle`; tensors are those that llama.cpp keeps.
"""

from __future__ import annotations

import msgspec

from weftline.importers.llm.model import AttentionKind

__all__ = ["LatentShape", "LayerShape", "LinearShape", "MambaShape", "StackShape", "TensorStyle"]


class LatentShape(msgspec.Struct, frozen=True):
    """Multi-head latent attention."""

    query_rank: int
    """0: queries are not compressed."""
    row: int
    """Numbers of the compressed row of keys and values."""
    rotary: int
    """Numbers of the part of a key that is rotated."""
    plain: int
    """Numbers of the part of a key, per head, that is not."""
    value: int
    """Numbers of a value, per head."""
    index_heads: int = 0
    """Sparse attention: heads of the indexer; 0 where every token is looked at."""
    index_length: int = 0


class LinearShape(msgspec.Struct, frozen=True):
    """Gated delta rule: linear attention with a state."""

    key_heads: int
    value_heads: int
    key_length: int
    value_length: int
    kernel: int
    """Tokens of the short convolution."""
    split_gates: bool = True
    """Two tensors for alpha and beta, not one."""


class MambaShape(msgspec.Struct, frozen=True):
    """A state-space layer (Mamba 2)."""

    heads: int
    head_length: int
    state: int
    groups: int
    kernel: int

    @property
    def inner(self) -> int:
        """Numbers that pass through it per token."""
        return self.heads * self.head_length

    @property
    def channels(self) -> int:
        """Of the short convolution."""
        return self.inner + 2 * self.groups * self.state


class LayerShape(msgspec.Struct, frozen=True):
    """One block, as numbers."""

    attention: AttentionKind
    heads: int = 0
    kv_heads: int = 0
    key_length: int = 0
    value_length: int = 0
    window: int = 0
    latent: LatentShape | None = None
    linear: LinearShape | None = None
    mamba: MambaShape | None = None
    shares_values: bool = False
    """Keys are values too: there is no matrix for values."""
    ffn: int = 0
    experts: int = 0
    experts_used: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0


class TensorStyle(msgspec.Struct, frozen=True):
    """Which small tensors a layer of this architecture has, and which large ones are one."""

    query_bias: bool = False
    """Of queries, keys and values."""
    output_bias: bool = False
    head_norms: bool = False
    """A norm of every head's queries and keys."""
    per_head_norms: bool = False
    """The same, with weights of its own for each head."""
    wide_norms: bool = False
    """A norm of all queries, and of all keys, of a token."""
    norm_bias: bool = False
    sinks: bool = False
    norms: tuple[str, ...] = ("attn_norm", "ffn_norm")
    """Names of the norms that are as wide as the model."""
    expert_norms: tuple[str, ...] = ()
    """Further ones of layers with experts."""
    gated_query: bool = False
    """Twice the queries: half of them gate the output."""
    fused_attention: bool = False
    gate: bool = True
    """Feed-forward is gated: three matrices, or two where `fused_gate`."""
    fused_gate: bool = False
    ffn_bias: bool = False
    router_bias: bool = False
    score_bias: bool = False
    """Added to scores in order to choose experts."""
    expert_bias: bool = False
    shared_gate: bool = False
    """A gate of one number for the shared expert."""
    scales: bool = False
    """One number for each layer; with experts, one for each of them and a row of them for the router."""


class StackShape(msgspec.Struct, frozen=True):
    """A whole model, as numbers."""

    name: str
    architecture: str
    source: str
    hidden: int
    vocabulary: int
    context: int
    layers: tuple[LayerShape, ...]
    style: TensorStyle = TensorStyle()
    tied: bool = False
    mtp: tuple[LayerShape, ...] = ()
    type: str = "bf16"
    """Of the published weights."""
    quantisation: str = ""
    """Of the published weights, where they are quantised."""
    positions: int = 0
    """Rows of a learned table of positions."""
    notes: tuple[str, ...] = ()
