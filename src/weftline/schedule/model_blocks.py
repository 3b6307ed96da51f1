"""The models of Tessel's evaluation as layers: GPT, mT5, Flava and Swin at the published sizes for 4 to 32 GPUs.

In: a model and a number of GPUs. Out: a `Network`: layers of its branches, for a micro-batch of one sequence or image.
Published are layers, hidden sizes, the range of the vocabulary and GPT's sequence; what is not (heads, other sequences,
Swin's sizes, Flava's split into branches, which follows the original's 2 : 2 : 1) is our choice. As in the published
placement M the head that predicts tokens is not part of the model.
"""

from __future__ import annotations

from dataclasses import dataclass

from weftline.errors import UsageError
from weftline.schedule.model_blocks_machine import HALF, Layer

__all__ = ["MODELS", "Network", "make_network"]

HEAD = 128
"""Features of an attention head."""


@dataclass(frozen=True)
class Network:
    """A model: one chain (`first`), an encoder and a decoder, or two branches that join."""

    name: str
    shape: str
    """The placement made for it: mshape, nnshape, kshape or vshape."""
    embedding: Layer | None
    """Looked up before `first`, and before `second` of an encoder-decoder."""
    first: tuple[Layer, ...]
    second: tuple[Layer, ...] = ()
    joined: tuple[Layer, ...] = ()
    """What works on both branches."""


GPT = {4: (32, 4096, 1024), 8: (40, 6144, 1024), 16: (48, 8192, 1536), 32: (80, 8192, 1536)}
MT5 = {4: (24, 1024, 1024), 8: (24, 3072, 1024), 16: (32, 6144, 1536), 32: (40, 8192, 1536)}
"""GPUs -> layers, hidden size, thousands (1024) of tokens."""
FLAVA = {4: (24, 4096)}
SWIN = {4: (18, 512), 8: (26, 768), 16: (42, 1024), 32: (58, 1024)}
"""GPUs -> blocks of the third stage, hidden size of the first."""
GPT_TOKENS, MT5_TOKENS, TEXT_TOKENS, IMAGE_TOKENS = 2048, 1024, 512, 576
SWIN_SIDE, SWIN_WINDOW = 1536 // 4, 12
"""Tokens along an image's side in the first stage, and along a window's."""


def make_network(model: str, gpus: int) -> Network:
    """The model at the size for so many GPUs."""
    if model not in MODELS or gpus not in MODELS[model]:
        known = "; ".join(f"{name} for {', '.join(map(str, sizes))} GPUs" for name, sizes in MODELS.items())
        raise UsageError(f"there is no {model!r} for {gpus} GPUs; there are: {known}")
    return {"gpt": _gpt, "mt5": _mt5, "flava": _flava, "swin": _swin}[model](gpus)


def _gpt(gpus: int) -> Network:
    layers, hidden, vocabulary = GPT[gpus]
    layer = _transformer("layer", GPT_TOKENS, hidden, GPT_TOKENS)
    return Network(f"gpt-{gpus}", "mshape", _embedding(vocabulary, hidden, GPT_TOKENS), (layer,) * layers)


def _mt5(gpus: int) -> Network:
    layers, hidden, vocabulary = MT5[gpus]
    encoder = _transformer("encoder", MT5_TOKENS, hidden, MT5_TOKENS)
    decoder = _transformer("decoder", MT5_TOKENS, hidden, MT5_TOKENS, cross=True)
    embedding = _embedding(vocabulary, hidden, MT5_TOKENS)
    return Network(f"mt5-{gpus}", "nnshape", embedding, (encoder,) * (layers // 2), (decoder,) * (layers // 2))


def _flava(gpus: int) -> Network:
    layers, hidden = FLAVA[gpus]
    both = TEXT_TOKENS + IMAGE_TOKENS
    return Network(
        f"flava-{gpus}",
        "kshape",
        None,
        (_transformer("text", TEXT_TOKENS, hidden, TEXT_TOKENS),) * layers,
        (_transformer("image", IMAGE_TOKENS, hidden, IMAGE_TOKENS),) * layers,
        (_transformer("both", both, hidden, both),) * (layers // 2),
    )


def _swin(gpus: int) -> Network:
    blocks, hidden = SWIN[gpus]
    layers: list[Layer] = []
    for stage, depth in enumerate((2, 2, blocks, 2)):
        tokens = (SWIN_SIDE >> stage) ** 2
        layers += [_transformer(f"stage {stage}", tokens, hidden << stage, SWIN_WINDOW**2)] * depth
    return Network(f"swin-{gpus}", "vshape", None, tuple(layers))


def _transformer(name: str, tokens: int, hidden: int, seen: int, *, cross: bool = False) -> Layer:
    """Self-attention over `seen` tokens, a feed-forward part of 4 times the hidden size, maybe attention across."""
    attentions = 2 if cross else 1
    parameters = (8 + 4 * attentions) * hidden**2
    state = tokens * hidden * HALF
    scores = -(-hidden // HEAD) * tokens * seen * HALF
    return Layer(
        name,
        flops=2 * tokens * parameters,
        attention_flops=4 * attentions * tokens * seen * hidden,
        traffic=16 * state + 4 * attentions * scores,
        parameters=parameters,
        output=state * attentions,  # a decoder hands on what the encoder said
        work=17 * state + 3 * attentions * scores,
        reductions=1 + attentions,
    )


def _embedding(thousands: int, hidden: int, tokens: int) -> Layer:
    """A lookup. Its gradient is dense: written, and added to what other micro-batches left (read, read, write)."""
    rows, state = thousands * 1024, tokens * hidden * HALF
    dense = 4 * rows * hidden * HALF
    return Layer("embedding", 0, 0, 2 * state, rows * hidden, state, rows * hidden * HALF, 1, dense)


MODELS: dict[str, tuple[int, ...]] = {"gpt": tuple(GPT), "mt5": tuple(MT5), "flava": tuple(FLAVA), "swin": tuple(SWIN)}
"""Model -> numbers of GPUs that it has a size for."""
