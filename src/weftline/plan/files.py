"""Plan <-> file. Files are written whole or not at all: temporary file, fsync, rename."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import msgspec

from weftline.errors import InputError
from weftline.plan.model import Plan

__all__ = ["load_plan", "plan_to_json", "save_plan", "write_atomically"]

MAX_PLAN_BYTES = 2 * 2**30


def plan_to_json(plan: Plan) -> bytes:
    """The bytes of plan.json."""
    return msgspec.json.encode(plan) + b"\n"


def save_plan(plan: Plan, path: Path | str) -> None:
    """Write plan.json."""
    write_atomically(Path(path), plan_to_json(plan))


def load_plan(path: Path | str) -> Plan:
    """Read plan.json; every failure is an `InputError` that names the file and the place in it."""
    path = Path(path)
    try:
        if path.stat().st_size > MAX_PLAN_BYTES:
            raise InputError("more than 2 GiB is not a plan", where=str(path))
        return msgspec.json.decode(path.read_bytes(), type=Plan)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not a weftline plan: {error}", where=str(path)) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file that is never seen half-written, and keep what was there if anything fails."""
    try:
        descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".tmp", dir=path.parent)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from error
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # noqa: PTH101
        Path(temporary).replace(path)
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from error
    finally:
        Path(temporary).unlink(missing_ok=True)
