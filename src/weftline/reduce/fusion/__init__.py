"""Fusion: which ops run as one kernel, on which device; and the problem in which they do.

In: a latency Problem, a method and, for the oracle, the model file. Out: a `Fusion`, and with it `fused_problem`: the
same graph, with groups that no plan may cut (`together`) and times in which every op has its share of its kernel. So
one simulator, one checker and one form of plans serve fused and unfused plans.
Simplified: a group is what any device of the cluster fuses; devices that do not fuse it run its ops one by one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from weftline.cost import NO_TIME
from weftline.cost.analytic import fused_times
from weftline.errors import UsageError, unreadable
from weftline.graph.arrays import Indices
from weftline.problem import Problem
from weftline.problem.feasible import merge_together
from weftline.reduce.contract import chains, coplace, split_cycles
from weftline.reduce.fusion.gcof import backend_of, matches
from weftline.reduce.fusion.oracle import OracleError, ask, regions

__all__ = ["METHODS", "Coarsened", "Fusion", "Method", "coarsened", "costed_with_fusion", "fuse", "fused_problem"]


@dataclass(frozen=True, eq=False)
class Fusion:
    """n ops in G groups, K devices."""

    group: Indices
    """(n,): group of each op, numbered from 0."""
    kernel: Indices
    """(n, K): ops of a group with the same number in a column are one kernel on that device."""
    by: str
    """The method."""
    note: str = ""
    """What the user should know: that the method fell back to another one, and why."""

    @property
    def count(self) -> int:
        """Number of groups."""
        return int(self.group.max()) + 1

    @cached_property
    def fused(self) -> NDArray[np.bool_]:
        """(G, K): the whole group is one kernel on the device."""
        low = np.full((self.count, self.kernel.shape[1]), np.iinfo(np.int32).max, np.int32)
        high = np.full_like(low, -1)
        np.minimum.at(low, self.group, self.kernel)
        np.maximum.at(high, self.group, self.kernel)
        same: NDArray[np.bool_] = low == high
        return same


@dataclass(frozen=True)
class Method:
    """One way to group ops."""

    name: str
    description: str
    find: Callable[[Problem, Path | None], Fusion]
    fuses: bool
    """True if groups are kernels: then the problem becomes the fused one. False: they only make the search smaller."""


def fuse(problem: Problem, method: str, *, model: Path | str | None = None) -> Fusion:
    """Group the ops of a problem; `model` is the ONNX file of its graph, which the oracle needs."""
    if method not in METHODS:
        raise UsageError(f"unknown way to coarsen {method!r:.60}; there are: none, {', '.join(METHODS)}")
    if problem.rules.objective != "latency":
        raise UsageError("coarsening by fusion is for the objective latency; pipelines are coarsened by themselves")
    return METHODS[method].find(problem, None if model is None else Path(model))


@dataclass(frozen=True, eq=False)
class Coarsened:
    """A reduction to what a plan is made for, once the ops are grouped. Placements are those of the ops."""

    problem: Problem
    small: Problem
    """The fused problem, or the problem as it was."""
    group: Indices | None = None
    """(n,): groups that make the search smaller, if that is all they do."""
    note: str = ""
    """What the user should know."""

    def lift(self, placement: Indices) -> Indices:
        """The same ops on the same devices."""
        return placement

    def lower(self, placement: Indices) -> Indices | None:
        """The same; None where it cuts a kernel."""
        cut = any((placement[list(ops)] != placement[ops[0]]).any() for ops in self.small.together)
        return None if cut else placement

    def lift_bound(self, bound: int) -> int | None:
        """None for the fused problem: its kernels have other times, and no plan of it cuts them."""
        return bound if self.small is self.problem else None


def coarsened(problem: Problem, method: str, *, model: Path | str | None = None) -> Coarsened:
    """Group the ops by a method of `METHODS`, or leave them alone (`none`)."""
    if method == "none":
        return Coarsened(problem, problem)
    fusion = fuse(problem, method, model=model)
    if METHODS[method].fuses:
        return Coarsened(problem, fused_problem(problem, fusion), note=fusion.note)
    return Coarsened(problem, problem, fusion.group, fusion.note)


def fused_problem(problem: Problem, fusion: Fusion) -> Problem:
    """The problem in which groups are together and every op takes its share of its kernel's time."""
    time = fused_times(problem.graph, problem.devices, problem.cost.time, fusion.kernel)
    source = f"{problem.cost.source}; fused by {fusion.by}".removeprefix("; ")
    return replace(
        problem,
        cost=replace(problem.cost, time=time, source=source),
        together=merge_together([*problem.together, *_sets(fusion.group)]),
    )


def costed_with_fusion(problem: Problem, fused: Problem, fusion: Fusion, placement: Indices) -> Problem:
    """The problem as a placement finds it, which may cut groups: kernels that lie whole on one device have their fused
    time, those that are cut pay for their ops one by one. Only the times along the placement differ.
    """
    n = len(placement)
    mine = fusion.kernel[np.arange(n), placement].astype(np.int64)
    time = problem.cost.time.copy()
    for device in range(len(problem.devices)):
        column = fusion.kernel[:, device]
        count = int(column.max()) + 1
        here = placement == device
        complete = np.bincount(column, minlength=count) == np.bincount(column[here], minlength=count)
        use = here & complete[np.where(here, mine, 0)]
        time[use, device] = fused.cost.time[use, device]
    return replace(problem, cost=problem.cost.with_time(time))


