"""A chain of layers -> stages: equally many devices for each stage, or as many as the dynamic program finds best.

In: layers, a machine, a number of devices. Out: stages (layers, devices) with the least largest time of a micro-batch
whose weights, and the activations of as many micro-batches as 1F1B has under way, fit into memory.

Placements of the evaluation's models -> Blocks: the one made for the model, and those of the baselines.

`aware`: embedding or joined part on all devices (M, NN, K), stages on equally many. `staged`: a plain pipeline whose
first stage has the embedding, by dynamic program. `interleaved`: two rounds over groups of devices. `bidirectional`:
Chimera's two pipelines, so every device holds two stages. Times are nanoseconds, memory is bytes; the limit of a device
is what weights leave. Simplified: what a stage sends is a latency on the edge and holds nobody.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import accumulate, pairwise

from weftline.errors import InfeasibleError
from weftline.papers.tessel.model_blocks import Machine, ModelLayer, TesselModel
from weftline.problem.blocks import Block, Blocks, Lane

__all__ = ["PLACEMENTS", "LayerRun", "equal_stages", "place_network", "staged"]


@dataclass(frozen=True)
class LayerRun:
    """Layers on devices; several devices share each layer."""

    layers: tuple[ModelLayer, ...]
    devices: tuple[int, ...]

    def time(self, machine: Machine, train: bool) -> int:
        """Of a micro-batch, both passes."""
        back = machine.backward(self.layers, self.devices) if train else 0
        return machine.forward(self.layers, self.devices) + back

    def room(self, machine: Machine, train: bool) -> int:
        """Bytes left on each of its devices, which hold nothing else."""
        return machine.room([(layer, len(self.devices)) for layer in self.layers], train)


def equal_stages(
    machine: Machine, layers: Sequence[ModelLayer], groups: Sequence[tuple[int, ...]], train: bool
) -> tuple[LayerRun, ...]:
    """A stage for each group of devices, in order; memory is not looked at."""

    @cache
    def best(first: int, group: int) -> tuple[int, int]:
        """Least largest time of the layers from `first` on the groups from `group` on, and where the stage ends."""
        if group == len(groups) - 1:
            return time(first, len(layers), group), len(layers)
        ends = range(first + 1, len(layers) - (len(groups) - group - 1) + 1)
        return min((max(time(first, end, group), best(end, group + 1)[0]), end) for end in ends)

    sums = [_sums(machine, layers, devices, train) for devices in groups]

    def time(first: int, end: int, group: int) -> int:
        return sums[group][end] - sums[group][first]

    if len(layers) < len(groups):
        raise InfeasibleError(f"{len(layers)} layers do not make {len(groups)} stages")
    found, first = [], 0
    for group, devices in enumerate(groups):
        end = best(first, group)[1]
        found.append(LayerRun(tuple(layers[first:end]), devices))
        first = end
    return tuple(found)


def _sums(machine: Machine, layers: Sequence[ModelLayer], devices: tuple[int, ...], train: bool) -> list[int]:
    """Number of layers -> time of the first so many."""
    return [0, *accumulate(LayerRun((layer,), devices).time(machine, train) for layer in layers)]


def staged(machine: Machine, layers: Sequence[ModelLayer], count: int, train: bool) -> tuple[LayerRun, ...]:
    """Stages on 1, 2, 4 ... devices each, all `count` devices used; `InfeasibleError` if nothing fits."""
    never = 1 << 62

    @cache
    def sums(device: int, width: int) -> list[int]:
        return _sums(machine, layers, tuple(range(device, device + width)), train)

    @cache
    def best(first: int, device: int) -> tuple[int, int, int, int]:
        """Layers from `first` on devices from `device` on: least largest time, stages; end and width of the first."""
        if first == len(layers) or device == count:
            return (0, 0, 0, 0) if first == len(layers) and device == count else (never, 0, 0, 0)
        found, width = (never, 0, 0, 0), 1
        while device + width <= count:
            for end in range(first + 1, len(layers) + 1):
                stage = LayerRun(tuple(layers[first:end]), tuple(range(device, device + width)))
                time, room = sums(device, width)[end] - sums(device, width)[first], stage.room(machine, train)
                if time >= found[0] or room < 0:
                    break
                rest, stages, _, _ = best(end, device + width)
                kept = sum(layer.output for layer in stage.layers) if train else 0
                if room >= kept * (stages + 1):
                    found = min(found, (max(time, rest), stages + 1, end, width))
            width *= 2
        return found

    if best(0, 0)[0] == never:
        raise InfeasibleError("no stages of the model fit into memory")
    found, first, device = [], 0, 0
    while first < len(layers):
        _, _, end, width = best(first, device)
        found.append(LayerRun(tuple(layers[first:end]), tuple(range(device, device + width))))
        first, device = end, device + width
    return tuple(found)


CHUNKS_EACH = 2


@dataclass
class _Plan:
    """Segments and who hands over to whom."""

    segments: list[LayerRun] = field(default_factory=list)
    edges: list[tuple[int, int]] = field(default_factory=list)

    def chain(self, segments: Sequence[LayerRun], after: Sequence[int] = ()) -> list[int]:
        """Add segments one behind the other, the first behind `after` -> their numbers."""
        first = len(self.segments)
        numbers = list(range(first, first + len(segments)))
        self.segments += segments
        self.edges += [(before, first) for before in after]
        self.edges += pairwise(numbers)
        return numbers


def place_network(network: TesselModel, machine: Machine, count: int, placement: str, *, train: bool) -> Blocks:
    """Blocks of a model on `count` devices; `InfeasibleError` if its weights do not fit."""
    plan = PLACEMENTS[placement](network, machine, count, train)
    return _blocks(f"{network.name}-{placement}", machine, count, plan, train)


def _groups(count: int, width: int) -> list[tuple[int, ...]]:
    return [tuple(range(first, first + width)) for first in range(0, count, width)]


def _aware(network: TesselModel, machine: Machine, count: int, train: bool) -> _Plan:
    """Stages on 1, 2, 4 ... devices each, whatever keeps the busiest device least busy."""
    plans, width = [], 1
    while width <= count // 2:
        if count // width <= len(network.first + network.second):
            plans.append(_aware_stages(network, machine, count, width, train))
        width *= 2
    return min(plans, key=lambda plan: _busiest(machine, plan, count, train))


def _busiest(machine: Machine, plan: _Plan, count: int, train: bool) -> tuple[bool, int]:
    """Whether weights fail to fit, and the time of the busiest device."""
    load = [0] * count
    for segment in plan.segments:
        for device in segment.devices:
            load[device] += segment.time(machine, train)
    return min(_room(machine, count, plan.segments, train)) < 0, max(load)


def _aware_stages(network: TesselModel, machine: Machine, count: int, width: int, train: bool) -> _Plan:
    everyone, groups, plan = tuple(range(count)), _groups(count, width), _Plan()
    if network.joined:
        half = len(groups) // 2
        ends = []
        for layers, devices in ((network.first, groups[:half]), (network.second, groups[half:])):
            ends.append(plan.chain(equal_stages(machine, layers, devices, train))[-1])
        plan.chain([LayerRun(network.joined, everyone)], ends)
        return plan
    embed = [LayerRun((network.embedding,), everyone)] if network.embedding is not None else []
    stages = equal_stages(machine, network.first + network.second, groups, train)
    if not network.second:
        plan.chain([*embed, *stages])
        return plan
    # the decoder's lookup feeds the stage of the decoder's first layer
    cut = next(k for k in range(count) if sum(len(s.layers) for s in stages[: k + 1]) > len(network.first))
    encoder = plan.chain([*embed, *stages[:cut]])
    decoder = plan.chain(embed)
    plan.chain(stages[cut:], [encoder[-1], *decoder])
    return plan


def _layers(network: TesselModel) -> tuple[ModelLayer, ...]:
    """All layers as one chain; the first stage looks up for encoder and decoder."""
    embed = () if network.embedding is None else (network.embedding,)
    if network.embedding is not None and network.second:
        once = network.embedding
        twice = {name: 2 * getattr(once, name) for name in ("traffic", "output", "gradient_traffic")}
        embed = (replace(once, **twice),)
    return (*embed, *network.first, *network.second, *network.joined)


def _staged(network: TesselModel, machine: Machine, count: int, train: bool) -> _Plan:
    plan = _Plan()
    plan.chain(staged(machine, _layers(network), count, train))
    return plan


def _interleaved(network: TesselModel, machine: Machine, count: int, train: bool) -> _Plan:
    """The fewest devices per group that give every device enough memory."""
    width = 1
    while width <= count // 2:
        groups, layers = _groups(count, width), _layers(network)
        if len(layers) >= CHUNKS_EACH * len(groups):
            segments = equal_stages(machine, layers, groups * CHUNKS_EACH, train)
            if min(_room(machine, count, segments, train)) >= _in_flight(segments, len(groups), train):
                plan = _Plan()
                plan.chain(segments)
                return plan
        width *= 2
    raise InfeasibleError("two rounds over the devices do not fit into memory")


def _in_flight(segments: Sequence[LayerRun], groups: int, train: bool) -> int:
    """Bytes that interleaved 1F1B holds at most on a device."""
    largest = max(sum(layer.output for layer in segment.layers) for segment in segments)
    return largest * (groups * CHUNKS_EACH + groups - 1) if train else 0


def _bidirectional(network: TesselModel, machine: Machine, count: int, train: bool) -> _Plan:
    plan = _Plan()
    layers = _layers(network)
    down = equal_stages(machine, layers, _groups(count, 1), train)
    plan.chain(down)
    plan.chain([LayerRun(segment.layers, (count - 1 - k,)) for k, segment in enumerate(down)])
    return plan


def _room(machine: Machine, count: int, segments: Sequence[LayerRun], train: bool) -> list[int]:
    """Device -> bytes that weights leave; an embedding that stands twice is held once."""
    held: list[dict[tuple[int, int], tuple[ModelLayer, int]]] = [{} for _ in range(count)]
    for number, segment in enumerate(segments):
        shared = len(segment.devices) == count
        for device in segment.devices:
            for k, layer in enumerate(segment.layers):
                key = (-1, 0) if shared and layer.gradient_traffic else (number, k)
                held[device][key] = (layer, len(segment.devices))
    return [machine.room(list(rows.values()), train) for rows in held]


def _blocks(name: str, machine: Machine, count: int, plan: _Plan, train: bool) -> Blocks:
    room = _room(machine, count, plan.segments, train)
    if min(room) < 0:
        raise InfeasibleError(f"the weights of {name} need {-min(room) / 2**30:.1f} GiB more than a device has")
    lanes = [Lane(str(device), memory) for device, memory in enumerate(room)]
    rows, edges, total = [], [], len(plan.segments)
    for k, part in enumerate(plan.segments):
        kept = sum(layer.output for layer in part.layers if not layer.gradient_traffic) if train else 0
        span = machine.forward(part.layers, part.devices)
        rows.append(Block("F", span, part.devices, (kept,) * len(part.devices), f"F{k}", k))
    for k, part in enumerate(plan.segments if train else ()):
        kept = rows[k].memory[0]
        span = machine.backward(part.layers, part.devices)
        rows.append(Block("B", span, part.devices, (-kept,) * len(part.devices), f"B{k}", k))
        edges.append((k, total + k, 0))
    for source, target in plan.edges:
        first, second = plan.segments[source], plan.segments[target]
        lag = _handed(machine, first, second)
        edges.append((source, target, lag))
        if train:
            edges.append((total + target, total + source, lag))
    return Blocks.of(name, lanes, rows, edges)


def _handed(machine: Machine, first: LayerRun, second: LayerRun) -> int:
    """Latency from one segment to the next; who is in both has it already, the others get it from the nearest."""
    missing = [device for device in second.devices if device not in first.devices]
    size = first.layers[-1].output
    return max((min(machine.send(size, near, device) for near in first.devices) for device in missing), default=0)


PLACEMENTS: dict[str, Callable[[TesselModel, Machine, int, bool], _Plan]] = {
    "aware": _aware,
    "staged": _staged,
    "interleaved": _interleaved,
    "bidirectional": _bidirectional,
}
