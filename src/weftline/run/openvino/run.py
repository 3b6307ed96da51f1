"""Run a latency plan by OpenVINO's HETERO, beside the whole model on one device.

In: a plan, the file of its model (IR or ONNX), perhaps inputs. Out: `OpenvinoResult`: how far outputs are from the
unsplit model, measured and predicted latency of both. HETERO runs sub-graphs one after another, so the prediction is
that of the sequential runtime, whichever the plan was made for. Simplified: times of a loaded machine vary.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError, UsageError, WeftlineError
from weftline.run.inputs import check_planned_model
from weftline.run.openvino.devices import openvino_devices
from weftline.run.openvino.meter import METER_ROUNDS, PLACEMENT_SECONDS, OpenvinoMeter
from weftline.run.result import RunResult, whole_ns

if TYPE_CHECKING:
    from weftline.graph.arrays import Indices
    from weftline.plans import Plan
    from weftline.problem import Problem

__all__ = ["OpenvinoResult", "run_openvino"]


@dataclass(frozen=True)
class OpenvinoResult(RunResult):
    """What a real run did."""

    in_seconds: ClassVar[bool] = True

    engine: str
    devices: dict[str, str]
    """Device of the plan -> device of OpenVINO, those that are used."""
    ops: dict[str, int]
    """Device of the plan -> how many ops ran there."""
    rounds: int
    max_output_difference: float
    """Relative, to the unsplit model."""
    measured_ns: int
    """Of one inference: median."""
    predicted_ns: int
    """By the simulator, sequential runtime."""
    reference: str
    """The device that ran the whole model."""
    reference_measured_ns: int
    reference_predicted_ns: int | None
    """None if that device cannot run every op, by the problem's limits."""
    measured_ratio: float
    """Placement to reference: median over rounds."""
    quickest_ratio: float
    """The same for the quickest runs of both."""
    spread: float
    """Interquartile range of the rounds' ratios, as a share of their median."""
    steady: bool
    """Do the rounds agree? If not, the measured ratio tells of a busy machine, not of the plan."""
    predicted_ratio: float | None

    @property
    def reference_predicted_seconds(self) -> float | None:
        """The same as `reference_predicted_ns`."""
        return None if self.reference_predicted_ns is None else self.reference_predicted_ns / 1e9

    def opening(self) -> list[str]:
        """Devices."""
        return ["HETERO on " + ", ".join(f"{id} ({name}): {self.ops[id]} ops" for id, name in self.devices.items())]

    def closing(self) -> list[str]:
        """Times."""
        predicted = "" if self.predicted_ratio is None else f", predicted {self.predicted_ratio:.3f}"
        lines = [
            f"latency: measured {self.measured_seconds * 1e3:.2f} ms, "
            f"predicted {self.predicted_seconds * 1e3:.2f} ms (median of {self.rounds})",
            f"to {self.reference} alone ({self.reference_measured_ns / 1e6:.2f} ms): "
            f"measured {self.measured_ratio:.3f} (quickest runs {self.quickest_ratio:.3f}){predicted}",
        ]
        if not self.steady:
            lines.append(f"the machine is busy: rounds differ by {self.spread:.0%}, do not compare")
        return lines


def run_openvino(
    plan: Plan,
    *,
    model: Path | str,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    runtimes: Mapping[str, str] = MappingProxyType({}),
    reference: str = "",
    rounds: int = METER_ROUNDS,
    seed: int = 0,
    time_limit: float = PLACEMENT_SECONDS,
) -> OpenvinoResult:
    """Run a plan; call `check` on the result to insist on equal outputs.

    `runtimes` (device id -> `openvino:...`) says what stands for a device of the plan on this machine; `reference` is
    the id of the device that runs the whole model, by default the plan's first.
    """
    problem, placement = _placed(plan)
    used = [device for d, device in enumerate(problem.devices) if d in set(placement.tolist())]
    names = openvino_devices(used, runtimes)  # says which of them OpenVINO does not run
    meter = OpenvinoMeter(
        problem.graph,
        problem.devices,
        model,
        runtimes=runtimes,
        reference=reference,
        inputs=inputs,
        rounds=rounds,
        tolerance=float("inf"),
        seconds=time_limit,
        seed=seed,
    )
    check_planned_model(plan, model)
    with meter:
        found = meter.measure(placement.tolist())
    if found.failed:
        raise WeftlineError(f"OpenVINO cannot run this plan: {found.error}")
    predicted, alone = _predictions(problem, placement, problem.device_index[meter.reference])
    return OpenvinoResult(
        engine="openvino",
        devices={id: device.name for id, device in names.items()},
        ops={device.id: int((placement == problem.device_index[device.id]).sum()) for device in used},
        rounds=found.rounds,
        max_output_difference=found.difference,
        measured_ns=whole_ns(found.seconds),
        predicted_ns=predicted,
        reference=meter.reference,
        reference_measured_ns=whole_ns(found.reference_seconds),
        reference_predicted_ns=alone,
        measured_ratio=found.ratio,
        quickest_ratio=found.quickest_ratio,
        spread=found.spread,
        steady=found.steady,
        predicted_ratio=None if not alone else predicted / alone,
    )


def _placed(plan: Plan) -> tuple[Problem, Indices]:
    if plan.objective != "latency":
        raise UsageError("OpenVINO runs plans for latency; this one is for throughput")
    problem = plan.load_problem()
    try:
        devices = [problem.device_index[plan.placement[op.name]] for op in problem.graph.ops]
    except KeyError as error:
        raise InputError(f"the placement does not fit: {error.args[0]!r:.80}", hint="try weftline verify") from None
    return problem, np.array(devices, np.int32)


def _predictions(problem: Problem, placement: Indices, reference: int) -> tuple[int, int | None]:
    """Latency of the plan and of one device alone, by the simulator, where everything runs one after another."""
    from weftline.simulate import simulate_latency

    asked = problem.with_rules(msgspec.structs.replace(problem.rules, runtime="sequential"))
    alone = asked.cost.time[:, reference]
    return simulate_latency(asked, placement).value, None if (alone < 0).any() else int(alone.sum())
