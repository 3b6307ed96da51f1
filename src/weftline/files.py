"""Files that are read up to a limit, or written whole or not at all: temporary file beside it, fsync, rename.

Only regular files are ever replaced, and none that is `protected` because it is being read. The folder of a file that
is written is opened once: whoever puts another in its place meanwhile changes nothing.

`run_folder` is a temporary folder that no crash leaves behind for long: its owner holds a lock in it, which the system
drops when the owner dies, however it dies, and the next one removes every folder whose lock nobody holds. A folder
without such a lock is somebody else's, whatever its name.

And `unchanged`, for files that are read twice; `other_kind`: what a file is that was given for something else.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import BinaryIO, Self

from weftline.arguments import a_path
from weftline.errors import InputError, unreadable

__all__ = [
    "RUN_PREFIX",
    "Replacement",
    "check_writable",
    "is_stdout",
    "opened",
    "other_kind",
    "protect",
    "protected",
    "read_limited",
    "remove_forgotten",
    "run_folder",
    "unchanged",
    "write_atomically",
]

_LOCKS = sys.platform != "win32"
if sys.platform != "win32":
    import fcntl
_SLOTS = 64
"""Names for temporary files of one file: so many can write it at once, and no more are ever left by killed ones."""

_FORMAT = re.compile(rb'"format"\s*:\s*"weftline-(plan|schedule|layer-plan|fleet|fit|costs|graph)"')
_FORMATS = {
    b"plan": "a weftline plan",
    b"schedule": "a weftline schedule",
    b"layer-plan": "a fleet plan (of layers on devices)",
    b"fleet": "a fleet plan of a whole cluster (for one pipeline: plan with --copies 1)",
    b"fit": "a plan of a language model",
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
        with Replacement(path) as new:
            new.file.writelines(parts)
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


class Replacement:
    """A context: what is written to `file` takes the place of a path at the end, unless an exception comes first."""

    def __init__(self, path: Path) -> None:
        self._path, self._folder = path, _open_folder(path.parent)
        try:
            self._name, descriptor = _temporary(path, self._folder)
        except BaseException:
            self._close_folder()
            raise
        self.file: BinaryIO = os.fdopen(descriptor, "wb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        try:
            if kind is None:
                self.file.flush()
                os.fsync(self.file.fileno())
                if not _LOCKS:
                    self.file.close()  # elsewhere an open file cannot be renamed
                _check_replaceable(self._path, self._folder)
                os.replace(self._name, _entry(self._path, self._folder), **_from_to(self._folder))  # noqa: PTH105
                self._name = ""
        finally:
            self._give_up()

    def _give_up(self) -> None:
        """Remove what is left while it is locked: afterwards it may be another writer's."""
        with suppress(OSError):
            if self._name and _LOCKS:
                os.unlink(self._name, dir_fd=self._folder)
        with suppress(OSError):  # what is left in the buffer may find no room
            self.file.close()
        with suppress(OSError):
            if self._name and not _LOCKS:
                os.unlink(self._name)  # noqa: PTH108
        self._close_folder()

    def _close_folder(self) -> None:
        if self._folder is not None:
            os.close(self._folder)


def _open_folder(folder: Path) -> int | None:
    """A folder to which names are relative, however its own name changes; None where the system cannot."""
    if not _LOCKS or os.open not in os.supports_dir_fd:
        return None
    return os.open(folder, getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)


def _entry(path: Path, folder: int | None) -> str:
    return str(path) if folder is None else path.name


def _from_to(folder: int | None) -> dict[str, int]:
    return {} if folder is None else {"src_dir_fd": folder, "dst_dir_fd": folder}


