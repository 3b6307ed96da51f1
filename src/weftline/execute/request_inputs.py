"""Inputs of a model for requests: what the caller gives, or random numbers.

In: a manifest, arrays by name or a seed. Out: arrays for every input, checked against the shapes and types of the
plan. Simplified: random whole numbers are 0 or 1, so that they are valid indices; masks are all 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError
from weftline.execute.manifest import INPUT, Manifest, Wire
from weftline.execute.plan_torch_job import plain_dtype

__all__ = ["VARIANTS", "make_feeds"]

VARIANTS = 3
"""Random inputs: outputs of one request must not pass for those of another."""


def make_feeds(
    manifest: Manifest, given: Mapping[str, NDArray[Any]] | None, seed: int
) -> list[dict[str, NDArray[Any]]]:
    """What is given, or several of random values, the same for the same seed on every machine."""
    wires = [wire for wire in manifest.tensors if wire.source == INPUT]
    if given is not None:
        return [_given(wires, given)]
    dice = np.random.default_rng(seed)
    return [{wire.name: _random(wire.name, wire.shape, _dtype(wire), dice) for wire in wires} for _ in range(VARIANTS)]


def _given(wires: Sequence[Wire], given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    left, found = dict(given), {}
    for wire in wires:
        place = f"input {wire.name[:80]!r}"
        if wire.name not in left:
            raise InputError("no values are given for it", where=place)
        array = np.asarray(left.pop(wire.name))
        if array.shape != wire.shape:
            raise InputError(f"values of shape {array.shape} are given, the plan has {wire.shape}", where=place)
        if array.dtype != _dtype(wire):
            raise InputError(f"values of type {array.dtype} are given, the model reads {wire.dtype}", where=place)
        found[wire.name] = array
    if left:
        raise InputError(f"values are given for {next(iter(left))[:80]!r}, which is not an input of the model")
    return found


def _random(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], dice: np.random.Generator) -> NDArray[Any]:
    if "mask" in name.lower() or dtype.kind == "b":
        return np.ones(shape, dtype)
    made = dice.integers(0, 2, shape) if dtype.kind in "iu" else dice.standard_normal(shape)
    return np.asarray(made, dtype)


def _dtype(wire: Wire) -> np.dtype[Any]:
    return plain_dtype(wire.name, wire.dtype)
