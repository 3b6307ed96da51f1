"""Time of a prompt: FLOPs over the compute rate, attention with the square of its length, weights over PCIe.

In: a LanguageModel, settings, devices. Out: integer ns per layer and device, and of a placement.
Simplified: no overlap of cards (llama.cpp can overlap micro-batches over cards); every micro-batch reads all weights.
"""

from __future__ import annotations

from collections.abc import Sequence

from weftline.cost.llm.constants import constants_for, number_family
from weftline.cost.llm.decode import part_reads, read_time
from weftline.cost.llm.devices import LlmDevice
from weftline.cost.llm.settings import LlmSettings
from weftline.cost.llm.weights import layer_weights
from weftline.importers.llm import AttentionKind, LanguageModel, LlmLayer, TensorPart

__all__ = ["OFFLOAD_BATCH", "active_parameters", "attention_flops", "layer_prefill", "prefill_time"]

OFFLOAD_BATCH = 32
"""llama.cpp: from so many tokens on, weights in the host's memory are copied to a card and used there."""
FLOPS_PER_BYTE = 40
"""Compute rate that is assumed where none is known: FLOP/s for each byte/s of memory bandwidth."""
PARTS_PER_MILLION = 1_000_000


def active_parameters(layer: LlmLayer) -> int:
    """Weights of a layer that one token is multiplied with."""
    total = 0
    for tensor in layer.tensors:
        if tensor.part is TensorPart.EXPERTS and layer.experts:
            total += tensor.parameters * layer.experts_used // layer.experts
        else:
            total += tensor.parameters
    return total


def attention_flops(layer: LlmLayer, first: int, tokens: int) -> int:
    """FLOPs of scores and sums for tokens that come after `first` others: 2 products of each query with all it sees."""
    if layer.attention in (AttentionKind.NONE, AttentionKind.RECURRENT):
        return 0
    seen = first * tokens + tokens * tokens // 2
    if layer.attention is AttentionKind.SLIDING and layer.window:
        seen = min(seen, layer.window * tokens)
    length = layer.key_length + layer.value_length or 2 * layer.latent_length
    return 2 * layer.heads * length * seen


def _compute_time(device: LlmDevice, flops: int, family: str) -> int:
    peak = device.flops or device.bandwidth * FLOPS_PER_BYTE
    return -(-flops * 10**9 // max(1, peak * constants_for(device.cost_class, family).compute_ppm // PARTS_PER_MILLION))


def layer_prefill(
    layer: LlmLayer,
    settings: LlmSettings,
    device: LlmDevice,
    prompt: int,
    family: str,
    helper: LlmDevice | None = None,
    width: int = 1,
) -> int:
    """Nanoseconds of a whole prompt in one layer. `helper`: the card that computes what lies in the host's memory."""
    batches = -(-prompt // max(1, settings.micro_batch))
    tokens = min(prompt, settings.micro_batch)
    spilled = device.kind == "cpu" and helper is not None and tokens >= OFFLOAD_BATCH
    worker = helper if spilled and helper is not None else device
    work = 2 * active_parameters(layer) * prompt // width + attention_flops(layer, 0, prompt) // width
    time = _compute_time(worker, work, family)
    reading = batches * read_time(worker, sum(part_reads(layer, tokens, width)), family)
    if spilled:
        reading = batches * -(-layer_weights(layer, width) * 10**9 // max(1, worker.host_bandwidth))
        return time + reading
    fixed = batches * constants_for(device.cost_class, family).layer_ns
    return max(time, reading) + fixed


def prefill_time(
    model: LanguageModel,
    settings: LlmSettings,
    devices: Sequence[LlmDevice],
    layers: Sequence[int],
    prompt: int,
) -> int:
    """Nanoseconds from a prompt to its first token, with each layer on the device of that index."""
    family = number_family(model)
    cards = [device for device in devices if device.kind != "cpu" and not device.remote]
    helper = max(cards, key=lambda device: device.host_bandwidth) if cards else None
    return sum(
        layer_prefill(layer, settings, devices[at], prompt, family, helper)
        for layer, at in zip(model.layers, layers, strict=True)
    )
