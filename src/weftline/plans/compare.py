"""What differs between two plans, in the terms of the question: what changed, and what it gained.

In: two plans. Out: a `Difference`: sentences about their problems, ops that moved as groups of neighbours, what each
plan sends. Simplified: ops and devices are the same where they have the same name. Where the plans answer different
problems on the same ops and devices, each placement is simulated on the other problem, without a search, and for
latency in the simulator's default order, since an order of another problem may mean nothing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weftline.errors import InfeasibleError, InputError, WeftlineError
from weftline.plans.plan import Plan, Stage
from weftline.plans.result import HINT
from weftline.problem.model import ProblemFile
from weftline.simulate import simulate_latency, simulate_throughput, violations
from weftline.units import format_bytes, format_name, format_names, format_time

__all__ = ["Difference", "MovedGroup", "Traffic", "crossed", "diff_plans", "moved_groups", "problem_changes", "traffic"]


def problem_changes(a: ProblemFile, b: ProblemFile) -> tuple[str, ...]:
    """In words: model, devices, rules, costs, limits."""
    found = []
    names = [[op.name for op in file.graph.ops] for file in (a, b)]
    if a.graph != b.graph:
        what = "the same ops, but other sizes or tensors" if names[0] == names[1] else _sizes(a, b)
        found.append(f"another model: {what}")
    devices = [[device.id for device in file.devices] for file in (a, b)]
    if devices[0] != devices[1]:
        found.append(f"other devices: {format_names(devices[0])} and {format_names(devices[1])}")
    elif a.devices != b.devices:
        found.append("the devices have other kinds, memories or runtimes")
    for field in a.rules.__struct_fields__:
        x, y = getattr(a.rules, field), getattr(b.rules, field)
        found += [f"{field}: {x} and {y}"] if x != y else []
    if names[0] == names[1] and devices[0] == devices[1]:
        found += _costs(a, b)
    if a.together != b.together:
        found.append(f"sets of ops that stay together: {len(a.together)} and {len(b.together)}")
    if a.buses != b.buses:
        found.append("other buses")
    return tuple(found)


def _sizes(a: ProblemFile, b: ProblemFile) -> str:
    x, y = (f"{format_name(file.graph.name)} of {len(file.graph.ops)} ops" for file in (a, b))
    return f"{x}, {y}"


def _costs(a: ProblemFile, b: ProblemFile) -> list[str]:
    """Times and transfers, op by op and tensor by tensor."""
    found = []
    pairs = zip(a.time_row, b.time_row, strict=True)
    changed = sum(a.time_rows[x] != b.time_rows[y] for x, y in pairs)
    if changed:
        found.append(f"{changed} of {len(a.time_row)} ops have other times or may run elsewhere ({_sources(a, b)})")
    if len(a.transfer_row) == len(b.transfer_row):
        sent = zip(a.transfer_row, b.transfer_row, strict=True)
        changed = sum(a.transfer_rows[x] != b.transfer_rows[y] for x, y in sent)
        found += [f"{changed} of {len(a.transfer_row)} tensors have other transfer times"] if changed else []
    return found


def _sources(a: ProblemFile, b: ProblemFile) -> str:
    x, y = format_name(a.cost_source), format_name(b.cost_source)
    return f"costs: {x}" if x == y else f"costs: {x} and {y}"


def crossed(plan: Plan, other: Plan) -> int | None:
    """The value of a plan's placement on another plan's problem; None if it does not fit, or breaks a limit there."""
    if set(plan.placement) != {op.name for op in other.problem.graph.ops}:
        return None
    if not set(plan.placement.values()) <= {device.id for device in other.problem.devices}:
        return None
    try:
        problem = other.load_problem()
        placement = np.array([problem.device_index[plan.placement[op.name]] for op in problem.graph.ops], np.int32)
        simulate = simulate_latency if problem.rules.objective == "latency" else simulate_throughput
        result = simulate(problem, placement)
    except (InfeasibleError, WeftlineError):
        return None
    return None if violations(problem, result) else result.value


@dataclass(frozen=True)
class MovedGroup:
    """Ops that hang together in the graph and moved from one device to another."""

    source: str
    target: str
    ops: tuple[str, ...]
    """In the order of the first plan's graph."""
    compute_ns: tuple[int | None, int | None]
    """Their time before and after, each by its own plan's costs; None where a plan has no such time."""

    def __str__(self) -> str:
        first, last = format_name(self.ops[0]), format_name(self.ops[-1])
        named = first if len(self.ops) == 1 else f"{len(self.ops)} ops, {first} .. {last}"
        spent = " -> ".join("?" if time is None else format_time(time) for time in self.compute_ns)
        return f"{named}: compute {spent}"


@dataclass(frozen=True)
class Traffic:
    """What is sent between devices for one inference."""

    count: int
    bytes: int
    time_ns: int

    def __str__(self) -> str:
        return f"{self.count} ({format_bytes(self.bytes)}, {format_time(self.time_ns)})" if self.count else "none"


