"""From a ScheduleRequest to its schedule: read what it names, search, and try recompute where memory is in the way.

In: a request. Out: its blocks with the sha256 of the file that was read; its Schedule, with `advice` where one with
recompute is really shorter: that is searched too, within a small share of the limits, and nothing is said that was not
computed. Everything heavy is imported when it is needed. Simplified: the second search is short, so `--recompute`
itself may give still less. Where nothing fits at all it is not tried: one micro-batch alone needs as much with it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING

import msgspec

from weftline.ask.request import ScheduleRequest
from weftline.errors import InfeasibleError, UsageError, WeftlineError
from weftline.files import unchanged

if TYPE_CHECKING:
    from weftline.ask.scheduling import MemorySweep
    from weftline.plans.schedule import Schedule
    from weftline.problem import Blocks
    from weftline.search import Event

__all__ = ["ResolvedBlocks", "answer_memory", "answer_schedule", "resolve_blocks"]

BATCHES_PER_DEVICE = 4
"""Micro-batches for each device, unless said otherwise."""
LEAST_GAIN = 0.02
"""Share of the value that recompute must save to be worth a word."""
LIMIT_SHARE = 0.1
"""Of the limits, for the search with recompute."""
MOST_SECONDS = 3.0
"""The same in time."""
PLAN_AGAIN = (
    "a plan looks at the memory of inference alone; leave this device out of the cluster file, or forbid it some ops "
    "([limits] forbid), and plan again"
)


@dataclass(frozen=True)
class ResolvedBlocks:
    """The blocks of a request."""

    request: ScheduleRequest
    blocks: Blocks
    micro_batches: int
    inputs: dict[str, str]
    """Role -> sha256 of the file that was read."""


def resolve_blocks(request: ScheduleRequest) -> ResolvedBlocks:
    """Read what a request names."""
    from weftline.problem import Blocks, read_blocks

    if (request.blocks is None) == (request.plan is None):
        raise UsageError("a schedule needs blocks or a plan, one of them")
    if (request.recompute or request.split_backward) and (request.plan is None or not request.train):
        raise UsageError(
            "recompute and split_backward are for training by a plan; other blocks say themselves what runs"
        )
    role, given = ("blocks", request.blocks) if request.plan is None else ("plan", request.plan)
    file = given if isinstance(given, Path | str) else None
    with nullcontext() if file is None else unchanged(file):
        blocks = request.blocks if request.plan is None else _blocks_of(request)
        if isinstance(blocks, Path | str):
            blocks = read_blocks(blocks)
        digests = {} if file is None else {role: sha256(Path(file).read_bytes()).hexdigest()}
    if not isinstance(blocks, Blocks):
        raise UsageError("schedule takes Blocks (wl.shape) or their file, or the Plan of one pipeline (copies=1)")
    if request.memory is not None:
        blocks = blocks.with_memory(request.memory)
    count = request.micro_batches
    if count is None:
        count = BATCHES_PER_DEVICE * sum(not lane.link for lane in blocks.devices)
    return ResolvedBlocks(request, blocks, count, digests)


def _blocks_of(request: ScheduleRequest) -> Blocks:
    """The stages of a plan as blocks."""
    from weftline.plans import load_plan, plan_result
    from weftline.schedule.make_blocks import pipeline_blocks
    from weftline.simulate import Loads

    plan = load_plan(request.plan) if isinstance(request.plan, Path | str) else request.plan
    assert plan is not None
    problem, result = plan_result(plan)
    if not isinstance(result, Loads):
        raise UsageError("a schedule needs a throughput plan: weftline plan MODEL --objective throughput --copies 1")
    with _hinting(request):
        return pipeline_blocks(
            problem, result, train=request.train, split=request.split_backward, recompute=request.recompute
        )


@contextmanager
def _hinting(request: ScheduleRequest) -> Iterator[None]:
    """Where the stages of a plan do not fit for training: what to try. By limits of the caller's own that is clear."""
    try:
        yield
    except InfeasibleError as error:
        if not error.proved or request.plan is None or request.memory is not None or not request.train:
            raise
        raise InfeasibleError(error.what, conflicts=(*error.conflicts, PLAN_AGAIN), proved=True) from error


