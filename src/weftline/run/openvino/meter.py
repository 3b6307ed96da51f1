"""Measured time of placements on OpenVINO's HETERO, in a process of its own: the reward of learning on real hardware.

In: a problem's graph and devices, the model file, placements. Out: a `Measurement` for each, in turns with the whole
model on one device; its ratio is the reward. A placement that does not compile, fails, crashes the process, takes too
long or gives other outputs has the ratio infinity, and the process is started again if it must be. `openvino_backend`
makes it the `Backend` of a measured search. Simplified: one machine (not Windows, whose pipes cannot be waited for),
one inference at a time.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.cluster import Device
from weftline.errors import InputError, LimitReached, MissingExtra, UsageError, WeftlineError
from weftline.files import run_folder
from weftline.graph import Graph
from weftline.graph.arrays import Indices
from weftline.importers.registry import detect
from weftline.latency.measured.measurements import MEASUREMENT_BUDGET, Backend, Reading
from weftline.problem import Problem
from weftline.run.openvino.devices import OpenvinoDevice, openvino_device, openvino_devices, run_by_openvino
from weftline.run.openvino.worker import PlacementAsk, PlacementSetup, Timing
from weftline.worker.parent import Child, ChildFailed, ChildGone, ChildSilent, Closing

__all__ = [
    "GIVE_UP",
    "OUTPUT_TOLERANCE",
    "REWARD_ROUNDS",
    "Measurement",
    "OpenvinoMeter",
    "measure_placements",
    "openvino_backend",
]

OUTPUT_TOLERANCE = 1e-3
METER_ROUNDS = 15
WARM_UP_RUNS = 2
STEADY_SPREAD = 0.2
PLACEMENT_SECONDS = 120.0
"""Longest time for one placement, compilation included."""


@dataclass(frozen=True)
class Measurement:
    """One placement, measured."""

    ratio: float
    """To the whole model on the reference device: median over rounds; infinity where there is an error."""
    seconds: float
    """Of one inference: median."""
    reference_seconds: float
    difference: float
    """Largest difference of an output, relative."""
    rounds: int
    error: str = ""
    quickest_ratio: float = math.inf
    """Ratio of the quickest runs of both: less disturbed by other programs than the median."""
    spread: float = math.inf
    """Interquartile range of the rounds' ratios, as a share of their median."""
    ratios: tuple[float, ...] = ()
    """One for each round."""

    @property
    def steady(self) -> bool:
        """Do the rounds agree? If not, `ratio` says more about what else the machine did than about the placement."""
        return self.spread <= STEADY_SPREAD

    @property
    def failed(self) -> bool:
        """Did it not run, or not give the right outputs?"""
        return bool(self.error)


