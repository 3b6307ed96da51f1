"""Time per decoded token, in parts that add up: what a part of a layer costs on a device, and each layer, hop and step.

In: a LanguageModel, settings, devices. Out: `DecodeCosts`, integer ns, and `decode_time` of a placement.
Simplified: reading, computing, a constant per layer and a constant per hop are added; nothing overlaps. With
many requests weights are read once, caches once per request, and experts as many as are touched on average.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from weftline.cost.llm.constants import LlmConstants, constants_for, number_family
from weftline.cost.llm.devices import LlmDevice
from weftline.cost.llm.memory import cache_read
from weftline.cost.llm.settings import LlmSettings
from weftline.cost.llm.weights import MOVABLE_PARTS, moved_part, output_weights, part_weights
from weftline.importers.llm import LanguageModel, LlmLayer, TensorPart

__all__ = [
    "DecodeCosts",
    "decode_costs",
    "decode_time",
    "experts_touched",
    "hop_time",
    "matrix_time",
    "part_parameters",
    "part_reads",
    "read_time",
    "weight_time",
]

ALL_REDUCE_NS = 20_000
"""Latency of one all-reduce between cards of one host (10 to 50 us without peer access)."""
SPLIT_NS = 30_000
"""A part of a layer away from the layer's device: over and back again."""
FLOPS_PER_BYTE = 40
"""Rate of matrix products that is assumed where none is known: FLOP/s for each byte/s of memory bandwidth."""
PARTS_PER_MILLION = 1_000_000


class DecodeCosts(msgspec.Struct, frozen=True):
    """Nanoseconds of one step (one token of every request), for every layer and device."""

    parts: tuple[tuple[tuple[int, ...], ...], ...]
    """[layer][device][part]: reading the weights of each of MOVABLE_PARTS, and computing with them."""
    cache: tuple[tuple[int, ...], ...]
    """[layer][device]: reading the cache of the layer, which lies on the layer's device."""
    layer: tuple[int, ...]
    """[device]: constant of each layer, with the all-reduces of a tensor-parallel group."""
    output: tuple[int, ...]
    """[device]: the output layer."""
    hop: tuple[tuple[int, ...], ...]
    """[device][device]: from a layer on the first to a layer on the second; 0 on the diagonal."""
    away: tuple[tuple[int, ...], ...]
    """[device of the layer][device of a part]: over and back, once per part that is away; 0 on the diagonal."""

    def layer_time(self, layer: int, device: int) -> int:
        """A whole layer on one device."""
        return sum(self.parts[layer][device]) + self.cache[layer][device] + self.layer[device]


def experts_touched(experts: int, used: int, tokens: int) -> float:
    """Experts that so many tokens need together, on average: E (1 - (1 - k/E)^B)."""
    if experts <= 0 or used >= experts:
        return float(experts)
    return experts * (1.0 - (1.0 - used / experts) ** tokens)


def part_reads(layer: LlmLayer, tokens: int = 1, width: int = 1) -> tuple[int, ...]:
    """Bytes of each of MOVABLE_PARTS that a step with so many tokens reads."""
    reads = list(part_weights(layer, width))
    if layer.experts:
        share = experts_touched(layer.experts, layer.experts_used, tokens) / layer.experts
        at = MOVABLE_PARTS.index("experts")
        reads[at] = int(reads[at] * share)
    return tuple(reads)


