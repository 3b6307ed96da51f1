"""Weights of a split model: the large ones stand once in one file beside the segments, or stay where they are.

In: TensorProtos, inside the model file or in files beside it, which are hostile until checked: a path inside the
model's folder, no links of either kind on the way, a regular file, long enough. Out: the same TensorProtos, referring
to `weights.bin`, or to where they were. Files are copied range by range (holes stay holes), never read as a whole.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from types import TracebackType
from typing import Any, BinaryIO

from weftline.errors import InputError
from weftline.files import Replacement
from weftline.importers.onnx.call import tensor_type

__all__ = ["WEIGHTS", "WeightStore", "open_weights"]

WEIGHTS = "weights.bin"
INLINE_BYTES = 1024
"""Smaller weights stay in the segments: shapes and axes must be there when a session is made."""
INLINE_LIST_BYTES = 2**20
"""Lists of whole numbers up to this size stay, too: they may be lengths, sizes or axes."""
_WHOLE = (6, 7)  # TensorProto.INT32, INT64
PAGE_BYTES, WEIGHT_ALIGNMENT, CHUNK_BYTES = 4096, 64, 8 * 2**20
_TYPED = {"float_data": ("<f4", 1), "int64_data": ("<i8", 7), "double_data": ("<f8", 11), "int32_data": ("<i4", 6)}
"""Field of a TensorProto -> its element, where the field holds nothing else than such elements of type `n`."""


def _plain_parts(location: str) -> tuple[str, ...]:
    parts = PurePosixPath(location).parts
    if not parts or PurePosixPath(location).is_absolute() or ".." in parts or set(location) & {"\0", "\\", ":"}:
        where = f"external data {location[:200]!r}"
        raise InputError("must be a plain relative path inside the model's folder", where=where)
    return parts


@contextmanager
def open_weights(folder: Path, location: str) -> Iterator[int]:
    """A descriptor of a file of weights, opened without following any link on its way down from the model's folder."""
    where, parts = f"external data {location[:200]!r}", _plain_parts(location)
    opened: list[int] = []
    try:
        opened.append(os.open(folder, os.O_RDONLY | os.O_DIRECTORY))
        for part in parts[:-1]:
            opened.append(os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=opened[-1]))
        _require_plain(os.stat(parts[-1], dir_fd=opened[-1], follow_symlinks=False), where)
        opened.append(os.open(parts[-1], os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=opened[-1]))
        _require_plain(os.fstat(opened[-1]), where)
        yield opened[-1]
    except OSError as error:
        hint = (
            "weights must lie in the model's folder, in real folders and files; a zoo model made --no-weights has none"
        )
        raise InputError(f"cannot be read: {error.strerror or error}", where=where, hint=hint) from error
    finally:
        for descriptor in reversed(opened):
            os.close(descriptor)


def _require_plain(status: os.stat_result, where: str) -> None:
    if not stat.S_ISREG(status.st_mode):
        raise InputError("is a link, a folder or a device, not a regular file", where=where, hint="copy it there")
    if status.st_nlink > 1:
        raise InputError("has several names (hard links), so it may be a file from elsewhere", where=where)


