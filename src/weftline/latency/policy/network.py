"""The policy's network: 64 numbers for every op on every device, five residual layers, heads that begin at 0.

In: Features (and edges) and weights. Out: PolicyOutput: the decoder bias for one decode, and around what to sample
where there is time for many, and logits. This form runs in numpy, so that planning needs no torch; `train_network` is
the same in torch. Any number of ops and devices; all of them share the weights, so that renumbering renumbers the
answer. With heads at 0 the decoder is cPEFT. For one decode a head says how far the logits are to be trusted: the bias
grows with -log of a device's probability. (For many that would leave nothing to chance.)

Weights are kept in a safetensors file: written whole or not at all, read without any library, refused when anything is
odd. The format is the public one (8 bytes of length, JSON, then the numbers), so that other tools can read it; ours
adds a kind and a version to its words. Never pickle.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from weftline.errors import InputError
from weftline.files import read_limited, write_atomically
from weftline.graph.arrays import Ints
from weftline.latency.list.decoder import Floats
from weftline.latency.policy.features import FEATURE_COUNT, Features, Singles
from weftline.simulate.kernels.jit import kernel

__all__ = [
    "FORMAT",
    "NETWORK_LAYERS",
    "NETWORK_WIDTH",
    "PRIOR_LOGIT",
    "VERSION",
    "DecoderBias",
    "PolicyOutput",
    "Weights",
    "ask",
    "first_weights",
    "read_arrays",
    "shapes",
    "write_arrays",
]

Weights = dict[str, Singles]

NETWORK_WIDTH, NETWORK_LAYERS = 64, 5
NORM_EPSILON = 1e-5
PRIOR_LOGIT = 3.0
"""Logit of the device that cPEFT takes, before anything is learnt."""
MOST_DOUBT = 8.0
"""The probability of a device counts as e^-8 at least, where it becomes a part of the bias."""
ROWS_AT_ONCE = 40
"""Rows of a product that are multiplied at a time."""
FOR_TWO = 1_000
"""So many rows are worth a second thread."""
RESIDUAL_SIZE = 0.5
"""First size of what a layer adds, by the usual size of weights."""


@dataclass(frozen=True, eq=False)
class DecoderBias:
    """How to lean the decoder."""

    bias: Floats
    """(n, K): in units of each op (see `Features.unit`), with the part of the device."""
    lam: float
    kappa: float
    power: float
    """Of the mean behind the order of ops, see `policy_order`."""


@dataclass(frozen=True, eq=False)
class PolicyOutput:
    """What the network says about one problem."""

    one: DecoderBias
    """For a single decode."""
    many: DecoderBias
    """For samples around it, of which only the best counts."""
    logits: Floats
    """(n, K)"""


def shapes() -> dict[str, tuple[int, ...]]:
    """Name -> shape of every array of weights."""
    w = NETWORK_WIDTH
    found: dict[str, tuple[int, ...]] = {"input.weight": (FEATURE_COUNT, w), "input.bias": (w,)}
    for layer in range(NETWORK_LAYERS):
        name = f"layer{layer}"
        found |= {f"{name}.norm.scale": (w,), f"{name}.norm.shift": (w,), f"{name}.near.weight": (w, 3 * w)}
        found |= {f"{name}.devices.weight": (w, w), f"{name}.ops.weight": (w, w), f"{name}.all.weight": (w, w)}
        found |= {f"{name}.bias": (w,), f"{name}.out.weight": (w, w), f"{name}.out.bias": (w,)}
    found |= {"last.norm.scale": (w,), "last.norm.shift": (w,)}
    for head, outputs in (("op", 3), ("device", 2), ("graph", 7)):
        found |= {f"{head}.hidden.weight": (w, w), f"{head}.hidden.bias": (w,), f"{head}.last.weight": (w, outputs)}
    return found


def first_weights(seed: int) -> Weights:
    """Random, but with heads at 0."""
    random = np.random.default_rng(seed)
    found: Weights = {}
    for name, shape in shapes().items():
        if name.endswith("scale"):
            found[name] = np.ones(shape, np.float32)
        elif len(shape) == 1 or name.endswith("last.weight"):
            found[name] = np.zeros(shape, np.float32)
        else:
            size = (RESIDUAL_SIZE if name.endswith("out.weight") else 1.0) / shape[0] ** 0.5
            found[name] = (random.standard_normal(shape) * size).astype(np.float32)
    return found


def ask(weights: Weights, seen: Features) -> PolicyOutput:
    """One pass through the network."""
    n, k, _ = seen.features.shape
    edges = seen.edges
    h = _product(seen.features.reshape(n * k, FEATURE_COUNT), weights["input.weight"]) + weights["input.bias"]
    z, itself, before, after = (np.empty_like(h) for _ in range(4))  # kept: fresh memory costs as much as a product
    with _sharing(n * k) as share:
        for layer in range(NETWORK_LAYERS):
            w = {name: weights[f"layer{layer}.{name}"] for name in _OF_LAYER}
            near = tuple(zip(_thirds(w["near.weight"]), (itself, before, after), strict=True))

            def look(rows: slice, w: Weights = w, near: tuple[tuple[Singles, Singles], ...] = near) -> None:
                _normalise(h[rows], w["norm.scale"], w["norm.shift"], z[rows])
                for weight, out in near:
                    _product(z[rows], weight, out[rows])

            share(look)
            by_op, by_device = _means(z, n, k)
            u = itself.reshape(n, k, NETWORK_WIDTH)
            u += _product(by_op, w["devices.weight"])[:, None]
            u += _product(by_device, w["ops.weight"]) + by_device.mean(axis=0) @ w["all.weight"] + w["bias"]
            _add_means(edges.before_ptr, edges.before, before.reshape(n, -1), itself.reshape(n, -1))
            _add_means(edges.after_ptr, edges.after, after.reshape(n, -1), itself.reshape(n, -1))

            def answer(rows: slice, w: Weights = w) -> None:
                np.maximum(itself[rows], 0, out=itself[rows])
                h[rows] += _product(itself[rows], w["out.weight"], before[rows])
                h[rows] += w["out.bias"]

            share(answer)
    _normalise(h, weights["last.norm.scale"], weights["last.norm.shift"], z)
    of_op = _head(weights, "op", z).reshape(n, k, 3).astype(np.float64)
    by_device = _means(z, n, k)[1]
    of_device = _head(weights, "device", by_device).astype(np.float64)
    of_graph = _head(weights, "graph", by_device.mean(axis=0)[None])[0].astype(np.float64)
    logits = of_op[:, :, 2] + PRIOR_LOGIT * (seen.plain[:, None] == np.arange(k))
    below = logits - logits.max(axis=1, keepdims=True)
    doubt = np.minimum(np.log(np.exp(below).sum(axis=1, keepdims=True)) - below, MOST_DOUBT)
    trust, *for_one, lam, kappa, power = of_graph.tolist()
    many = DecoderBias(of_op[:, :, 1] + of_device[:, 1], 1.0 + lam, kappa, 1.0 + power)
    lam, kappa, power = for_one
    one = DecoderBias(of_op[:, :, 0] + of_device[:, 0] + trust * doubt, 1.0 + lam, kappa, 1.0 + power)
    return PolicyOutput(one, many, logits)


@contextmanager
def _sharing(rows: int) -> Iterator[Callable[[Callable[[slice], None]], None]]:
    """A function that does something with all rows, by two threads where they are many; what comes out is the same."""
    half = rows // 2 // ROWS_AT_ONCE * ROWS_AT_ONCE
    if rows < FOR_TWO:
        yield lambda work: work(slice(0, rows))
        return
    with ThreadPoolExecutor(1) as other:

        def share(work: Callable[[slice], None]) -> None:
            first = other.submit(work, slice(0, half))
            work(slice(half, rows))
            first.result()

        yield share


_OF_LAYER = (
    "norm.scale",
    "norm.shift",
    "near.weight",
    "devices.weight",
    "ops.weight",
    "all.weight",
    "bias",
    "out.weight",
    "out.bias",
)


def _product(x: Singles, weight: Singles, out: Singles | None = None) -> Singles:
    """x @ weight, in portions so small that BLAS stays on one thread: on a busy machine its threads wait for each other
    a hundred times longer than they work. The answer then depends on no number of threads either.
    """
    whole = len(x) // ROWS_AT_ONCE * ROWS_AT_ONCE
    found = np.empty((len(x), weight.shape[1]), np.float32) if out is None else out
    np.matmul(
        x[:whole].reshape(-1, ROWS_AT_ONCE, x.shape[1]),
        weight,
        out=found[:whole].reshape(-1, ROWS_AT_ONCE, weight.shape[1]),
    )
    np.matmul(x[whole:], weight, out=found[whole:])
    return found


def _thirds(weight: Singles) -> tuple[Singles, Singles, Singles]:
    """What is for the op itself, for its predecessors, for its successors."""
    one, two, three = (np.ascontiguousarray(weight[:, i * NETWORK_WIDTH : (i + 1) * NETWORK_WIDTH]) for i in range(3))
    return one, two, three


def _means(z: Singles, n: int, k: int) -> tuple[Singles, Singles]:
    """(n, NETWORK_WIDTH) over devices and (K, NETWORK_WIDTH) over ops."""
    cube = z.reshape(n, k, NETWORK_WIDTH)
    over_devices = cube[:, 0].copy()
    for device in range(1, k):
        over_devices += cube[:, device]
    over_devices /= np.float32(k)
    over_ops: Singles = cube.sum(axis=0) / np.float32(n)
    return over_devices, over_ops


def _head(weights: Weights, name: str, z: Singles) -> Singles:
    hidden = np.maximum(_product(z, weights[f"{name}.hidden.weight"]) + weights[f"{name}.hidden.bias"], 0)
    return _product(hidden, weights[f"{name}.last.weight"])


@kernel
def _normalise(h: Singles, scale: Singles, shift: Singles, z: Singles) -> None:
    """Every row of h to mean 0 and variance 1, then scaled and shifted. Four sums at a time, which is quicker."""
    width = h.shape[1]
    for i in range(len(h)):
        a, b, c, d = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for j in range(0, width, 4):
            a += h[i, j]
            b += h[i, j + 1]
            c += h[i, j + 2]
            d += h[i, j + 3]
        mean = (a + b + c + d) / np.float32(width)
        a, b, c, d = np.float32(0.0), np.float32(0.0), np.float32(0.0), np.float32(0.0)
        for j in range(0, width, 4):
            a += (h[i, j] - mean) ** 2
            b += (h[i, j + 1] - mean) ** 2
            c += (h[i, j + 2] - mean) ** 2
            d += (h[i, j + 3] - mean) ** 2
        factor = np.float32(1.0) / np.sqrt((a + b + c + d) / np.float32(width) + np.float32(NORM_EPSILON))
        for j in range(width):
            z[i, j] = (h[i, j] - mean) * factor * scale[j] + shift[j]


@kernel
def _add_means(pointer: Ints, other: Ints, x: Singles, out: Singles) -> None:
    """Add to every row the mean over its neighbours' rows of x."""
    width = x.shape[1]
    for op in range(len(x)):
        first, last = pointer[op], pointer[op + 1]
        share = np.float32(1.0 / max(1, last - first))
        for e in range(first, last):
            source = other[e]
            for j in range(width):
                out[op, j] += share * x[source, j]