def _sets(group: Indices) -> list[list[int]]:
    """The groups of two ops or more."""
    order = np.argsort(group, kind="stable")
    ends = np.flatnonzero(np.diff(group[order], append=-1)) + 1
    starts = np.concatenate([[0], ends[:-1]])
    several = ends - starts > 1
    ops = order.tolist()
    return [ops[a:b] for a, b in zip(starts[several].tolist(), ends[several].tolist(), strict=True)]


def _gcof(problem: Problem, model: Path | None = None) -> Fusion:
    kernel = _kernels(problem)
    return _made(problem, _joined(kernel), kernel, "gcof", "")


def _oracle(problem: Problem, model: Path | None) -> Fusion:
    if model is None or not _is_onnx(model):
        given = "" if model is None else f", and {model} is none"
        raise UsageError(f"the oracle needs the ONNX file of the model: it asks ONNX Runtime what it would fuse{given}")
    try:
        found = regions(problem.graph, ask(model, problem.graph))
    except OracleError as error:
        return replace(_gcof(problem), note=f"the oracle failed, the rules of gcof are used instead: {error}")
    kernel = _kernels(problem)
    alone = np.arange(len(found.group), dtype=np.int32) + int(found.group.max()) + 1
    for device, entry in enumerate(problem.devices):
        if backend_of(entry.runtime).startswith("ort-"):
            kernel[:, device] = np.where(found.one_kernel, found.group, alone)
    return _made(problem, found.group, kernel, "oracle", "")


def _is_onnx(path: Path) -> bool:
    from weftline.importers.onnx.scope import looks_like_onnx

    try:
        with path.open("rb") as file:
            return looks_like_onnx(file.read(4096))
    except OSError as error:
        raise unreadable(path, error) from error


def _chains(problem: Problem, model: Path | None = None) -> Fusion:
    return _made(problem, chains(problem), _single(problem), "chains", "")


def _coplace(problem: Problem, model: Path | None = None) -> Fusion:
    return _made(problem, coplace(problem), _single(problem), "coplace", "")


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method("gcof", "fusion rules of the devices' backends (Moirai); no plan cuts a fused kernel", _gcof, True),
        Method("oracle", "what ONNX Runtime itself fuses in the model file; falls back to gcof", _oracle, True),
        Method("chains", "ops in a row are placed as one (HSDAG)", _chains, False),
        Method("coplace", "an op is placed with its only reader (Baechi)", _coplace, False),
    )
}


def _single(problem: Problem) -> Indices:
    n, k = problem.cost.time.shape
    return np.repeat(np.arange(n, dtype=np.int32)[:, None], k, axis=1)


def _kernels(problem: Problem) -> Indices:
    """(n, K): kernels by the rules of each device's backend."""
    backends = [backend_of(device.runtime) for device in problem.devices]
    found = {backend: matches(problem.graph, backend) for backend in sorted(set(backends))}
    return np.stack([found[backend] for backend in backends], axis=1)


def _joined(kernel: Indices) -> Indices:
    """(n,): ops that are one kernel on any device are one group."""
    group = np.arange(len(kernel), dtype=np.int32)
    for members in merge_together([part for column in kernel.T for part in _sets(column)]):
        group[list(members)] = members[0]
    return group


def _made(problem: Problem, group: Indices, kernel: Indices, by: str, note: str) -> Fusion:
    """Open the groups that could stand nowhere, split cycles, number the rest, and cut kernels to their groups."""
    group, opened = _opened(problem, split_cycles(problem.graph, group))
    group = split_cycles(problem.graph, group)
    if opened:
        what = "1 fused group was opened" if opened == 1 else f"{opened} fused groups were opened"
        note = f"{note}; " * bool(note) + f"{what}: with the limits, no device could run or hold all of it"
    inside = np.empty_like(kernel)
    for device in range(kernel.shape[1]):
        pair = group.astype(np.int64) * (int(kernel.max()) + 1) + kernel[:, device]
        inside[:, device] = np.unique(pair, return_inverse=True)[1]
    return Fusion(group, inside, by, note)


def _opened(problem: Problem, group: Indices) -> tuple[Indices, int]:
    """Groups that, with the user's `together` sets, no device can run or hold become single ops."""
    arrays = problem.graph.arrays
    held = arrays.weight_bytes + (arrays.workspace_bytes if problem.rules.memory == "static" else 0)
    group, opened = group.astype(np.int64), 0
    for members in merge_together([*problem.together, *_sets(group.astype(np.int32))]):
        ops = list(members)
        able = (problem.cost.time[ops] != NO_TIME).all(axis=0)
        if (able & (problem.capacity >= held[ops].sum())).any():
            continue
        touched = np.isin(group, np.unique(group[ops])) & (np.bincount(group)[group] > 1)
        opened += len(np.unique(group[touched]))
        group[touched] = int(group.max()) + 1 + np.arange(int(touched.sum()))
    return group.astype(np.int32), opened
