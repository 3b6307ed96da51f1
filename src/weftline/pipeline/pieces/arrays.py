"""The flat arrays of `Pieces` that the kernels of this room read, made once per pieces.

Coarser pieces for the search alone: the exact reductions as if there were no hosts and no memory limits.

Hosts and memory forbid most exact reductions, although nearly every good pipeline keeps the same pieces together. In:
Pieces. Out: fewer of them, of which no bound holds, or None if nothing merges.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.cost import CostTable
from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.pieces import Pieces, make_pieces, merge, reduce_exactly
from weftline.pipeline.pieces.reduce import memory_may_bind

__all__ = ["PieceArrays", "make_piece_arrays", "merge_freely"]


class PieceArrays(NamedTuple):
    """P pieces, M tensors, K devices. numba passes a NamedTuple of arrays to a kernel as it is."""

    time: Ints
    """(P, K), negative where a piece cannot run."""
    weight: Ints
    next_ptr: Indices
    next_of: Indices
    before_ptr: Indices
    before_of: Indices
    maker: Indices
    reader_ptr: Indices
    reader_of: Indices
    makes_ptr: Indices
    makes_of: Indices
    reads_ptr: Indices
    reads_of: Indices
    wire: Ints
    """(M,): ns of each tensor, where transfers are flat."""
    row: Indices
    transfer: Ints
    tied_ptr: Indices
    tied_of: Indices
    """Piece -> tied weights that its ops use, each once."""
    tied_bytes: Ints
    host: NDArray[np.bool_]
    flat: bool
    overlapped: bool
    stage_limit: int


def make_piece_arrays(pieces: Pieces) -> PieceArrays:
    """The arrays of some pieces (cached on them)."""
    found = pieces.__dict__.get("_board")
    if found is None:
        found = _build(pieces)
        pieces.__dict__["_board"] = found
    return found


def _build(pieces: Pieces) -> PieceArrays:
    problem, arrays = pieces.problem, pieces.problem.graph.arrays
    count, flat = len(pieces.time), pieces.flat and not (pieces.transfer < 0).any()
    weights = np.repeat(np.arange(len(arrays.tied_bytes)), np.diff(arrays.tied_ptr))
    key = np.unique(pieces.of[arrays.tied_of].astype(np.int64) * max(1, len(arrays.tied_bytes)) + weights)
    user = key // max(1, len(arrays.tied_bytes))
    tied_ptr = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(user, minlength=count), out=tied_ptr[1:])
    return PieceArrays(
        time=np.ascontiguousarray(pieces.time),
        weight=pieces.weight,
        next_ptr=pieces.next_ptr,
        next_of=pieces.next_of,
        before_ptr=pieces.before[0],
        before_of=pieces.before[1],
        maker=pieces.maker,
        reader_ptr=pieces.reader_ptr,
        reader_of=pieces.reader_of,
        makes_ptr=pieces.makes[0],
        makes_of=pieces.makes[1],
        reads_ptr=pieces.reads[0],
        reads_of=pieces.reads[1],
        wire=np.ascontiguousarray(pieces.transfer_time if flat else np.zeros(len(pieces.maker), np.int64)),
        row=pieces.row,
        transfer=np.ascontiguousarray(pieces.transfer),
        tied_ptr=tied_ptr,
        tied_of=(key % max(1, len(arrays.tied_bytes))).astype(np.int32),
        tied_bytes=arrays.tied_bytes,
        host=problem.host,
        flat=bool(flat),
        overlapped=problem.rules.communication == "overlapped",
        stage_limit=problem.stage_limit,
    )


def merge_freely(pieces: Pieces) -> Pieces | None:
    """Join what the reductions would join on the stage devices; what only hosts can run stays apart."""
    problem, stages = pieces.problem, list(pieces.stage_devices)
    if not stages or not pieces.flat or (pieces.transfer < 0).any():
        return None
    if not problem.host.any() and problem.rules.communication == "added" and not memory_may_bind(problem):
        return None  # the exact reductions did it all
    cost = problem.cost
    free = replace(
        problem,
        devices=tuple(msgspec.structs.replace(problem.devices[d], memory=None, reserve=0) for d in stages),
        cost=CostTable(cost.time[:, stages], cost.transfer[:, stages][:, :, stages], cost.transfer_row, cost.source),
        rules=msgspec.structs.replace(problem.rules, communication="added", stages=0),
        buses=(),
    )
    reduced = reduce_exactly(make_pieces(free))
    first = np.zeros(len(pieces.time), np.int64)
    first[pieces.of[::-1]] = np.arange(len(pieces.of))[::-1]
    group = _same_devices(pieces, reduced.of[first].astype(np.int64))
    coarse = merge(pieces, group, exact=False)
    fits = len(coarse.time) < len(pieces.time) and (coarse.time >= 0).any(axis=1).all()
    return coarse if fits else None


def _same_devices(pieces: Pieces, group: Ints) -> Ints:
    """Split groups in which not all can run on the same stage devices."""
    able = pieces.time[:, list(pieces.stage_devices)] >= 0
    kind = np.unique(able, axis=0, return_inverse=True)[1].reshape(-1)
    return np.unique(np.stack([group, kind], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
