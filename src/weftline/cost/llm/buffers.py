"""Compute buffers of llama.cpp: what its worst case graph of one micro-batch needs on each device and on the host.

In: a model, settings, which layers a device holds and where it stands. Out: bytes.
Simplified: closed forms. They were found with `llama-fit-params --fit-print on` of build 11669: every live tensor of a
layer counts in rows of the hidden width (4h bytes), beside the widest tensors of the feed-forward (or of attention),
the logits, and one mask per kind of attention. For dense models they meet what it prints within 1 MiB; with experts,
sliding windows or latent attention 97 of 100 sizes are within 1 % or 16 MiB, and the others within 10 %. For recurrent
layers and for CUDA's own pools they are estimates. vLLM and SGLang measure their peak at the start: an estimate, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import msgspec

from weftline.cost.llm.settings import CACHE_PADDING, LlmEngine, LlmSettings
from weftline.importers.llm import AttentionKind, LanguageModel, LlmLayer

__all__ = ["Position", "buffers_are_exact", "compute_buffer", "host_buffer", "padded_cells", "window_cells"]

INPUT_COPIES = 4
"""Of the inputs, where micro-batches overlap over devices (GGML_SCHED_MAX_COPIES)."""
OWN_ROWS = 4
"""Rows of the hidden width on a device that is alone."""
FEW_EXPERTS = 2
LATENT_NUMBERS = 1024
"""Latent attention: live numbers per head and token."""


class Position(Enum):
    """Where a device stands among those that hold layers."""

    ONLY = "only"
    FIRST = "first"
    MIDDLE = "middle"
    LAST = "last"
    OUTPUT = "output"
    """The last of several, with the output layer and no other."""


class _Rows(msgspec.Struct, frozen=True):
    """Live rows of the hidden width beside the widest tensors."""

    dense: int
    experts: int = 0
    """More, beside the rows that experts give."""
    output: int = 1
    """Beside the logits; with one row only, the masks are gone by then."""


_OVERLAPPED = {
    Position.ONLY: _Rows(OWN_ROWS, output=4),
    Position.FIRST: _Rows(16, 1),
    Position.MIDDLE: _Rows(11, 1),
    Position.LAST: _Rows(11, output=9),
}
_IN_TURN = {
    Position.ONLY: _Rows(OWN_ROWS, output=4),
    Position.FIRST: _Rows(4),
    Position.MIDDLE: _Rows(2),
    Position.LAST: _Rows(2),
}
"""Weights of some layers are elsewhere (-ot)."""
_BEHIND_HOST = {
    Position.ONLY: _Rows(2, 2),
    Position.FIRST: _Rows(2, 2),
    Position.MIDDLE: _Rows(2),
    Position.LAST: _Rows(2),
}
_HOST = _Rows(5)
"""The first layers are on the host (-ngl): devices, and the host itself."""


def buffers_are_exact(model: LanguageModel, settings: LlmSettings) -> bool:
    """Whether the closed forms were met within 1 MiB for such models: llama.cpp, dense, full attention."""
    plain = all(layer.attention is AttentionKind.FULL and not layer.experts for layer in model.layers)
    return plain and settings.flash_attention and settings.engine is LlmEngine.LLAMACPP


def padded_cells(cells: int) -> int:
    """llama.cpp's caches hold multiples of 256 tokens."""
    return -(-cells // CACHE_PADDING) * CACHE_PADDING


def window_cells(layer: LlmLayer, settings: LlmSettings) -> int:
    """Tokens that llama.cpp's cache of one stream holds for a layer."""
    streams = settings.concurrency if settings.unified_cache else 1
    cells = padded_cells(settings.context * streams)
    if layer.attention is AttentionKind.SLIDING and layer.window and not settings.full_windows:
        return padded_cells(min(cells, layer.window * streams + settings.micro_batch))
    return cells


def _masks(layers: Sequence[LlmLayer], settings: LlmSettings) -> int:
    """Bytes per token of the masks of layers: one for each kind of cache."""
    size = 2 if settings.flash_attention else 4
    looking = [y for y in layers if y.attention not in (AttentionKind.RECURRENT, AttentionKind.NONE)]
    kinds = {y.attention is AttentionKind.SLIDING: window_cells(y, settings) for y in looking}
    return size * sum(kinds.values())


def _widest(layer: LlmLayer, hidden: int) -> int:
    """Bytes per token of three tensors of the feed-forward's width, or of attention's."""
    if layer.attention is AttentionKind.LATENT:
        attention = 4 * LATENT_NUMBERS * layer.heads + 160 * hidden // 7
    else:
        attention = 8 * layer.heads * layer.key_length
    return max(12 * layer.ffn, attention, 8 * hidden)


def _expert_bytes(layer: LlmLayer, hidden: int, rows: _Rows) -> int:
    """Bytes per token at the fullest moment of experts. What they give is one row for each; it goes where two of the
    three tensors of their width were, if it fits."""
    inner, given, row = 4 * layer.expert_ffn * layer.experts_used, 4 * hidden * layer.experts_used, 4 * hidden
    if 2 * inner >= given:
        return 3 * inner + row * rows.dense
    beside = 3 * inner if inner > row else 0
    return beside + given + row * (rows.dense + (rows.experts if layer.experts_used > FEW_EXPERTS else 0))


def _layer_bytes(layer: LlmLayer, hidden: int, rows: _Rows) -> int:
    """Bytes per token at the fullest moment of a layer."""
    found = _widest(layer, hidden) + 4 * hidden * rows.dense
    return max(found, _expert_bytes(layer, hidden, rows)) if layer.experts else found


def _scores(layer: LlmLayer, settings: LlmSettings, hidden: int, rows: _Rows) -> int:
    """Bytes per token of attention without the flash kind: scores of all heads, queries twice, keys and values."""
    if layer.attention in (AttentionKind.RECURRENT, AttentionKind.NONE):
        return 0
    scores = 4 * layer.heads * window_cells(layer, settings)
    if layer.attention is AttentionKind.LATENT:
        return scores + _layer_bytes(layer, hidden, rows)
    pairs = layer.kv_heads * (layer.key_length + layer.value_length)
    several = rows.dense > OWN_ROWS
    queries = 2 if several or any("q_norm" in tensor.name for tensor in layer.tensors) else 1
    live = hidden * rows.dense + queries * layer.heads * layer.key_length + (2 if several else 1) * pairs
    return scores + 4 * live


def _tokens(settings: LlmSettings) -> int:
    cells = padded_cells(settings.context * (settings.concurrency if settings.unified_cache else 1))
    return min(cells, settings.micro_batch)


def compute_buffer(
    model: LanguageModel,
    settings: LlmSettings,
    position: Position = Position.ONLY,
    *,
    pipelined: bool = True,
    host_layers: bool = False,
    layers: Sequence[int] | None = None,
) -> int:
    """Bytes of a device's compute buffer.

    `pipelined`: micro-batches overlap over the devices (not with -ot, nor with layers on the host). `host_layers`: the
    first layers are on the host. `layers`: those on this device; None: any of the model."""
    if settings.engine is not LlmEngine.LLAMACPP:
        return _activations(model, settings)
    overlapped = pipelined and not host_layers
    if position is Position.OUTPUT:
        return _tokens(settings) * (4 * model.vocabulary + (20 if overlapped else 4) * model.hidden)
    rows = _OVERLAPPED[position] if overlapped else _BEHIND_HOST[position] if host_layers else _IN_TURN[position]
    held = model.layers if layers is None else [model.layers[at] for at in layers]
    copies = INPUT_COPIES if overlapped and position is not Position.ONLY else 1
    masks = copies * _masks(held, settings)
    found = max((_at_most(layer, settings, model.hidden, rows) for layer in held), default=0) + masks
    if position in (Position.ONLY, Position.LAST):
        kept = masks if rows.output > 1 else 0
        found = max(found, 4 * model.vocabulary + 4 * model.hidden * rows.output + kept)
    return _tokens(settings) * found


def _at_most(layer: LlmLayer, settings: LlmSettings, hidden: int, rows: _Rows) -> int:
    found = _layer_bytes(layer, hidden, rows)
    return found if settings.flash_attention else max(found, _scores(layer, settings, hidden, rows))


def host_buffer(
    model: LanguageModel,
    settings: LlmSettings,
    devices: int = 1,
    *,
    pipelined: bool = True,
    host_layers: bool = False,
    moved: bool = False,
) -> int:
    """llama.cpp: bytes of the host's compute buffer beside so many devices. `moved`: it has weights of layers that are
    elsewhere (-ot)."""
    if settings.engine is not LlmEngine.LLAMACPP:
        return 0
    hidden, masks = model.hidden, _masks(model.layers, settings)
    if host_layers:
        layers = max((_at_most(layer, settings, hidden, _HOST) for layer in model.layers), default=0)
        return _tokens(settings) * (layers + masks)
    pairs = 0
    if not settings.flash_attention:
        pairs = max((4 * y.kv_heads * (y.key_length + y.value_length) for y in model.layers), default=0)
    if devices > 1 and pipelined and not moved:
        return _tokens(settings) * (40 * hidden + 4 * pairs + INPUT_COPIES * masks)
    away = max((_moved_bytes(layer, hidden) for layer in model.layers), default=0) + 8 * hidden if moved else 0
    return _tokens(settings) * (max(16 * hidden, away) + pairs + masks)


def _moved_bytes(layer: LlmLayer, hidden: int) -> int:
    """Bytes per token around the last product of a feed-forward."""
    used = layer.experts_used if layer.experts else 0
    return 4 * (max(layer.ffn, layer.expert_ffn * used) + hidden * used)


def _activations(model: LanguageModel, settings: LlmSettings) -> int:
    """vLLM, SGLang: the peak of a profiling run with a full batch of prompts."""
    ffn = max((max(y.ffn, y.expert_ffn * y.experts_used) for y in model.layers), default=0)
    logits = 8 * model.vocabulary * min(settings.concurrency, 256)
    return settings.prompt_batch * (6 * max(ffn, model.hidden) + 8 * model.hidden) + logits
