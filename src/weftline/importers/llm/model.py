"""What a language model is made of: tensors with their bytes, layers with what they cache.

In: made by the readers beside it. Out: frozen structs that costs, memory and plans are computed from.
Simplified: a tensor belongs to one part of one layer; expert tensors hold all experts of their layer.
"""

from __future__ import annotations

from enum import Enum

import msgspec

__all__ = ["AttentionKind", "LanguageModel", "LlmLayer", "LlmTensor", "TensorPart"]


class AttentionKind(Enum):
    """How a layer looks back."""

    FULL = "full"
    """Every earlier token (multi-head, grouped or multi-query)."""
    SLIDING = "sliding"
    """The last `window` tokens."""
    LATENT = "latent"
    """Multi-head latent attention (MLA): one compressed row per token."""
    RECURRENT = "recurrent"
    """Linear attention or a state-space layer: a state per sequence, nothing per token."""
    NONE = "none"
    """The layer does not look back, or reads the cache of another layer."""


class TensorPart(Enum):
    """What a tensor is for; plans may move parts apart."""

    EMBEDDING = "embedding"
    ATTENTION = "attention"
    """Also recurrent mixers."""
    FFN = "ffn"
    """Dense feed-forward."""
    EXPERTS = "experts"
    """Routed experts."""
    SHARED = "shared"
    """Shared experts, used by every token."""
    ROUTER = "router"
    NORM = "norm"
    OUTPUT = "output"
    """Output head, with the last norm."""


class LlmTensor(msgspec.Struct, frozen=True):
    """One tensor, or equal ones of a layer counted together."""

    name: str
    """As GGUF names it: token_embd.weight, blk.3.attn_q.weight, blk.3.ffn_gate_exps.weight, output.weight ..."""
    part: TensorPart
    shape: tuple[int, ...]
    """Innermost first, as in GGUF."""
    type: str
    """Of its numbers, in small letters: f32, f16, bf16, fp8, q4_k, mxfp4 ..."""
    bytes: int

    @property
    def parameters(self) -> int:
        """Numbers in it."""
        count = 1
        for size in self.shape:
            count *= size
        return count


class LlmLayer(msgspec.Struct, frozen=True):
    """One block of the stack."""

    attention: AttentionKind
    tensors: tuple[LlmTensor, ...]
    heads: int = 0
    kv_heads: int = 0
    key_length: int = 0
    """Numbers per key and head."""
    value_length: int = 0
    latent_length: int = 0
    """MLA: numbers per token (compressed row and rotary part; with sparse attention the row of its indexer too)."""
    window: int = 0
    """Sliding windows: tokens."""
    state_bytes: int = 0
    """Recurrent: bytes per sequence."""
    ffn: int = 0
    """Width of the dense feed-forward; 0 where there is none."""
    experts: int = 0
    experts_used: int = 0
    expert_ffn: int = 0
    shared_ffn: int = 0
    """Width of all shared experts together."""

    @property
    def bytes(self) -> int:
        """Of all its weights."""
        return sum(tensor.bytes for tensor in self.tensors)


class LanguageModel(msgspec.Struct, frozen=True):
    """A language model as facts."""

    name: str
    architecture: str
    """As its files call it: llama, qwen3_moe, deepseek_v3 ..."""
    source: str
    """Where the facts are from: a path, or the source of the catalogue."""
    hidden: int
    vocabulary: int
    context: int
    """The longest context it was made for; 0: unknown."""
    layers: tuple[LlmLayer, ...]
    embedding: tuple[LlmTensor, ...]
    output: tuple[LlmTensor, ...]
    """Last norm and output head; without the head where it is tied to the embedding."""
    tied: bool
    mtp: tuple[LlmLayer, ...] = ()
    """Layers that predict further tokens; usually not loaded."""
    quantisation: str = ""
    """Name of the recipe, as the user or the file says: q4_k_m, fp8 ..."""
    exact_bytes: bool = False
    """True where bytes are read from headers, False where they follow from shapes and a recipe."""
    notes: tuple[str, ...] = ()
    """What the reader had to assume, in words for the user."""

    @property
    def tensors(self) -> tuple[LlmTensor, ...]:
        """All that one token needs: embedding, layers, output; without the layers of `mtp`."""
        return (*self.embedding, *(t for layer in self.layers for t in layer.tensors), *self.output)

    @property
    def parameters(self) -> int:
        """Of the main model, without the layers of `mtp`; tied tables count once."""
        return sum(tensor.parameters for tensor in self.tensors)
