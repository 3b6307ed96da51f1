"""The only place that says what time and memory mean (see docs/concepts.md).

In: a Problem and decisions (a device per op; for latency also the order of ops and transfers). Out: `Timeline`
(latency) or `Loads` (throughput), each with its value in ns and the memory peak of every device; `evaluate` does it for
many placements. `Blocks` and an order for every device become a `Timetable` (schedules); lanes of a language model and
requests become a `ServingRun`. Simplified: times are fixed
numbers; inputs of the model are present on every device at time 0; outputs stay where they are made.
"""

from typing import TYPE_CHECKING

from weftline.lazy import lazy_names

if TYPE_CHECKING:
    from weftline.simulate.latency import INFEASIBLE, Evaluation, evaluate, replay, simulate_latency
    from weftline.simulate.memory import memory_over_time
    from weftline.simulate.schedule import Orders, Timetable, schedule_violations, simulate_schedule
    from weftline.simulate.serving import ServingRun, Spread, simulate_serving
    from weftline.simulate.tables import default_order, upward_rank
    from weftline.simulate.throughput import simulate_throughput
    from weftline.simulate.timeline import Loads, Timeline, violations

__all__ = [
    "INFEASIBLE",
    "Evaluation",
    "Loads",
    "Orders",
    "ServingRun",
    "Spread",
    "Timeline",
    "Timetable",
    "default_order",
    "evaluate",
    "memory_over_time",
    "replay",
    "schedule_violations",
    "simulate_latency",
    "simulate_schedule",
    "simulate_serving",
    "simulate_throughput",
    "upward_rank",
    "violations",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Evaluation": "weftline.simulate.latency",
        "INFEASIBLE": "weftline.simulate.latency",
        "Loads": "weftline.simulate.timeline",
        "Orders": "weftline.simulate.schedule",
        "ServingRun": "weftline.simulate.serving",
        "Spread": "weftline.simulate.serving",
        "Timeline": "weftline.simulate.timeline",
        "Timetable": "weftline.simulate.schedule",
        "default_order": "weftline.simulate.tables",
        "evaluate": "weftline.simulate.latency",
        "memory_over_time": "weftline.simulate.memory",
        "replay": "weftline.simulate.latency",
        "schedule_violations": "weftline.simulate.schedule",
        "simulate_latency": "weftline.simulate.latency",
        "simulate_schedule": "weftline.simulate.schedule",
        "simulate_serving": "weftline.simulate.serving",
        "simulate_throughput": "weftline.simulate.throughput",
        "upward_rank": "weftline.simulate.tables",
        "violations": "weftline.simulate.timeline",
    },
)
