"""A chain of layers -> stages: equally many devices for each stage, or as many as the dynamic program finds best.

In: layers, a machine, a number of devices. Out: stages (layers, devices) with the least largest time of a micro-batch
whose weights, and the activations of as many micro-batches as 1F1B has under way, fit into memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import accumulate

from weftline.errors import InfeasibleError
from weftline.schedule.model_blocks_machine import Layer, Machine

__all__ = ["Segment", "equal_stages", "staged"]


@dataclass(frozen=True)
class Segment:
    """Layers on devices; several devices share each layer."""

    layers: tuple[Layer, ...]
    devices: tuple[int, ...]

    def time(self, machine: Machine, train: bool) -> int:
        """Of a micro-batch, both passes."""
        back = machine.backward(self.layers, self.devices) if train else 0
        return machine.forward(self.layers, self.devices) + back

    def room(self, machine: Machine, train: bool) -> int:
        """Bytes left on each of its devices, which hold nothing else."""
        return machine.room([(layer, len(self.devices)) for layer in self.layers], train)


def equal_stages(
    machine: Machine, layers: Sequence[Layer], groups: Sequence[tuple[int, ...]], train: bool
) -> tuple[Segment, ...]:
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
        found.append(Segment(tuple(layers[first:end]), devices))
        first = end
    return tuple(found)


def _sums(machine: Machine, layers: Sequence[Layer], devices: tuple[int, ...], train: bool) -> list[int]:
    """Number of layers -> time of the first so many."""
    return [0, *accumulate(Segment((layer,), devices).time(machine, train) for layer in layers)]


def staged(machine: Machine, layers: Sequence[Layer], count: int, train: bool) -> tuple[Segment, ...]:
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
                stage = Segment(tuple(layers[first:end]), tuple(range(device, device + width)))
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
        found.append(Segment(tuple(layers[first:end]), tuple(range(device, device + width))))
        first, device = end, device + width
    return tuple(found)
