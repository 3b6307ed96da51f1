"""Inputs of a run: those that the caller gives, checked before any worker starts, or random ones.

In: a manifest, and arrays by name or none. Out: feeds. Random ones differ from each other, so that outputs of one
request cannot pass for those of another. They are plausible, as far as the model says what is: ids have a row in their
table, a number that is compared with constants is one of them, masks are 1, positions count up, lengths are those of
the other inputs. Shapes may be others than the plan's where the model leaves sizes open. Simplified: roles are told
from names; no input is made from what another holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError
from weftline.graph.ir import MODEL_INPUT
from weftline.run.local.layout import ELEMENTS, stored_type
from weftline.run.split.manifest import Manifest, ModelWire

__all__ = ["MADE_STYLES", "Feed", "as_planned", "example_feed", "make_feeds", "random_values"]

Feed = dict[str, Any]
"""Name -> array; or a list, a map or None where the model has sequences, maps and optionals."""
PRIMES = (5, 7, 11, 13, 17, 23, 31, 61, 127, 257, 521, 1031)
"""Numbers of random feeds; rings have powers of two as their numbers of slots, so a lap too early shows."""
MADE_STYLES = ("plausible", "small")
"""Ways to make inputs: the next is tried where ONNX Runtime itself cannot run the model with the first."""


def make_feeds(
    manifest: Manifest,
    given: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
    seed: int,
    style: str = "plausible",
) -> list[Feed]:
    """What is given, or several of random values, more than there are stages."""
    wires = [wire for wire in manifest.of_lane(0) if wire.source == MODEL_INPUT]
    if given is not None:
        steps = [given] if isinstance(given, Mapping) else list(given)
        if not steps:
            raise InputError("an empty list of inputs is given")
        return [_given(wires, step) for step in steps]
    generator = np.random.default_rng(seed)
    devices = len({segment.device for segment in manifest.segments})
    count = next((prime for prime in PRIMES if prime > devices + 1), PRIMES[-1])
    return [example_feed(wires, generator, style) for _ in range(count)]


def example_feed(wires: Sequence[ModelWire], generator: np.random.Generator, style: str = "plausible") -> Feed:
    """One value for every input."""
    try:
        return {wire.name: _random(wire, wires, generator, style) for wire in wires}
    except (MemoryError, ValueError) as error:
        raise InputError(f"the inputs are too large for this machine: {error}") from error


def as_planned(manifest: Manifest, feeds: Sequence[Mapping[str, Any]]) -> bool:
    """Have all inputs the shapes that the plan was made for?"""
    shapes = {wire.name: wire.shape for wire in manifest.tensors if wire.source == MODEL_INPUT and wire.dtype}
    return all(np.shape(feed[name]) == shape for feed in feeds for name, shape in shapes.items())


def random_values(
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    generator: np.random.Generator,
    between: tuple[int, ...] = (),
    length: int = 1,
    style: str = "plausible",
) -> NDArray[Any]:
    """Normal, or whole numbers `between` two, 0 or 1 where nothing is known; the caller converts them to its type."""
    word = name.lower()
    if "mask" in word or dtype.kind == "b":
        return np.ones(shape, dtype)
    if dtype.kind in "iu":
        small = style == "small"
        return np.full(shape, min(between, default=0)) if small else _whole(word, shape, generator, between, length)
    if style == "small":
        return generator.uniform(0, 1, shape)
    positive = any(part in word for part in ("scale", "speed", "temperature"))
    return generator.uniform(0.5, 1, shape) if positive else generator.standard_normal(shape)


def _whole(
    word: str, shape: tuple[int, ...], generator: np.random.Generator, between: tuple[int, ...], length: int
) -> NDArray[Any]:
    least, below = between or (0, 2)
    if "position" in word and (not between or (shape and shape[-1] <= below - least)):
        return _counting(shape) + least
    if not between and ("length" in word or "lens" in word or word.endswith("_len")):
        return np.full(shape, length)
    return generator.integers(least, below, shape)


def _counting(shape: tuple[int, ...]) -> NDArray[Any]:
    return np.broadcast_to(np.arange(shape[-1] if shape else 1).reshape(shape[-1:]), shape)


def _random(wire: ModelWire, wires: Sequence[ModelWire], generator: np.random.Generator, style: str) -> Any:
    if wire.dtype == "str":
        return np.full(wire.shape, "text", object)
    if wire.dtype not in ELEMENTS:
        raise InputError(
            "is no plain tensor, so there are no random values for it",
            where=f"input {wire.name[:80]!r}",
            hint="give values: wl.run(..., inputs={...})",
        )
    length = max((other.shape[1] for other in wires if len(other.shape) > 1), default=1)
    is_bits = wire.dtype == "bfloat16" or wire.dtype.startswith("float8")
    dtype = np.dtype(np.float32) if is_bits else np.dtype(wire.dtype)
    found = random_values(wire.name, wire.shape, dtype, generator, wire.between, length, style)
    if wire.dtype == "bfloat16":
        return np.asarray((found.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16))
    return found.astype(stored_type(wire.dtype))


def _given(wires: Sequence[ModelWire], given: Mapping[str, Any]) -> Feed:
    names = [wire.name for wire in wires]
    for name in given:
        if name not in names:
            hint = f"the inputs are {', '.join(map(repr, names[:8]))}"
            raise InputError(f"values are given for {name[:80]!r}, which is not an input of the model", hint=hint)
    feed: Feed = {}
    for wire in wires:
        place = f"input {wire.name[:80]!r}"
        if wire.name not in given:
            raise InputError("no values are given for it", where=place)
        values = given[wire.name]
        feed[wire.name] = _checked(wire, _array(values, place), place) if wire.dtype else values
    return feed


def _array(values: object, place: str) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except Exception as error:  # of numpy, or of the object's own conversion
        raise InputError(f"the values are no array: {str(error)[:200]}", where=place) from error


def _checked(wire: ModelWire, values: NDArray[Any], place: str) -> NDArray[Any]:
    """Values of the right type, in a shape that the model allows."""
    fits = wire.guessed or len(values.shape) == len(wire.shape)
    pairs = enumerate(zip(values.shape, wire.shape, strict=False))
    if not fits or any(a != b and axis not in wire.symbolic for axis, (a, b) in pairs if not wire.guessed):
        what = f"values of shape {values.shape} are given, the plan was made for {wire.shape}"
        raise InputError(what, where=place)
    if wire.dtype == "str":
        if values.dtype.kind not in "OUS":
            raise InputError(f"values of type {values.dtype} are given, the model has text", where=place)
        return values.astype(object)
    if wire.dtype in ELEMENTS and values.dtype != stored_type(wire.dtype):
        hint = f'convert them: values.astype("{stored_type(wire.dtype)}")'
        raise InputError(f"values of type {values.dtype} are given, the model has {wire.dtype}", where=place, hint=hint)
    return values
