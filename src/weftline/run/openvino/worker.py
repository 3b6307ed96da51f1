"""The process in which OpenVINO compiles and runs placements: it may crash or hang without harm to the caller.

In: lines of JSON on standard input: a `PlacementSetup`, then a `PlacementAsk` for every placement. Out: a `Timing` for
each. The whole model on one device runs in turns with every placement, so that a machine that slows down slows both. It
ends when its input ends. Simplified: one inference at a time, in full precision.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError
from weftline.graph import Graph
from weftline.importers.openvino import last_line, openvino_module
from weftline.run.compare import difference
from weftline.run.feeds import random_values
from weftline.run.openvino.devices import OpenvinoDevice, affinity_of, core_for, read_model, resolve
from weftline.run.openvino.load_affinity import AffinityError, hetero, set_affinity
from weftline.worker.child import Conversation, serve

__all__ = [
    "CONFIG",
    "PlacementAsk",
    "PlacementBench",
    "PlacementSetup",
    "Timing",
    "fix_shapes",
    "make_inputs",
]


class PlacementSetup(msgspec.Struct, frozen=True):
    """Once, at the start."""

    model: str
    """Path of an IR or ONNX file."""
    graph: Graph
    devices: tuple[tuple[str, dict[str, str]], ...]
    """Name and properties of each device in OpenVINO."""
    reference: str
    """The device that runs the whole model, for comparison."""
    inputs: str = ""
    """An .npz file with arr_0, arr_1, ..., or none: then inputs are random."""
    input_names: tuple[str, ...] = ()
    """The inputs that those arrays are for."""
    seed: int = 0


class PlacementAsk(msgspec.Struct, frozen=True):
    """One placement to measure."""

    placement: tuple[int, ...]
    """Number of the device of each op of the graph."""
    rounds: int
    """Pairs of runs that count: one of the placement, one of the reference."""
    warm_up: int
    """Runs of each before that."""
    give_up: float
    """After three rounds, stop if all of them were slower than so many times the reference; 0 = never."""
    against: tuple[int, ...] = ()
    """Another placement that runs in the reference's place."""


class Timing(msgspec.Struct, frozen=True):
    """What was measured; without an error all of it is there."""

    error: str = ""
    kind: str = ""
    """Of an error: input (file, names, devices), compile, inference."""
    seconds: float = 0.0
    """Of one inference: median."""
    reference_seconds: float = 0.0
    """The same for the whole model on one device, in turns with it."""
    ratio: float = 0.0
    """Median over the rounds."""
    quickest_ratio: float = 0.0
    """Of the quickest runs of both: what is left where other programs disturb most runs."""
    spread: float = 0.0
    """Interquartile range of the rounds' ratios, as a share of their median."""
    difference: float = 0.0
    """Of outputs, see `difference`."""
    rounds: int = 0
    ratios: tuple[float, ...] = ()
    """One for each round."""


