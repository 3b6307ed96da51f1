"""What differs between two plans, in the terms of the question: what changed, and what it gained.

In: two plans. Out: a `Difference`. Simplified: ops and devices are the same where they have the same name. Where the
plans answer different problems on the same ops and devices, each placement is simulated on the other problem, without
a search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weftline.plan.compare_moves import MovedGroup, Traffic, moved_groups, traffic
from weftline.plan.compare_problems import crossed, problem_changes
from weftline.plan.model import Plan, Stage
from weftline.units import format_bytes, format_name, format_time

__all__ = ["Difference", "diff_plans"]

SHOWN = 12
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
        named = set(self.groups[:SHOWN])
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
