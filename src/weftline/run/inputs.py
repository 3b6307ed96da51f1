"""How far outputs are from those of the unsplit model, and random inputs to compare with.

In: arrays. Out: one number, relative; whole numbers must be equal. Simplified: values that are tiny beside the largest
of their output are compared with a hundredth of that, for what rounding does to them is as large as to the others;
half precision is held to the same tolerance.

Inputs of a run: those that are given, checked before any worker starts, or random ones.

In: the wires of a model's inputs, perhaps arrays by name. Out: a list of feeds; random ones differ from each other, so
that outputs of one request cannot pass for those of another.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError
from weftline.run.local.layout import stored_type
from weftline.run.split.manifest import MODEL_INPUT, Manifest, ModelWire

__all__ = ["as_numbers", "difference", "make_feeds", "random_values"]

SMALL_VALUE = 1e-2
"""Outputs below this share of the largest are compared with that share instead of with themselves."""


def difference(ours: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    """The largest |a - b| / |b|, where |b| counts as at least a hundredth of the largest of its output."""
    worst = 0.0
    for a, b in zip(ours, expected, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if a.dtype.kind != "f" or not a.size:  # ids and counts are right or wrong
            worst = max(worst, 0.0 if np.array_equal(a, b) else float("inf"))
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        odd = ~np.isfinite(y)
        if not np.array_equal(x[odd], y[odd], equal_nan=True) or not np.isfinite(x[~odd]).all():
            return float("inf")
        x, y = x[~odd], y[~odd]
        floor = max(SMALL_VALUE * float(np.abs(y).max(initial=0.0)), float(np.finfo(np.float32).tiny))
        worst = max(worst, float((np.abs(x - y) / np.maximum(np.abs(y), floor)).max(initial=0.0)))
    return worst


def random_values(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], dice: np.random.Generator) -> NDArray[Any]:
    """Normal, whole numbers 0 or 1 (so that they can be ids), masks 1; the caller converts them to its type."""
    if "mask" in name.lower() or dtype.kind == "b":
        return np.ones(shape, dtype)
    return dice.integers(0, 2, shape) if dtype.kind in "iu" else dice.standard_normal(shape)


PRIMES = (5, 7, 11, 13, 17, 23, 31, 61, 127, 257, 521, 1031)
"""Numbers of random feeds; rings have powers of two as their numbers of slots, so a lap too early shows."""


def make_feeds(
    manifest: Manifest, given: Mapping[str, NDArray[Any]] | None, seed: int
) -> list[dict[str, NDArray[Any]]]:
    """What is given, or several of random values, more than there are stages."""
    wires = [wire for wire in manifest.tensors if wire.source == MODEL_INPUT]
    if given is not None:
        return [_given(wires, given)]
    dice = np.random.default_rng(seed)
    devices = len({segment.device for segment in manifest.segments})
    count = next((prime for prime in PRIMES if prime > devices + 1), PRIMES[-1])
    try:
        return [{wire.name: _random(wire, dice) for wire in wires} for _ in range(count)]
    except (MemoryError, ValueError) as error:
        raise InputError(f"the inputs are too large for this machine: {error}") from error


def as_numbers(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """What was moved, as numbers that can be compared."""
    if dtype != "bfloat16":
        return values
    return (values.astype(np.uint32) << 16).view(np.float32)


def _random(wire: ModelWire, dice: np.random.Generator) -> NDArray[Any]:
    if wire.dtype == "bfloat16":
        values = random_values(wire.name, wire.shape, np.dtype(np.float32), dice).astype(np.float32)
        return np.asarray((values.view(np.uint32) >> 16).astype(np.uint16))
    return random_values(wire.name, wire.shape, np.dtype(wire.dtype), dice).astype(wire.dtype)


def _given(wires: Sequence[ModelWire], given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    names = [wire.name for wire in wires]
    for name in given:
        if name not in names:
            hint = f"the inputs are {', '.join(map(repr, names[:8]))}"
            raise InputError(f"values are given for {name[:80]!r}, which is not an input of the model", hint=hint)
    feed = {}
    for wire in wires:
        place = f"input {wire.name[:80]!r}"
        if wire.name not in given:
            raise InputError("no values are given for it", where=place)
        values = np.asarray(given[wire.name])
        if values.shape != wire.shape:
            what = f"values of shape {values.shape} are given, the plan was made for {wire.shape}"
            raise InputError(what, where=place)
        if values.dtype != stored_type(wire.dtype):
            hint = f'convert them: values.astype("{stored_type(wire.dtype)}")'
            raise InputError(
                f"values of type {values.dtype} are given, the model has {wire.dtype}", where=place, hint=hint
            )
        feed[wire.name] = values
    return feed
