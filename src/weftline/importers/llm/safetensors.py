"""Headers of safetensors files: names, types and shapes of tensors, and the index of a checkpoint in several files.

In: a path. Out: `StoredTensor`s; the data are never touched. Simplified: files that hold more tensors than any that is
published are refused; that the data are all there is not asked.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import msgspec

from weftline.errors import InputError
from weftline.files import opened, read_limited

__all__ = ["StoredTensor", "read_safetensors_header", "read_weight_map"]

MOST_HEADER_BYTES, MOST_INDEX_BYTES = 8 * 2**20, 64 * 2**20
MOST_TENSORS, MOST_INDEXED, MOST_FILES = 2**16, 2**19, 2000
_BITS = {
    **dict.fromkeys(("F4", "F4_E2M1"), 4),
    **dict.fromkeys(("F6_E3M2", "F6_E2M3"), 6),
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16),
    **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64),
}


class StoredTensor(msgspec.Struct, frozen=True):
    """A tensor as a file holds it."""

    name: str
    dtype: str
    """As the format calls it: BF16, F8_E4M3 ..."""
    shape: tuple[int, ...]
    """Outermost first."""
    bytes: int


class _Entry(msgspec.Struct, frozen=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


class _Index(msgspec.Struct, frozen=True):
    weight_map: dict[str, str]
    metadata: dict[str, Any] = {}


def read_safetensors_header(path: Path) -> tuple[StoredTensor, ...]:
    """All tensors of one file, in the order of their data."""
    where = str(path)
    with opened(path) as (file, size):
        first = file.read(8)
        if len(first) < 8:
            raise InputError("is no safetensors file: it is shorter than 8 bytes", where=where)
        if first == b"version ":
            raise InputError("is a pointer of git-lfs, not the file itself", where=where, hint="run: git lfs pull")
        length = struct.unpack("<Q", first)[0]
        if length > min(size - 8, MOST_HEADER_BYTES):
            limit = f"more than {MOST_HEADER_BYTES >> 20} MiB" if length <= size - 8 else f"but has {size}"
            what = f"announces a header of {length} bytes, {limit}"
            raise InputError(what, where=where, hint="is it a safetensors file, and whole?")
        text = file.read(length)
    entries = _entries(text, where)
    found: list[StoredTensor] = []
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: item[1].data_offsets):
        found.append(_stored(name, entry, end, where))
        end = entry.data_offsets[1]
    return tuple(found)


def _entries(text: bytes, where: str) -> dict[str, _Entry]:
    if not text.startswith(b"{") or text.count(b":") > 5 * MOST_TENSORS + 1000:
        what = "has no header in JSON" if not text.startswith(b"{") else f"holds more than {MOST_TENSORS} tensors"
        raise InputError(what, where=where, hint="is it a safetensors file?")
    try:
        raw = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        raw.pop("__metadata__", None)
        return {name: msgspec.json.decode(entry, type=_Entry) for name, entry in raw.items()}
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"has a header that cannot be read: {error}", where=where) from error


def _stored(name: str, entry: _Entry, end: int, where: str) -> StoredTensor:
    """An entry, checked; the data of the one before it end at `end`."""
    bits, count = _BITS.get(entry.dtype), 1
    if bits is None:
        raise InputError(f"the tensor {name[:200]!r} has the unknown type {entry.dtype[:50]!r}", where=where)
    if len(entry.shape) > 16 or any(not 0 <= size < 2**63 for size in entry.shape):
        raise InputError(f"the tensor {name[:200]!r} has an impossible shape", where=where)
    for size in entry.shape:
        count *= size
    begin, last = entry.data_offsets
    if count >= 2**63 or last - begin != -(-count * bits // 8) or begin != end:
        right = f"{end} to {end + -(-count * bits // 8)}"
        what = f"the tensor {name[:200]!r} is said to lie at {begin} to {last}, not at {right}"
        raise InputError(what, where=where, hint="download it again: it is damaged")
    return StoredTensor(name, entry.dtype, tuple(entry.shape), last - begin)


def read_weight_map(path: Path) -> dict[str, str]:
    """Tensor -> file, of a `model.safetensors.index.json`; files are names in its own folder."""
    text = read_limited(path, MOST_INDEX_BYTES)
    if text.count(b":") > MOST_INDEXED:
        raise InputError(f"names more than {MOST_INDEXED} tensors", where=str(path))
    try:
        found = msgspec.json.decode(text, type=_Index).weight_map
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InputError(f"is no index of safetensors files: {error}", where=str(path)) from error
    files = set(found.values())
    if len(files) > MOST_FILES:
        raise InputError(f"names {len(files)} files, more than {MOST_FILES}", where=str(path))
    for name in files:
        plain = name == Path(name).name and not any(mark in name for mark in ("\\", "\0")) and name[:1] != "."
        if not plain or not 0 < len(name.encode("utf-8", "replace")) < 256:
            raise InputError(f"names the file {name[:200]!r}, which is not in its own folder", where=str(path))
    return found