class WeightStore:
    """Where the segments' weights go. A context: `weights.bin` is there once it ends without an error.

    `in_place`: what lies beside the model stays there, and what lies in it goes into the segments, for ONNX Runtime
    looks for all files of a segment in one folder.
    """

    def __init__(self, source: Path, target: Path, in_place: bool) -> None:
        self.source, self.target, self.in_place = source, target, in_place
        self._new: Replacement | None = None
        self._kept: dict[tuple[str, int, int], int] = {}
        self._moved: dict[str, Any] = {}

    def __enter__(self) -> WeightStore:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._new is None:
            return
        if kind is not None:
            self._new.__exit__(kind, error, at)
            return
        try:
            with self._new:
                self._new.file.truncate()  # at the current end: a hole at the end has no bytes of its own yet
        except OSError as failed:
            raise _unwritable(self.target, failed) from failed

    def moved(self, name: str, tensor: Any) -> Any:
        """An initializer of the outermost graph as the segments hold it; the same one each time it is asked for."""
        if name not in self._moved:
            self._moved[name] = self._move(name, tensor)
        return self._moved[name]

    def relocate(self, tensor: Any) -> None:
        """Let a TensorProto refer to where its bytes will be, if they are not in it."""
        if tensor.data_location == tensor.EXTERNAL:
            self._refer(tensor, *self._outside(tensor))

    def _move(self, name: str, tensor: Any) -> Any:
        made = type(tensor)()
        if tensor.data_location == tensor.EXTERNAL:
            made.CopyFrom(tensor)
            self.relocate(made)
        elif self.in_place or (data := _bytes_of(tensor)) is None or len(data) < _inline(tensor):
            made.CopyFrom(tensor)
        else:
            made.data_type = tensor.data_type
            made.dims.extend(tensor.dims)
            self._refer(made, WEIGHTS, self._append(data), len(data))
        made.name = name
        return made

    def _outside(self, tensor: Any) -> tuple[str, int, int]:
        """(location, offset, length) for a tensor that lies in another file."""
        entries = {str(entry.key): str(entry.value) for entry in tensor.external_data}
        location, where = entries.get("location", ""), f"tensor {str(tensor.name)[:80]!r}"
        try:
            offset = int(entries.get("offset", "0"))
            length = tensor_type(str(tensor.name), tensor.data_type, tensor.dims).bytes
            if int(entries.get("length", length)) < length:
                raise InputError(f"its shape needs {length} bytes, its external data has fewer", where=where)
        except ValueError:
            raise InputError("its external data has an offset or length that is no number", where=where) from None
        _plain_parts(location)
        if not self.in_place and (self.source / location).resolve() == (self.target / WEIGHTS).resolve():
            hint = "name another folder"
            raise InputError(f"its weights, {location[:200]!r}, would be overwritten", where=where, hint=hint)
        key = (location, offset, length)
        if key not in self._kept:
            with open_weights(self.source, location) as descriptor:
                if not 0 <= offset <= offset + length <= os.fstat(descriptor).st_size:
                    raise InputError(f"its {length} bytes at {offset} are not all in {location[:200]!r}", where=where)
                self._kept[key] = offset if self.in_place else self._append_range(descriptor, offset, length)
        return location if self.in_place else WEIGHTS, self._kept[key], length

    @staticmethod
    def _refer(tensor: Any, location: str, offset: int, length: int) -> None:
        del tensor.external_data[:]
        tensor.data_location = tensor.EXTERNAL
        for key, value in (("location", location), ("offset", offset), ("length", length)):
            tensor.external_data.add(key=key, value=str(value))

    @property
    def _file(self) -> BinaryIO:
        assert self._new is not None
        return self._new.file

    def _aligned(self, length: int) -> int:
        if self._new is None:
            self._new = Replacement(self.target / WEIGHTS)
        step = PAGE_BYTES if length >= PAGE_BYTES else WEIGHT_ALIGNMENT
        return self._new.file.seek(-(-self._new.file.tell() // step) * step)

    def _append(self, data: bytes) -> int:
        try:
            offset = self._aligned(len(data))
            self._file.write(data)
        except OSError as error:
            raise _unwritable(self.target, error) from error
        return offset

    def _append_range(self, descriptor: int, offset: int, length: int) -> int:
        try:
            start = self._aligned(length)
            for begin, end in _data_in(descriptor, offset, offset + length):
                self._file.seek(start + begin - offset)
                for at in range(begin, end, CHUNK_BYTES):
                    piece = os.pread(descriptor, min(CHUNK_BYTES, end - at), at)
                    if len(piece) < min(CHUNK_BYTES, end - at):
                        raise InputError("became shorter while it was read", where="external data")
                    self._file.write(piece)
            self._file.seek(start + length)
        except OSError as error:
            raise _unwritable(self.target, error) from error
        return start


def _data_in(descriptor: int, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """The pieces of a range that are not holes."""
    while begin < end:
        try:
            first = min(os.lseek(descriptor, begin, os.SEEK_DATA), end)
            last = min(os.lseek(descriptor, first, os.SEEK_HOLE), end)
        except OSError as error:
            if error.errno == errno.ENXIO:  # nothing but a hole up to the end of the file
                return
            first, last = begin, end  # a file system that does not know
        if first < last:
            yield first, last
        begin = last


def _bytes_of(tensor: Any) -> bytes | None:
    """The bytes of a tensor in the form of external data; None where that is not worth the while."""
    import numpy as np

    if tensor.HasField("raw_data"):
        return bytes(tensor.raw_data)
    for field, (element, data_type) in _TYPED.items():
        if len(getattr(tensor, field)) and tensor.data_type == data_type:
            return np.array(getattr(tensor, field), element).tobytes()
    return None


def _inline(tensor: Any) -> int:
    """Bytes below which a tensor stays in the segments."""
    return INLINE_LIST_BYTES if len(tensor.dims) <= 1 and tensor.data_type in _WHOLE else INLINE_BYTES


def _unwritable(folder: Path, error: OSError) -> InputError:
    return InputError(f"cannot be written: {error.strerror or error}", where=str(folder / WEIGHTS))
