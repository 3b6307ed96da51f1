"""The FleetPlan: lanes with rates on a whole cluster, as a file.

In: a Deployment and its bounds. Out: the fields of the file, in their order; read and write. `certify/check_fleet.py`
re-adds all of it. Simplified: a lane is written as hops, runs of ops in the order of the graph that one device runs.
"""

from __future__ import annotations

from itertools import groupby
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from weftline.errors import InputError
from weftline.files import other_kind, write_atomically
from weftline.graph.arrays import Indices
from weftline.lazy import notebook_html
from weftline.plans.layers import LayerPlan, load_layer_plan
from weftline.plans.plan import MAX_PLAN_BYTES, BoundEntry, Proof, Provenance
from weftline.problem import Problem
from weftline.problem.model import ProblemFile, problem_from_file
from weftline.units import format_time

__all__ = [
    "AnyFleet",
    "FleetDevice",
    "FleetInstance",
    "FleetLane",
    "FleetLimits",
    "FleetPlan",
    "fleet_to_json",
    "hops_of",
    "load_fleet",
]


class FleetDevice(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the plan asks of one device."""

    busy: float
    """Share of its time."""
    memory_bytes: int
    memory_limit: int | None


class FleetInstance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device that holds a part of the model."""

    device: str
    ops: int


class FleetLane(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A way of an input through the cluster."""

    rate: int
    """Inputs per million seconds."""
    depth: int
    """Devices in a row on its longest path, each visit counted."""
    hops: tuple[tuple[int, int, int], ...]
    """(device, first op, last op + 1), numbers of the embedded problem; together they are all ops in their order."""


class FleetLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What every lane keeps to."""

    max_depth: int | None = None
    """Devices in a row."""
    latency_ns: int | None = None
    """Of an input that is alone: all its ops and transfers, one after another."""
    max_copies: int | msgspec.UnsetType = msgspec.UNSET
    """On so many devices an op may be; only where that was asked for."""


class FleetPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer about a whole cluster."""

    format: Literal["weftline-fleet"]
    version: Literal[1]
    objective: Literal["throughput"]
    value_ns: int
    """The period: ns per input, rounded up."""
    bound_ns: int
    gap: float
    """(value - bound) / value"""
    proof: Proof
    bound_by: str
    rate: float
    """Inputs per second."""
    rate_bound: float | None
    """No deployment reaches more; the period is rounded up to whole ns, so it may have one less."""
    depth: int
    solver: str
    seconds: float | None
    stopped_by: str
    baselines: dict[str, float | None]
    """Name -> inputs per second, None where a baseline breaks a limit."""
    devices: dict[str, FleetDevice]
    instances: tuple[FleetInstance, ...]
    lanes: tuple[FleetLane, ...]
    bounds: tuple[BoundEntry, ...]
    provenance: Provenance
    problem: ProblemFile
    limits: FleetLimits | msgspec.UnsetType = msgspec.UNSET
    """Only where a limit of depth or latency was asked for."""
    advice: str | msgspec.UnsetType = msgspec.UNSET
    """Only where `plan --json` prints it: what to do instead of splitting, in one line."""

    def load_problem(self) -> Problem:
        """The embedded problem, ready for the simulator."""
        return problem_from_file(self.problem)

    def placements(self) -> tuple[Indices, ...]:
        """Of each lane: the device of every op; `InputError` where lanes are none of the problem."""
        n, k = len(self.problem.graph.ops), len(self.problem.devices)
        if not self.lanes:
            raise InputError("a fleet without a lane runs nothing", hint="try weftline verify")
        if unsaid := [device.id for device in self.problem.devices if device.id not in self.devices]:
            raise InputError(f"the plan does not say how busy device {unsaid[0]!r} is", hint="try weftline verify")
        return tuple(_placement(number, lane, n, k) for number, lane in enumerate(self.lanes))

    def save(self, path: Path | str) -> None:
        """Write the file."""
        write_atomically(Path(path), fleet_to_json(self))

    def summary(self) -> str:
        """A few lines for a terminal: what to do first."""
        from weftline.graph.describe import model_words
        from weftline.plans.advice import advise_fleet
        from weftline.plans.summary import guess_words

        graph = self.problem.graph
        first = [f"{words}\n" for words in (guess_words(graph), advise_fleet(self)) if words]
        ids = [device.id for device in self.problem.devices]
        lines = [
            *first,
            f"{self.problem.graph.name}: {len(self.problem.graph.ops)} ops on {len(self.instances)} of "
            f"{len(ids)} devices, {self.rate:.6g} inputs per second ({format_time(self.value_ns)} per input)",
        ]
        lines += [words for words in (model_words(graph), self._bound_words()) if words]
        total = sum(lane.rate for lane in self.lanes)
        for lane in sorted(self.lanes, key=lambda lane: -lane.rate):
            used = list(dict.fromkeys(ids[device] for device, _, _ in lane.hops))
            ways = f"over {lane.depth} devices in a row:"
            if lane.depth > len(used):  # it comes back to some of them
                ways = f"in {lane.depth} steps over {len(used)} devices:"
            way = "a whole copy on" if len(used) == 1 else ways
            lines.append(f"  {lane.rate / total:6.1%} of the inputs: {way} {', '.join(used)}")
        return "\n".join(lines)

    @classmethod
    def load(cls, path: Path | str) -> AnyFleet:
        """Read the file."""
        return load_fleet(path)

    def table(self, name: str) -> list[dict[str, Any]]:
        """devices, lanes, hops, instances, baselines or bounds, as a list of dicts."""
        from weftline.plans.records import fleet_records

        return fleet_records(self, name)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook_html(self)

    def _bound_words(self) -> str:
        if self.rate_bound is None:
            return "nothing is known about how much faster another deployment could be"
        guess = " for these guessed costs" if self.problem.graph.guessed else ""
        best = self.bound_ns >= self.value_ns
        more = self.rate_bound / self.rate - 1
        said = f"no deployment gives more than {max(more, 1e-4):.2%} more inputs per second"
        said = "no deployment is faster" if best else said
        return f"{said} ({self.proof}{guess}); gap {self.gap:.2%}"

    def __repr__(self) -> str:
        return f"FleetPlan({self.rate:.6g} per second, {len(self.lanes)} lanes, gap {self.gap:.2%} {self.proof})"


def _placement(number: int, lane: FleetLane, ops: int, devices: int) -> Indices:
    ends = [0, *(last for _, _, last in lane.hops)]
    begins = [*(first for _, first, _ in lane.hops), ops]
    good = ends == begins and all(first < last for _, first, last in lane.hops)
    if not good or any(not 0 <= device < devices for device, _, _ in lane.hops) or lane.rate < 1:
        raise InputError(f"lane {number} does not run each op once, at a rate above 0", hint="try weftline verify")
    runs = [np.full(last - first, device, np.int32) for device, first, last in lane.hops]
    return np.concatenate(runs) if runs else np.zeros(0, np.int32)


AnyFleet = FleetPlan | LayerPlan
"""Every kind of fleet plan. Another kind joins this union, `load_fleet` and `fleet_result.py`."""
LAYERS_WORD, HEAD_BYTES = b'"weftline-layer-plan"', 200


def hops_of(placement: Indices) -> tuple[tuple[int, int, int], ...]:
    """Runs of equal devices."""
    hops, first = [], 0
    for device, run in groupby(placement.tolist()):
        last = first + sum(1 for _ in run)
        hops.append((int(device), first, last))
        first = last
    return tuple(hops)


def fleet_to_json(plan: AnyFleet) -> bytes:
    """The bytes of the file."""
    return msgspec.json.encode(plan) + b"\n"


def load_fleet(path: Path | str) -> AnyFleet:
    """Read a fleet plan; every failure is an `InputError` that names the file and the place in it."""
    path = Path(path)
    try:
        if not path.is_file() or path.stat().st_size > MAX_PLAN_BYTES:
            raise InputError("more than 2 GiB, or not a file at all, is not a plan", where=str(path))
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    if LAYERS_WORD in data[:HEAD_BYTES]:
        return load_layer_plan(path)
    try:
        return msgspec.json.decode(data, type=FleetPlan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = other_kind(data, "a weftline fleet plan") or f"not a weftline fleet plan: {error}"
        raise InputError(what, where=str(path)) from error
