"""Requests that arrive at a fixed rate: the pattern with the least latency at that period.

In: a search whose blocks begin with an arrival (`with_arrivals`): a block on a lane of its own that takes exactly one
period, so that a micro-batch cannot start before it is there. Out: repetends of one micro-batch, and requests served in
the order in which they come. CP-SAT minimises the latency of a pattern; the bound is the longest chain of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.repetend import repetend_of_starts
from weftline.schedule.search import Scheduler, ScheduleSearch
from weftline.search.cp_sat import run_model

__all__ = ["SCHEDULER", "with_arrivals"]

ARRIVAL = "arrival"
MOST_BLOCKS = 400


def with_arrivals(blocks: Blocks, period: int) -> Blocks:
    """The same blocks behind an arrival of one micro-batch per period, which becomes the last block."""
    busiest = max(range(len(blocks.devices)), key=lambda d: blocks.loads[d])
    if blocks.loads[busiest] > period:
        raise InfeasibleError(
            f"requests come every {period}, but device {blocks.devices[busiest].id!r} works {blocks.loads[busiest]} "
            "for each of them",
            proved=True,
        )
    lane, number = len(blocks.devices), blocks.n
    targets = {target for _, target, _ in blocks.edges}
    edges = [*blocks.edges, *((number, i, 0) for i in range(number) if i not in targets)]
    arrival = Block("C", period, (lane,), (0,), ARRIVAL)
    return Blocks.of(blocks.name, [*blocks.devices, Lane(ARRIVAL, link=True)], [*blocks.blocks, arrival], edges)


def _solve(search: ScheduleSearch) -> None:
    blocks = search.blocks
    arrival = next((i for i, block in enumerate(blocks.blocks) if block.name == ARRIVAL), None)
    if arrival is None:
        raise InfeasibleError("least-latency needs a period at which requests arrive: --period")
    from weftline.schedule.list.priority import SCHEDULER as LIST

    search.run(LIST, wants_period=False)
    if blocks.n > MOST_BLOCKS or search.is_over:
        return
    period = blocks.blocks[arrival].span
    model, starts = _model(blocks, arrival, period)

    def offer(values: Sequence[int]) -> None:
        found = [Fraction(values[start.index]) for start in starts]
        search.offer_repetend(repetend_of_starts(blocks, 1, Fraction(period), found))

    outcome = run_model(
        model,
        seconds=search.seconds_left,
        work=None if search.work_limit is None else 5.0,
        seed=search.seed,
        on_solution=offer,
        poll=lambda: search.is_over,
    )
    if outcome.optimal:
        search.tell("no pattern of one micro-batch has a smaller latency")
    if outcome.infeasible and search.best is None:
        raise InfeasibleError(f"no pattern of period {period} fits into memory")


def _model(blocks: Blocks, arrival: int, period: int) -> tuple[Any, list[Any]]:
    """Starts = phase + period * lag; phases on a device do not overlap, also across the end of the window."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    longest = sum(b.span for b in blocks.blocks) + sum(lag for _, _, lag in blocks.edges)
    most = longest // period + blocks.n + 1
    phase = [model.new_int_var(0, period - 1, "") for _ in blocks.blocks]
    lag = [model.new_int_var(0, most, "") for _ in blocks.blocks]
    start = [model.new_int_var(0, period * (most + 1), "") for _ in blocks.blocks]
    for i in range(blocks.n):
        model.add(start[i] == phase[i] + period * lag[i])
    model.add(start[arrival] == 0)
    for a, b, wait in blocks.edges:
        model.add(start[b] >= start[a] + blocks.blocks[a].span + wait)
    last = model.new_int_var(0, period * (most + 2), "")
    for i, block in enumerate(blocks.blocks):
        model.add(last >= start[i] + block.span)
    for device in range(len(blocks.devices)):
        _exclude(model, blocks, device, period, phase, lag)
    model.minimize(last)
    return model, start


def _exclude(model: Any, blocks: Blocks, device: int, period: int, phase: list[Any], lag: list[Any]) -> None:
    """One block at a time, and memory: what is held when a block starts depends on lags and on who comes first."""
    mine = [i for i, block in enumerate(blocks.blocks) if device in block.devices]
    change = {i: blocks.blocks[i].memory[blocks.blocks[i].devices.index(device)] for i in mine}
    before: dict[tuple[int, int], Any] = {}
    for x, i in enumerate(mine):
        for j in mine[x + 1 :]:
            first = model.new_bool_var("")
            before[i, j], before[j, i] = first, first.negated()
            for a, b in ((i, j), (j, i)):
                model.add(phase[b] >= phase[a] + blocks.blocks[a].span).only_enforce_if(before[a, b])
                model.add(phase[b] + blocks.blocks[b].span <= phase[a] + period).only_enforce_if(before[a, b])
    if blocks.devices[device].link or not any(change.values()):
        return
    for j in mine:
        if change[j] > 0:
            held = sum(-change[i] * lag[i] for i in mine) + change[j]
            held += sum(change[i] * before[i, j] for i in mine if i != j)
            model.add(held + 0 <= blocks.devices[device].memory)


SCHEDULER = Scheduler("least-latency", "inference at a given rate: the pattern with the least latency (CP-SAT)", _solve)
