"""Fleet plans for programs that serve: `router` writes the file by which requests are spread over the lanes, and other
targets start one process for each lane.

In: a fleet plan. Out: router.json: instances, lanes, and whole numbers as weights, whose shares are exactly those of
the plan (`examples/route.py` dispatches by them with the standard library); `LanePlan`, a lane as the plan of one
pipeline; launch.sh with one command for each lane. Simplified: processes of other engines share no weights, so lanes
that share a device are refused there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import singledispatch
from math import gcd
from pathlib import Path
from typing import Literal, Protocol

import msgspec

from weftline.errors import InputError, UsageError, VerificationError
from weftline.export.exporter import Exporter, ExportOptions
from weftline.files import read_limited, write_atomically
from weftline.plans.fleet import AnyFleet, FleetPlan
from weftline.plans.fleet_result import same_fleet, simulate_fleet
from weftline.problem import Problem
from weftline.simulate.fleet import RATE_UNITS

__all__ = [
    "EXPORTERS",
    "LaneLaunch",
    "LanePlan",
    "Placed",
    "Router",
    "RouterInstance",
    "RouterLane",
    "about_lane",
    "lane_plans",
    "old_router",
    "router_of",
    "separate_lanes",
    "write_lanes",
    "write_router",
]

ROUTER_FILE = "router.json"
MOST_ROUTER_BYTES = 256 * 2**20
FIRST_PORT = 8000
"""Of lane 0; those of the others follow."""


class RouterInstance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A device that holds parts of the model."""

    device: str
    holds: tuple[tuple[int, int], ...]
    """Runs (first part, last part + 1)."""


