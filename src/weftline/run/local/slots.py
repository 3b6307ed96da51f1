"""The ring of slots of one wire, seen from one process: values of requests, with their real shapes.

In: a `WireJob` and the memory of its maker. Out: `WireSlots`: a value is put into the slot of a request, or found
there. A slot has a header: nothing but "as planned", or type and shape, and where the bytes lie: in the slot, or in
room that was added when they did not fit. Text, sequences, optionals and maps travel in a packed form (msgpack, no
code). Simplified: room that became too small is not given back before the end; it doubles, so that is not much.
"""

from __future__ import annotations

import ctypes
from math import prod
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError, WeftlineError
from weftline.run.local.channel import SharedBlock
from weftline.run.local.layout import ELEMENTS, HEADER_BYTES, WireJob, stored_type

__all__ = ["PlacedTensor", "WireSlots", "pack_value", "unpack_value"]

AS_PLANNED, AS_HEADER, AS_PACKED = 0, 1, 2
_STATE, _ELEMENT, _OFFSET, _CAPACITY, _SIZE, _RANK, _DIMENSIONS = range(7)
MOST_DIMENSIONS = HEADER_BYTES // 8 - _DIMENSIONS
LEAST_ROOM = 2**16
_STORED = {number: stored_type(name) for name, number in ELEMENTS.items()}


class PlacedTensor(NamedTuple):
    """A tensor where it lies."""

    address: int
    element: int
    """Its type, as ONNX numbers them."""
    shape: tuple[int, ...]


class _Room(NamedTuple):
    """Bytes that a slot may use."""

    offset: int
    bytes: NDArray[np.uint8]