def _check_replaceable(path: Path, folder: int | None) -> None:
    """What stands there now may be something else than what was looked at before the work."""
    try:
        about = os.stat(_entry(path, folder), dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return
    if not stat.S_ISREG(about.st_mode):
        raise InputError("is not a regular file any more, so it is not replaced", where=str(path))
    if any((about.st_dev, about.st_ino) in guard for guard in _guards):
        raise InputError("is also what is read; write to another file", where=str(path))


def _temporary(path: Path, folder: int | None) -> tuple[str, int]:
    """A temporary file beside a path, empty, and open for writing; whoever holds its lock may use it."""
    stem = f".{path.name[:80]}"
    for slot in range(_SLOTS if _LOCKS else 0):
        place = _entry(path.with_name(f"{stem}.{slot}.tmp"), folder)
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        try:
            descriptor = os.open(place, flags, 0o666, dir_fd=folder)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.EACCES, errno.ENXIO) and _is_there(place, folder):
                continue  # something that is none of ours
            raise
        try:
            if _is_ours(descriptor, place, folder):
                os.ftruncate(descriptor, 0)
                return place, descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    place = _entry(path.with_name(f"{stem}.{token_hex(8)}.tmp"), folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    return place, os.open(place, flags, 0o666, dir_fd=folder)


def _is_there(place: str, folder: int | None) -> bool:
    with suppress(OSError):
        os.stat(place, dir_fd=folder, follow_symlinks=False)
        return True
    return False


def _is_ours(descriptor: int, place: str, folder: int | None) -> bool:
    """Locked, a plain file with one name, of this user, and still there (not renamed while we waited for it)."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        there = os.stat(place, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False  # in use, or just renamed
    mine = os.fstat(descriptor)
    plain = stat.S_ISREG(mine.st_mode) and mine.st_nlink == 1 and mine.st_uid == os.geteuid()
    return plain and (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)


@contextmanager
def unchanged(path: Path | str) -> Iterator[None]:
    """Around everything that is read of a file: an `InputError` if it was replaced or written to meanwhile."""
    before = _version(path)
    yield
    if _version(path) != before:
        raise InputError("has changed while it was read", where=str(path), hint="try again")


def _version(path: Path | str) -> list[tuple[int, ...]]:
    """Of a name, and of the file that it leads to: which it is, its size, when it was changed."""
    found: list[tuple[int, ...]] = []
    for follow in (False, True):
        with suppress(OSError, ValueError):
            about = Path(path).stat(follow_symlinks=follow)
            found.append((about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns))
    return found


_READING = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)


@contextmanager
def opened(path: Path | str) -> Iterator[tuple[BinaryIO, int]]:
    """A regular file, open for reading, and its size; everything else, a pipe or a device too, is an `InputError`."""
    path = Path(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError("is not a regular file", where=str(path))
        with os.fdopen(os.open(path, _READING), "rb") as file:
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):  # another since then; nobody waits for it
                raise InputError("is not a regular file", where=str(path))
            yield file, status.st_size
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise unreadable(path, error) from error


def read_limited(path: Path | str, most: int) -> bytes:
    """Read a regular file of at most `most` bytes."""
    with opened(path) as (file, size):
        data = file.read(min(most, size) + 1)  # memory for the file, not for the limit
        if size < len(data) <= most:  # it grew meanwhile, or is one of those that have no size
            data += file.read(most + 1 - len(data))
    if len(data) > most:
        text = f"{most >> 20} MiB" if most >= 2**20 else f"{most} bytes"
        raise InputError(f"larger than {text}", where=str(path))
    return data


RUN_PREFIX = "weftline-local-"
_NEW = ".weftline-local-"
_LOCK = "lock"
FORGOTTEN_SECONDS = 3600.0
"""Seconds after which a folder counts as forgotten that has not even got its lock."""


@contextmanager
def run_folder() -> Iterator[Path]:
    """A folder for files that live no longer than this process; it may be removed before the end."""
    root = Path(tempfile.gettempdir())
    if not _LOCKS:
        with tempfile.TemporaryDirectory(prefix=RUN_PREFIX, ignore_cleanup_errors=True) as name:
            yield Path(name)
        return
    remove_forgotten(root)
    new = Path(tempfile.mkdtemp(prefix=_NEW, dir=root))
    descriptor = os.open(new / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    folder = new.with_name(RUN_PREFIX + new.name.removeprefix(_NEW))  # whoever sees this name finds the lock held
    new.rename(folder)
    try:
        yield folder
    finally:
        _remove_locked(folder)
        os.close(descriptor)


def remove_forgotten(root: Path) -> None:
    """Remove folders of this user whose owners are gone."""
    for folder in [*root.glob(f"{RUN_PREFIX}*"), *root.glob(f"{_NEW}*")]:
        with suppress(OSError):
            about = folder.lstat()
            if folder.is_symlink() or not folder.is_dir() or about.st_uid != os.geteuid():
                continue
            if folder.name.startswith(_NEW) and time.time() - about.st_mtime < FORGOTTEN_SECONDS:
                continue
            if folder.name.startswith(_NEW) and not (folder / _LOCK).exists():
                folder.rmdir()  # its owner did not even get to the lock; what has files in it stays
                continue
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                lock = os.fstat(descriptor)
                if stat.S_ISREG(lock.st_mode) and not lock.st_size and not lock.st_mode & 0o077:  # as run_folder's
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    _remove_locked(folder)
            finally:
                os.close(descriptor)


def _remove_locked(folder: Path) -> None:
    """Remove a folder, its lock last: if that is cut short, the next one finds the lock and goes on."""
    with suppress(OSError):
        for path in [path for path in folder.iterdir() if path.name != _LOCK]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