def traffic(plan: Plan) -> Traffic:
    """Every transfer of the timeline; of a pipeline, every tensor once for each stage that it enters."""
    tensors = plan.problem.graph.tensors
    if plan.timeline is not None:
        if any(not 0 <= row[0] < len(tensors) for row in plan.timeline.transfers):
            raise InputError("the timeline holds a tensor that does not exist", hint=HINT)
        sent = [(tensors[row[0]].bytes, row[5] - row[4]) for row in plan.timeline.transfers]
    else:
        number = {device.id: d for d, device in enumerate(plan.problem.devices)}
        try:
            home = [number[plan.placement[op.name]] for op in plan.problem.graph.ops]
        except KeyError as error:
            raise InputError(f"the placement does not fit: {error.args[0]!r:.80}", hint=HINT) from None
        width, sent = len(number), []
        for t, tensor in enumerate(tensors):
            if tensor.producer >= 0:
                source = home[tensor.producer]
                row = plan.problem.transfer_rows[plan.problem.transfer_row[t]]
                for target in {home[op] for op in tensor.consumers} - {source}:
                    sent.append((tensor.bytes, row[source * width + target]))
    return Traffic(len(sent), sum(size for size, _ in sent), sum(time for _, time in sent))


def moved_groups(a: Plan, b: Plan, moved: dict[str, tuple[str, str]]) -> tuple[MovedGroup, ...]:
    """Connected ops (by tensors of the first plan's graph) that went the same way, most ops first."""
    graph = a.problem.graph
    leader = {i: i for i, op in enumerate(graph.ops) if op.name in moved}

    def root(op: int) -> int:
        while leader[op] != op:
            leader[op] = leader[leader[op]]
            op = leader[op]
        return op

    for tensor in graph.tensors:
        ends = [op for op in (tensor.producer, *tensor.consumers) if op in leader]
        # Readers of one tensor are neighbours too: they share what they read.
        by_way: dict[tuple[str, str], int] = {}
        for op in ends:
            first = by_way.setdefault(moved[graph.ops[op].name], op)
            x, y = sorted((root(first), root(op)))
            leader[y] = x
    members = defaultdict(list)
    for op in leader:
        members[root(op)].append(graph.ops[op].name)
    times = _times(a), _times(b)
    found = []
    for names in members.values():
        source, target = moved[names[0]]
        spent = (_sum(times[0], names, source), _sum(times[1], names, target))
        found.append(MovedGroup(source, target, tuple(names), spent))
    return tuple(sorted(found, key=lambda group: -len(group.ops)))


def _times(plan: Plan) -> dict[tuple[str, str], int]:
    """(op, device) -> ns for the devices that ops stand on."""
    problem, number = plan.problem, {device.id: d for d, device in enumerate(plan.problem.devices)}
    found = {}
    for op, row in zip(problem.graph.ops, problem.time_row, strict=True):
        device = plan.placement.get(op.name, "")
        if device in number:
            found[op.name, device] = problem.time_rows[row][number[device]]
    return found


def _sum(times: dict[tuple[str, str], int], names: list[str], device: str) -> int | None:
    spent = [times.get((name, device)) for name in names]
    return None if any(time is None for time in spent) else sum(time or 0 for time in spent)


MOST_GROUPS_SHOWN = 12
"""Groups of ops that are named."""


