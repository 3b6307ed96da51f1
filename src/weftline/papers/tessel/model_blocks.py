"""The machine of Tessel's evaluation, and what layers and messages take on it.

In: layers (flops, parameters, bytes). Out: nanoseconds and bytes on equal GPUs: a roofline with the cost room's
efficiencies, ring all-reduces for tensor parallelism, sends between stages. Simplified: half precision, no overlap of
communication with computation, a message between servers has the whole network card.

The models of Tessel's evaluation as layers: GPT, mT5, Flava and Swin at the published sizes for 4 to 32 GPUs.

In: a model and a number of GPUs. Out: a `TesselModel`: layers of its branches, for a micro-batch of one sample.
Published are layers, hidden sizes, the range of the vocabulary and GPT's sequence; what is not (heads, other sequences,
Swin's sizes, Flava's split into branches, which follows the original's 2 : 2 : 1) is our choice. As in the published
placement M the head that predicts tokens is not part of the model.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from weftline.cluster import Rate
from weftline.cost.analytic import efficiency
from weftline.errors import UsageError

__all__ = ["MODELS", "V100", "Machine", "ModelLayer", "TesselModel", "make_network"]

HALF_BYTES = 2
"""Bytes of a number in half precision."""
TRAINED_BYTES = 8
"""Bytes per parameter in training: weights, gradients and two moments in half precision. With more the published
models would not fit their GPUs."""
LAYER_KERNELS = 12
"""Launches of a layer."""


@dataclass(frozen=True)
class ModelLayer:
    """A layer for one micro-batch; what tensor parallelism divides is written undivided."""

    name: str
    flops: int
    """Of dense products."""
    attention_flops: int
    traffic: int
    """Bytes that everything else reads and writes."""
    parameters: int
    output: int
    """Bytes that go to the next layer; kept until the backward pass, which computes the rest again."""
    work: int
    """Bytes while the layer is computed again."""
    reductions: int
    """All-reduces of the output in the forward pass, when the layer is split over devices."""
    gradient_traffic: int = 0
    """Bytes that the backward pass moves for dense gradients of an embedding."""


@dataclass(frozen=True)
class Machine:
    """Equal GPUs in servers."""

    name: str
    rate: Rate
    memory: int
    per_server: int
    link: int
    """Bytes/s of a GPU to others of its server, each way."""
    network: int
    """Bytes/s between servers."""
    delay: int
    """Nanoseconds of any message."""

    def forward(self, layers: Sequence[ModelLayer], devices: Sequence[int]) -> int:
        """Time of layers that are split over devices."""
        return sum(self._compute(layer, len(devices)) + self._reductions(layer, devices) for layer in layers)

    def backward(self, layers: Sequence[ModelLayer], devices: Sequence[int]) -> int:
        """The forward pass again, and twice its work; its messages again, and once more for gradients."""
        return sum(
            3 * self._compute(layer, len(devices))
            + 2 * self._reductions(layer, devices)
            + self._move(layer.gradient_traffic, len(devices))
            for layer in layers
        )

    def send(self, size: int, source: int, target: int) -> int:
        """Time of a message between two devices."""
        if source == target or size == 0:
            return 0
        same = source // self.per_server == target // self.per_server
        return self.delay + ceil(size * 1e9 / (self.link if same else self.network))

    def all_reduce(self, size: int, devices: Sequence[int]) -> int:
        """A ring; the slowest link of the ring decides."""
        count = len(devices)
        if count == 1 or size == 0:
            return 0
        apart = len({device // self.per_server for device in devices}) > 1
        seconds = 2 * (count - 1) / count * size / (self.network if apart else self.link)
        return 2 * (count - 1) * self.delay + ceil(seconds * 1e9)

    def room(self, layers: Sequence[tuple[ModelLayer, int]], train: bool) -> int:
        """Bytes left on a device that holds a share 1 / n of each layer."""
        weights = sum(
            -(-layer.parameters * (TRAINED_BYTES if train else HALF_BYTES) // count) for layer, count in layers
        )
        work = [layer.work if train or not layer.gradient_traffic else layer.output for layer, _ in layers]
        return (
            self.memory - weights - max((-(-w // count) for w, (_, count) in zip(work, layers, strict=True)), default=0)
        )

    def _compute(self, layer: ModelLayer, count: int) -> int:
        dense = layer.flops / (self.rate.fp16 * efficiency("MatMul").compute)
        attention = layer.attention_flops / (self.rate.fp16 * efficiency("Attention").compute)
        launches = LAYER_KERNELS * self.rate.launch if layer.flops else self.rate.launch
        return ceil((dense + attention) * 1e9 / count) + self._move(layer.traffic, count) + launches

    def _move(self, size: int, count: int) -> int:
        return ceil(size * 1e9 / (self.rate.bandwidth * efficiency("Add").memory * count))

    def _reductions(self, layer: ModelLayer, devices: Sequence[int]) -> int:
        return layer.reductions * self.all_reduce(layer.output, devices)


V100 = Machine(
    name="V100 SXM2 32 GB, 8 per server, 100 Gb/s between servers (datasheet)",
    rate=Rate(fp32=15_700 * 10**9, fp16=125 * 10**12, bandwidth=900 * 10**9, launch=5_000, source="datasheet"),
    memory=30 * 2**30,
    per_server=8,
    link=150 * 10**9,
    network=12_500 * 10**6,
    delay=10_000,
)
"""2 GiB of 32 are left for the runtime."""


HEAD_WIDTH = 128
"""Features of an attention head."""


@dataclass(frozen=True)
class TesselModel:
    """A model: one chain (`first`), an encoder and a decoder, or two branches that join."""

    name: str
    shape: str
    """The placement made for it: mshape, nnshape, kshape or vshape."""
    embedding: ModelLayer | None
    """Looked up before `first`, and before `second` of an encoder-decoder."""
    first: tuple[ModelLayer, ...]
    second: tuple[ModelLayer, ...] = ()
    joined: tuple[ModelLayer, ...] = ()
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


def make_network(model: str, gpus: int) -> TesselModel:
    """The model at the size for so many GPUs."""
    if model not in MODELS or gpus not in MODELS[model]:
        known = "; ".join(f"{name} for {', '.join(map(str, sizes))} GPUs" for name, sizes in MODELS.items())
        raise UsageError(f"there is no {model!r} for {gpus} GPUs; there are: {known}")
    return {"gpt": _gpt, "mt5": _mt5, "flava": _flava, "swin": _swin}[model](gpus)


def _gpt(gpus: int) -> TesselModel:
    layers, hidden, vocabulary = GPT[gpus]
    layer = _transformer("layer", GPT_TOKENS, hidden, GPT_TOKENS)
    return TesselModel(f"gpt-{gpus}", "mshape", _embedding(vocabulary, hidden, GPT_TOKENS), (layer,) * layers)


def _mt5(gpus: int) -> TesselModel:
    layers, hidden, vocabulary = MT5[gpus]
    encoder = _transformer("encoder", MT5_TOKENS, hidden, MT5_TOKENS)
    decoder = _transformer("decoder", MT5_TOKENS, hidden, MT5_TOKENS, cross=True)
    embedding = _embedding(vocabulary, hidden, MT5_TOKENS)
    return TesselModel(f"mt5-{gpus}", "nnshape", embedding, (encoder,) * (layers // 2), (decoder,) * (layers // 2))


def _flava(gpus: int) -> TesselModel:
    layers, hidden = FLAVA[gpus]
    both = TEXT_TOKENS + IMAGE_TOKENS
    return TesselModel(
        f"flava-{gpus}",
        "kshape",
        None,
        (_transformer("text", TEXT_TOKENS, hidden, TEXT_TOKENS),) * layers,
        (_transformer("image", IMAGE_TOKENS, hidden, IMAGE_TOKENS),) * layers,
        (_transformer("both", both, hidden, both),) * (layers // 2),
    )


def _swin(gpus: int) -> TesselModel:
    blocks, hidden = SWIN[gpus]
    layers: list[ModelLayer] = []
    for stage, depth in enumerate((2, 2, blocks, 2)):
        tokens = (SWIN_SIDE >> stage) ** 2
        layers += [_transformer(f"stage {stage}", tokens, hidden << stage, SWIN_WINDOW**2)] * depth
    return TesselModel(f"swin-{gpus}", "vshape", None, tuple(layers))


def _transformer(name: str, tokens: int, hidden: int, seen: int, *, cross: bool = False) -> ModelLayer:
    """Self-attention over `seen` tokens, a feed-forward part of 4 times the hidden size, maybe attention across."""
    attentions = 2 if cross else 1
    parameters = (8 + 4 * attentions) * hidden**2
    state = tokens * hidden * HALF_BYTES
    scores = -(-hidden // HEAD_WIDTH) * tokens * seen * HALF_BYTES
    return ModelLayer(
        name,
        flops=2 * tokens * parameters,
        attention_flops=4 * attentions * tokens * seen * hidden,
        traffic=16 * state + 4 * attentions * scores,
        parameters=parameters,
        output=state * attentions,  # a decoder hands on what the encoder said
        work=17 * state + 3 * attentions * scores,
        reductions=1 + attentions,
    )


def _embedding(thousands: int, hidden: int, tokens: int) -> ModelLayer:
    """A lookup. Its gradient is dense: written, and added to what other micro-batches left (read, read, write)."""
    rows, state = thousands * 1024, tokens * hidden * HALF_BYTES
    dense = 4 * rows * hidden * HALF_BYTES
    return ModelLayer("embedding", 0, 0, 2 * state, rows * hidden, state, rows * hidden * HALF_BYTES, 1, dense)


MODELS: dict[str, tuple[int, ...]] = {"gpt": tuple(GPT), "mt5": tuple(MT5), "flava": tuple(FLAVA), "swin": tuple(SWIN)}
"""Model -> numbers of GPUs that it has a size for."""
