"""Times of a profile -> CostTable: each op has its share of its kernel, so that they add up to what was measured.

In: a graph, a cluster, a `Profile` of both. Out: the table, and the groups of ops that are one kernel on some device: a
plan that cuts one would run something that nobody measured. Simplified: the shares inside a kernel are those of the
roofline; they matter only where the user drops the groups.
"""

from __future__ import annotations

import msgspec
import numpy as np

from weftline.cluster import Cluster, Device, Rate
from weftline.cost.analytic import op_times, shares, transfers
from weftline.cost.profile_file import DeviceProfile, Profile
from weftline.cost.table import NO_TIME, CostTable, check_table_size, distinct_rows
from weftline.errors import InputError
from weftline.graph import Graph
from weftline.graph.arrays import Indices, Ints
from weftline.graph.ir import MODEL_INPUT
from weftline.units import MAX_QUANTITY

__all__ = ["profiled_costs", "roofline_shares"]

AGAIN = "profile again with: weftline profile MODEL --cluster FILE -o costs.json"

_ORDINARY = Rate(fp32=50 * 10**9, bandwidth=10**10, launch=1000)
"""Shares inside a kernel, for devices of which no rate is known."""

GUESSES = ("", "guess")
"""Sources of a link that give way to a measured one."""

Groups = tuple[tuple[int, ...], ...]


def profiled_costs(graph: Graph, cluster: Cluster, profile: Profile, *, busy: bool) -> tuple[CostTable, Groups]:
    """The measured times, `busy` (all devices work) or alone; transfers by measured links where the cluster
    only guesses, else by the cluster's.

    The groups of different devices may overlap.
    """
    check_table_size(len(graph.ops), len({tensor.bytes for tensor in graph.tensors}), len(cluster.devices))
    _check_inputs(graph, profile)
    columns: list[Ints] = []
    groups: dict[tuple[int, ...], None] = {}
    for device in cluster.devices:
        number, target = _kernels(graph, device, profile.device(device.id), busy)
        columns.append(_split(graph, device, number, target))
        order = np.argsort(number, kind="stable")
        for members in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
            if len(members) > 1:
                groups.setdefault(tuple(members.tolist()))
    transfer, row = _with_layouts(graph, cluster, profile, *transfers(graph, _with_links(cluster, profile)))
    how = "all devices busy" if busy else "one device at a time"
    guessed = any(link.origin in GUESSES for link in cluster.links)
    links = "links too" if profile.links and guessed else "links: the cluster's"
    spread = max(profile.device(device.id).spread for device in cluster.devices)
    source = (
        f"profiled: {profile.backend} {profile.backend_version} {profile.level}, {how}, spread {spread:.1%}, {links}"
    )
    source = f"{source}; {profile.note}" if profile.note else source
    return CostTable(np.stack(columns, axis=1), transfer, row, source=source[:2000]), tuple(groups)


def _check_inputs(graph: Graph, profile: Profile) -> None:
    for tensor in graph.tensors:
        ran = profile.inputs.get(tensor.name)
        if tensor.producer == MODEL_INPUT and ran is not None and ran != tensor.shape:
            was, now = "x".join(map(str, ran[:16])), "x".join(map(str, tensor.shape[:16]))
            raise InputError(f"input {tensor.name[:80]!r} was profiled as {was}, and is {now} here", hint=AGAIN)


def _kernels(graph: Graph, device: Device, measured: DeviceProfile, busy: bool) -> tuple[Indices, Ints]:
    """(n,) number of the kernel of each op, (kernels,) ns of each on the device as the cluster has it."""
    number = np.full(len(graph.ops), -1, np.int32)
    target = np.zeros(len(measured.kernels), np.float64)
    faster = device.speed / measured.speed
    for k, kernel in enumerate(measured.kernels):
        target[k] = (kernel.busy_ns if busy else kernel.alone_ns) / faster
        for name in kernel.ops:
            op = graph.index.get(name)
            if op is None:
                raise InputError(f"the profile knows an op {name[:80]!r} that is not in {graph.name!r}", hint=AGAIN)
            number[op] = k
    unknown = np.flatnonzero(number < 0)
    if len(unknown):
        name = graph.ops[unknown[0]].name
        raise InputError(f"op {name[:80]!r} was not profiled on {device.id!r} ({len(unknown)} ops in all)", hint=AGAIN)
    return number, np.rint(np.minimum(target, float(MAX_QUANTITY))).astype(np.int64)


def _split(graph: Graph, device: Device, number: Indices, target: Ints) -> Ints:
    """(n,): every op's share of its kernel, to the nanosecond."""
    known = device if device.rate is not None else msgspec.structs.replace(device, rate=_ORDINARY)
    weight = op_times(graph, known).astype(np.float64)
    count = len(target)
    total = np.bincount(number, weight, count)
    weight[total[number] == 0] = 1.0  # kernels of ops that should take no time, but do
    total = np.bincount(number, weight, count)
    most = np.where(weight > 0, np.ceil(weight * (target / total)[number]) + 1, 0).astype(np.int64)
    takes = most > 0
    order = np.argsort(number, kind="stable")
    place = np.empty(len(number), np.int64)
    before: Ints = np.cumsum(takes[order]) - takes[order]
    first = np.searchsorted(number[order], np.arange(count))
    place[order] = before - before[np.minimum(first, len(order) - 1)][number[order]]
    most[place >= target[number]] = 0  # a kernel of 2 ns has at most two ops that take time
    return shares(most, number.astype(np.int64), target)


def roofline_shares(graph: Graph, device: Device, total: int) -> Ints:
    """(n,): what each op has of one run of the whole model, if all that is known is how long that took."""
    return _split(graph, device, np.zeros(len(graph.ops), np.int32), np.array([total], np.int64))


def _with_layouts(
    graph: Graph, cluster: Cluster, profile: Profile, transfer: Ints, row: Indices
) -> tuple[Ints, Indices]:
    """A tensor that kernels exchange in a layout of their own is changed where it leaves, and where it enters."""
    count = len(cluster.devices)
    changes: dict[str, Ints] = {}
    for number, device in enumerate(cluster.devices):
        measured = profile.device(device.id)
        for change in measured.layouts:
            extra = changes.setdefault(change.tensor, np.zeros((count, count), np.int64))
            slower = measured.speed / device.speed
            extra[number, :] += round(min(change.leave_ns * slower, MAX_QUANTITY // 2))
            extra[:, number] += round(min(change.enter_ns * slower, MAX_QUANTITY // 2))
    where = [t for t, tensor in enumerate(graph.tensors) if tensor.name in changes]
    if not where:
        return transfer, row
    check_table_size(len(graph.ops), len(transfer) + len(where), count)
    before = transfer[row[where]]
    after = np.where(before == NO_TIME, NO_TIME, before + np.stack([changes[graph.tensors[t].name] for t in where]))
    after[:, range(count), range(count)] = 0
    rows, number_of = distinct_rows(after.reshape(len(where), -1))
    changed = row.copy()
    changed[where] = len(transfer) + number_of
    return np.concatenate([transfer, rows.reshape(-1, count, count)]), changed


def _with_links(cluster: Cluster, profile: Profile) -> Cluster:
    """Measured links in place of guesses. The profile is of one machine: what somebody knows of a network stays."""
    measured = {(link.source, link.target): link for link in profile.links}
    links = [
        msgspec.structs.replace(link, bandwidth=found.bandwidth, latency=found.latency_ns)
        if link.origin in GUESSES and (found := measured.get((link.source, link.target))) is not None
        else link
        for link in cluster.links
    ]
    return msgspec.structs.replace(cluster, links=tuple(links))
