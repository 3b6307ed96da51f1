"""Blocks and a number of micro-batches -> a Schedule: search, bounds, certificate.

`sweep_memory` sets memory against period: schedules for several limits, and which of them no other beats in both.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import lcm
from time import monotonic
from types import MappingProxyType
from typing import Any

import msgspec

from weftline import __version__
from weftline.arguments import shown
from weftline.ask.clock import Clock, searching_time
from weftline.ask.proofs import proof_seconds
from weftline.ask.prove_schedules import certified, with_witnesses
from weftline.ask.request import read_memory
from weftline.errors import InfeasibleError, UsageError, near
from weftline.interrupts import Interruption, uninterrupted
from weftline.plans.schedule import Action, RepetendFile, Schedule, ScheduleProvenance, exact
from weftline.problem import NO_LIMIT, Blocks
from weftline.problem.blocks import BlocksFile, blocks_to_file
from weftline.schedule import Repetend, Scheduler, ScheduleSearch, prepare, schedulers
from weftline.schedule.bounds.makespan import device_span_bound, makespan_bound
from weftline.schedule.bounds.period import period_bound
from weftline.schedule.cp_sat import with_arrivals
from weftline.schedule.noise import Noise, percentile
from weftline.search import Event, Termination, check_names
from weftline.simulate import Timetable
from weftline.units import format_bytes

__all__ = ["MemoryRow", "MemorySweep", "find_scheduler", "make_schedule", "read_limits", "sweep_memory"]

MAX_SEED = 2**31 - 1
MAX_OPERATIONS = 2_000_000
MAX_SUM = 2**60
TIME_LIMIT = 60.0


def find_scheduler(name: str | Scheduler) -> Scheduler:
    """The scheduler of that name, or an error that lists what exists; one of the caller's own is itself."""
    if isinstance(name, Scheduler):
        return name
    if not isinstance(name, str):
        raise UsageError(f"a solver is a name or a weftline.schedule.Scheduler, not {shown(name)}")
    known = schedulers()
    if name not in known:
        from weftline.ask.questions import check_other_questions

        check_other_questions(name, "schedule")
        raise UsageError(f"unknown solver {name!r:.100}{near(name, known)} (there are: {', '.join(known)})")
    return known[name]


def make_schedule(
    blocks: Blocks,
    micro_batches: int,
    *,
    solver: str | Scheduler = "auto",
    device_span: bool = False,
    gap: float | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    arrivals: int | None = None,
    robust: Noise | None = None,
    proof: float | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
    inputs: Mapping[str, str] = MappingProxyType({}),
    argv: Sequence[str] = (),
) -> Schedule:
    """Search and certify. Ctrl-C returns the best so far; `InfeasibleError` if there is none.

    With `arrivals` (inference) a micro-batch comes every so often, and the search is for the least latency. Without
    limits the search ends when nothing has become better for a while, after 60 s at the latest. With `robust`
    the order with the least 95th percentile of the makespan under noise wins. `settings` are the solver's own. The
    time limit is for the search, or counts from `begun` (a reading of `time.monotonic`); after it, `proof` more seconds
    go to witnesses that the checker can repeat (default: at most 10, none under a work limit; 0: none).
    """
    clock = Clock(monotonic() if begun is None else begun, on_event)
    if not 0 <= seed <= MAX_SEED:
        raise UsageError(f"a seed lies between 0 and {MAX_SEED}")
    _check_size(blocks, micro_batches)
    if not isinstance(robust, Noise | None):
        raise UsageError(f"robust is a weftline.schedule.noise.Noise, not {shown(robust)}")
    if arrivals is not None:
        blocks = with_arrivals(blocks, arrivals)
        solver = "least-latency" if solver == "auto" else solver
    chosen = find_scheduler(solver)
    solver = chosen.name
    check_names(solver, chosen.takes, settings)
    with clock.preparing():
        prepare()
    free = time_limit is None and work_limit is None
    limit = TIME_LIMIT if free else time_limit
    search = ScheduleSearch(
        blocks,
        micro_batches,
        device_span=device_span,
        from_arrival=arrivals is not None,
        time_limit=searching_time(limit, micro_batches * blocks.n, clock.spent, slowness=clock.slowness),
        work_limit=work_limit,
        settle=free,
        wants_period=solver in ("auto", "cyclic", "least-latency"),
        gap=gap or 0.0,
        seed=seed,
        on_event=on_event,
        solver=solver,
        options=settings,
        keep=0 if robust is None else NOISE_POOL,
    )
    with Interruption(insist=True) as stop:
        _search(search, chosen, format_bytes if "plan" in inputs else str)  # as in schedule_units
    if search.best is None:
        if stop.ended:
            raise KeyboardInterrupt
        raise InfeasibleError(f"{solver} found no schedule within the limits", conflicts=search.refused)
    stopped_by = Termination.INTERRUPTED if stop.ended else search.stopped_by or Termination.DONE
    provenance = ScheduleProvenance(__version__, "", dict(inputs), tuple(argv), seed, limit, work_limit, search.gap)
    with uninterrupted():
        made = _assemble(search, _chosen(search, robust), robust, stopped_by, provenance)
    seconds = 0.0 if stop.ended else proof_seconds(proof, time_limit, work_limit)
    with Interruption(insist=True):
        made = with_witnesses(made, blocks, seconds, on_event)
    with uninterrupted():
        return certified(made)


