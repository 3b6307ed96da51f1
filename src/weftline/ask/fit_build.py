"""A language model on devices, for an engine -> the FitProblem in bytes and ns.

In: a LanguageModel, the devices of a machine, settings, what the engine can do. Out: a FitProblem whose rows are the
layers and the output layer; a unit is one card, or a group of cards with an equal share of every matrix. Simplified: a
group is as fast as its slowest card; the embedding lies on the host (llama.cpp), or with the first and last unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement

import msgspec

from weftline.ask.fit_devices import FitMachine
from weftline.cost.llm import (
    MOVABLE_PARTS,
    DecodeCosts,
    LlmDevice,
    LlmEngine,
    LlmSettings,
    Position,
    compute_buffer,
    decode_costs,
    embedding_bytes,
    engine_overhead,
    hop_time,
    host_buffer,
    layer_cache,
    output_weights,
    part_weights,
    usable_memory,
)
from weftline.importers.llm import LanguageModel
from weftline.problem.fit import (
    FitBuffers,
    FitDevice,
    FitObjective,
    FitPool,
    FitProblem,
    FitRules,
    FitUnit,
    HostRows,
    check_fit_problem,
)

__all__ = ["FIT_PARTS", "FitTask", "build_fit_problem", "group_widths"]

FIT_PARTS = ("kv", *MOVABLE_PARTS, "output")
MOST_GROUPS = 120
"""Kinds of groups that are looked at."""
LEAST_MOVED_SHARE = 50
"""A part moves alone if it is more than the largest one divided by this."""
_Table = tuple[tuple[int, ...], ...]


class FitTask(msgspec.Struct, frozen=True):
    """What a problem is made of; with other settings it is another question about the same machine."""

    model: LanguageModel
    machine: FitMachine
    settings: LlmSettings
    tensor_parallel: int | None = None
    """Width of all groups; None: any."""
    pipeline: int = 0
    """Served: exactly so many groups in a row, each with its share of the requests; 0: one stream."""

    @property
    def served(self) -> bool:
        """By an engine of ranks: no layers on the host, equal groups."""
        return self.settings.engine is not LlmEngine.LLAMACPP


def build_fit_problem(task: FitTask) -> FitProblem:
    """The problem in numbers."""
    machine, settings = task.machine, task.settings
    pools = _pools(machine.devices)
    devices = tuple(
        FitDevice(device.id, _limit(task, device), host=device.kind == "cpu")
        for device in machine.devices
        if not (task.served and device.kind == "cpu")
    )
    pools = [pool for pool in pools if not (task.served and machine.devices[pool[0]].kind == "cpu")]
    groups = _groups(task, pools)
    shapes = [_unit_tables(task, [machine.devices[pools[pool][0]] for pool, _ in takes], takes) for takes in groups]
    rows, kinds = _kinds(len(task.model.layers) + 1, shapes)
    units = tuple(
        _unit(task, machine, pools, takes, [shape[row] for row in kinds])
        for takes, shape in zip(groups, shapes, strict=True)
    )
    several = task.pipeline > 1 and task.served
    problem = FitProblem(
        name=f"{task.model.name} {task.model.quantisation}".strip(),
        rows=rows,
        kinds=tuple("output" if row == len(rows) - 1 else f"like layer {row}" for row in kinds),
        parts=FIT_PARTS,
        devices=devices,
        pools=tuple(
            FitPool(f"{machine.devices[pool[0]].name} {number}", tuple(pool)) for number, pool in enumerate(pools)
        ),
        units=units,
        hop_ns=_hops(task, [[machine.devices[pools[pool][0]] for pool, _ in takes] for takes in groups]),
        rules=_rules(task, shapes[0] if any(device.host for device in devices) else []),
        objective=FitObjective.MAX if several else FitObjective.SUM,
        streams=settings.concurrency,
    )
    return check_fit_problem(problem)


def _rules(task: FitTask, rows: _Shape) -> FitRules:
    """What the engine can do; `rows` where there is a host, to which parts may move that are worth it."""
    if task.served:
        return FitRules(
            engine=task.settings.engine.value,
            host_rows=HostRows.NONE,
            equal_groups=True,
            exact_units=task.pipeline or None,
        )
    sizes = {part: max((size[n] for size, _, _ in rows), default=0) for n, part in enumerate(FIT_PARTS) if part != "kv"}
    moves = tuple(part for part, size in sizes.items() if size * LEAST_MOVED_SHARE > max(sizes.values()))
    return FitRules(engine=task.settings.engine.value, host_rows=HostRows.FIRST, moves=moves)


def _limit(task: FitTask, device: LlmDevice) -> int:
    """Bytes for weights, cache and buffers."""
    limit = usable_memory(device, task.settings) - engine_overhead(device, task.settings)
    embedding = embedding_bytes(task.model)
    if not task.served and (device.kind == "cpu" or device.host_bandwidth == 0):
        limit -= embedding  # llama.cpp keeps the input embedding in the memory of the host
    return max(0, limit)


def _pools(devices: Sequence[LlmDevice]) -> list[list[int]]:
    """Numbers of devices that are equal but for their ids."""
    found: dict[LlmDevice, list[int]] = {}
    for number, device in enumerate(devices):
        found.setdefault(msgspec.structs.replace(device, id=""), []).append(number)
    return list(found.values())


def group_widths(model: LanguageModel, cards: int) -> tuple[int, ...]:
    """Widths of groups that share every matrix: all attention heads must divide."""
    heads = [layer.heads for layer in model.layers if layer.heads]
    return tuple(width for width in range(1, cards + 1) if all(count % width == 0 for count in heads))


def _groups(task: FitTask, pools: Sequence[Sequence[int]]) -> list[tuple[tuple[int, int], ...]]:
    """What units take: (pool, number of its devices)."""
    single: list[tuple[tuple[int, int], ...]] = [((pool, 1),) for pool in range(len(pools))]
    if not task.served:
        return single
    cards = sum(map(len, pools))
    widths = group_widths(task.model, cards)
    if task.tensor_parallel is not None:
        widths = tuple(width for width in widths if width == task.tensor_parallel)
    found = []
    for width in widths:
        for chosen in combinations_with_replacement(range(len(pools)), width):
            takes = tuple((pool, chosen.count(pool)) for pool in dict.fromkeys(chosen))
            if all(count <= len(pools[pool]) for pool, count in takes):
                found.append(takes)
            if len(found) >= MOST_GROUPS:
                return found
    return found


_Shape = list[tuple[tuple[int, ...], tuple[int, ...], int]]
"""Of each row: bytes and ns of each part, and what it costs besides."""


def _unit_tables(task: FitTask, members: Sequence[LlmDevice], takes: Sequence[tuple[int, int]]) -> _Shape:
    """Of each row, on each device of a unit; the slowest member counts."""
    width = sum(count for _, count in takes)
    model, settings = task.model, task.settings
    batch = msgspec.structs.replace(settings, concurrency=-(-settings.concurrency // max(1, task.pipeline)))
    costs = decode_costs(model, batch, members, width)
    sizes = [(layer_cache(layer, settings, width), *part_weights(layer, width), 0) for layer in model.layers]
    rows = [(size, _slowest(costs, number, len(members)), max(costs.layer)) for number, size in enumerate(sizes)]
    none = (0,) * (len(FIT_PARTS) - 1)
    return [*rows, ((*none, output_weights(model, width)), (*none, max(costs.output)), 0)]


def _slowest(costs: DecodeCosts, layer: int, members: int) -> tuple[int, ...]:
    cache = max(costs.cache[layer])
    parts = [max(costs.parts[layer][member][part] for member in range(members)) for part in range(len(MOVABLE_PARTS))]
    return (cache, *parts, 0)


def _kinds(count: int, shapes: Sequence[_Shape]) -> tuple[tuple[int, ...], list[int]]:
    """Kind of each row, and the first row of each kind."""
    known: dict[tuple[object, ...], int] = {}
    first, rows = [], []
    for row in range(count):
        key = (row == count - 1, *(shape[row] for shape in shapes))
        if key not in known:
            known[key] = len(known)
            first.append(row)
        rows.append(known[key])
    return tuple(rows), first


def _unit(
    task: FitTask,
    machine: FitMachine,
    pools: Sequence[Sequence[int]],
    takes: tuple[tuple[int, int], ...],
    rows: _Shape,
) -> FitUnit:
    members = [machine.devices[pools[pool][0]] for pool, _ in takes]
    width = sum(count for _, count in takes)
    host = members[0].kind == "cpu"
    names = [f"{count}x {machine.devices[pools[pool][0]].name}" for pool, count in takes]
    away = machine.host is not None and not task.served and not host
    return FitUnit(
        name=" + ".join(names) if width > 1 else members[0].name,
        takes=takes,
        bytes=tuple(size for size, _, _ in rows),
        ns=tuple(time for _, time, _ in rows),
        row_ns=tuple(besides for _, _, besides in rows),
        buffers=_buffers(task, width, host=host, pipelined=False),
        pipelined_buffers=_buffers(task, width, host=host, pipelined=True),
        trip_ns=_trip(task, members[0], machine) if away else 0,
    )


def _hops(task: FitTask, units: Sequence[Sequence[LlmDevice]]) -> _Table:
    """From each unit to each other one: the slowest pair of their devices."""
    return tuple(
        tuple(max(hop_time(task.model, task.settings, one, other) for one in a for other in b) for b in units)
        for a in units
    )


def _trip(task: FitTask, card: LlmDevice, machine: FitMachine) -> int:
    """From a card to a part of its row on the host, and back."""
    host = machine.host
    return decode_costs(task.model, task.settings, [card, host]).away[0][1] if host is not None else 0


def _buffers(task: FitTask, width: int, *, host: bool, pipelined: bool) -> FitBuffers:
    model, settings = task.model, task.settings
    if host:
        alone = compute_buffer(model, settings, Position.ONLY, pipelined=False)
        beside = host_buffer(model, settings, 2 if pipelined else 1, pipelined=pipelined)
        return FitBuffers(alone, beside, beside, beside)
    # Engines of ranks hold the embedding on the first rank, and a tied one again on the last.
    table = embedding_bytes(model, width) if task.served else 0
    places = (Position.ONLY, Position.FIRST, Position.MIDDLE, Position.LAST)
    alone, first, middle, last = (compute_buffer(model, settings, place, pipelined=pipelined) for place in places)
    both = 0 if model.tied else table  # alone, a tied head is the embedding itself
    return FitBuffers(alone + both, first + table, middle, last)
