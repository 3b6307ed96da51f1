"""Files that are read up to a limit, or written whole or not at all: temporary file beside it, fsync, rename."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from weftline.errors import InputError

__all__ = ["read_limited", "write_atomically"]


def write_atomically(path: Path | str, data: bytes | Iterable[bytes]) -> None:
    """Write a file that is never seen half-written; if anything fails, what was there before stays."""
    path = Path(path)
    temporary = path.with_name(f".{path.name[:80]}.{token_hex(8)}.tmp")
    try:
        try:
            with temporary.open("xb") as file:
                file.writelines([data] if isinstance(data, bytes) else data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            with suppress(OSError):
                temporary.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from error


def read_limited(path: Path | str, most: int) -> bytes:
    """Read a regular file of at most `most` bytes; everything else, a pipe or a device too, is an `InputError`."""
    path = Path(path)
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError("is not a regular file", where=str(path))
        with path.open("rb") as file:
            data = file.read(most + 1)
    except (OSError, ValueError) as error:  # ValueError: a path with a null character
        raise InputError(f"cannot be read: {getattr(error, 'strerror', '') or error}", where=str(path)) from error
    if len(data) > most:
        size = f"{most >> 20} MiB" if most >= 2**20 else f"{most} bytes"
        raise InputError(f"larger than {size}", where=str(path))
    return data
