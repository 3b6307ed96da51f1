"""Files that are read up to a limit, or written whole or not at all: temporary file beside it, fsync, rename.

Only regular files are ever replaced, and none that is `protected` because it is being read.

And `other_kind`: what a file is that was given for something else.
"""

from __future__ import annotations

import errno
import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex

from weftline.arguments import a_path
from weftline.errors import InputError

__all__ = ["check_writable", "is_stdout", "other_kind", "protect", "protected", "read_limited", "write_atomically"]

_LOCKS = sys.platform != "win32"
if sys.platform != "win32":
    import fcntl
_SLOTS = 64
"""Names for temporary files of one file: so many can write it at once, and no more are ever left by killed ones."""

_FORMAT = re.compile(rb'"format"\s*:\s*"weftline-(plan|schedule|costs|graph)"')
_FORMATS = {
    b"plan": "a weftline plan",
    b"schedule": "a weftline schedule",
    b"costs": "a file of costs",
    b"graph": "a model as weftline JSON",
}
_CLUSTER = re.compile(rb"^[ \t]*\[\[?[ \t]*(device|link)[ \t]*\]", re.MULTILINE)
_ONNX = re.compile(rb"\x08[\x03-\x20][\x12-\x3a]")
_MODELS = ("a model as weftline JSON", "an OpenVINO model", "an ONNX model")
_FIRST, _HEAD = 400, 2**16
"""Bytes in which the format of a JSON file stands, and in which the tables of a cluster file begin."""


def other_kind(head: bytes, wanted: str) -> str:
    """What to say about a file that begins so and is not `wanted`; empty if it looks like that, or like nothing."""
    found = _kind(head[:_HEAD].removeprefix(b"\xef\xbb\xbf").lstrip())
    same = not found or found == wanted or (wanted == "a model" and found in _MODELS)
    return "" if same else f"this is {found}, not {wanted}"


def _kind(head: bytes) -> str:
    if head.startswith(b"{"):
        found = _FORMAT.search(head[:_FIRST])
        return _FORMATS[found[1]] if found else ""
    if head.startswith(b"<"):
        return "an OpenVINO model" if b"<net " in head[:_FIRST] and b"<layers" in head else ""
    if _ONNX.match(head):
        return "an ONNX model"
    return "a cluster file" if b"\0" not in head and _CLUSTER.search(head) else ""


def write_atomically(path: Path | str, data: bytes | Iterable[bytes]) -> None:
    """Write a file that is never seen half-written; if anything fails, what was there before stays.

    A process that is killed leaves its temporary file, which the next writer of the same file takes over. Behind a
    symbolic link the file that it leads to is replaced. `-`, pipes and `/dev/null` are written to directly.
    """
    path = path if isinstance(path, Path) else Path(path) if isinstance(path, str) else a_path(path, "path")
    parts = [data] if isinstance(data, bytes) else data
    try:
        if is_stdout(path):
            sys.stdout.flush()
            sys.stdout.buffer.writelines(parts)
            sys.stdout.buffer.flush()
            return
        check_writable(path)
        if _is_stream(path):
            with path.open("wb") as stream:
                stream.writelines(parts)
            return
        path = Path(os.path.realpath(path)) if path.is_symlink() else path
        temporary, descriptor = _temporary(path)
        with os.fdopen(descriptor, "wb") as file:
            try:
                file.writelines(parts)
                file.flush()
                os.fsync(file.fileno())
                if not _LOCKS:
                    file.close()  # elsewhere an open file cannot be renamed
                temporary.replace(path)
            except BaseException:  # removed while it is locked: afterwards it may be another writer's
                with suppress(OSError):
                    if not _LOCKS:
                        file.close()
                    temporary.unlink(missing_ok=True)
                raise
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise InputError(f"cannot be written: {getattr(error, 'strerror', '') or error}", where=str(path)) from error


_STDOUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")
_guards: list[set[tuple[int, int] | str]] = []
"""Inside each `protected`: files that must not be replaced, by device and number, or by name where nobody may look."""


def is_stdout(path: Path | str) -> bool:
    """Whether a path to write to means what this process prints."""
    return str(path) in _STDOUT


def _is_stream(path: Path) -> bool:
    """A pipe, or the device that swallows everything."""
    return path.is_fifo() or (path.exists() and not path.is_file() and path.samefile(os.devnull))


def check_writable(path: Path) -> None:
    """An `InputError` where a file could not be written, or would be lost: ask before the work begins."""
    if is_stdout(path):
        return
    try:
        if path.exists():
            if path.is_dir():
                raise InputError("is a folder, not a file to write", where=str(path))
            if not path.is_file() and not _is_stream(path):
                raise InputError("is not a regular file, so it is not replaced", where=str(path))
            about = path.stat()
            known = {(about.st_dev, about.st_ino), os.path.abspath(path), os.path.realpath(path)}  # noqa: PTH100
            if any(not guard.isdisjoint(known) for guard in _guards):
                raise InputError("is also what is read; write to another file", where=str(path))
        elif not path.parent.is_dir():
            raise InputError("cannot be written: No such file or directory", where=str(path))
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise InputError(f"cannot be written: {getattr(error, 'strerror', '') or error}", where=str(path)) from error


def protect(path: Path | str, *, look: bool = True) -> None:
    """Nobody writes over this file before `protected` ends; without a look at it only its name counts."""
    if not _guards:
        return
    if not look:
        _guards[-1].add(os.path.abspath(path))  # noqa: PTH100
        return
    with suppress(OSError, ValueError):
        about = Path(path).stat()
        if stat.S_ISREG(about.st_mode):
            _guards[-1].add((about.st_dev, about.st_ino))


@contextmanager
def protected(paths: Iterable[Path | str]) -> Iterator[None]:
    """Inside, files that are read are not written over, under whatever name."""
    _guards.append(set())
    try:
        for path in paths:
            protect(path)
        yield
    finally:
        _guards.pop()


def _temporary(path: Path) -> tuple[Path, int]:
    """A temporary file beside a path, empty, and open for writing; whoever holds its lock may use it."""
    stem = f".{path.name[:80]}"
    for slot in range(_SLOTS if _LOCKS else 0):
        place = path.with_name(f"{stem}.{slot}.tmp")
        try:
            descriptor = os.open(place, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.EACCES) and os.path.lexists(place):
                continue  # something that is none of ours
            raise
        try:
            if _is_ours(descriptor, place):
                os.ftruncate(descriptor, 0)
                return place, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    place = path.with_name(f"{stem}.{token_hex(8)}.tmp")
    return place, os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666)


def _is_ours(descriptor: int, place: Path) -> bool:
    """Locked, a plain file with one name, of this user, and still there (not renamed while we waited for it)."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there = place.lstat()
    except OSError:
        return False  # in use, or just renamed
    mine = os.fstat(descriptor)
    plain = stat.S_ISREG(mine.st_mode) and mine.st_nlink == 1 and mine.st_uid == os.geteuid()
    return plain and (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


def read_limited(path: Path | str, most: int) -> bytes:
    """Read a regular file of at most `most` bytes; everything else, a pipe or a device too, is an `InputError`."""
    path = Path(path)
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise InputError("is not a regular file", where=str(path))
        with path.open("rb") as file:
            data = file.read(min(most, status.st_size) + 1)  # memory for the file, not for the limit
            if status.st_size < len(data) <= most:  # it grew meanwhile, or is one of those that have no size
                data += file.read(most + 1 - len(data))
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise InputError(f"cannot be read: {getattr(error, 'strerror', '') or error}", where=str(path)) from error
    if len(data) > most:
        size = f"{most >> 20} MiB" if most >= 2**20 else f"{most} bytes"
        raise InputError(f"larger than {size}", where=str(path))
    return data