def _search(search: ScheduleSearch, chosen: Scheduler, size: Callable[[int], str]) -> None:
    """The quick bounds, then the solver. What it fails at does not matter once there is an answer."""
    try:
        check_memory(search.blocks, size)
        search.offer_bound(*_bound(search))
        if search.blocks.balanced:
            search.offer_period_bound(*period_bound(search.blocks))
        chosen.solve(search)
    except InfeasibleError:
        if search.best is None:
            raise


NOISE_POOL = 24
"""With noise: so many of the best orders are compared."""


def _bound(search: ScheduleSearch) -> tuple[int, str]:
    if search.from_arrival:
        head = {search.blocks.n - 1: 0}
        for block in search.blocks.table.order.tolist():
            ends = [head[a] + search.blocks.blocks[a].span + lag for a, b, lag in search.blocks.edges if b == block]
            head[block] = max(ends, default=0)
        longest = max(head[i] + block.span for i, block in enumerate(search.blocks.blocks))
        return longest - search.blocks.blocks[-1].span, "path"
    known = device_span_bound if search.device_span else makespan_bound
    return known(search.blocks, search.micro_batches)


def _check_size(blocks: Blocks, micro_batches: int) -> None:
    """Numbers stay whole and exact: sums of all times and of all memory must fit."""
    if not 1 <= micro_batches <= MAX_OPERATIONS // blocks.n:
        raise UsageError(f"1 to {MAX_OPERATIONS // blocks.n} micro-batches of {blocks.n} blocks can be planned")
    time = sum(block.span for block in blocks.blocks) + sum(lag for _, _, lag in blocks.edges)
    memory = sum(abs(change) for block in blocks.blocks for change in block.memory)
    if micro_batches * max(time, memory) >= MAX_SUM:
        raise UsageError("the times or the memory of all micro-batches together exceed 2^60; use a larger unit")


def check_memory(blocks: Blocks, size: Callable[[int], str] = str) -> None:
    """What no order can fit is said at once, the device that lacks most first.

    A block needs more than there is, and memory comes back only after it; or more is reserved than there is. `size`
    writes an amount.
    """
    found: list[tuple[int, str]] = []
    for device, lane in enumerate(blocks.devices):
        change = {i: b.memory[b.devices.index(device)] for i, b in enumerate(blocks.blocks) if device in b.devices}
        most = max(change, key=lambda i: change[i], default=-1)
        large = [i for i in change if change[i] > lane.room]
        later = _descendants(blocks, large)
        if lane.room >= 0 and not (large and all(i in later for i in change if change[i] < 0)):
            continue
        needed = max(0, change.get(most, 0)) + lane.reserved
        words = f"block {blocks.blocks[most].name!r} needs {size(needed)} memory"
        if lane.reserved:
            words = (
                f"one micro-batch needs {size(needed)} memory ({size(lane.reserved)} reserved for its backward pass)"
            )
        found.append((needed - lane.memory, f"{words} on device {lane.id!r}, which has {size(lane.memory)}"))
    if found:
        (_, worst), *others = sorted(found, key=lambda pair: -pair[0])
        raise InfeasibleError(worst, conflicts=tuple(words for _, words in others), proved=True)


