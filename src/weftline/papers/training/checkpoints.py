"""Checkpoints of training: everything that the next episode depends on, in one safetensors file, written atomically.

In: arrays by name, and what they belong to. Out: a file; read back only if it is whole (a digest), of this version, and
of the same solver, problem, settings and shapes. The same training gives the same bytes. A file from outside is read
by safetensors, which holds numbers alone and runs nothing; whatever is wrong with it is an InputError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError, MissingExtra
from weftline.files import read_limited, write_atomically

__all__ = ["Arrays", "Checkpoint", "Owner", "read_checkpoint", "write_checkpoint"]

FORMAT, VERSION = "weftline training", 1
MOST_BYTES, MOST_STEPS = 2**30, 10**12
"""No larger file is read; no training is longer."""
Arrays = dict[str, NDArray[Any]]


class Owner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a training belongs to."""

    solver: str
    problem: str
    """Hash of the problem."""
    settings: dict[str, str]
    """Those that shape the network and its training."""


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    version: int
    owner: Owner
    episode: int
    steps: int
    digest: str


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state after some episodes."""

    episode: int
    """Episodes done."""
    steps: int
    """Steps of the optimiser."""
    arrays: Arrays


def write_checkpoint(path: Path, owner: Owner, checkpoint: Checkpoint) -> None:
    """One key of metadata, so that its order cannot differ."""
    save = _safetensors().save
    arrays = {name: np.ascontiguousarray(value) for name, value in checkpoint.arrays.items()}
    head = _Head(FORMAT, VERSION, owner, checkpoint.episode, checkpoint.steps, _digest(arrays))
    text = msgspec.json.encode(head, order="sorted").decode()
    write_atomically(path, save(arrays, metadata={"weftline": text}))


def read_checkpoint(path: Path, owner: Owner, shapes: Mapping[str, tuple[int, ...]]) -> Checkpoint | None:
    """None if there is no such file; `InputError` if it is not a whole checkpoint of this training.

    `shapes` are those that must be there; -1 stands for any length.
    """
    try:
        path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=f"{path!s:.120}") from error
    data = read_limited(path, MOST_BYTES)
    try:
        head = _head(data)
        _compare(head.owner, owner)
        arrays = _safetensors().load(data)
        if head.digest != _digest(arrays):
            raise InputError("is damaged: its numbers do not fit their digest", hint="start again without it")
        _check_shapes(arrays, shapes)
        _check_numbers(arrays)
    except InputError as error:
        raise error.at(str(path)) from error
    except Exception as error:  # whatever safetensors says about bytes that are none of its own
        raise InputError(f"is no checkpoint: {error!s:.120}", where=str(path)) from error
    return Checkpoint(head.episode, head.steps, arrays)


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise MissingExtra("safetensors", "torch") from error
    return safetensors.numpy


def _head(data: bytes) -> _Head:
    """The metadata: the file begins with the length of its JSON header."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, 2**24):
        raise InputError("is no safetensors file")
    try:
        text = msgspec.json.decode(data[8 : 8 + length])["__metadata__"]["weftline"]
        head = msgspec.json.decode(text, type=_Head)
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError) as error:
        raise InputError("holds no training of weftline", hint="name another file") from error
    if head.format != FORMAT or head.version != VERSION:
        raise InputError(f"is {head.format!r:.40} of version {head.version}, not {FORMAT!r} of version {VERSION}")
    if not (0 <= head.episode <= MOST_STEPS and 0 <= head.steps <= MOST_STEPS):
        raise InputError("does not say where training stood")
    return head


def _compare(found: Owner, wanted: Owner) -> None:
    hint = "name another file, or remove this one"
    if found.solver != wanted.solver:
        raise InputError(f"is a training of {found.solver!r:.40}, not of {wanted.solver!r}", hint=hint)
    if found.problem != wanted.problem:
        raise InputError("is a training on another problem", hint=hint)
    for name in sorted({*found.settings, *wanted.settings}):
        ours, theirs = wanted.settings.get(name), found.settings.get(name)
        if ours != theirs:
            raise InputError(f"is a training with {name}={theirs!s:.40}, not {ours!s:.40}", hint=hint)


def _check_shapes(arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
    if set(arrays) != set(shapes):
        odd = sorted(set(arrays) ^ set(shapes))[:3]
        raise InputError(f"does not hold what it should: {', '.join(odd)!s:.120}")
    for name, shape in shapes.items():
        found = arrays[name].shape
        fits = len(found) == len(shape) and all(want in (-1, is_) for want, is_ in zip(shape, found, strict=True))
        if not fits:
            raise InputError(f"has {name} of shape {found}, not {shape}")


def _check_numbers(arrays: Arrays) -> None:
    for name, value in arrays.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise InputError(f"has numbers in {name} that are not finite", hint="start again without it")


def _digest(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        value = arrays[name]
        digest.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()
