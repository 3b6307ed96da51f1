"""Make a plan ready to run on this machine: split the model, start the workers, warm them up.

In: a plan, its ONNX file, inputs, what stands for its devices. Out: a `Started` with the engine, for as long as the
`with` lasts.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from weftline.execute.difference import difference
from weftline.execute.feeds import as_numbers, make_feeds
from weftline.execute.local_engine import Engine, LanePass, Seat
from weftline.execute.local_folder import run_folder
from weftline.execute.local_layout import Layout, lay_out
from weftline.execute.local_placed import misplaced
from weftline.execute.manifest import Manifest
from weftline.execute.ort_devices import ort_devices
from weftline.execute.plan_segments import parts_of_plan
from weftline.execute.split import split_model

if TYPE_CHECKING:
    from weftline.plan import Plan
    from weftline.problem import Problem

__all__ = ["Asked", "Feeds", "Started", "start_plan"]

LEAST_WARM_UP = 6

Feeds = list[dict[str, NDArray[Any]]]


@dataclass(frozen=True)
class Asked:
    """What a run is told beside its plan."""

    model: Path
    inputs: Mapping[str, NDArray[Any]] | None
    runtimes: Mapping[str, str]
    """Device id -> `ort:...`, before what the cluster said."""
    seed: int
    timeout: float
    """So many seconds without any sign of life are a hang."""
    tell: Callable[[str], None]


@dataclass(frozen=True)
class Started:
    """Workers that are ready."""

    engine: Engine
    layout: Layout
    manifest: Manifest
    seats: dict[str, Seat]
    feeds: Feeds
    warm_up: LanePass
    wrong: tuple[str, ...]
    """What does not stand where the plan says, in words."""

    def worst(self, found: LanePass, expected: Feeds) -> float:
        """The largest difference of outputs that were kept to those that are expected."""
        dtype = {wire.name: wire.dtype for wire in self.layout.wires}
        worst = 0.0
        for request, outputs in found.kept.items():
            wanted = expected[request % len(expected)]
            pairs = [
                (as_numbers(outputs[name], dtype[name]), as_numbers(wanted[name], dtype[name])) for name in outputs
            ]
            worst = max(worst, difference([a for a, _ in pairs], [b for _, b in pairs]))
        return worst


@contextmanager
def start_plan(plan: Plan, problem: Problem, asked: Asked) -> Iterator[Started]:
    """Workers for a plan, until the end of the `with`."""
    used = [device for device in problem.devices if device.id in set(plan.placement.values())]
    mine = {id: runtime for id, runtime in asked.runtimes.items() if id in {device.id for device in used}}
    speed = {device.id: device.speed for device in used}
    seats = {id: Seat(place, speed[id]) for id, place in ort_devices(used, mine).items()}
    with run_folder() as folder:
        asked.tell("splitting the model")
        ids = [device.id for device in problem.devices]
        manifest = split_model(asked.model, problem.graph, parts_of_plan(plan), ids, folder, in_place=True)
        layout = lay_out(manifest, str(folder), pipelined=plan.objective == "throughput")
        feeds = make_feeds(manifest, asked.inputs, asked.seed)
        wrong = misplaced(plan, problem, manifest, folder)
        asked.tell("starting the workers")
        with Engine([(layout, seats)], timeout=asked.timeout) as engine:
            shutil.rmtree(folder, ignore_errors=True)  # the sessions hold what they need
            count = max(LEAST_WARM_UP, layout.most_slots)
            asked.tell(f"warming up: {count} requests")
            first = engine.run([count], feeds, keep=[frozenset(range(count))])[0]
            yield Started(engine, layout, manifest, seats, feeds, first, wrong)
