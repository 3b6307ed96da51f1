"""The Schedule: the fields of sched.json, in the order of the file; read, write, and back to a timetable."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
import numpy as np

from weftline.arguments import a_path
from weftline.errors import InputError, UsageError, unreadable
from weftline.files import other_kind, write_atomically
from weftline.lazy import notebook_html
from weftline.problem.blocks import BlocksFile, blocks_of_file
from weftline.units import MAX_QUANTITY

if TYPE_CHECKING:
    from weftline.problem import Blocks
    from weftline.simulate import Timetable

__all__ = ["Action", "RepetendFile", "Schedule", "ScheduleProvenance", "load_schedule", "schedule_to_json"]

MAX_BYTES = 1 << 30
MAX_OPERATIONS = 20_000_000


class Action(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A block of a micro-batch on one device."""

    block: int
    """Its id in `blocks`."""
    micro_batch: int
    start: int
    end: int


class RepetendFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The repeating pattern; copy = micro-batch in the pattern * blocks + block.

    Scaled times are whole numbers of 1 / `scale`.
    """

    micro_batches: int
    """U, per repetition."""
    length: float | int
    """Time from one repetition to the next."""
    lags: tuple[int, ...]
    """Copy of a block -> windows by which it lags behind."""
    orders: tuple[tuple[int, ...], ...]
    """Device -> its copies in one window."""
    scale: int
    scaled_length: int
    scaled_starts: tuple[int, ...]


class ScheduleProvenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the schedule comes from."""

    version: str
    blocks_sha256: str
    inputs: dict[str, str]
    argv: tuple[str, ...]
    seed: int
    time_limit: float | None
    work_limit: int | None
    gap: float


class Schedule(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True):
    """One answer. Times and memory are in the units of the blocks (ns and bytes where they come from a plan)."""

    format: Literal["weftline-schedule"]
    version: Literal[1]
    name: str
    objective: Literal["makespan", "device-span", "latency"]
    micro_batches: int
    makespan: int
    bound: int
    """No schedule of so many micro-batches has a smaller makespan (or device span, where that is the objective)."""
    bound_by: str
    gap: float
    """(value - bound) / value"""
    proof: Literal["proved", "claimed"]
    """proved: the checker re-computes the bound."""
    period: float | int
    """Per micro-batch, of the repetend; of the schedule itself (makespan / N) where nothing repeats."""
    period_exact: str
    repetend: RepetendFile | None
    period_bound: float | int
    period_bound_exact: str
    period_bound_by: str
    period_proved: bool
    period_proof: str
    """What is known about the period: it equals its bound, or is the least of a class of patterns, and who says so."""
    bubble: int
    """Makespan without work, of the device that idles most."""
    device_span: int
    device_span_bubble: int
    """Idle time between a device's first start and last end, of the device that idles most."""
    peak_memory: tuple[int, ...]
    memory_limit: tuple[int | None, ...]
    latency: int
    """Of the slowest micro-batch: from its first start (or its arrival, where that is given) to its last end."""
    robust: dict[str, float | int] | None
    """With noise: 95th percentile of the makespan, and the noise."""
    solver: str
    seconds: float | None
    period_seconds: float | None
    """When the best period was found, and proved if it was."""
    stopped_by: str
    reached: dict[str, int | None]
    """Makespan that methods reached, None where a method found nothing within memory."""
    actions: tuple[tuple[Action, ...], ...]
    """Device -> what it does, in order."""
    provenance: ScheduleProvenance
    blocks: BlocksFile
    advice: str | msgspec.UnsetType = msgspec.UNSET
    """Only where memory binds and a schedule with recompute is known that is shorter: what it would give."""
    witnesses: dict[str, dict[str, Any]] | msgspec.UnsetType = msgspec.UNSET
    """What lets the checker repeat `bound`, `period_bound` and `period`, where loads alone do not show them."""

    @property
    def value(self) -> int:
        """What was minimised."""
        return {"makespan": self.makespan, "device-span": self.device_span, "latency": self.latency}[self.objective]

    def load_blocks(self) -> Blocks:
        """The embedded question."""
        return blocks_of_file(self.blocks)

    def timetable(self) -> Timetable:
        """Run the orders through the simulator again."""
        from weftline.simulate import simulate_schedule

        blocks = self.load_blocks()
        if not 1 <= self.micro_batches * blocks.n <= MAX_OPERATIONS or len(self.actions) != len(blocks.devices):
            raise InputError("the actions do not fit the blocks")
        for row in self.actions:
            for action in row:
                if not (0 <= action.block < blocks.n and 0 <= action.micro_batch < self.micro_batches):
                    raise InputError("an action names a block or micro-batch that does not exist")
                if not 0 <= action.start <= action.end <= MAX_QUANTITY:
                    raise InputError("an action starts before time 0, or ends before it starts or after 2^60")
        orders = [np.array([a.micro_batch * blocks.n + a.block for a in row], np.int64) for row in self.actions]
        try:
            return simulate_schedule(blocks, self.micro_batches, orders)
        except UsageError as error:  # an operation twice, or not at all
            raise InputError(str(error)) from error

    def save(self, path: Path | str) -> None:
        """Write sched.json."""
        write_atomically(path, schedule_to_json(self))

    @classmethod
    def load(cls, path: Path | str) -> Schedule:
        """Read sched.json."""
        return load_schedule(path)

    def table(self, name: str) -> list[dict[str, Any]]:
        """timeline, devices or reached, as a list of dicts."""
        from weftline.plans.records import schedule_records

        return schedule_records(self, name)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook_html(self)

    def __repr__(self) -> str:
        return f"Schedule({self.name}, makespan {self.makespan}, period {self.period_exact}, by {self.solver})"


def exact(number: Fraction) -> float | int:
    """A whole number as such, anything else as the nearest float."""
    return int(number) if number.denominator == 1 else float(number)


def schedule_to_json(schedule: Schedule) -> bytes:
    """The bytes of sched.json."""
    return msgspec.json.encode(schedule) + b"\n"


def load_schedule(path: Path | str) -> Schedule:
    """Read sched.json; every failure is an `InputError` that names the file and the place in it."""
    path = a_path(path, "path")
    try:
        if path.stat().st_size > MAX_BYTES or not path.is_file():
            raise InputError("more than 1 GiB, or not a file at all, is not a schedule", where=str(path))
        data = path.read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise unreadable(path, error) from error
    try:
        return msgspec.json.decode(data, type=Schedule)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = other_kind(data, "a weftline schedule") or f"not a weftline schedule: {error}"
        raise InputError(what, where=str(path)) from error
