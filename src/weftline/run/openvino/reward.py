"""OpenVINO as the backend of a measured search.

In: a problem, the file of its model, what stands for each device here. Out: a `Backend` that runs placements by HETERO,
each in turns with the whole model on one device; a process of its own that ends with the `with`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType

from weftline.errors import InputError, UsageError
from weftline.graph.arrays import Indices
from weftline.importers.registry import detect
from weftline.latency.measured.measurements import MEASUREMENT_BUDGET, Backend, Reading
from weftline.problem import Problem
from weftline.run.openvino.devices import openvino_devices, run_by_openvino
from weftline.run.openvino.meter import Meter

__all__ = ["GIVE_UP", "ROUNDS", "openvino_backend"]

ROUNDS = 9
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
    rounds: int = ROUNDS,
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
    meter = Meter(
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
