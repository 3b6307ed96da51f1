"""Files that are written whole or not at all: temporary file beside the target, fsync, rename."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from secrets import token_hex

from weftline.errors import InputError

__all__ = ["write_atomically"]


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
