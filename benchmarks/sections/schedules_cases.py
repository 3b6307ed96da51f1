"""The questions about schedules (Tessel's shapes, fine times, published schedules), and a scheduler asked one of them.

In: numbers of devices; blocks and the name of a scheduler. Out: cases, each with its Blocks (memory of fine-grained
cases is in half-activations, as X * p), and rows: period, makespan, bounds, and after how much processor time they were
there. Processor time is that of this process and of those it started, so that others on the machine disturb it least
and threads count. Kernels are warm; importing z3 is not on the clock.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from fractions import Fraction
from os import times
from random import Random
from time import perf_counter, process_time

from benchmarks.measure import first_line, say
from benchmarks.results import Row
from weftline.ask.prove_schedules import claims_of, prove_bounds
from weftline.certify.check_schedule import bound_of, has_least_period, period_bound_of
from weftline.errors import WeftlineError
from weftline.problem.blocks import Blocks
from weftline.schedule import ScheduleSearch, schedulers
from weftline.schedule.bounds.period import period_bound
from weftline.schedule.make_blocks import chunked, make_shape
from weftline.search import Event

__all__ = ["Case", "cpu_until", "fine_cases", "formula_cases", "schedule_row", "shape_cases", "warm_up_schedules"]

SHAPES_4 = (
    ("vshape", 4), ("vshape", 3), ("vshape", 2), ("vshape", 1), ("xshape", 4), ("kshape", 6), ("mshape", 6),
    ("mshape", 5), ("mshape", 4), ("mshape", 3), ("nnshape", 6), ("nnshape-eager", 6), ("mllm", 6), ("finetune", 4),
    ("alphafold", 4),
)  # fmt: skip
"""Shape and memory, 4 devices; Tessel's lazy search is asked as well."""
PROOF_SECONDS = 10.0
"""For witnesses, after the search and off the clock."""
ROOMY = 20
"""Memory at which tessel-fast, which does not look at memory, fits."""
LARGE = (
    ("vshape", 8, 8), ("vshape", 16, 16), ("xshape", 8, 8), ("xshape", 16, 16), ("kshape", 8, 20), ("kshape", 16, 20),
    ("mshape", 8, 20), ("mshape", 16, 40), ("nnshape", 8, 20), ("nnshape", 16, 40), ("mllm", 8, 20),
    ("finetune", 8, 8), ("finetune", 8, 20), ("alphafold", 8, 20), ("alphafold", 16, 40),
)  # fmt: skip
"""Shape, devices, memory."""
INFERENCE = ("vshape", "xshape", "kshape", "mshape", "nnshape")
FINE = (("linear", 1.5), ("linear", 2), ("linear", 3), ("zigzag", 2), ("zigzag", 3), ("zigzag", 4))
"""Placement, and memory in half-activations per device of the pipeline."""


@dataclass(frozen=True)
class Case:
    """One question."""

    name: str
    blocks: Blocks
    micro_batches: int
    tessel: tuple[str, ...] = ()
    """Tessel's own algorithms that are asked as well."""


def shape_cases(devices: tuple[int, ...]) -> list[Case]:
    """Tessel's shapes, 32 micro-batches."""
    found = []
    if 4 in devices:
        for shape, memory in SHAPES_4:
            blocks = make_shape(shape, 4).with_memory(memory)
            found.append(Case(f"{shape} 4, memory {memory}", blocks, 32, ("tessel-lazy",)))
        for shape in dict.fromkeys(shape for shape, _ in SHAPES_4):
            blocks = make_shape(shape, 4).with_memory(ROOMY)
            found.append(Case(f"{shape} 4, memory {ROOMY}", blocks, 32, ("tessel-fast",)))
        for shape in INFERENCE:
            both = ("tessel-lazy", "tessel-fast")
            found.append(Case(f"{shape} 4, inference", make_shape(shape, 4, train=False), 32, both))
    for shape, count, memory in LARGE:
        if count in devices:
            found.append(Case(f"{shape} {count}, memory {memory}", make_shape(shape, count).with_memory(memory), 32))
    return found


def fine_cases(devices: tuple[int, ...], seed: int = 0) -> list[Case]:
    """Split backward pass, about 3,500 units per period, unequal stages, latency 0 and 50; N = 4p."""
    found = []
    for p in devices:
        for latency in (0, 50):
            for placement, share in FINE:
                stages = [*range(p)] if placement == "linear" else [*range(p), *reversed(range(p))]
                dice = Random(f"{seed} {p} {placement}")
                size = 1000 if placement == "linear" else 500
                spans = [[round(size * part * dice.uniform(0.85, 1.15)) for _ in stages] for part in (1.05, 1.15, 0.9)]
                name = f"{placement} {p}, latency {latency}, memory {share:g}p"
                blocks = chunked(name, stages, spans[0], spans[1], spans[2], latency=latency)
                found.append(Case(name, blocks.with_memory(round(share * p)), 4 * p))
    return found