FORMAT, VERSION = "weftline-policy", "1"
MOST_BYTES, MOST_HEADER = 64 * 2**20, 2**20
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
        if not isinstance(words, dict) or not all(isinstance(value, str) for value in words.values()):
            raise InputError("its words are no texts", hint=HINT)
        if words.get("format") != FORMAT:
            raise InputError("these are not weights of weftline's policy", hint=HINT)
        if words.get("version") != VERSION:
            raise InputError(f"its version is {words.get('version')!r:.20}, this weftline reads {VERSION!r}", hint=HINT)
        if set(header) != set(shapes):
            odd = sorted(set(header) ^ set(shapes))[0]
            raise InputError(f"{odd!r:.60} is {'missing' if odd in shapes else 'unknown'}", hint=HINT)
        found = {name: _array(name, header[name], data, first, shape) for name, shape in shapes.items()}
        places = sorted(tuple(entry["data_offsets"]) for entry in header.values())
        if [0, *(end for _, end in places)] != [*(begin for begin, _ in places), len(data) - first]:
            raise InputError("its arrays do not fill the file, each byte once", hint=HINT)
    except InputError as error:
        raise error.at(str(path)) from error
    return found, {str(name): value for name, value in words.items()}


def _header(data: bytes) -> tuple[dict[str, Any], int]:
    """What the file says it holds, and where the numbers begin."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > len(data) - 8:
        raise InputError("is no safetensors file, or cut off", hint=HINT)
    if length > MOST_HEADER:
        raise InputError(f"its header is longer than {MOST_HEADER >> 10} KiB", hint=HINT)
    try:
        header = json.loads(data[8 : 8 + length], object_pairs_hook=_each_once)
    except (ValueError, RecursionError) as error:
        raise InputError("its header is no JSON", hint=HINT) from error
    if not isinstance(header, dict):
        raise InputError("its header is no JSON object", hint=HINT)
    return header, 8 + length


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name comes twice")
    return found


def _array(name: str, entry: Any, data: bytes, first: int, shape: tuple[int, ...]) -> Singles:
    wanted = {"dtype": "F32", "shape": list(shape)}
    if not isinstance(entry, dict) or set(entry) != {*wanted, "data_offsets"} or entry | wanted != entry:
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
