"""What differs between two plans, in the terms of the question: values, devices, ops that moved."""

from __future__ import annotations

from dataclasses import dataclass

from weftline.plan.model import Plan
from weftline.units import format_name, format_time

__all__ = ["Difference", "diff_plans"]


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

    @property
    def identical(self) -> bool:
        """Same problem, same placement, same value."""
        return self.same_problem and not self.moved and self.value_ns[0] == self.value_ns[1]

    def __str__(self) -> str:
        a, b = self.value_ns
        lines = [] if self.same_problem else ["the plans answer different problems, so their values say little"]
        lines += [f"value {format_time(a)} -> {format_time(b)} ({(b - a) / a:+.2%})" if a else f"value {a} -> {b}"]
        lines.append(f"bound {format_time(self.bound_ns[0])} -> {format_time(self.bound_ns[1])}")
        for device, (x, y) in self.load_ns.items():
            shown = ["absent" if load is None else format_time(load) for load in (x, y)]
            lines.append(f"load of {device}: {shown[0]} -> {shown[1]}")
        lines.append(f"{len(self.moved)} ops moved")
        lines += [f"  {format_name(name)}: {x} -> {y}" for name, (x, y) in list(self.moved.items())[:20]]
        for title, names in (("only in the first", self.only_a), ("only in the second", self.only_b)):
            if names:
                lines.append(f"{len(names)} ops {title}: {', '.join(map(format_name, names[:5]))}")
        return "\n".join(lines)


def diff_plans(a: Plan, b: Plan) -> Difference:
    """Compare."""
    devices = list(dict.fromkeys([*a.devices, *b.devices]))
    loads = {
        d: (a.devices[d].load_ns if d in a.devices else None, b.devices[d].load_ns if d in b.devices else None)
        for d in devices
    }
    return Difference(
        same_problem=a.provenance.problem_sha256 == b.provenance.problem_sha256,
        value_ns=(a.value_ns, b.value_ns),
        bound_ns=(a.bound_ns, b.bound_ns),
        solver=(a.solver, b.solver),
        load_ns={device: pair for device, pair in loads.items() if pair[0] != pair[1]},
        moved={op: (x, b.placement[op]) for op, x in a.placement.items() if op in b.placement and b.placement[op] != x},
        only_a=tuple(op for op in a.placement if op not in b.placement),
        only_b=tuple(op for op in b.placement if op not in a.placement),
    )