def _descendants(blocks: Blocks, first: list[int]) -> set[int]:
    found, table = set(first), blocks.table
    for i in table.order.tolist():
        if any(int(j) in found for j in table.before_of[table.before_ptr[i] : table.before_ptr[i + 1]]):
            found.add(i)
    return found - set(first)


def _chosen(search: ScheduleSearch, robust: Noise | None) -> Timetable:
    """The best order; under noise, the one with the least 95th percentile among the best."""
    assert search.best is not None
    if robust is None:
        return search.best
    pool = [search.best, *search.pool]
    return min(pool, key=lambda t: (percentile(search.blocks, search.micro_batches, t.orders, robust), t.makespan))


def _assemble(
    search: ScheduleSearch,
    found: Timetable,
    robust: Noise | None,
    stopped_by: Termination,
    provenance: ScheduleProvenance,
) -> Schedule:
    blocks, value = search.blocks, search.value(found)
    file = msgspec.convert(blocks_to_file(blocks), BlocksFile)
    digest = hashlib.sha256(msgspec.json.encode(file)).hexdigest()
    bound = search.bound or 0
    repetend, period_bound = search.repetend, search.period_bound or Fraction(0)
    period = Fraction(found.makespan, search.micro_batches) if repetend is None else repetend.period
    made = Schedule(
        format="weftline-schedule",
        version=1,
        name=blocks.name,
        objective="latency" if search.from_arrival else "device-span" if search.device_span else "makespan",
        micro_batches=search.micro_batches,
        makespan=found.makespan,
        bound=bound,
        bound_by=search.bound_by,
        gap=(value - bound) / value if value else 0.0,
        proof="claimed",
        period=exact(period),
        period_exact=str(period),
        repetend=None if repetend is None else _repetend_file(repetend),
        period_bound=exact(period_bound),
        period_bound_exact=str(period_bound),
        period_bound_by=search.period_bound_by,
        period_proved=search.period_proved,
        period_proof=search.proof,
        bubble=found.bubble,
        device_span=found.device_span,
        device_span_bubble=found.device_span_bubble,
        peak_memory=found.peak_memory,
        memory_limit=tuple(None if d.link or d.memory >= NO_LIMIT else d.memory for d in blocks.devices),
        latency=value if search.from_arrival else found.longest_latency,
        robust=None if robust is None else _noise(search, found, robust),
        solver=search.solver,
        seconds=None if search.work_limit is not None else round(search.seconds, 3),
        period_seconds=None if search.work_limit is not None else round(search.period_seconds, 3),
        stopped_by=str(stopped_by),
        reached=dict(search.reached),
        actions=tuple(_actions(found, device) for device in range(len(blocks.devices))),
        provenance=msgspec.structs.replace(provenance, blocks_sha256=digest),
        blocks=file,
    )
    return made


def _noise(search: ScheduleSearch, found: Timetable, robust: Noise) -> dict[str, float]:
    return {
        "p95": percentile(search.blocks, search.micro_batches, found.orders, robust),
        "sigma": robust.sigma,
        "straggler": robust.straggler,
        "draws": robust.draws,
    }


def _repetend_file(repetend: Repetend) -> RepetendFile:
    scale = lcm(repetend.length.denominator, *(start.denominator for start in repetend.starts))
    return RepetendFile(
        repetend.micro_batches,
        exact(repetend.length),
        repetend.lags,
        repetend.orders,
        scale,
        int(repetend.length * scale),
        tuple(int(start * scale) for start in repetend.starts),
    )


