"""What differs between two fleet plans, or between a fleet plan and an ordinary plan for throughput.

In: two plans; each is simulated again, a pipeline as a fleet of one lane. Out: a `FleetDifference`: rates, bounds, what
devices hold, lanes that came, went or got another share. Simplified: devices and parts of the model are the same where
they have the same name, and a lane is the same where it takes the same parts over the same devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from weftline.plans.compare import problem_changes
from weftline.plans.fleet import AnyFleet
from weftline.plans.fleet_result import FleetResult, FleetUse, rate_words, simulate_fleet, way_words
from weftline.plans.plan import Plan
from weftline.problem.layers import LayerProblem
from weftline.problem.model import ProblemFile
from weftline.units import format_bytes, format_name, format_time

__all__ = ["FleetDifference", "LaneChange", "diff_fleets"]

MOST_LANES_SHOWN = 12
LEAST_CHANGE = 5e-4
"""Of a share: less is the rounding of rates."""


@dataclass(frozen=True)
class LaneChange:
    """One lane in two plans."""

    way: str
    share: tuple[float | None, float | None]
    """Of the inputs; None where a plan does not have this lane."""

    def __str__(self) -> str:
        before, after = ("absent" if share is None else f"{share:.1%}" for share in self.share)
        return f"{before} -> {after} of the inputs: {self.way}"


@dataclass(frozen=True)
class FleetDifference:
    """a against b; pairs are (of a, of b)."""

    same_problem: bool
    kinds: tuple[str, str]
    """fleet or pipeline."""
    units: tuple[str, str]
    """What rates count."""
    rate: tuple[float, float]
    """Inputs per second."""
    value_ns: tuple[int, int]
    bound_ns: tuple[int, int]
    gap: tuple[float, float]
    depth: tuple[int, int]
    latency_ns: tuple[tuple[int, int] | None, tuple[int, int] | None]
    """Of one input alone, on the quickest and on the slowest lane."""
    busy: dict[str, tuple[float | None, float | None]]
    """Devices that are busy for another share of their time."""
    memory_bytes: dict[str, tuple[int | None, int | None]]
    holds: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
    """Device -> parts of the model that only the first plan, and that only the second has there."""
    lanes: tuple[LaneChange, ...]
    """That came, went, or have another share; the largest shares first."""
    problem_changes: tuple[str, ...]

    @property
    def identical(self) -> bool:
        """Same problem, same lanes with the same shares, same rate."""
        return self.same_problem and not self.lanes and self.rate[0] == self.rate[1]

    def __str__(self) -> str:
        lines = []
        if not self.same_problem:
            lines = ["the plans answer different problems, so their rates say little about each other:"]
            lines += [f"  {change}" for change in self.problem_changes]
        a, b = self.rate
        more = f" ({b / a - 1:+.2%})" if a else ""
        told = [
            f"{kind} {rate_words(rate, unit)}" for kind, rate, unit in zip(self.kinds, (a, b), self.units, strict=True)
        ]
        lines.append(f"rate of the {told[0]} -> of the {told[1]}{more}")
        periods, bounds = (" -> ".join(map(format_time, pair)) for pair in (self.value_ns, self.bound_ns))
        lines.append(f"period {periods}; bound {bounds}, gap {self.gap[0]:.2%} -> {self.gap[1]:.2%}")
        if self.kinds[0] != self.kinds[1]:
            lines.append("(the bound of a pipeline holds for pipelines alone, that of a fleet for both)")
        if self.depth[0] != self.depth[1]:
            lines.append(f"devices in a row: {self.depth[0]} -> {self.depth[1]}")
        if self.latency_ns[0] != self.latency_ns[1]:
            lines.append(f"one input alone: {' -> '.join(map(_span, self.latency_ns))}")
        lines += [f"{device} is busy: {_pair(pair, _percent)}" for device, pair in self.busy.items()]
        lines += [f"memory of {device}: {_pair(pair, format_bytes)}" for device, pair in self.memory_bytes.items()]
        for device, (gone, new) in self.holds.items():
            lines += [f"{device} no longer holds {_named(gone)}"] if gone else []
            lines += [f"{device} holds now {_named(new)}"] if new else []
        lines += [str(change) for change in self.lanes[:MOST_LANES_SHOWN]]
        left = len(self.lanes) - MOST_LANES_SHOWN
        return "\n".join([*lines, *([f"{left} more lanes differ"] if left > 0 else [])])


def _percent(share: float) -> str:
    return f"{share:.1%}"


def _span(latency: tuple[int, int] | None) -> str:
    if latency is None:
        return "not known"
    return format_time(latency[0]) if latency[0] == latency[1] else " .. ".join(map(format_time, latency))


def _pair(pair: tuple[float | None, float | None], words: Callable[..., str]) -> str:
    return " -> ".join("absent" if amount is None else words(amount) for amount in pair)


def _named(parts: Sequence[str]) -> str:
    ends = format_name(parts[0]) if len(parts) == 1 else f"{format_name(parts[0])} .. {format_name(parts[-1])}"
    return ends if len(parts) == 1 else f"{ends} ({len(parts)} in all)"


def diff_fleets(a: AnyFleet | Plan, b: AnyFleet | Plan) -> FleetDifference:
    """Compare; at least one of them is a fleet."""
    x, y = simulate_fleet(a), simulate_fleet(b)
    same = a.provenance.problem_sha256 == b.provenance.problem_sha256
    uses = _paired({use.id: use for use in x.devices}, {use.id: use for use in y.devices})
    busy = {id: (_busy(p), _busy(q)) for id, (p, q) in uses.items()}
    memory = {id: (p.memory_bytes if p else None, q.memory_bytes if q else None) for id, (p, q) in uses.items()}
    parts = {id: (_parts(x, p), _parts(y, q)) for id, (p, q) in uses.items()}
    holds = {
        id: (tuple(name for name in p if name not in q), tuple(name for name in q if name not in p))
        for id, (p, q) in parts.items()
    }
    return FleetDifference(
        same_problem=same,
        kinds=(_kind(a), _kind(b)),
        units=(x.unit, y.unit),
        rate=(x.rate, y.rate),
        value_ns=(x.value, y.value),
        bound_ns=(a.bound_ns, b.bound_ns),
        gap=(a.gap, b.gap),
        depth=(x.depth, y.depth),
        latency_ns=(x.latency_ns, y.latency_ns),
        busy={id: pair for id, pair in busy.items() if _differ(*pair)},
        memory_bytes={id: pair for id, pair in memory.items() if pair[0] != pair[1]},
        holds={id: pair for id, pair in holds.items() if pair[0] or pair[1]},
        lanes=_lanes(x, y),
        problem_changes=() if same else _changes(a, b),
    )


def _kind(plan: AnyFleet | Plan) -> str:
    return "pipeline" if isinstance(plan, Plan) else "fleet"


def _changes(a: AnyFleet | Plan, b: AnyFleet | Plan) -> tuple[str, ...]:
    if isinstance(a.problem, ProblemFile) and isinstance(b.problem, ProblemFile):
        return problem_changes(a.problem, b.problem)
    if isinstance(a.problem, LayerProblem) and isinstance(b.problem, LayerProblem):
        fields = (field for field in a.problem.__struct_fields__ if field != "name")
        return tuple(f"other {field}" for field in fields if getattr(a.problem, field) != getattr(b.problem, field))
    return ("one is about ops and their times, the other about layers and tables of rates",)


_Key = TypeVar("_Key")
_Item = TypeVar("_Item")


def _paired(a: dict[_Key, _Item], b: dict[_Key, _Item]) -> dict[_Key, tuple[_Item | None, _Item | None]]:
    return {key: (a.get(key), b.get(key)) for key in dict.fromkeys([*a, *b])}


def _busy(use: FleetUse | None) -> float | None:
    return None if use is None else use.busy


def _differ(a: float | None, b: float | None) -> bool:
    return abs(a - b) > LEAST_CHANGE if a is not None and b is not None else a != b


def _parts(found: FleetResult, use: FleetUse | None) -> dict[str, None]:
    """Names of what a device holds, in the order of the model."""
    runs = () if use is None else use.holds
    return {found.names[part]: None for first, last in runs for part in range(first, last)}


def _lanes(x: FleetResult, y: FleetResult) -> tuple[LaneChange, ...]:
    changes = []
    for before, after in _paired(_ways(x), _ways(y)).values():
        shares = (before[1] if before else None, after[1] if after else None)
        if _differ(*shares):
            changes.append(LaneChange((before or after or ("", 0.0))[0], shares))
    return tuple(sorted(changes, key=lambda change: -max(share or 0.0 for share in change.share)))


def _ways(found: FleetResult) -> dict[tuple[tuple[str, str, str], ...], tuple[str, float]]:
    """What makes a lane the same in two plans -> (words, share)."""
    ids, names = [use.id for use in found.devices], found.names
    ways: dict[tuple[tuple[str, str, str], ...], tuple[str, float]] = {}
    for lane in found.lanes:
        key = tuple((ids[device], names[first], names[last - 1]) for device, first, last in lane.hops)
        ways[key] = (way_words(found, lane), ways.get(key, ("", 0.0))[1] + lane.share)
    return ways
