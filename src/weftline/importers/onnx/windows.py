"""Sizes that a window which slides over some axes makes: convolutions and pools of fused kinds.

In: a `Call` with the attributes strides, dilations, pads, auto_pad and ceil_mode, the sizes of the axes, the window's.
Out: the sizes of the output along these axes. Simplified: what does not fit gives 0 or 1, never an error.
"""

from __future__ import annotations

from collections.abc import Sequence

from weftline.importers.onnx.call import Call
from weftline.importers.onnx.sizes import Shape, largest, rounded_up

__all__ = ["transposed_windows", "windows"]


def windows(call: Call, sizes: Shape, kernel: Sequence[int]) -> Shape:
    """How many places a window has along each axis."""
    return tuple(_places(call, axis, size, kernel, len(sizes)) for axis, size in enumerate(sizes))


def _places(call: Call, axis: int, size: int, kernel: Sequence[int], rank: int) -> int:
    step = max(_entry(call.integers("strides"), axis, 1), 1)
    auto = call.text("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        return rounded_up(size, step)
    pads = call.integers("pads") if auto == "NOTSET" else ()
    before, after = _entry(pads, axis, 0), _entry(pads, axis + rank, 0)
    room = size + (before + after) - _reach(call, axis, kernel)
    if not call.integer("ceil_mode", 0):
        return largest(room // step + 1, 0)
    count = rounded_up(room, step) + 1
    # A window that would begin behind the data and its first padding is left out.
    return largest(count - 1 if (int(count) - 1) * step >= int(size) + before else count, 0)


def transposed_windows(call: Call, sizes: Shape, kernel: Sequence[int], pads: Sequence[int]) -> Shape:
    """The sizes over which a transposed convolution spreads each axis."""
    made = []
    for axis, size in enumerate(sizes):
        step = max(_entry(call.integers("strides"), axis, 1), 1)
        if call.text("auto_pad", "NOTSET").startswith("SAME"):
            made.append(size * step)
            continue
        cut = _entry(pads, axis, 0) + _entry(pads, axis + len(sizes), 0)
        more = _entry(call.integers("output_padding"), axis, 0) + _reach(call, axis, kernel) - cut
        made.append(largest((size - 1) * step + more, 0))
    return tuple(made)


def _reach(call: Call, axis: int, kernel: Sequence[int]) -> int:
    """How far a window reaches with its gaps."""
    return (_entry(kernel, axis, 1) - 1) * _entry(call.integers("dilations"), axis, 1) + 1


def _entry(numbers: Sequence[int], place: int, default: int) -> int:
    return int(numbers[place]) if place < len(numbers) else default