class RouterLane(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A way of a request."""

    name: str
    weight: int
    """Of so many requests as the sum of all weights, this lane gets so many."""
    rate: float
    """Requests per second that it is planned for."""
    hops: tuple[tuple[int, int, int], ...]
    """(number of the instance, first part, last part + 1); together they are the whole model."""
    address: str = ""
    """Where its process listens, if the export starts one."""
    segments: tuple[str, ...] = ()
    """With ONNX files beside it: the device of segment 0, 1, ... on this lane."""


class Router(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """router.json"""

    format: Literal["weftline-router"]
    version: Literal[1]
    model: str
    part: str
    """What the model is made of: op, layer."""
    unit: str
    """What comes: inputs, tokens."""
    rate: float
    """Of all lanes, per second."""
    total_weight: int
    instances: tuple[RouterInstance, ...]
    lanes: tuple[RouterLane, ...]


def router_of(answer: AnyFleet, *, addresses: Sequence[str] = (), segments: Sequence[Sequence[str]] = ()) -> Router:
    """The file's content; `VerificationError` for a plan that does not say what the simulator says."""
    found = simulate_fleet(answer)
    if not same_fleet(answer, found):
        raise VerificationError("what was simulated is not what the plan says; weftline verify says what does not hold")
    used = [d for d, use in enumerate(found.devices) if use.holds]
    number = {d: n for n, d in enumerate(used)}
    common = gcd(*(lane.rate for lane in found.lanes))
    lanes = tuple(
        RouterLane(
            name=f"lane-{n}",
            weight=lane.rate // common,
            rate=lane.rate / RATE_UNITS,
            hops=tuple((number[device], first, last) for device, first, last in lane.hops),
            address=addresses[n] if addresses else "",
            segments=tuple(segments[n]) if segments else (),
        )
        for n, lane in enumerate(found.lanes)
    )
    return Router(
        format="weftline-router",
        version=1,
        model=found.model,
        part=found.part,
        unit=found.unit,
        rate=found.rate,
        total_weight=sum(lane.weight for lane in lanes),
        instances=tuple(RouterInstance(found.devices[d].id, found.devices[d].holds) for d in used),
        lanes=lanes,
    )


def write_router(folder: Path, router: Router) -> Path:
    """Write router.json."""
    path = folder / ROUTER_FILE
    write_atomically(path, msgspec.json.format(msgspec.json.encode(router), indent=1) + b"\n")
    return path


def old_router(folder: Path) -> list[Path]:
    """The router.json of an export that stands there; what somebody else has under this name is not ours."""
    path = folder / ROUTER_FILE
    try:
        msgspec.json.decode(read_limited(path, MOST_ROUTER_BYTES), type=Router)
    except (InputError, OSError, msgspec.DecodeError):
        return []
    return [path]


class Placed(Protocol):
    """A placement and its problem: a plan, or one lane of a fleet."""

    @property
    def placement(self) -> Mapping[str, str]:
        """Op -> device."""

    def load_problem(self) -> Problem:
        """What was planned."""


@dataclass(frozen=True, eq=False)
class LanePlan:
    """A lane as the plan of one pipeline."""

    problem: Problem
    placement: Mapping[str, str]

    def load_problem(self) -> Problem:
        """What was planned."""
        return self.problem


@singledispatch
def lane_plans(answer: AnyFleet) -> list[LanePlan]:
    """Every lane with the device of each op; another kind of fleet, which knows no ops, is refused."""
    raise UsageError("this target needs to know which device runs which op, and this fleet plan does not say it")


@lane_plans.register
def _lanes_of_ops(answer: FleetPlan) -> list[LanePlan]:
    problem, found = answer.load_problem(), simulate_fleet(answer)
    ids, names = [device.id for device in problem.devices], found.names
    return [
        LanePlan(problem, {names[op]: ids[device] for device, first, last in lane.hops for op in range(first, last)})
        for lane in found.lanes
    ]


def separate_lanes(answer: AnyFleet, target: str) -> list[LanePlan]:
    """The same, for a target that runs each lane as a process of its own; refused where two share a device."""
    lanes, owner = lane_plans(answer), dict[str, int]()
    for n, lane in enumerate(lanes):
        for device in dict.fromkeys(lane.placement.values()):
            if device in owner:
                raise UsageError(
                    f"{target} runs each lane as a process with weights of its own, but lanes {owner[device]} and {n} "
                    f"share {device}: use --to router with a server of your own, or plan again with --copies 1"
                )
            owner[device] = n
    return lanes


@contextmanager
def about_lane(number: int) -> Iterator[None]:
    """Errors say which lane it is."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"lane {number}: {error}") from error
    except InputError as error:
        raise InputError(f"lane {number}: {error.what}", where=error.where, hint=error.hint) from error


@dataclass(frozen=True)
class LaneLaunch:
    """How the process of one lane is started."""

    line: str
    """A command of a shell."""
    notes: tuple[str, ...]
    """Comments above it."""
    gpus: tuple[str, ...] = ()
    """What it takes; no two lanes may take the same."""
    listens: bool = True
    """Whether it answers requests at its port."""

    @staticmethod
    def port(number: int) -> int:
        """Where the process of a lane listens."""
        return FIRST_PORT + number


def write_lanes(folder: Path, answer: AnyFleet, launches: Sequence[LaneLaunch], usage: str) -> list[Path]:
    """launch.sh, which starts all lanes and waits for them, and router.json with their addresses."""
    taken: dict[str, int] = {}
    for n, launch in enumerate(launches):
        for gpu in launch.gpus:
            if taken.setdefault(gpu, n) != n:
                raise UsageError(f"lanes {taken[gpu]} and {n} take the same GPU {gpu}; say which is which by --runtime")
    places = [f"http://127.0.0.1:{LaneLaunch.port(n)}" for n in range(len(launches))]
    addresses = [place if launch.listens else "" for place, launch in zip(places, launches, strict=True)]
    router = router_of(answer, addresses=addresses)
    lines = ["#!/bin/sh", f"# {usage}", f': "${{1:?{usage}}}"', "trap 'kill $started 2>/dev/null' INT TERM"]
    for n, (launch, lane) in enumerate(zip(launches, router.lanes, strict=True)):
        share = lane.weight / router.total_weight
        told = f"lane {n}: {share:.2%} of the requests {addresses[n]}".rstrip()
        lines += [f"# {told}", *(f"# {note}" for note in launch.notes)]
        lines += [f"{launch.line} &", 'started="$started $!"']
    path = folder / "launch.sh"
    write_atomically(path, ("\n".join([*lines, "wait"]) + "\n").encode())
    return [path, write_router(folder, router)]


def _export_router(answer: AnyFleet, folder: Path, options: ExportOptions) -> list[Path]:
    if options.model is not None or options.runtimes:
        raise UsageError("a router file names devices as the plan does; it takes no --model and no --runtime")
    return [write_router(folder, router_of(answer))]


EXPORTERS = (
    Exporter(
        "router",
        "lanes and their weights, for a program that spreads requests (fleet plans)",
        _export_router,
        "fleet",
        fleet=_export_router,
    ),
)