@dataclass(frozen=True)
class Difference:
    """From plan a to plan b."""

    same_problem: bool
    value_ns: tuple[int, int]
    bound_ns: tuple[int, int]
    solver: tuple[str, str]
    load_ns: dict[str, tuple[int | None, int | None]]
    """Devices whose load differs; None where a plan does not have the device."""
    moved: dict[str, tuple[str, str]]
    """Ops that stand elsewhere: name -> (device in a, device in b)."""
    only_a: tuple[str, ...]
    only_b: tuple[str, ...]
    """Ops that only one of them has."""
    objective: tuple[str, str]
    gap: tuple[float, float]
    memory_bytes: dict[str, tuple[int | None, int | None]]
    """Devices whose peak of memory differs."""
    groups: tuple[MovedGroup, ...]
    """The moved ops again: neighbours that went the same way together, largest first."""
    shared_devices: bool
    """Do the plans have a device in common?"""
    stages: tuple[tuple[Stage, ...], tuple[Stage, ...]]
    transfers: tuple[Traffic, Traffic]
    problem_changes: tuple[str, ...]
    """What differs between the problems, in words."""
    crossed_ns: tuple[int | None, int | None]
    """a's placement on b's problem, and the reverse, where ops and devices are the same; else None."""

    @property
    def identical(self) -> bool:
        """Same problem, same placement, same value."""
        return self.same_problem and not self.moved and self.value_ns[0] == self.value_ns[1]

    def __str__(self) -> str:
        lines = [*self._about_problems(), *self._gain()]
        for device, pair in self.load_ns.items():
            lines.append(f"load of {device}: {_pair(pair, format_time)}")
        for device, pair in self.memory_bytes.items():
            lines.append(f"memory of {device}: {_pair(pair, format_bytes)}")
        lines += self._stages()
        if self.transfers[0] != self.transfers[1]:
            lines.append(f"transfers: {self.transfers[0]} -> {self.transfers[1]}")
        lines += self._moves()
        for title, names in (("only in the first", self.only_a), ("only in the second", self.only_b)):
            if names:
                lines.append(f"{len(names)} ops {title}: {', '.join(map(format_name, names[:5]))}")
        return "\n".join(lines)

    def _about_problems(self) -> list[str]:
        if self.same_problem:
            return []
        lines = ["the plans answer different problems, so their values say little about each other:"]
        lines += [f"  {change}" for change in self.problem_changes]
        for told, other, crossing in (("first", "second", 0), ("second", "first", 1)):
            if (value := self.crossed_ns[crossing]) is not None:
                theirs = self.value_ns[1 - crossing]
                share = f" ({value / theirs - 1:+.2%} against its own plan)" if theirs else ""
                lines.append(f"  the {told} placement on the {other} problem: {format_time(value)}{share}")
        return lines

    def _gain(self) -> list[str]:
        a, b = self.value_ns
        if self.objective[0] != self.objective[1]:
            return [f"value: {self.objective[0]} {format_time(a)}, {self.objective[1]} {format_time(b)}"]
        lines = [f"value {format_time(a)} -> {format_time(b)} ({(b - a) / a:+.2%})" if a else f"value {a} -> {b}"]
        if self.bound_ns[0] != self.bound_ns[1] or a != b:
            bounds = f"bound {format_time(self.bound_ns[0])} -> {format_time(self.bound_ns[1])}"
            lines.append(f"{bounds}, gap {self.gap[0]:.2%} -> {self.gap[1]:.2%}")
        if self.same_problem and a != b:
            best = "second" if b < a else "first"
            speed = f"is {max(a, b) / min(a, b):.3g}x as fast" if min(a, b) else "takes no time"
            lines.append(f"the {best} plan {speed}")
        return lines

    def _moves(self) -> list[str]:
        """By the way they went, and by neighbours; the largest groups have names."""
        lines = [f"{len(self.moved)} ops moved"]
        if self.moved and not self.shared_devices:
            return [f"the plans have no device in common, so all {len(self.moved)} ops that both have stand elsewhere"]
        named = set(self.groups[:MOST_GROUPS_SHOWN])
        ways = dict.fromkeys((group.source, group.target) for group in self.groups)
        for source, target in ways:
            went = [group for group in self.groups if (group.source, group.target) == (source, target)]
            lines.append(f"{source} -> {target}: {sum(len(group.ops) for group in went)} ops")
            lines += [f"  {group}" for group in went if group in named]
            rest = [group for group in went if group not in named]
            lines += [f"  {sum(len(group.ops) for group in rest)} more in {len(rest)} smaller groups"] if rest else []
        return lines

    def _stages(self) -> list[str]:
        if self.stages[0] == self.stages[1]:
            return []
        told = [
            " | ".join(f"{stage.device} {stage.ops} ops {format_time(stage.load_ns)}" for stage in stages) or "none"
            for stages in self.stages
        ]
        return [f"stages before: {told[0]}", f"stages after:  {told[1]}"]


def _pair(pair: tuple[int | None, int | None], words: Callable[[int], str]) -> str:
    return " -> ".join("absent" if amount is None else words(amount) for amount in pair)


def diff_plans(a: Plan, b: Plan) -> Difference:
    """Compare. `InputError` where an embedded problem is broken."""
    for plan in (a, b):
        plan.load_problem()
    devices = list(dict.fromkeys([*a.devices, *b.devices]))
    uses = {d: (a.devices.get(d), b.devices.get(d)) for d in devices}
    loads = {d: (x.load_ns if x else None, y.load_ns if y else None) for d, (x, y) in uses.items()}
    memory = {d: (x.memory_bytes if x else None, y.memory_bytes if y else None) for d, (x, y) in uses.items()}
    same = a.provenance.problem_sha256 == b.provenance.problem_sha256
    moved = {op: (x, b.placement[op]) for op, x in a.placement.items() if op in b.placement and b.placement[op] != x}
    return Difference(
        same_problem=same,
        value_ns=(a.value_ns, b.value_ns),
        bound_ns=(a.bound_ns, b.bound_ns),
        solver=(a.solver, b.solver),
        load_ns={device: pair for device, pair in loads.items() if pair[0] != pair[1]},
        moved=moved,
        only_a=tuple(op for op in a.placement if op not in b.placement),
        only_b=tuple(op for op in b.placement if op not in a.placement),
        objective=(a.objective, b.objective),
        gap=(a.gap, b.gap),
        memory_bytes={device: pair for device, pair in memory.items() if pair[0] != pair[1]},
        groups=moved_groups(a, b, moved),
        shared_devices=not set(a.devices).isdisjoint(b.devices),
        stages=(a.stages, b.stages),
        transfers=(traffic(a), traffic(b)),
        problem_changes=() if same else problem_changes(a.problem, b.problem),
        crossed_ns=(None, None) if same else (crossed(a, b), crossed(b, a)),
    )