class OpenvinoMeter(Closing):
    """Measures placements of one graph; use it in a `with`, or call `close`. Counts what it has spent."""

    def __init__(
        self,
        graph: Graph,
        devices: Sequence[Device],
        model: Path | str,
        *,
        runtimes: Mapping[str, str] = MappingProxyType({}),
        reference: str = "",
        inputs: Mapping[str, NDArray[Any]] | None = None,
        budget: int | None = None,
        rounds: int = METER_ROUNDS,
        warm_up: int = WARM_UP_RUNS,
        give_up: float = 0.0,
        tolerance: float = OUTPUT_TOLERANCE,
        seconds: float = PLACEMENT_SECONDS,
        seed: int = 0,
    ) -> None:
        """`reference` is the id of the device that runs the whole model: by default the first that OpenVINO runs.

        `runtimes` (device id -> runtime) comes before the devices' own; devices without an OpenVINO runtime may not be
        used by a placement. `budget` is the number of placements that may be measured. `give_up` ends a measurement
        after three rounds if each of them is slower than so many times the best ratio so far.
        """
        if find_spec("openvino") is None:
            raise MissingExtra("openvino", "openvino")
        if rounds < 1 or warm_up < 0 or not seconds > 0:
            raise UsageError("a measurement needs at least one round and some seconds")
        self.graph, self.spent, self.best = graph, 0, math.inf
        self._known = _known_devices(devices, runtimes)
        self._number = {d: number for number, d in enumerate(self._known)}
        self._ids = [device.id for device in devices]
        self.reference = _reference(reference, devices, self._known)
        self._model, self._inputs, self._seed = Path(model).absolute(), inputs, seed
        self._budget, self._rounds, self._warm_up = budget, rounds, warm_up
        self._give_up, self._tolerance, self._limit = give_up, tolerance, seconds
        self._process: Child | None = None
        self._folder = ExitStack()

    @property
    def left(self) -> int | None:
        """How many placements may still be measured, None = any number."""
        return None if self._budget is None else max(self._budget - self.spent, 0)

    def measure(self, placement: Iterable[int], seconds: float | None = None) -> Measurement:
        """Measure one placement (a device number per op); `LimitReached` once the budget or `seconds` are over."""
        end = None if seconds is None else time.monotonic() + seconds
        if self.left == 0:
            raise LimitReached(f"the budget of {self._budget} measurements is spent")
        give_up = self._give_up * self.best if self._give_up and self.best < math.inf else 0.0
        found = self._ask(PlacementAsk(self._places(placement), self._rounds, self._warm_up, give_up), end)
        self.best = min(self.best, found.ratio)
        return found

    def compare(self, placement: Iterable[int], other: Iterable[int], rounds: int) -> Measurement:
        """Two placements in turns; the second is the reference. This spends nothing of the budget."""
        ask = PlacementAsk(self._places(placement), rounds, self._warm_up, 0.0, self._places(other))
        found = self._ask(ask, None)
        self.spent -= 1
        return found

    def _places(self, placement: Iterable[int]) -> tuple[int, ...]:
        places = tuple(self._device_number(int(d)) for d in placement)
        if len(places) != len(self.graph.ops):
            raise UsageError(f"a placement needs one device for each of the {len(self.graph.ops)} ops")
        return places

    def _ask(self, ask: PlacementAsk, end: float | None) -> Measurement:
        if self._process is None:
            self._start(end)
        self.spent += 1
        try:
            timing = self._talk(ask, end)
        except (_Gone, ChildFailed) as error:
            self.close()
            return _failure(str(error))
        except LimitReached:
            self.spent -= 1  # it was not measured
            raise
        if timing.error:
            if timing.kind == "input":
                raise InputError(timing.error, where=str(self._model))
            return _failure(f"{timing.kind} failed: {timing.error}")
        if timing.difference > self._tolerance:
            wrong = f"outputs differ from those of {self.reference} by {timing.difference:.1e}"
            return Measurement(
                math.inf, timing.seconds, timing.reference_seconds, timing.difference, timing.rounds, wrong
            )
        return Measurement(
            timing.ratio,
            timing.seconds,
            timing.reference_seconds,
            timing.difference,
            timing.rounds,
            quickest_ratio=timing.quickest_ratio,
            spread=timing.spread,
            ratios=timing.ratios,
        )

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close()
            self._process = None
        self._folder.close()

    def _device_number(self, device: int) -> int:
        id = self._ids[device] if 0 <= device < len(self._ids) else None
        if id is None or id not in self._number:
            what = f"device {id!r} has no OpenVINO runtime" if id else f"there is no device {device}"
            raise InputError(what, hint="a runtime is written like openvino:GPU.0 or openvino:CPU2")
        return self._number[id]

    def _start(self, end: float | None) -> None:
        inputs, stored = dict(self._inputs or {}), ""
        if inputs:
            stored = str(self._folder.enter_context(run_folder()) / "inputs.npz")
            try:
                np.savez(stored, *inputs.values(), allow_pickle=False)  # without names: some are options of savez
            except (TypeError, ValueError) as error:
                raise InputError(f"the inputs are no plain arrays: {str(error)[:200]}") from error
        self._process = Child("weftline.run.openvino.worker")
        pairs = tuple((device.name, dict(device.properties)) for device in self._known.values())
        reference = self._known[self.reference].name
        setup = PlacementSetup(str(self._model), self.graph, pairs, reference, stored, tuple(inputs), self._seed)
        try:
            self._talk(setup, end)
        except _Gone as error:
            self.close()
            raise WeftlineError(f"OpenVINO cannot run the model on one device: {error}") from None
        except ChildFailed as error:
            self.close()
            if error.words.ours:
                raise InputError(error.words.what) from None
            raise WeftlineError(f"OpenVINO cannot run the model on {self.reference}: {error}") from None

    def _talk(self, message: PlacementSetup | PlacementAsk, last: float | None) -> Timing:
        """Send a line, wait for the line that answers it, not longer than until `last`."""
        assert self._process is not None
        own = time.monotonic() + self._limit
        try:
            self._process.send(message)
            return self._process.receive(Timing, own if last is None else min(own, last))
        except ChildSilent:
            if last is not None and time.monotonic() < own:
                self.close()
                raise LimitReached("the time was over during a measurement") from None
            raise _Gone(f"no answer within {self._limit:.0f} s") from None
        except ChildGone as error:
            raise _Gone(f"the process that runs OpenVINO {error}") from None
        except msgspec.DecodeError as error:
            raise _Gone(f"the process that runs OpenVINO gave an answer that makes no sense: {error}") from error