def read_time(device: LlmDevice, size: int, share_ppm: int) -> int:
    """Nanoseconds to read so many bytes with a share of the bandwidth, rounded up."""
    rate = device.bandwidth * share_ppm // PARTS_PER_MILLION
    return -(-size * 10**9 // max(1, rate)) if size else 0


def weight_time(device: LlmDevice, size: int, parameters: int, tokens: int, constants: LlmConstants) -> int:
    """Nanoseconds to read weights once, and to multiply each of so many tokens with `parameters` of them: the first
    with 32-bit units, more together with matrix units too."""
    time = read_time(device, size, constants.memory_ppm)
    if constants.vector_ppm and device.vector_flops:
        rate = device.vector_flops * constants.vector_ppm // PARTS_PER_MILLION
        computing = -(-2 * parameters * 10**9 // max(1, rate))
        time = max(time, computing) if constants.overlapped else time + computing
    if tokens > 1:
        time += matrix_time(device, 2 * parameters * tokens, constants.matrix_ppm)
    return time


def matrix_time(device: LlmDevice, flops: int, share_ppm: int) -> int:
    """Nanoseconds of products of matrices, at a share of the peak."""
    peak = device.flops or device.vector_flops or device.bandwidth * FLOPS_PER_BYTE
    return -(-flops * 10**9 // max(1, peak * share_ppm // PARTS_PER_MILLION))


def part_parameters(layer: LlmLayer, width: int = 1) -> tuple[int, ...]:
    """Weights of each of MOVABLE_PARTS that one token is multiplied with, on one rank."""
    found = dict.fromkeys(MOVABLE_PARTS, 0)
    for tensor in layer.tensors:
        count = tensor.parameters
        if tensor.part is TensorPart.EXPERTS and layer.experts:
            count = count * layer.experts_used // layer.experts
        found[moved_part(tensor)] += -(-count // width)
    return tuple(found.values())


def hop_time(model: LanguageModel, settings: LlmSettings, one: LlmDevice, other: LlmDevice) -> int:
    """From the last layer on one device to the first on another: a fitted constant, and the row of each request."""
    rows, family = 4 * model.hidden * settings.concurrency, number_family(model)
    fixed = max(constants_for(device.cost_class, family, settings.engine).hop_ns for device in (one, other))
    slow = 0
    for device in (one, other):
        if device.remote and device.network_bandwidth:
            slow += device.network_latency_ns + -(-rows * 10**9 // device.network_bandwidth)
        elif device.host_bandwidth:
            slow += -(-rows * 10**9 // device.host_bandwidth)
    return fixed + slow


def decode_costs(
    model: LanguageModel, settings: LlmSettings, devices: Sequence[LlmDevice], width: int = 1
) -> DecodeCosts:
    """All that a step may cost; `width`: each device stands for a tensor-parallel group of so many like it."""
    family, tokens = number_family(model), settings.concurrency
    known = [constants_for(device.cost_class, family, settings.engine) for device in devices]
    reads = [
        list(zip(part_reads(layer, tokens, width), part_parameters(layer, width), strict=True))
        for layer in model.layers
    ]
    caches = [cache_read(layer, settings, width) for layer in model.layers]
    head = output_weights(model, width)
    rows = -(-model.hidden * model.vocabulary // width)
    reduce = [2 * _all_reduce(model, settings, device) if width > 1 else 0 for device in devices]
    pairs = [[hop_time(model, settings, a, b) if a is not b else 0 for b in devices] for a in devices]
    return DecodeCosts(
        parts=tuple(
            tuple(
                tuple(weight_time(d, size, count, tokens, k) for size, count in sizes)
                for d, k in zip(devices, known, strict=True)
            )
            for sizes in reads
        ),
        cache=tuple(
            tuple(read_time(d, size, k.cache_ppm) for d, k in zip(devices, known, strict=True)) for size in caches
        ),
        layer=tuple(k.layer_ns + r for k, r in zip(known, reduce, strict=True)),
        output=tuple(weight_time(d, head, rows, tokens, k) for d, k in zip(devices, known, strict=True)),
        hop=tuple(map(tuple, pairs)),
        away=tuple(tuple(SPLIT_NS if time else 0 for time in row) for row in pairs),
    )


def _all_reduce(model: LanguageModel, settings: LlmSettings, device: LlmDevice) -> int:
    rate = device.peer_bandwidth or device.host_bandwidth or 10**10
    return ALL_REDUCE_NS + -(-2 * model.hidden * settings.concurrency * 10**9 // rate)


def decode_time(
    costs: DecodeCosts,
    layers: Sequence[int],
    output: int,
    moved: Mapping[tuple[int, int], int] | None = None,
) -> int:
    """Nanoseconds of one step: the device of each layer, of the output layer, and of parts that are elsewhere, by
    (layer, index in MOVABLE_PARTS)."""
    elsewhere = moved or {}
    total, before = costs.output[output], layers[0] if layers else output
    for index, home in enumerate([*layers, output]):
        total += costs.hop[before][home]
        before = home
        if index == len(layers):
            break
        total += costs.cache[index][home] + costs.layer[home]
        for part in range(len(MOVABLE_PARTS)):
            device = elsewhere.get((index, part), home)
            total += costs.parts[index][device][part] + costs.away[home][device]
    return total
