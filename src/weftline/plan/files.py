"""Plan <-> file."""

from __future__ import annotations

from pathlib import Path

import msgspec

from weftline.errors import InputError
from weftline.files import other_kind, write_atomically
from weftline.plan.model import Plan

__all__ = ["load_plan", "plan_to_json", "save_plan"]

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
        if path.stat().st_size > MAX_PLAN_BYTES or not path.is_file():
            raise InputError("more than 2 GiB, or not a file at all, is not a plan", where=str(path))
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    try:
        return msgspec.json.decode(data, type=Plan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = other_kind(data, "a weftline plan") or f"not a weftline plan: {error}"
        raise InputError(what, where=str(path)) from error