def formula_cases(devices: tuple[int, ...]) -> list[Case]:
    """The memory of each published schedule, with its own and with other times."""
    found = []
    for p in devices:
        for each in ((1, 1, 1), (10, 11, 8)):
            placements = {
                "linear": ([*range(p)], {"memory of ZB-H1": 2 * p, "memory of ZB-H2": 4 * p - 2}),
                "zigzag": ([*range(p), *reversed(range(p))], {"memory of ZB-V": 4 * p, "half of that": 2 * p}),
                "interleaved": ([*range(p), *range(p)], {"memory of interleaved 1F1B": 2 * (3 * p - 1)}),
            }
            for placement, (stages, limits) in placements.items():
                f, b, w = ([time] * len(stages) for time in each)
                for label, memory in limits.items():
                    name = f"{placement} {p}, times {each}, {label}"
                    blocks = chunked(name, stages, f, b, w).with_memory(memory)
                    found.append(Case(name, blocks, 4 * p))
    return found


def schedule_row(blocks: Blocks, micro_batches: int, method: str, time_limit: float, *, seed: int = 0) -> Row:
    """Run a scheduler; `trail` has (processor seconds, period, makespan) whenever one of the two became better."""
    trail: list[tuple[float, float | None, int | None]] = []
    begun, cpu = perf_counter(), _cpu()

    def note(_: Event) -> None:
        period = None if search.repetend is None else float(search.repetend.period)
        makespan = None if search.best is None else search.best.makespan
        if not trail or trail[-1][1:] != (period, makespan):
            trail.append((round(_cpu() - cpu, 4), period, makespan))

    search = ScheduleSearch(blocks, micro_batches, time_limit=time_limit, seed=seed, on_event=note)
    problem = ""
    try:
        search.run(schedulers()[method])
    except WeftlineError as error:
        problem = first_line(error)
    except Exception as error:
        say(f"  {method} crashed: {error!r}")
        problem = f"crashed: {type(error).__name__}"
    spent = _cpu() - cpu
    best, repetend = search.best, search.repetend
    return {
        "period": None if repetend is None else float(repetend.period),
        "micro_batches_of_repetend": None if repetend is None else repetend.micro_batches,
        "period_bound": float(period_bound(blocks)[0] if search.period_bound is None else search.period_bound),
        "period_proved": search.period_proved,
        "load": max(blocks.loads),
        "makespan": None if best is None else best.makespan,
        "bound": search.bound,
        "device_span_bubble": None if best is None else best.device_span_bubble,
        "peak": None if best is None else max(best.peak_memory),
        "trail": trail,
        "cpu": round(spent, 4),
        "seconds": round(perf_counter() - begun, 3),
        "time_limit": time_limit,
        "note": problem,
        "checked": {} if best is None else _checked(search),
    }


def _checked(search: ScheduleSearch) -> Row:
    """What the checker re-computes from witnesses, and from loads alone; size of the witnesses, and seconds."""
    repetend = None if search.repetend is None else (search.repetend.micro_batches, search.repetend.period)
    assert search.best is not None
    bounds = search.bound or 0, search.period_bound or Fraction(0)
    claims = claims_of(search.blocks, "makespan", search.micro_batches, repetend, search.best.makespan, bounds)
    begun = process_time()
    found = prove_bounds(claims, PROOF_SECONDS)
    made = process_time()
    form = {**claims.form, "witnesses": found}
    row = {
        "bound": bound_of(form),
        "period_bound": str(period_bound_of(form)),
        "least_period": has_least_period(form),
        "kinds": {name: witness["kind"] for name, witness in found.items()},
    }
    checked = process_time()
    by_loads = {"loads_bound": bound_of(claims.form), "loads_least_period": has_least_period(claims.form)}
    size = len(json.dumps(found, separators=(",", ":"))) if found else 0
    return {**row, **by_loads, "bytes": size, "making": round(made - begun, 4), "checking": round(checked - made, 4)}


def cpu_until(row: Row, period: float, makespan: int) -> float | None:
    """Processor seconds until a row was at least so good in both; None if it never was."""
    for cpu, p, m in row["trail"]:
        if p is not None and m is not None and p <= period + 1e-9 and m <= makespan:
            return float(cpu)
    return None


def warm_up_schedules(blocks: Blocks, methods: tuple[str, ...]) -> None:
    """Kernels are compiled or loaded now, not on the clock of the first row."""
    for method in methods:
        schedule_row(blocks, 6, method, 5.0)


def _cpu() -> float:
    ended = times()
    return process_time() + ended.children_user + ended.children_system
