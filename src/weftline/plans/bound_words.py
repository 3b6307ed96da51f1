"""What the methods of bounds mean, one sentence each: the command line, `explain` and the pages all take it from here.

In: the name of a method as it stands in a plan or schedule (`path`, `exact (CP-SAT 9.15)`, `load of device 0`). Out: a
sentence for people who know no paper. Simplified: versions and numbers in a name are left out.
"""

from __future__ import annotations

import re

__all__ = [
    "PERIOD_WITNESSES",
    "PLAN_BOUNDS",
    "SCHEDULE_BOUNDS",
    "explain_bound",
    "explain_schedule_bound",
    "told_bound",
]

PLAN_BOUNDS = {
    "path": "the longest chain of ops that wait for each other, each on the device that suits the chain best",
    "load": "all the work, shared out over the devices as evenly as possible",
    "group": "the longest op (or ops that must stay together) on the device that is fastest for it",
    "prices": "with a price for a second of each device: what all devices are worth in a second, divided by the "
    "least that an input can cost",
    "coverage": "every layer needs devices that serve the whole rate, and all devices cover only so many layers",
    "cut": "one op with its cheapest neighbours: the stage that holds it cannot cost less",
    "labelling": "the cheapest choice of devices for all ops, where one op runs after another",
    "chain": "the model in blocks, one after the other along one chain of ops: the shortest path through all of them",
    "blocks": "the model in blocks, one after the other along one chain of ops: the checker proves again that no block "
    "can be done sooner, and adds them up along the shortest path",
    "hub": "the model in blocks around one chain of ops, with every case of who waits for whom",
    "ideals": "every possible pipeline was compared",
    "pipelines": "every possible pipeline was compared, and the checker compares them again",
    "cuts": "wherever a pipeline is cut into two halves, one of them is as long as this",
    "exact": "the solver CP-SAT found that no better pipeline exists",
    "CP-SAT": "the solver CP-SAT found that no better plan exists",
    "convex-set": "some stage holds its share of the work, and no possible stage with so much costs less",
    "node-cover": "the op whose cheapest possible stage costs most",
    "bottleneck": "some stage holds an even share of the work, and no possible stage with so much costs less",
    "guess": "one stage with everything before and behind it joined to large stages cannot cost less",
}
"""Of plans: method -> what it looks at."""
SCHEDULE_BOUNDS = {
    "path": "one micro-batch alone takes this long",
    "load": "the sum of the work on the busiest device, and what must happen before and after it",
    "ramp": "the work on the busiest device, and the time in which it waits at the beginning and the end, because "
    "memory lets only so many micro-batches begin",
    "area": "memory: what the micro-batches hold, for as long as they must, fits in no less time",
    "load of device": "the sum of the work of one micro-batch on the busiest device",
    "memory of device": "memory: what a micro-batch holds on that device, for as long as it must, lets no more begin",
    "orders": "whoever goes first where two blocks want one device at a time: no case ends earlier",
    "all operations": "the solver CP-SAT found that no better order exists",
}
"""The same of schedules."""
PERIOD_WITNESSES = {
    "linear": "the checker tries the next shorter period, from the last device to the first, and finds no room",
    "between": "the next shorter period that any order could have lies below what work and memory allow",
}
"""Of patterns of one size: kind of witness -> why none is faster."""


def explain_bound(by: str) -> str:
    """What the bound of a plan looks at; empty for methods of plug-ins."""
    return PLAN_BOUNDS.get(_method(by), "")


def explain_schedule_bound(by: str) -> str:
    """The same for a schedule, and for its period."""
    return SCHEDULE_BOUNDS.get(_method(by), "")


def told_bound(by: str, words: str) -> str:
    """`path: the longest chain of ops ...`; the name alone where there is nothing to say."""
    return f"{by}: {words}" if words else by


def _method(by: str) -> str:
    """The name without versions, numbers and devices."""
    if by.startswith(("load of device", "memory of device")):
        return by[: by.index("device") + len("device")]
    return re.split(r"[ (]*\(| \d", by, maxsplit=1)[0].strip()
