"""A timetable -> the rows that torch.distributed.pipelining runs, one per rank; and strict rules for such rows.

In: a `Timetable` of a chain of stages, each on one device. Out: rows of cells `<stage><op><micro-batch>` with F
forward, B whole backward, I gradients of inputs, W gradients of weights. Anything else is refused with a sentence that
names what torch cannot express. Simplified: torch knows an order only, so times and latencies are left out.

`check_torch_rows`: rows, `compute_only` or `compute_comms` -> `TorchRows`, or an `InputError` that names the row and
cell. torch 2.13 reads `0F0x` as 0F0, takes duplicates, and computes wrong gradients without a word when the last
stage's forwards are out of order; all of that is refused here. Simplified: no overlapped cells.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from weftline.errors import InputError
from weftline.problem.blocks import Blocks
from weftline.schedule.lower import NetworkStage, stages_of
from weftline.simulate import Timetable

__all__ = ["FORMATS", "Cell", "TorchRows", "check_torch_rows", "torch_rows", "torch_stages"]

FORMATS = ("compute_only", "compute_comms")
MOST_NUMBER = 10**6
INSTEAD = "run it with --engine weftline, the interpreter of action lists"

_NUMBER = "(0|[1-9][0-9]{0,8})"
_COMPUTE = re.compile(f"{_NUMBER}(F|B|I|W){_NUMBER}")
_MOVE = re.compile(f"{_NUMBER}(SEND_F|RECV_F|SEND_B|RECV_B){_NUMBER}")
_WHOLE = re.compile(f"{_NUMBER}(UNSHARD|RESHARD|REDUCE_GRAD)")
_STEP = {"SEND_F": 1, "RECV_F": -1, "SEND_B": -1, "RECV_B": 1}
"""The other end of a transfer is on the stage that is so far away."""


class Cell(NamedTuple):
    """A parsed cell; `micro_batch` is -1 for work on a whole stage."""

    stage: int
    op: str
    micro_batch: int


@dataclass(frozen=True)
class TorchRows:
    """What rows mean."""

    rows: tuple[tuple[Cell, ...], ...]
    """Rank -> its cells without the blank ones."""
    stages: int
    micro_batches: int
    rank_of: tuple[int, ...]
    """Stage -> its rank."""


def check_torch_rows(
    rows: Sequence[Sequence[str]],
    *,
    form: str = "compute_only",
    ranks: int | None = None,
    stages: int | None = None,
    micro_batches: int | None = None,
) -> TorchRows:
    """Hold rows to all rules; the numbers, where given, must be those of the rows."""
    if form not in FORMATS:
        raise InputError(f"the form is one of {', '.join(FORMATS)}, not {form!r}")
    if ranks is not None and len(rows) != ranks:
        raise InputError(f"has {len(rows)} rows for {ranks} ranks; every rank needs one row")
    cells = tuple(tuple(_parsed(row, rank, form)) for rank, row in enumerate(rows))
    _no_duplicates(cells)
    rank_of = _one_rank(cells)
    count = _counts(cells, len(rank_of), stages, micro_batches)
    _order_of_rows(cells, len(rank_of) - 1)
    if form == "compute_comms":
        _transfers(cells, rank_of)
    _comes_to_an_end(cells, rank_of, form)
    return TorchRows(cells, len(rank_of), count, rank_of)


def _parsed(row: Sequence[str], rank: int, form: str) -> list[Cell]:
    found = []
    for place, text in enumerate(row):
        where = _where(rank, place)
        if text == "":
            if form == "compute_comms":
                raise InputError("is blank, which compute_comms does not allow", where=where)
            continue
        if "OVERLAP" in text:
            raise InputError("overlapped cells are run one after another anyway", where=where, hint="write two cells")
        match = _COMPUTE.fullmatch(text)
        other = _MOVE.fullmatch(text) or _WHOLE.fullmatch(text)
        if match is None and other is not None and form == "compute_only":
            raise InputError(f"{text!r} is communication, which compute_only does not have", where=where)
        match = match or other
        if match is None:
            shown = text if len(text) <= 40 else text[:40] + "..."
            raise InputError(f"{shown!r} is not <stage><F|B|I|W><micro-batch>", where=where)
        stage, op, micro = int(match[1]), match[2], int(match[3]) if match.lastindex == 3 else -1
        if max(stage, micro) > MOST_NUMBER:
            raise InputError(f"numbers above {MOST_NUMBER} are refused", where=where)
        found.append(Cell(stage, op, micro))
    if not found:
        raise InputError("the row is empty; every rank needs at least one stage", where=f"row {rank + 1}")
    return found


def _no_duplicates(cells: Sequence[Sequence[Cell]]) -> None:
    for rank, row in enumerate(cells):
        seen = set()
        for place, cell in enumerate(row):
            # FSDP may gather and free the weights of a stage more than once.
            if cell in seen and cell.op not in ("UNSHARD", "RESHARD"):
                raise InputError(f"{_text(cell)} stands there twice", where=_where(rank, place))
            seen.add(cell)


def _one_rank(cells: Sequence[Sequence[Cell]]) -> tuple[int, ...]:
    rank_of: dict[int, int] = {}
    for rank, row in enumerate(cells):
        for place, cell in enumerate(row):
            if rank_of.setdefault(cell.stage, rank) != rank:
                what = f"stage {cell.stage} is on rank {rank_of[cell.stage]} and on rank {rank}; a stage has one rank"
                raise InputError(what, where=_where(rank, place))
    missing = sorted(set(range(max(rank_of) + 1)) - set(rank_of)) if rank_of else [0]
    if missing:
        raise InputError(f"stage {missing[0]} is on no rank; stages are numbered 0, 1, ... without gaps")
    return tuple(rank_of[stage] for stage in range(len(rank_of)))


def _counts(cells: Sequence[Sequence[Cell]], stages: int, asked: int | None, micro_batches: int | None) -> int:
    """Every stage does every micro-batch: once forward, and once backward in one piece or in two."""
    if asked is not None and stages != asked:
        raise InputError(f"has {stages} stages instead of {asked}")
    done: dict[tuple[int, str], set[int]] = defaultdict(set)
    for row in cells:
        for cell in row:
            done[cell.stage, cell.op].add(cell.micro_batch)
    count = 1 + max((m for (_, op), found in done.items() if op in "FBIW" for m in found), default=-1)
    if micro_batches is not None and count != micro_batches:
        raise InputError(f"has {count} micro-batches instead of {micro_batches}")
    if not any(done[stage, op] for stage in range(stages) for op in "BI"):
        raise InputError("has no backward at all; torch expects one for every forward (no inference)")
    for stage in range(stages):
        forward, whole, inputs, weights = (done[stage, op] for op in "FBIW")
        for m in range(count):
            if m not in forward:
                raise InputError(f"stage {stage} never runs micro-batch {m} forward")
            if (m in inputs) != (m in weights):
                raise InputError(f"stage {stage}, micro-batch {m}: I and W come together")
            if (m in whole) == (m in inputs):
                raise InputError(f"stage {stage}, micro-batch {m}: needs either B, or I and W")
    return count


def _order_of_rows(cells: Sequence[Sequence[Cell]], last: int) -> None:
    latest = -1
    for rank, row in enumerate(cells):
        seen: set[Cell] = set()
        for place, cell in enumerate(row):
            stage, op, m = cell
            need = {"B": "F", "I": "F", "W": "I"}.get(op)
            if need is not None and Cell(stage, need, m) not in seen:
                raise InputError(f"{_text(cell)} comes before {stage}{need}{m}", where=_where(rank, place))
            if op == "F" and stage == last:
                if m < latest:
                    what = (
                        f"{_text(cell)} comes after {last}F{latest}: the last stage must run forwards in the order of "
                        "micro-batches, or torch takes the wrong loss and gradients are silently wrong"
                    )
                    raise InputError(what, where=_where(rank, place))
                latest = m
            seen.add(cell)


def _transfers(cells: Sequence[Sequence[Cell]], rank_of: tuple[int, ...]) -> None:
    """Every activation and gradient between ranks is sent after it exists, received before it is used, in one order."""
    sent: dict[tuple[int, int], list[Cell]] = defaultdict(list)
    taken: dict[tuple[int, int], list[Cell]] = defaultdict(list)
    for rank, row in enumerate(cells):
        place_of = {cell: place for place, cell in enumerate(row)}
        for place, cell in enumerate(row):
            where = _where(rank, place)
            if cell.op in _STEP:
                other = cell.stage + _STEP[cell.op]
                if not 0 <= other < len(rank_of) or rank_of[other] == rank:
                    raise InputError(f"{_text(cell)} has no other rank to talk to", where=where)
                _in_time(cell, place, place_of, where)
                if cell.op.startswith("SEND"):
                    sent[rank, rank_of[other]].append(Cell(other, cell.op[-1], cell.micro_batch))
                else:
                    taken[rank_of[other], rank].append(Cell(cell.stage, cell.op[-1], cell.micro_batch))
            elif cell.op in "FBI":
                _has_transfers(cell, place_of, rank_of, where)
        for stage in [stage for stage, owner in enumerate(rank_of) if owner == rank]:
            last = max(place for cell, place in place_of.items() if cell.stage == stage and cell.op in ("B", "W"))
            if place_of.get(Cell(stage, "REDUCE_GRAD", -1), -1) < last:
                what = f"stage {stage} needs REDUCE_GRAD after its last backward, or gradients are not divided"
                raise InputError(what, where=f"row {rank + 1}")
    for pair, cells_sent in sent.items():
        if cells_sent != taken[pair]:
            raise InputError(
                f"rank {pair[1]} receives in another order than rank {pair[0]} sends; messages have no names"
            )


def _in_time(cell: Cell, place: int, place_of: dict[Cell, int], where: str) -> None:
    stage, op, m = cell
    directions = ("F",) if op.endswith("F") else ("B", "I")
    work = [place_of[Cell(stage, direction, m)] for direction in directions if Cell(stage, direction, m) in place_of]
    if not work or (place < work[0]) == op.startswith("SEND"):
        raise InputError(f"{_text(cell)} stands on the wrong side of its computation", where=where)


def _has_transfers(cell: Cell, place_of: dict[Cell, int], rank_of: tuple[int, ...], where: str) -> None:
    direction = "F" if cell.op == "F" else "B"
    for op in (f"RECV_{direction}", f"SEND_{direction}"):
        other = cell.stage + _STEP[op]
        crosses = 0 <= other < len(rank_of) and rank_of[other] != rank_of[cell.stage]
        if crosses and Cell(cell.stage, op, cell.micro_batch) not in place_of:
            raise InputError(f"{cell.stage}{op}{cell.micro_batch} is missing", where=where)


def _comes_to_an_end(cells: Sequence[Sequence[Cell]], rank_of: tuple[int, ...], form: str) -> None:
    """Play the rows: a cell waits for the neighbouring stage (in compute_comms: for its send)."""
    done: set[Cell] = set()
    at = [0] * len(cells)
    moved = True
    while moved:
        moved = False
        for rank, row in enumerate(cells):
            while at[rank] < len(row) and _ready(row[at[rank]], done, rank_of, form):
                done.add(row[at[rank]])
                at[rank] += 1
                moved = True
    for rank, row in enumerate(cells):
        if at[rank] < len(row):
            raise InputError(f"{_text(row[at[rank]])} waits for ever (deadlock)", where=_where(rank, at[rank]))


def _ready(cell: Cell, done: set[Cell], rank_of: tuple[int, ...], form: str) -> bool:
    stage, op, m = cell
    if op not in ("F", "B", "I"):
        return True
    other = stage + (-1 if op == "F" else 1)
    if not 0 <= other < len(rank_of):
        return True
    if form == "compute_comms" and rank_of[other] != rank_of[stage]:
        return Cell(other, "SEND_F" if op == "F" else "SEND_B", m) in done
    return any(Cell(other, back, m) in done for back in (("F",) if op == "F" else ("B", "I")))


def _text(cell: Cell) -> str:
    return f"{cell.stage}{cell.op}{cell.micro_batch if cell.micro_batch >= 0 else ''}"


def _where(rank: int, place: int) -> str:
    return f"row {rank + 1}, cell {place + 1}"


def torch_rows(timetable: Timetable) -> tuple[tuple[str, ...], ...]:
    """Rank -> its cells; they pass `check_torch_rows`."""
    blocks, n = timetable.blocks, timetable.blocks.n
    stages = torch_stages(blocks)
    cell: dict[int, str] = {}
    for k, stage in enumerate(stages):
        cell[stage.forward] = f"{k}F"
        cell[stage.backward] = f"{k}B" if stage.weight < 0 else f"{k}I"
        if stage.weight >= 0:
            cell[stage.weight] = f"{k}W"
    rows = []
    for device, order in enumerate(timetable.orders):
        if not blocks.devices[device].link:
            rows.append(tuple(f"{cell[op % n]}{op // n}" for op in order.tolist() if op % n in cell))
    try:
        check_torch_rows(rows, ranks=len(rows), stages=len(stages), micro_batches=timetable.micro_batches)
    except InputError as error:
        raise InputError(f"torch cannot run this order: {error.what}", where=error.where, hint=INSTEAD) from None
    return tuple(rows)


def torch_stages(blocks: Blocks) -> tuple[NetworkStage, ...]:
    """The stages along the chain, or an `InputError` that says why there is no such chain."""
    stages = stages_of(blocks)
    for stage in stages:
        if len(stage.devices) != 1:
            raise _refused(f"stage {stage.number} on several devices: a stage has one rank")
    if all(stage.backward < 0 for stage in stages):
        raise _refused("a schedule without backward blocks (inference): it expects one backward for every forward")
    for stage in stages:
        if stage.backward < 0:
            raise _refused(f"stage {stage.number} without a backward block: it expects one backward for every forward")
        if len(stage.inputs) > 1 or len(stage.outputs) > 1:
            what = f"branches (at stage {stage.number}): data goes from a stage to the next one only"
            raise _refused(what + _skipping(blocks, stages, stage))
    first = [stage for stage in stages if not stage.inputs]
    if len(first) != 1:
        raise _refused("several pipelines in one schedule (bidirectional): there is one chain of stages")
    chain = [first[0]]
    while chain[-1].outputs:
        chain.append(stages[chain[-1].outputs[0]])
    used = {stage.devices[0] for stage in chain}
    for device, lane in enumerate(blocks.devices):
        if not lane.link and device not in used:
            raise _refused(f"device {lane.id!r} without a stage: every rank has one")
    return tuple(chain)


def _skipping(blocks: Blocks, stages: Sequence[NetworkStage], stage: NetworkStage) -> str:
    """What goes from this stage, or comes to it, past the stage beside it: by the name of a transfer, if it has one."""
    pairs = [(stage, stages[k]) for k in stage.outputs[1:]] or [(stages[k], stage) for k in stage.inputs[:-1]]
    source, target = pairs[0]
    after = {b for a, b, _ in blocks.edges if a == source.forward and blocks.blocks[b].kind == "C"}
    names = [blocks.blocks[a].name for a, b, _ in blocks.edges if a in after and b == target.forward]
    data = f"{names[0]!r:.220}" if names else "something"
    return f", and stage {source.number} sends {data} to stage {target.number}"


def _refused(what: str) -> InputError:
    return InputError(f"torch.distributed.pipelining cannot express {what}", hint=INSTEAD)