def answer_schedule(
    asked: ScheduleRequest | ResolvedBlocks,
    *,
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Schedule:
    """The schedule of a request, and what recompute would give where memory is in the way; limits are for both."""
    from weftline.ask.scheduling import TIME_LIMIT
    from weftline.plans.schedule_story import binds_by_memory
    from weftline.search import Event, Termination
    from weftline.units import format_time

    found = resolve_blocks(asked) if isinstance(asked, ScheduleRequest) else asked
    asks, limit = _asks(found), found.request.time_limit
    share = MOST_SECONDS
    if asks and (limit is not None or found.request.work_limit is None):
        share = min(MOST_SECONDS, LIMIT_SHARE * float(TIME_LIMIT if limit is None else limit))
        begun = (monotonic() if begun is None else begun) - share  # so much of the time is kept for the second search
    with _hinting(found.request):
        answer = _search(found, begun, on_event)
    if not asks or answer.stopped_by == Termination.INTERRUPTED or not binds_by_memory(answer):
        return answer
    if on_event is not None:
        on_event(Event(0.0, "", None, None, "memory is full: trying recompute too"))
    most = (1 - LEAST_GAIN) * answer.value
    other = _recomputed(found, share, most)
    if other is None or other.value >= most:
        return answer
    words = f"--recompute would give {format_time(other.value)} instead of {format_time(answer.value)}"
    return msgspec.structs.replace(answer, advice=f"Memory binds: {words}.")


def _search(found: ResolvedBlocks, begun: float | None, on_event: Callable[[Event], None] | None) -> Schedule:
    from weftline.ask.scheduling import make_schedule

    options = found.request.options
    return make_schedule(
        found.blocks, found.micro_batches, inputs=found.inputs, begun=begun, on_event=on_event, **options
    )


def _asks(found: ResolvedBlocks) -> bool:
    """Whether recompute can be the answer: activations of a plan's stages that do not all fit at once."""
    from weftline.problem import NO_LIMIT

    request = found.request
    if request.plan is None or not request.train or request.recompute or request.robust is not None:
        return False
    return any(
        not lane.link and lane.memory < NO_LIMIT and found.micro_batches * _taken(found.blocks, device) > lane.memory
        for device, lane in enumerate(found.blocks.devices)
    )


def _taken(blocks: Blocks, device: int) -> int:
    """What one micro-batch takes on a device."""
    here = (block.memory[block.devices.index(device)] for block in blocks.blocks if device in block.devices)
    return sum(change for change in here if change > 0)


def _recomputed(found: ResolvedBlocks, share: float, most: float) -> Schedule | None:
    """A quick schedule with recompute; None where there is none, or where none can be below `most`.

    Whatever happens here, the answer that is there already is not lost.
    """
    from weftline.ask.clock import PER_OP
    from weftline.ask.scheduling import check_memory
    from weftline.schedule.bounds.makespan import device_span_bound, makespan_bound

    asked, work = found.request, found.request.work_limit
    if PER_OP * found.micro_batches * found.blocks.n > share / 2:  # its certificate alone would take longer
        return None
    quick = replace(
        asked,
        recompute=True,
        robust=None,
        gap=None,
        proof=0.0,
        time_limit=share if asked.time_limit is not None or work is None else None,
        work_limit=None if work is None else max(1, int(LIMIT_SHARE * work)),
    )
    try:
        other = resolve_blocks(quick)
        bound = device_span_bound if asked.objective == "device-span" else makespan_bound
        check_memory(other.blocks)
        if other.inputs != found.inputs or bound(other.blocks, other.micro_batches)[0] >= most:
            return None
        return _search(other, None, None)
    except (WeftlineError, KeyboardInterrupt):
        return None


def answer_memory(
    asked: ScheduleRequest | ResolvedBlocks, limits: str, *, on_event: Callable[[Event], None] | None = None
) -> MemorySweep:
    """Schedules of a request for several limits of memory, `2..8` or `2,4,8`; its time is for all of them together."""
    from weftline.ask.scheduling import sweep_memory

    found = resolve_blocks(asked) if isinstance(asked, ScheduleRequest) else asked
    options = found.request.options
    options |= {"inputs": found.inputs, "in_bytes": found.request.plan is not None}
    return sweep_memory(found.blocks, found.micro_batches, limits, on_event=on_event, **options)
