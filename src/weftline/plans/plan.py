"""The Plan: the fields of plan.json, in the order of the file; read and write; how its search went.

Progress is value and bound over time: rows (seconds, value or None, bound or None), one for each time one of them
became better. Simplified: above `MOST_ROWS` only a selection is kept, the first, the last and the largest steps.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from weftline.arguments import a_path
from weftline.errors import InputError, unreadable
from weftline.files import other_kind, write_atomically
from weftline.lazy import notebook_html
from weftline.problem.model import ProblemFile
from weftline.search import Event

if TYPE_CHECKING:
    from weftline.problem import Problem

__all__ = [
    "MOST_ROWS",
    "BoundEntry",
    "DeviceUse",
    "GuessedFile",
    "MeasuredFile",
    "Plan",
    "Progress",
    "ProgressRow",
    "Provenance",
    "Stage",
    "TimelineFile",
    "load_plan",
    "plan_to_json",
    "save_plan",
    "thinned",
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


class GuessedFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Some ops have dimensions that could not be computed: their costs, and all that rests on them, are a guess."""

    ops: int
    """How many."""
    first: str
    """The name of the first, and"""
    kind: str
    """its kind."""


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
    advice: str | msgspec.UnsetType = msgspec.UNSET
    """Only where `plan --json` prints it: what to do instead of splitting, in one line."""

    guessed: GuessedFile | msgspec.UnsetType = msgspec.UNSET
    """Only where costs of some ops are a guess: then value and bounds hold for these guessed costs."""

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
        from weftline.problem.model import problem_from_file

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

    def table(self, name: str) -> list[dict[str, Any]]:
        """timeline, transfers, placement, devices, stages, baselines or bounds, as a list of dicts."""
        from weftline.plans.records import plan_records

        return plan_records(self, name)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook_html(self)

    def __repr__(self) -> str:
        guess = f", costs of {self.guessed.ops} ops are a guess" if self.guessed else ""
        return f"Plan({self.objective}, {self.value_ns} ns, gap {self.gap:.2%} {self.proof}, by {self.solver}{guess})"


MAX_PLAN_BYTES = 2 * 2**30


def plan_to_json(plan: Plan) -> bytes:
    """The bytes of plan.json."""
    return msgspec.json.encode(plan) + b"\n"


def save_plan(plan: Plan, path: Path | str) -> None:
    """Write plan.json."""
    write_atomically(path, plan_to_json(plan))


def load_plan(path: Path | str) -> Plan:
    """Read plan.json; every failure is an `InputError` that names the file and the place in it."""
    path = a_path(path, "path")
    try:
        if path.stat().st_size > MAX_PLAN_BYTES or not path.is_file():
            raise InputError("more than 2 GiB, or not a file at all, is not a plan", where=str(path))
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise unreadable(path, error) from error
    try:
        return msgspec.json.decode(data, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = other_kind(data, "a weftline plan") or f"not a weftline plan: {error}"
        raise InputError(what, where=str(path)) from error


MOST_ROWS = 200

ProgressRow = tuple[float, int | None, int | None]


class Progress:
    """Hears every event of a search, keeps what is new, and passes it on."""

    def __init__(self, on_event: Callable[[Event], None] | None = None) -> None:
        self._on_event = on_event
        self._rows: list[ProgressRow] = []

    def __call__(self, event: Event) -> None:
        """An event of the search."""
        known = (event.value, event.bound)
        if known != (None, None) and (not self._rows or self._rows[-1][1:] != known):
            self._rows.append((round(event.seconds, 4), *known))
        if self._on_event is not None:
            self._on_event(event)

    def rows(self, seconds: float, value: int, bound: int) -> tuple[ProgressRow, ...]:
        """What happened until the end of the search, with what was known then."""
        last = (round(max([seconds, *(row[0] for row in self._rows[-1:])]), 4), value, bound)
        return thinned([*self._rows, last])


def thinned(rows: list[ProgressRow], most: int = MOST_ROWS) -> tuple[ProgressRow, ...]:
    """At most so many rows: the first, the last, and those that change most."""
    if len(rows) <= most:
        return tuple(rows)
    inner = enumerate(pairwise(rows[:-1]), 1)
    steps = [(-_step(a[1], b[1]) - _step(a[2], b[2]), number) for number, (a, b) in inner]
    kept = {0, len(rows) - 1, *(number for _, number in sorted(steps)[: most - 2])}
    return tuple(rows[number] for number in sorted(kept))


def _step(before: int | None, after: int | None) -> float:
    if before is None or after is None:
        return 0.0 if before is after else 1.0
    return abs(after - before) / max(before, after, 1)
