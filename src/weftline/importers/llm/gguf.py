"""Headers of GGUF files: keys with their values, and which tensors of which type there are.

In: a path, or the parts of a split file. Out: a `GgufHeader`; the data are never touched. Simplified: values of more
than a few thousand elements (vocabularies) are skipped, only their lengths are kept; the byte order is the little one.
Every length is compared with what is left of the file before it is used.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from weftline.errors import InputError, no_such_file
from weftline.files import opened
from weftline.importers.llm.types import TYPES_BY_ID

__all__ = ["GgufHeader", "GgufTensor", "read_gguf_header"]

MOST_HEADER_BYTES = 64 * 2**20
MOST_TENSORS, MOST_KEYS, MOST_STRINGS, MOST_PARTS = 2**16, 2**14, 2**21, 512
MOST_KEPT_ELEMENTS, MOST_KEPT_LETTERS = 4096, 4096
_LEAST_TENSOR_BYTES, _LEAST_KEY_BYTES, _MOST_NAME_BYTES = 33, 14, 63
_CHUNK_BYTES = 2**20
_STRING, _ARRAY = 8, 9
_SCALARS = {  # number of the type: format of struct
    **{0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f"},
    **{7: "<?", 10: "<Q", 11: "<q", 12: "<d"},
}


class GgufTensor(msgspec.Struct, frozen=True):
    """One tensor of the file."""

    name: str
    shape: tuple[int, ...]
    """Innermost first."""
    type: str
    bytes: int
    offset: int
    """From the first byte of the data."""


class GgufHeader(msgspec.Struct, frozen=True):
    """What stands before the data."""

    values: Mapping[str, Any]
    """Numbers, texts, and tuples of them."""
    lengths: Mapping[str, int]
    """Elements of every array, also of those that were skipped."""
    tensors: tuple[GgufTensor, ...]
    notes: tuple[str, ...] = ()


def read_gguf_header(path: Path) -> GgufHeader:
    """The header of a file, or of all parts of a split one of which `path` is any."""
    header = _read_one(path)
    count = header.values.get("split.count", 0)
    if not isinstance(count, int) or count < 2:
        return header
    if count > MOST_PARTS:
        raise InputError(f"split.count is {count}, more than {MOST_PARTS}", where=str(path))
    number = header.values.get("split.no")
    end = f"-{number + 1:05d}-of-{count:05d}.gguf" if isinstance(number, int) else ""
    if not end or not path.name.endswith(end):
        what = f"is part {number} of {count}, but its name does not end in {end or '-00001-of-0000N.gguf'}"
        raise InputError(what, where=str(path), hint="give split files the names that they were published with")
    stem = path.name.removesuffix(end)
    parts = [path.with_name(f"{stem}-{i + 1:05d}-of-{count:05d}.gguf") for i in range(count)]
    return _joined([header if part == path else _read_part(part, i, count) for i, part in enumerate(parts)], path)


def _read_part(path: Path, number: int, count: int) -> GgufHeader:
    if not path.exists():
        raise no_such_file(path, hint=f"a split file is read whole: all {count} parts stand in one folder")
    header = _read_one(path)
    if header.values.get("split.no") != number or header.values.get("split.count") != count:
        raise InputError(f"is not part {number + 1} of {count} as its name says", where=str(path))
    return header


def _joined(parts: list[GgufHeader], path: Path) -> GgufHeader:
    tensors = tuple(tensor for part in parts for tensor in part.tensors)
    if len({tensor.name for tensor in tensors}) < len(tensors) or len(tensors) > MOST_TENSORS:
        raise InputError("the parts of this split file hold the same tensors", where=str(path))
    told = parts[0].values.get("split.tensors.count")
    notes = [note for part in parts for note in part.notes]
    if isinstance(told, int) and told != len(tensors):
        raise InputError(f"its parts hold {len(tensors)} tensors, not {told} as they say", where=str(path))
    return GgufHeader(parts[0].values, parts[0].lengths, tensors, tuple(notes))


def _read_one(path: Path) -> GgufHeader:
    with opened(path) as (file, size):
        return _Reader(file, size, str(path)).header()


class _Reader:
    """A file from its first byte on, loaded as far as it has been asked for."""

    def __init__(self, file: BinaryIO, size: int, where: str) -> None:
        self.file, self.size, self.where = file, size, where
        self.buffer = bytearray()
        self.at = 0
        self.strings = 0

    def header(self) -> GgufHeader:
        version = self._version()
        tensors, keys = self._count("tensors", MOST_TENSORS), self._count("keys", MOST_KEYS)
        self._room(tensors * _LEAST_TENSOR_BYTES + keys * _LEAST_KEY_BYTES, "its tensors and keys")
        values: dict[str, Any] = {"GGUF.version": version}
        lengths: dict[str, int] = {}
        for _ in range(keys):
            key = self._text("the name of a key")
            if not key or key in values:
                raise self._wrong(f"the key {key!r} is {'there twice' if key else 'empty'}")
            self._value(key, values, lengths)
        alignment = values.get("general.alignment", 32)
        if not isinstance(alignment, int) or not 0 < alignment <= 2**20 or alignment & (alignment - 1):
            raise self._wrong(f"general.alignment is {alignment!r}, not a power of two")
        found = self._tensors(tensors, alignment)
        start = -(-self.at // alignment) * alignment
        data = sum(-(-tensor.bytes // alignment) * alignment for tensor in found)
        notes: tuple[str, ...] = ()
        if start + data - alignment >= self.size and found:
            notes = (f"{self.where} holds {self.size:,} of the {start + data:,} bytes that its header announces",)
        return GgufHeader(values, lengths, found, notes)

    def _version(self) -> int:
        if bytes(self._take(4, "its first four bytes")) != b"GGUF":
            raise self._wrong("does not begin with GGUF")
        version = int(self._number("<I", "its version"))
        if version & 0xFFFF == 0:
            raise self._wrong("has the byte order of big-endian machines", "convert it with gguf_convert_endian")
        if version not in (2, 3):
            raise self._wrong(f"is GGUF of version {version}", "version 2 and 3 can be read; convert the model again")
        return version

    def _count(self, what: str, most: int) -> int:
        count = int(self._number("<Q", f"its number of {what}"))
        if count > most:
            raise self._wrong(f"announces {count} {what}, more than {most}")
        return count

    def _value(self, key: str, values: dict[str, Any], lengths: dict[str, int]) -> None:
        kind = int(self._number("<I", f"the type of {key!r}"))
        if kind == _STRING:
            values[key] = self._text(f"the text of {key!r}")
        elif kind == _ARRAY:
            inner = int(self._number("<I", f"the type of {key!r}"))
            count = int(self._number("<Q", f"the length of {key!r}"))
            lengths[key] = count
            if inner == _STRING:
                self._skip_strings(key, count)
            else:
                kept = self._array(key, inner, count)
                values[key] = kept if count <= MOST_KEPT_ELEMENTS else ()
        else:
            values[key] = self._number(self._scalar(kind, key), f"the value of {key!r}")

    def _scalar(self, kind: int, key: str) -> str:
        if kind == _ARRAY:
            raise self._wrong(f"{key!r} is an array of arrays")
        if kind not in _SCALARS:
            raise self._wrong(f"{key!r} has the unknown type {kind}")
        return _SCALARS[kind]

    def _array(self, key: str, kind: int, count: int) -> tuple[Any, ...]:
        form = self._scalar(kind, key)
        data = self._take(count * struct.calcsize(form), f"the {count} elements of {key!r}")
        return struct.unpack(f"<{count}{form[1]}", data) if count <= MOST_KEPT_ELEMENTS else ()

    def _skip_strings(self, key: str, count: int) -> None:
        self.strings += count
        if self.strings > MOST_STRINGS:
            raise self._wrong(f"has more than {MOST_STRINGS} texts in arrays, at {key!r}")
        self._room(8 * count, f"the {count} texts of {key!r}")
        read: Callable[..., tuple[int]] = struct.Struct("<Q").unpack_from
        at, loaded, what = self.at, len(self.buffer), f"the texts of {key!r}"
        for _ in range(count):
            if at + 8 > loaded:
                self._load(at + 8, what)
                loaded = len(self.buffer)
            at += 8 + read(self.buffer, at)[0]
            if at > self.size:
                raise self._short(what)
        self._load(at, what)
        self.at = at

    def _tensors(self, count: int, alignment: int) -> tuple[GgufTensor, ...]:
        found: list[GgufTensor] = []
        names: set[str] = set()
        offset = 0
        for _ in range(count):
            tensor = self._tensor()
            if tensor.name in names:
                raise self._wrong(f"the tensor {tensor.name!r} is there twice")
            if tensor.offset != offset:
                raise self._wrong(f"the tensor {tensor.name!r} begins at {tensor.offset}, not at {offset}")
            names.add(tensor.name)
            found.append(tensor)
            offset += -(-tensor.bytes // alignment) * alignment
        return tuple(found)

    def _tensor(self) -> GgufTensor:
        name = self._text("the name of a tensor")
        if not name or len(name) > _MOST_NAME_BYTES:
            raise self._wrong(f"a tensor has a name of {len(name)} letters: {name[:80]!r}")
        dimensions = int(self._number("<I", f"the dimensions of {name!r}"))
        if not 1 <= dimensions <= 4:
            raise self._wrong(f"the tensor {name!r} has {dimensions} dimensions; 1 to 4 are possible")
        shape = struct.unpack(f"<{dimensions}Q", self._take(8 * dimensions, f"the shape of {name!r}"))
        kind, offset = struct.unpack("<IQ", self._take(12, f"the type of {name!r}"))
        if kind not in TYPES_BY_ID:
            raise self._wrong(f"the tensor {name!r} has the unknown type {kind}", "it may be newer than weftline")
        type, elements = TYPES_BY_ID[kind], 1
        for size in shape:
            elements *= size
        if not 0 < elements < 2**63:
            raise self._wrong(f"the tensor {name!r} has the impossible shape {shape}")
        if shape[0] % type.block:
            what = (
                f"rows of the tensor {name!r} have {shape[0]} elements, no multiple of the {type.block} of {type.name}"
            )
            raise self._wrong(what)
        return GgufTensor(name, shape, type.name, elements // type.block * type.bytes, offset)

    def _text(self, what: str) -> str:
        length = int(self._number("<Q", what))
        data = self._take(length, what)
        return data[:MOST_KEPT_LETTERS].decode("utf-8", errors="replace")

    def _number(self, form: str, what: str) -> int | float | bool:
        found: int | float | bool = struct.unpack(form, self._take(struct.calcsize(form), what))[0]
        return found

    def _take(self, count: int, what: str) -> bytearray:
        end = self.at + count
        self._load(end, what)
        found = self.buffer[self.at : end]
        self.at = end
        return found

    def _room(self, count: int, what: str) -> None:
        if self.at + count > self.size:
            raise self._short(what)

    def _load(self, end: int, what: str) -> None:
        """Have the file in memory up to `end`."""
        if end > self.size:
            raise self._short(what)
        if end > MOST_HEADER_BYTES:
            raise self._wrong(f"has a header of more than {MOST_HEADER_BYTES >> 20} MiB")
        while len(self.buffer) < end:
            data = self.file.read(max(_CHUNK_BYTES, end - len(self.buffer)))
            if not data:
                raise self._short(what)
            self.buffer += data

    def _short(self, what: str) -> InputError:
        return self._wrong(f"ends within {what}", "download it again: it is cut off or damaged")

    def _wrong(self, what: str, hint: str = "") -> InputError:
        return InputError(what, where=self.where, hint=hint)