class _Gone(Exception):
    """The process is no more, or says nothing."""


def measure_placements(
    graph: Graph,
    devices: Sequence[Device],
    model: Path | str,
    placements: Iterable[Iterable[int]],
    **options: Any,
) -> list[Measurement]:
    """Measure placements one after another, up to `budget` of them; see `OpenvinoMeter` for the options."""
    with OpenvinoMeter(graph, devices, model, **options) as meter:
        found = []
        for placement in placements:
            if meter.left == 0:
                break
            found.append(meter.measure(placement))
        return found


def _failure(error: str) -> Measurement:
    return Measurement(math.inf, math.inf, math.inf, math.inf, 0, error)


def _known_devices(devices: Sequence[Device], runtimes: Mapping[str, str]) -> dict[str, OpenvinoDevice]:
    ours = run_by_openvino(devices, runtimes)
    if not ours:
        openvino_device(devices[0], runtimes)  # says what is missing
    return openvino_devices(ours, runtimes)


def _reference(asked: str, devices: Sequence[Device], known: Mapping[str, OpenvinoDevice]) -> str:
    if not asked:
        return next(device.id for device in devices if device.id in known)
    if asked not in known:
        raise UsageError(f"the reference {asked[:64]!r} is not a device that OpenVINO runs; it is {', '.join(known)}")
    return asked


REWARD_ROUNDS = 9
"""Of one placement: fewer than in a run that is shown to somebody."""
GIVE_UP = 1.2
"""A placement is dropped after three rounds that were all so many times slower than the best."""
FORMATS = ("openvino", "onnx")


@contextmanager
def openvino_backend(
    problem: Problem,
    model: Path | str,
    *,
    runtimes: Mapping[str, str] = MappingProxyType({}),
    measurements: int | None = None,
    reference: str = "",
    rounds: int = REWARD_ROUNDS,
    give_up: float = GIVE_UP,
    seed: int = 0,
) -> Iterator[Backend]:
    """Every device of the problem needs a runtime of OpenVINO, its own or one of `runtimes`."""
    budget = MEASUREMENT_BUDGET if measurements is None else measurements
    if budget < 1:
        raise UsageError("a measured search needs at least one measurement")
    kind = detect(Path(model)).name
    if kind not in FORMATS:
        raise InputError(
            f"a {kind} file cannot be run",
            where=str(model),
            hint="measured rewards need a model with weights: OpenVINO IR or ONNX",
        )
    run_by_openvino(problem.devices, runtimes)  # says which runtimes are for nobody
    openvino_devices(problem.devices, runtimes)  # says which device has none
    meter = OpenvinoMeter(
        problem.graph,
        problem.devices,
        model,
        runtimes=runtimes,
        reference=reference,
        rounds=rounds,
        give_up=give_up,
        seed=seed,
    )

    def measure(placement: Indices, seconds: float | None) -> Reading:
        return meter.measure(placement.tolist(), seconds)

    with meter:
        yield Backend(measure, "openvino", meter.reference, budget)
