"""The flat arrays of `Pieces` that the kernels of this room read, made once per pieces."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.coarsen import Pieces
from weftline.graph.arrays import Indices, Ints

__all__ = ["Board", "make_board"]


class Board(NamedTuple):
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


def make_board(pieces: Pieces) -> Board:
    """The arrays of some pieces (cached on them)."""
    found = pieces.__dict__.get("_board")
    if found is None:
        found = _build(pieces)
        pieces.__dict__["_board"] = found
    return found


def _build(pieces: Pieces) -> Board:
    problem, arrays = pieces.problem, pieces.problem.graph.arrays
    count, flat = len(pieces.time), pieces.flat and not (pieces.transfer < 0).any()
    weights = np.repeat(np.arange(len(arrays.tied_bytes)), np.diff(arrays.tied_ptr))
    key = np.unique(pieces.of[arrays.tied_of].astype(np.int64) * max(1, len(arrays.tied_bytes)) + weights)
    user = key // max(1, len(arrays.tied_bytes))
    tied_ptr = np.zeros(count + 1, np.int32)
    np.cumsum(np.bincount(user, minlength=count), out=tied_ptr[1:])
    return Board(
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
