"""Does a file begin like an ONNX model? In: its first bytes. Out: yes or no, from the protobuf fields alone.

It does not import onnx, so that looking at other formats stays quick.
"""

from __future__ import annotations

__all__ = ["looks_like_onnx"]

_VARINT, _BYTES = 0, 2

# Field number of ModelProto -> wire type.
_FIELDS = {1: _VARINT, 2: _BYTES, 3: _BYTES, 4: _BYTES, 5: _VARINT, 6: _BYTES, 7: _BYTES, 8: _BYTES, 14: _BYTES}
_FIELDS |= {20: _BYTES, 25: _BYTES, 26: _BYTES}
_IR_VERSION = 1
_TEXTS = (2, 3, 4, 6)
_MAX_IR_VERSION = 1000


def looks_like_onnx(head: bytes) -> bool:
    """Walk the fields of a ModelProto: all must be known, and a small ir_version must be among them."""
    place = 0
    seen: set[int] = set()
    while place < len(head):
        tag, place = _varint(head, place)
        value, place = _varint(head, place)
        if place > len(head):
            break  # the head ends inside this field's length
        number = tag >> 3
        if number not in _FIELDS or _FIELDS[number] != tag & 7:
            return False
        if number == _IR_VERSION and not 1 <= value <= _MAX_IR_VERSION:
            return False
        if number in _TEXTS and not _is_text(head[place : place + value], cut=place + value > len(head)):
            return False
        seen.add(number)
        place += value if _FIELDS[number] == _BYTES else 0
    return _IR_VERSION in seen and len(seen) > 1


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Value and the place after it, which lies beyond the end if the number is cut off."""
    value = 0
    for shift, byte in enumerate(data[place : place + 10]):
        value |= (byte & 127) << (7 * shift)
        if byte < 128:
            return value, place + shift + 1
    return value, max(place + 10, len(data) + 1)


def _is_text(data: bytes, cut: bool) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return cut and error.start >= len(data) - 3  # the last character may have lost its end
    return True
