"""The LayerPlan: which layers every device holds, and lanes with rates over them, as a file.

In: a LayerDeployment, its bounds, its front. Out: the fields of the file, in their order; read and write.
`certify/check_layers.py` re-adds all of it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from weftline.errors import InputError
from weftline.files import other_kind, write_atomically
from weftline.lazy import notebook_html
from weftline.plans.plan import MAX_PLAN_BYTES, Proof, Provenance
from weftline.problem.layers import RATE_SCALE, LayerInstance, LayerLane, LayerProblem

__all__ = ["HeldLayers", "LayerBound", "LayerFrontPoint", "LayerPlan", "layer_plan_to_json", "load_layer_plan"]


class HeldLayers(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A unit that holds layers first..last-1."""

    node: str
    """The device, of a group the first one."""
    devices: tuple[str, ...]
    unit: str
    first: int
    last: int
    rate: float
    """What it serves, units per second."""


class LayerBound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No deployment has a higher rate."""

    by: str
    rate_bound: float
    proof: Proof
    witness: dict[str, Any]


class LayerFrontPoint(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The best that is known with at most `depth` instances in a row."""

    depth: int
    rate: float
    rate_bound: float | None
    proof: Proof
    instances: tuple[tuple[int, tuple[int, ...], int, int], ...]
    """(unit, devices, first, last): numbers of the embedded problem."""
    lanes: tuple[LayerLane, ...]
    witness: dict[str, Any] | None


class LayerPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One answer about layers on a whole cluster."""

    format: Literal["weftline-layer-plan"]
    version: Literal[1]
    objective: Literal["throughput"]
    value_ns: int
    """ns per unit, rounded up."""
    bound_ns: int
    gap: float
    """(rate_bound - rate) / rate_bound"""
    proof: Proof
    bound_by: str
    rate: float
    """Units (tokens, requests) per second."""
    rate_bound: float | None
    depth: int
    solver: str
    seconds: float | None
    stopped_by: str
    baselines: dict[str, float | None]
    """Name -> units per second, None where a baseline breaks a limit."""
    instances: tuple[HeldLayers, ...]
    lanes: tuple[LayerLane, ...]
    """Rates in units per million seconds, hops (instance, first layer, last + 1)."""
    front: tuple[LayerFrontPoint, ...]
    """The highest rate within smaller limits of depth."""
    bounds: tuple[LayerBound, ...]
    provenance: Provenance
    problem: LayerProblem

    def placed(self) -> tuple[LayerInstance, ...]:
        """The instances in numbers of the embedded problem."""
        number = {name: i for i, name in enumerate(self.problem.device_names())}
        unit = {one.name: i for i, one in enumerate(self.problem.units)}
        return tuple(
            LayerInstance(unit[one.unit], tuple(number[name] for name in one.devices), one.first, one.last)
            for one in self.instances
        )

    def save(self, path: Path | str) -> None:
        """Write the file."""
        write_atomically(Path(path), layer_plan_to_json(self))

    def summary(self) -> str:
        """Some lines for a terminal."""
        problem, count = self.problem, self.problem.offsets[-1]
        used = sum(len(one.devices) for one in self.instances)
        lines = [
            f"{problem.name}: {problem.layers} layers on {used} of {count} devices, {self.rate:.6g} units per second, "
            f"at most {self.depth} instances in a row",
            self._bound_words(),
            "",
        ]
        spans: dict[tuple[int, int], list[HeldLayers]] = {}
        for one in self.instances:
            spans.setdefault((one.first, one.last), []).append(one)
        for (first, last), held in sorted(spans.items()):
            who = [f"{sum(o.unit == u for o in held)} x {u}" for u in dict.fromkeys(o.unit for o in held)]
            lines.append(f"  layers {first}..{last - 1}: {', '.join(who)}, {sum(o.rate for o in held):.6g} per second")
        if len(self.front) > 1:
            lines += ["", "  depth      rate  no deployment above"]
            for point in sorted(self.front, key=lambda point: point.depth):
                bound = "unknown" if point.rate_bound is None else f"{point.rate_bound:.6g}"
                lines.append(f"  {point.depth:5d} {point.rate:9.6g}  {bound} ({point.proof})")
        return "\n".join(lines)

    def table(self, name: str) -> list[dict[str, Any]]:
        """devices, lanes, hops, instances, baselines or bounds, as a list of dicts."""
        from weftline.plans.records import fleet_records

        return fleet_records(self, name)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook_html(self)

    def _bound_words(self) -> str:
        if self.rate_bound is None:
            return "nothing is known about how much more another deployment could give"
        if self.rate >= self.rate_bound:
            return f"no deployment gives more ({self.proof})"
        more = self.rate_bound / self.rate - 1
        amount = f"more than {more:.2%}" if more >= 1e-4 else "even 0.01%"
        return f"no deployment gives {amount} more ({self.proof}); gap {self.gap:.2%}"

    def __repr__(self) -> str:
        return (
            f"LayerPlan({self.rate:.6g} per second, {len(self.instances)} instances, gap {self.gap:.2%} {self.proof})"
        )


def per_second(rate: int) -> float:
    """Units per million seconds -> per second."""
    return rate / RATE_SCALE


def layer_plan_to_json(plan: LayerPlan) -> bytes:
    """The bytes of the file."""
    return msgspec.json.encode(plan) + b"\n"


def load_layer_plan(path: Path | str) -> LayerPlan:
    """Read a plan of layers; every failure is an `InputError` that names the file and the place in it."""
    path = Path(path)
    try:
        if not path.is_file() or path.stat().st_size > MAX_PLAN_BYTES:
            raise InputError("more than 2 GiB, or not a file at all, is not a plan", where=str(path))
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    try:
        return msgspec.json.decode(data, type=LayerPlan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = other_kind(data, "a weftline plan of layers") or f"not a weftline plan of layers: {error}"
        raise InputError(what, where=str(path)) from error
