"""Weights in a safetensors file: written whole or not at all, read without any library, refused when anything is odd.

In and out: arrays of float32 by name, and a few words about them. The format is the public one (8 bytes of length,
JSON, then the numbers), so that other tools can read it; ours adds a kind and a version to its words. Never pickle.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from weftline.errors import InputError
from weftline.files import read_limited, write_atomically
from weftline.latency.policy.features import Singles

__all__ = ["FORMAT", "VERSION", "read_arrays", "write_arrays"]

FORMAT, VERSION = "weftline-policy", "1"
MOST_BYTES = 64 * 2**20
HINT = "train it again with `weftline train policy`"


def write_arrays(path: Path | str, arrays: Mapping[str, Singles], words: Mapping[str, str]) -> None:
    """The same arrays and words give the same bytes."""
    header: dict[str, Any] = {"__metadata__": {"format": FORMAT, "version": VERSION, **dict(sorted(words.items()))}}
    parts, position = [], 0
    for name in sorted(arrays):
        data = np.ascontiguousarray(arrays[name], "<f4").tobytes()
        header[name] = {
            "dtype": "F32",
            "shape": list(arrays[name].shape),
            "data_offsets": [position, position + len(data)],
        }
        parts.append(data)
        position += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    write_atomically(path, [len(text).to_bytes(8, "little"), text, *parts])


def read_arrays(path: Path | str, shapes: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, Singles], dict[str, str]]:
    """The arrays of these names and shapes (all of them and no others), and the words. Raises `InputError`."""
    data = read_limited(path, MOST_BYTES)
    try:
        header, first = _header(data)
        words = header.pop("__metadata__", None)
        if not isinstance(words, dict) or words.get("format") != FORMAT:
            raise InputError("these are not weights of weftline's policy", hint=HINT)
        if words.get("version") != VERSION:
            raise InputError(f"its version is {words.get('version')!r:.20}, this weftline reads {VERSION!r}", hint=HINT)
        if set(header) != set(shapes):
            odd = sorted(set(header) ^ set(shapes))[0]
            raise InputError(f"{odd!r:.60} is {'missing' if odd in shapes else 'unknown'}", hint=HINT)
        found = {name: _array(name, header[name], data, first, shape) for name, shape in shapes.items()}
        if sum(each.nbytes for each in found.values()) != len(data) - first:
            raise InputError("its arrays do not fill the file", hint=HINT)
    except InputError as error:
        raise error.at(str(path)) from error
    return found, {str(name): str(value) for name, value in words.items()}


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    """What the file says it holds, and where the numbers begin."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise InputError("is no safetensors file, or cut off", hint=HINT)
    try:
        header = json.loads(data[8 : 8 + length])
    except (ValueError, RecursionError) as error:
        raise InputError("its header is no JSON", hint=HINT) from error
    if not isinstance(header, dict):
        raise InputError("its header is no JSON object", hint=HINT)
    return header, 8 + length


def _array(name: str, entry: Any, data: bytes, first: int, shape: tuple[int, ...]) -> Singles:
    wanted = {"dtype": "F32", "shape": list(shape)}
    if not isinstance(entry, dict) or {key: entry.get(key) for key in wanted} != wanted:
        raise InputError(f"{name!r} is not float32 of shape {shape}", hint=HINT)
    offsets = entry.get("data_offsets")
    size = 4 * int(np.prod(shape))
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(type(at) is int for at in offsets):
        raise InputError(f"{name!r} says nowhere it stands", hint=HINT)
    begin, end = offsets
    if begin < 0 or end - begin != size or first + end > len(data):
        raise InputError(f"{name!r} does not lie inside the file", hint=HINT)
    found: Singles = np.frombuffer(data, "<f4", size // 4, first + begin).reshape(shape).astype(np.float32)
    if not np.isfinite(found).all():
        raise InputError(f"{name!r} holds numbers that are not finite", hint=HINT)
    return found