class WireSlots:
    """Both ends of a wire use one."""

    def __init__(self, wire: WireJob, block: SharedBlock) -> None:
        self.wire, self._block = wire, block
        begins = [wire.offset + slot * wire.stride for slot in range(wire.slots)]
        self._headers = [block.array(begin, (HEADER_BYTES // 8,), np.dtype(np.int64)) for begin in begins]
        self._flags = [memoryview(header.data).cast("B").cast("q") for header in self._headers]
        size = wire.stride - HEADER_BYTES
        self._rooms = [_Room(begin + HEADER_BYTES, block.window(begin + HEADER_BYTES, size)) for begin in begins]
        self._first = list(self._rooms)
        element = ELEMENTS.get(wire.dtype, 0)
        self._planned = [PlacedTensor(int(room.bytes.ctypes.data), element, wire.shape) for room in self._rooms]

    def planned(self, request: int) -> PlacedTensor:
        """Where a tensor of the planned shape is made; `fill` says that it is there."""
        return self._planned[request % self.wire.slots]

    def fill(self, request: int) -> None:
        """The tensor is where and as it was planned."""
        self._flags[request % self.wire.slots][_STATE] = AS_PLANNED

    def placed(self, request: int) -> PlacedTensor:
        """The tensor of a request."""
        slot = request % self.wire.slots
        if self._flags[slot][_STATE] == AS_PLANNED:
            return self._planned[slot]
        header = self._flags[slot]
        if header[_STATE] != AS_HEADER or not 0 <= header[_RANK] <= MOST_DIMENSIONS:
            raise WeftlineError(f"tensor {self.wire.name[:80]!r} arrived in another form than it should")
        shape = tuple(header[_DIMENSIONS : _DIMENSIONS + header[_RANK]])
        return PlacedTensor(int(self._room(slot).ctypes.data), header[_ELEMENT], shape)

    def put(self, request: int, found: PlacedTensor, size: int) -> None:
        """Copy a tensor of any shape from elsewhere in this process."""
        slot = request % self.wire.slots
        room = self._with_room(slot, size)
        if size:
            ctypes.memmove(room.bytes.ctypes.data, found.address, size)
        self._describe(slot, AS_HEADER, room, size, found.element, found.shape)

    def put_value(self, request: int, value: Any) -> None:
        """Copy whatever a session takes or makes."""
        slot, wire = request % self.wire.slots, self.wire
        if not isinstance(value, np.ndarray) or value.dtype.kind in "OUS" or wire.dtype not in ELEMENTS:
            data = pack_value(value)
            room = self._with_room(slot, len(data))
            room.bytes[: len(data)] = np.frombuffer(data, np.uint8)
            self._describe(slot, AS_PACKED, room, len(data), 0, ())
            return
        if value.shape == wire.shape and value.nbytes <= self._first[slot].bytes.size:
            at = self._first[slot].bytes[: value.nbytes]
            at.view(value.dtype).reshape(value.shape)[...] = value
            self._flags[slot][_STATE] = AS_PLANNED
            return
        whole = np.ascontiguousarray(value)
        self.put(request, PlacedTensor(int(whole.ctypes.data), ELEMENTS[wire.dtype], value.shape), whole.nbytes)

    def value(self, request: int) -> Any:
        """The value of a request; an array lies in the slot, so it is valid until that is free again."""
        slot = request % self.wire.slots
        header = self._flags[slot]
        if header[_STATE] == AS_PACKED:
            return unpack_value(self._room(slot)[: header[_SIZE]].tobytes())
        placed = self.placed(request)
        stored = _STORED.get(placed.element)
        if stored is None:
            raise WeftlineError(f"tensor {self.wire.name[:80]!r} has elements of an unknown type")
        room = self._first[slot].bytes if header[_STATE] == AS_PLANNED else self._room(slot)
        size = prod(placed.shape) * stored.itemsize
        return room[:size].view(stored).reshape(placed.shape)

    def _with_room(self, slot: int, size: int) -> _Room:
        """Room for so many bytes: what the slot has, or twice as much as that, or more."""
        room = self._rooms[slot]
        if size > room.bytes.size:
            more = max(LEAST_ROOM, 1 << (size - 1).bit_length())
            try:
                offset = self._block.grow(more)
            except WeftlineError as error:
                raise WeftlineError(f"tensor {self.wire.name[:80]!r} is too large: {error}") from error
            room = self._rooms[slot] = _Room(offset, self._block.window(offset, more))
        return room

    def _describe(self, slot: int, state: int, room: _Room, size: int, element: int, shape: tuple[int, ...]) -> None:
        if len(shape) > MOST_DIMENSIONS:
            raise InputError(f"has {len(shape)} dimensions", where=f"tensor {self.wire.name[:80]!r}")
        words = (state, element, room.offset, room.bytes.size, size, len(shape), *shape)
        self._headers[slot][: len(words)] = words

    def _room(self, slot: int) -> NDArray[np.uint8]:
        """The bytes of a slot, where its header says."""
        offset, capacity, size = (self._flags[slot][word] for word in (_OFFSET, _CAPACITY, _SIZE))
        room = self._rooms[slot]
        if room.offset != offset or room.bytes.size != capacity:
            room = self._rooms[slot] = _Room(offset, self._block.window(offset, capacity))
        if not 0 <= size <= room.bytes.size:
            raise WeftlineError("what a process says of its memory does not fit")
        return room.bytes


def pack_value(value: Any) -> bytes:
    """A tensor, text, None, or a list or map of such -> bytes."""
    return msgspec.msgpack.encode(_packed(value))


def unpack_value(data: bytes) -> Any:
    """And back."""
    return _unpacked(msgspec.msgpack.decode(data))


def _packed(value: Any) -> list[Any]:
    if value is None:
        return ["none"]
    if isinstance(value, list | tuple):
        return ["sequence", *map(_packed, value)]
    if isinstance(value, dict):
        return ["map", *([key, _packed(found)] for key, found in value.items())]
    array = np.asarray(value)
    if array.dtype.kind in "OUS":
        return ["text", list(array.shape), [str(text) for text in array.reshape(-1).tolist()]]
    return ["tensor", array.dtype.str, list(array.shape), np.ascontiguousarray(array).tobytes()]


def _unpacked(packed: list[Any]) -> Any:
    kind, *rest = packed
    if kind == "none":
        return None
    if kind == "sequence":
        return [_unpacked(part) for part in rest]
    if kind == "map":
        return {key: _unpacked(found) for key, found in rest}
    if kind == "text":
        return np.array(rest[1], object).reshape(rest[0])
    return np.frombuffer(bytearray(rest[2]), np.dtype(rest[0])).reshape(rest[1])