def _actions(found: Timetable, device: int) -> tuple[Action, ...]:
    n = found.blocks.n
    order = found.orders[device]
    rows = zip(order.tolist(), found.start[order].tolist(), found.end[order].tolist(), strict=True)
    return tuple(Action(op % n, op // n, start, end) for op, start, end in rows)


MOST_LIMITS = 200


@dataclass(frozen=True)
class MemoryRow:
    """One limit and its schedule, None where nothing fits."""

    memory: int
    schedule: Schedule | None
    best: bool
    """No smaller limit has so small a period: a point of the Pareto curve."""


@dataclass(frozen=True)
class MemorySweep:
    """The curve, limits ascending."""

    rows: tuple[MemoryRow, ...]

    @property
    def best(self) -> Schedule:
        """The shortest schedule; of equal ones that with the least memory."""
        found = [row.schedule for row in self.rows if row.schedule is not None]
        return min(found, key=lambda schedule: schedule.value)

    def to_json(self) -> bytes:
        """What `--json` prints: the curve without the actions."""
        rows = [
            {
                "memory": row.memory,
                "period": None if row.schedule is None else row.schedule.period,
                "period_exact": None if row.schedule is None else row.schedule.period_exact,
                "period_bound": None if row.schedule is None else row.schedule.period_bound,
                "period_proved": row.schedule is not None and row.schedule.period_proved,
                "makespan": None if row.schedule is None else row.schedule.makespan,
                "bound": None if row.schedule is None else row.schedule.bound,
                "pareto": row.best,
            }
            for row in self.rows
        ]
        return json.dumps({"rows": rows}).encode()


def read_limits(word: str, in_bytes: bool = False) -> list[int]:
    """`2..8` or `2,4,8`; with bytes also `200MiB,1GiB`."""
    span = re.fullmatch(r"(\d{1,15})\.\.(\d{1,15})", word)
    if span:
        low, high = int(span[1]), int(span[2])
        if low > high or high - low >= MOST_LIMITS:
            raise UsageError(f"--sweep-memory {word}: 1 to {MOST_LIMITS} limits, the smaller first")
        return list(range(low, high + 1))
    if in_bytes and word.count(",") < MOST_LIMITS and not re.fullmatch(r"[\d,]*", word):
        limits = read_memory(word, in_bytes, "--sweep-memory ")
        return sorted({limits} if isinstance(limits, int) else set(limits))
    if not re.fullmatch(r"\d{1,18}(,\d{1,18}){0,199}", word):
        raise UsageError(f"--sweep-memory {word!r:.200} is not A..B or M,M,...")
    return sorted({int(part) for part in word.split(",")})


def sweep_memory(
    blocks: Blocks,
    micro_batches: int,
    limits: str,
    *,
    time_limit: float | None = None,
    in_bytes: bool = False,
    **options: Any,
) -> MemorySweep:
    """A schedule for every limit; the time limit is for all of them together."""
    wanted = read_limits(limits, in_bytes)
    each = None if time_limit is None else time_limit / len(wanted)
    rows: list[MemoryRow] = []
    least: Fraction | None = None
    for limit in wanted:
        try:
            found = make_schedule(blocks.with_memory(limit), micro_batches, time_limit=each, **options)
        except InfeasibleError:
            rows.append(MemoryRow(limit, None, False))
            continue
        period = Fraction(found.period_exact)
        rows.append(MemoryRow(limit, found, least is None or period < least))
        least = period if least is None else min(least, period)
        if found.stopped_by == Termination.INTERRUPTED:
            break
    if least is None:
        check_memory(blocks.with_memory(wanted[-1]), format_bytes if in_bytes else str)  # says what does not fit
        raise InfeasibleError(f"nothing fits in memory {format_bytes(wanted[-1]) if in_bytes else wanted[-1]}")
    return MemorySweep(tuple(rows))
