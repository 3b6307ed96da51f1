"""Time of a prompt: FLOPs over the compute rate, attention with the square of its length, weights over PCIe.

In: a LanguageModel, settings, devices. Out: integer ns per layer and device, and of a placement.
Simplified: every micro-batch reads all weights; constants are of builds without flash attention, so long prompts are
faster than this with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from weftline.cost.llm.constants import constants_for, number_family
from weftline.cost.llm.decode import matrix_time, part_parameters, part_reads, read_time
from weftline.cost.llm.devices import LlmDevice
from weftline.cost.llm.settings import LlmEngine, LlmSettings
from weftline.cost.llm.weights import layer_weights
from weftline.importers.llm import AttentionKind, LanguageModel, LlmLayer

__all__ = ["OFFLOAD_BATCH", "attention_flops", "copy_time", "layer_prefill", "prefill_time"]

OFFLOAD_BATCH = 32
"""llama.cpp: from so many tokens on, weights in the host's memory are copied to a card and used there."""
COPIED_PERCENT = 60
"""Of the way to the host: what copies of weights reach, by the prompts of one desktop with weights in its memory."""
PARTS_PER_MILLION = 1_000_000


def attention_flops(layer: LlmLayer, first: int, tokens: int) -> int:
    """FLOPs of scores and sums for tokens that come after `first` others: 2 products of each query with all it sees."""
    if layer.attention in (AttentionKind.NONE, AttentionKind.RECURRENT):
        return 0
    seen = first * tokens + tokens * tokens // 2
    if layer.attention is AttentionKind.SLIDING and layer.window:
        seen = min(seen, layer.window * tokens)
    length = layer.key_length + layer.value_length or 2 * layer.latent_length
    return 2 * layer.heads * length * seen


def copy_time(card: LlmDevice, size: int) -> int:
    """Nanoseconds to copy weights from the host's memory to a card."""
    return -(-size * 10**9 // max(1, card.host_bandwidth * COPIED_PERCENT // 100))


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
    size = settings.micro_batch if settings.engine is LlmEngine.LLAMACPP else settings.prompt_batch
    batches, tokens = -(-prompt // size), min(prompt, size)
    spilled = device.kind == "cpu" and helper is not None and tokens >= OFFLOAD_BATCH
    worker = helper if spilled and helper is not None else device
    known = constants_for(worker.cost_class, family, settings.engine)
    flops = 2 * sum(part_parameters(layer, width)) * prompt
    time = matrix_time(worker, flops, known.matrix_ppm)
    seen = attention_flops(layer, 0, prompt) // width
    time += -(-seen * 10**12 // max(1, worker.bandwidth * known.attention_flops_per_kb))
    if spilled:
        reading = batches * copy_time(worker, layer_weights(layer, width))
        return time + reading + batches * known.batch_layer_ns
    reading = batches * read_time(worker, sum(part_reads(layer, tokens, width)), known.memory_ppm)
    return max(time, reading) + batches * known.batch_layer_ns


def prefill_time(
    model: LanguageModel,
    settings: LlmSettings,
    devices: Sequence[LlmDevice],
    layers: Sequence[int],
    prompt: int,
) -> int:
    """Nanoseconds from a prompt to its first token, with each layer on the device of that index.

    Micro-batches follow each other over several cards, unless a layer is on the host."""
    family = number_family(model)
    cards = [device for device in devices if device.kind != "cpu" and not device.remote]
    helper = max(cards, key=lambda device: device.host_bandwidth) if cards else None
    sums = dict.fromkeys(layers, 0)
    for layer, at in zip(model.layers, layers, strict=True):
        sums[at] += layer_prefill(layer, settings, devices[at], prompt, family, helper)
    if len(sums) < 2 or any(devices[at].kind == "cpu" for at in sums):
        return sum(sums.values())
    batches = -(-prompt // settings.micro_batch)
    loss = max(constants_for(devices[at].cost_class, family, settings.engine).card_loss_ppm for at in sums)
    first = sum(sums.values()) // batches
    rest = max(sums.values()) * (batches - 1) // batches
    return (first + rest) * (PARTS_PER_MILLION + loss * (len(sums) - 1)) // PARTS_PER_MILLION
