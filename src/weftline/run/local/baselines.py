"""What a plan has to beat, measured in the same run: the whole model in one process, and a replica on every worker.

In: the model file, the seats of the plan's devices, the feeds. Out: ns by name, and the outputs that are expected. One
process has all cores of the workers and their mean speed. A replica is the whole model on one worker; requests are
shared out by how fast each is. Simplified: memory limits of the plan do not keep replicas from running here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from weftline.run.devices import OrtDevice
from weftline.run.local.engine import Engine, Seat
from weftline.run.local.layout import Layout, lay_out
from weftline.run.split.manifest import INPUT, Manifest, Segment, Wire

if TYPE_CHECKING:
    from weftline.plans import Plan

__all__ = ["Baselines", "whole_model"]

WARM_UP = 8


class Baselines:
    """Runs them one after another; `found` has those that were measured."""

    def __init__(
        self,
        plan: Plan,
        model: Path,
        manifest: Manifest,
        seats: Mapping[str, Seat],
        feeds: Sequence[Mapping[str, NDArray[Any]]],
        timeout: float,
        requests: int,
    ) -> None:
        model = model.parent.resolve() / model.name  # weights lie beside this name, even if it is a link
        self._model, self._manifest, self._seats, self._feeds = model, manifest, seats, feeds
        self._pipelined, self._timeout, self._requests = plan.objective == "throughput", timeout, requests
        self.found: dict[str, int] = {}

    def whole(self, *, measured: bool) -> list[dict[str, NDArray[Any]]]:
        """The unsplit model in one session with all cores: its outputs for each feed; its time if that is asked."""
        cores = tuple(sorted({core for seat in self._seats.values() for core in seat.runtime.cores}))
        speed = mean(seat.speed for seat in self._seats.values())
        runtime = OrtDevice("ort:CPUExecutionProvider", "CPUExecutionProvider", {}, cores, len(cores), True)
        count = len(self._feeds)
        with Engine([(self._lane("one process"), {"one process": Seat(runtime, speed)})], timeout=self._timeout) as one:
            warm = one.run([max(WARM_UP, count)], self._feeds, keep=[frozenset(range(count))])[0]
            if measured:
                timed = one.run([self._requests], self._feeds)[0]
                self.found[f"one process, {len(cores)} threads"] = round(timed.taken(pipelined=self._pipelined))
        return [warm.kept[number] for number in range(count)]

    def replicas(self) -> None:
        """The whole model on every worker."""
        lanes = [(self._lane(id), {id: seat}) for id, seat in self._seats.items()]
        with Engine(lanes, timeout=self._timeout) as engine:
            warm = engine.run([WARM_UP] * len(lanes), self._feeds)
            rates = [1 / max(found.answers[0].compute_ns[0], 1) for found in warm]
            counts = [max(3, round(self._requests * rate / sum(rates))) for rate in rates]
            timed = engine.run(counts, self._feeds)
        together = sum(1 / max(found.taken(pipelined=True), 1.0) for found in timed)
        self.found[f"{len(lanes)} whole-model replicas"] = round(1 / together)

    def _lane(self, device: str) -> Layout:
        manifest = whole_model(self._manifest, self._model.name, device)
        return lay_out(manifest, str(self._model.parent), pipelined=self._pipelined)


def whole_model(split: Manifest, file: str, device: str) -> Manifest:
    """The manifest of a model in one segment: its own file."""
    tensors = [
        Wire(wire.name, wire.dtype, wire.shape, INPUT, (0,), False) for wire in split.tensors if wire.source == INPUT
    ]
    made = [wire for wire in split.tensors if wire.output and wire.source != INPUT]
    tensors += [Wire(wire.name, wire.dtype, wire.shape, 0, (), True) for wire in made]
    ops = tuple(op for segment in split.segments for op in segment.ops)
    inputs, outputs = tuple(w.name for w in tensors if w.source == INPUT), tuple(w.name for w in made)
    return Manifest(
        format="weftline-stages",
        version=1,
        model=split.model,
        model_sha256=split.model_sha256,
        inputs=inputs,
        outputs=outputs,
        segments=(Segment(0, device, file, ops, inputs, outputs),),
        tensors=tuple(tensors),
    )
