"""The Plan: the fields of plan.json, in the order of the file.

Plan <-> file.
"""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from weftline.errors import InputError
from weftline.files import other_kind, write_atomically
from weftline.problem.json_form import ProblemFile

if TYPE_CHECKING:
    from weftline.problem import Problem

__all__ = [
    "BoundEntry",
    "DeviceUse",
    "MeasuredFile",
    "Plan",
    "Provenance",
    "Stage",
    "TimelineFile",
    "load_plan",
    "plan_to_json",
    "save_plan",
]

Proof = Literal["proved", "claimed", "none"]


class BoundEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One lower bound."""

    by: str
    value_ns: int
    proof: Literal["proved", "claimed"]
    witness: dict[str, object] | None = None


class DeviceUse(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the plan asks of one device."""

    load_ns: int
    """Latency: time spent in ops. Throughput: the load of its stage."""
    memory_bytes: int
    memory_limit: int | None


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One stage of a pipeline."""

    device: str
    ops: int
    compute_ns: int
    in_ns: int
    out_ns: int
    load_ns: int


class TimelineFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When everything happens; numbers refer to the embedded problem."""

    ops: tuple[tuple[int, int, int], ...]
    """(op, start, end) by start."""
    transfers: tuple[tuple[int, int, int, int, int, int], ...]
    """(tensor, from device, to device, consumer op or -1, start, end) by start."""


class Provenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the plan comes from."""

    version: str
    problem_sha256: str
    inputs: dict[str, str]
    """Role of an input file (model, cluster) -> its sha256."""
    argv: tuple[str, ...]
    seed: int
    time_limit: float | None
    work_limit: int | None
    gap: float


class MeasuredFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The plan is the best of some placements that were run for real."""

    backend: str
    count: int
    """Placements that were measured."""
    failures: int
    """Those of them that did not run, or gave other outputs."""
    reference: str
    """The device that ran the whole model, in turns with each of them."""
    ratio: float
    """Of the plan's placement to the reference: median over rounds."""
    spread: float
    """Interquartile range of the rounds' ratios, as a share of their median."""
    rounds: int
    seconds: float
    """Of one inference of the plan's placement: median."""
    reference_seconds: float
    """The same for the reference."""


class Plan(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """One answer."""

    format: Literal["weftline-plan"]
    version: Literal[1]
    objective: Literal["latency", "throughput"]
    value_ns: int
    bound_ns: int
    gap: float
    """(value - bound) / value"""
    proof: Proof
    """Of the best bound."""
    bound_by: str
    solver: str
    seconds: float | None
    """None under a work limit, so that the bytes repeat."""
    stopped_by: str
    """optimal, gap, time, work, measurements, interrupted, or done (the solver had nothing more to try)."""
    baselines: dict[str, int | None]
    """Name -> value in ns, None where a baseline breaks a limit."""
    devices: dict[str, DeviceUse]
    placement: dict[str, str]
    stages: tuple[Stage, ...]
    """Throughput, in pipeline order."""
    timeline: TimelineFile | None
    """Latency."""
    bounds: tuple[BoundEntry, ...]
    provenance: Provenance
    problem: ProblemFile
    measured: MeasuredFile | msgspec.UnsetType = msgspec.UNSET
    """If placements were measured: then the plan is the best by measurement, not by value."""
    progress: tuple[tuple[float, int | None, int | None], ...] | msgspec.UnsetType = msgspec.UNSET
    """(seconds, value_ns, bound_ns) each time the search knew better; absent under a work limit: bytes repeat."""

    @property
    def proved_bound_ns(self) -> int:
        """The best bound that the checker re-computes."""
        return max((bound.value_ns for bound in self.bounds if bound.proof == "proved"), default=0)

    @property
    def wins(self) -> bool:
        """True if no baseline is better."""
        return all(value is None or value >= self.value_ns for value in self.baselines.values())

    def load_problem(self) -> Problem:
        """The embedded problem, ready for the simulator; read and checked once."""
        return self._loaded_problem

    @cached_property
    def _loaded_problem(self) -> Problem:
        from weftline.problem.json_form import problem_from_file

        return problem_from_file(self.problem)

    def save(self, path: Path | str) -> None:
        """Write plan.json."""

        save_plan(self, path)

    @classmethod
    def load(cls, path: Path | str) -> Plan:
        """Read plan.json."""

        return load_plan(path)

    def summary(self) -> str:
        """A few lines for a terminal."""
        from weftline.plans.summary import summary

        return summary(self)

    def __repr__(self) -> str:
        return f"Plan({self.objective}, {self.value_ns} ns, gap {self.gap:.2%} {self.proof}, by {self.solver})"


MAX_PLAN_BYTES = 2 * 2**30


def plan_to_json(plan: Plan) -> bytes:
    """The bytes of plan.json."""
    return msgspec.json.encode(plan) + b"\n"


def save_plan(plan: Plan, path: Path | str) -> None:
    """Write plan.json."""
    write_atomically(Path(path), plan_to_json(plan))


def load_plan(path: Path | str) -> Plan:
    """Read plan.json; every failure is an `InputError` that names the file and the place in it."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_PLAN_BYTES or not path.is_file():
            raise InputError("more than 2 GiB, or not a file at all, is not a plan", where=str(path))
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    try:
        return msgspec.json.decode(data, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = other_kind(data, "a weftline plan") or f"not a weftline plan: {error}"
        raise InputError(what, where=str(path)) from error