CONFIG = {"INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
WRONG_DIFFERENCE = 1e300
"""An infinite difference in an answer: JSON, by which it travels, has no infinity."""
ROUND_SECONDS, MOST_TIMES = 0.005, 20
"""A round of a quick model is several inferences, up to so many, so that it is longer than the clock's and the
machine's small troubles."""

Arrays = list[NDArray[Any]]


class PlacementBench:
    """A model, its reference, and inputs."""

    def __init__(self, setup: PlacementSetup) -> None:
        self._names = [name for name, _ in setup.devices]
        wanted = {name: OpenvinoDevice(name, properties) for name, properties in setup.devices}
        wanted.setdefault(setup.reference, OpenvinoDevice(setup.reference, {}))
        self._core = core_for(wanted.values())
        self._model = read_model(self._core, setup.model)
        self._nodes = resolve(setup.graph, self._model, exact=Path(setup.model).suffix == ".xml")
        fix_shapes(self._model, setup.graph)
        self._inputs = make_inputs(self._model, setup.seed, _stored(setup))
        self._reference = self._request(setup.reference)
        self._expected = self._outputs(self._reference)

    def measure(self, ask: PlacementAsk) -> Timing:
        """Compile and run one placement; whatever OpenVINO refuses becomes an error of the answer."""
        kind = "compile"
        try:
            candidate = self._placed(ask.placement)
            other = self._placed(ask.against) if ask.against else self._reference
            kind = "inference"
            found = max(difference(self._outputs(side), self._expected) for side in (candidate, other))
            return self._race(candidate, other, ask, min(found, WRONG_DIFFERENCE))
        except AffinityError as error:
            return Timing(str(error), "input")
        except Exception as error:  # OpenVINO raises RuntimeError, and now and then others
            return Timing(last_line(error), kind)

    def _placed(self, placement: tuple[int, ...]) -> Any:
        """Compiled for a placement."""
        affinity = affinity_of(self._nodes, [self._names[device] for device in placement])
        return self._request(hetero(set_affinity(self._model, affinity)))

    def _race(self, candidate: Any, other: Any, ask: PlacementAsk, found: float) -> Timing:
        quickest = min((_seconds(side) for _ in range(ask.warm_up) for side in (candidate, other)), default=1.0)
        times = min(max(round(ROUND_SECONDS / max(quickest, 1e-6)), 1), MOST_TIMES)
        ours: list[list[float]] = []
        theirs: list[list[float]] = []
        ratios: list[float] = []
        for number in range(ask.rounds):
            for side, taken in ((candidate, ours), (other, theirs))[:: 1 if number % 2 else -1]:
                taken.append([_seconds(side) for _ in range(times)])
            ratios.append(median(ours[-1]) / median(theirs[-1]))
            if number >= 2 and 0 < ask.give_up < min(ratios):
                break
        mine, others = list(chain.from_iterable(ours)), list(chain.from_iterable(theirs))
        low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75)).tolist()
        return Timing(
            seconds=median(mine),
            reference_seconds=median(others),
            ratio=middle,
            quickest_ratio=min(mine) / min(others),
            spread=(high - low) / middle,
            difference=found,
            rounds=len(ratios),
            ratios=tuple(ratios),
        )

    def _request(self, device: str) -> Any:
        request = self._core.compile_model(self._model, device, CONFIG).create_infer_request()
        for number, tensor in enumerate(self._inputs):
            request.set_input_tensor(number, tensor)
        return request

    def _outputs(self, request: Any) -> Arrays:
        request.infer()
        return [np.array(request.get_output_tensor(number).data) for number in range(len(self._model.outputs))]


def make_inputs(model: Any, seed: int, given: Mapping[str, NDArray[Any]] | None = None) -> list[Any]:
    """A tensor for every input: what is given by name, else random (whole numbers are 0 or 1, masks are 1)."""
    openvino = openvino_module()
    left = dict(given or {})
    generator = np.random.default_rng(seed)
    tensors = []
    for parameter in model.get_parameters():
        port = parameter.output(0)
        names = (parameter.get_friendly_name(), *sorted(port.get_names()))
        place, dtype = f"input {names[0][:80]!r}", port.get_element_type().to_dtype()
        found = next((left.pop(name) for name in names if name in left), None)
        if given and found is None:
            raise InputError("no values are given for it", where=place)
        shape = tuple(port.get_shape())
        if found is None:
            found = random_values(names[0], shape, np.dtype(dtype), generator)
        if found.shape != shape:
            raise InputError(f"values of shape {found.shape} are given, the model has {shape}", where=place)
        tensors.append(openvino.Tensor(np.ascontiguousarray(found, dtype)))
    if left:
        raise InputError(f"values are given for {next(iter(left))[:80]!r}, which is not an input of the model")
    return tensors


def _seconds(request: Any) -> float:
    begin = time.perf_counter()
    request.infer()
    return time.perf_counter() - begin


def _stored(setup: PlacementSetup) -> dict[str, NDArray[Any]]:
    if not setup.inputs:
        return {}
    with np.load(setup.inputs, allow_pickle=False) as file:
        return {name: file[f"arr_{number}"] for number, name in enumerate(setup.input_names)}


def fix_shapes(model: Any, graph: Any) -> None:
    """Give open inputs the shapes that the plan was made for."""
    if not model.is_dynamic():
        return
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors if tensor.producer < 0}
    wanted = {}
    for parameter in model.get_parameters():
        names = (*sorted(parameter.output(0).get_names()), parameter.get_friendly_name())
        found = next((shapes[name] for name in names if name in shapes), None)
        if found is not None:
            wanted[parameter.output(0)] = list(found)
    model.reshape(wanted)


def answer(conversation: Conversation) -> None:
    """Answer line by line until the input ends."""
    bench = PlacementBench(conversation.receive(PlacementSetup))
    conversation.send(Timing())
    while True:
        conversation.send(bench.measure(conversation.receive(PlacementAsk)))


if __name__ == "__main__":
    sys.exit(serve(answer, in_short=last_line))
