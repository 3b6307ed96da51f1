"""manifest.json: which segments a split model has, what they read and make, and on which device each of them runs.

In: what `split_model` decided. Out: a `Manifest`, its file, and the file read back and checked. Tensor names are those
of the ONNX file. A fleet has several lanes, each with segments and tensors of its own; segments that are the same have
one file. Simplified: shapes are those of the plan; where a size depends on data or on the caller's inputs, it is said
which axes these are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import Literal

import msgspec

from weftline.errors import InputError
from weftline.files import read_limited, write_atomically
from weftline.graph.ir import MODEL_INPUT
from weftline.units import MAX_QUANTITY

__all__ = ["MANIFEST", "Manifest", "ModelSegment", "ModelWire", "read_manifest", "segment_file", "write_manifest"]

MANIFEST = "manifest.json"
MOST_BYTES, MOST_DIMENSIONS = 512 * 2**20, 64


class ModelSegment(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A piece of the model that one device runs in one go."""

    number: int
    """Its place in the list; a topological order, and the order in which a device runs its segments."""
    device: str
    file: str
    """Name of the ONNX file, in the folder of the manifest."""
    ops: tuple[str, ...]
    """As the plan calls them."""
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    """What other segments or the caller read of it."""
    lane: int = 0
    """Whose inputs it serves."""


class ModelWire(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A tensor that enters, leaves, or goes from one segment to others."""

    name: str
    dtype: str
    """As numpy spells it; of model inputs and outputs it may be "str", or "" for what is no plain tensor."""
    shape: tuple[int, ...]
    source: int
    """Number of the segment that makes it, -1 for an input of the model."""
    targets: tuple[int, ...]
    """Numbers of the segments that read it, ascending."""
    output: bool
    """True if the caller receives it."""
    dynamic: tuple[int, ...] = ()
    """Axes whose real size is known only when the model runs: it depends on data."""
    symbolic: tuple[int, ...] = ()
    """Axes whose real size follows from the caller's inputs, where the model leaves theirs open."""
    guessed: bool = False
    """True where the shape is a guess: even the number of its dimensions may be another."""
    between: tuple[int, ...] = ()
    """Input of whole numbers: the first that the model allows and the first that it does not, where it says that."""
    lane: int = 0


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model in segments."""

    format: Literal["weftline-stages"]
    version: Literal[1]
    model: str
    """Name of the graph."""
    model_sha256: str
    inputs: tuple[str, ...]
    """In the order of the model."""
    outputs: tuple[str, ...]
    """In the order of the model; a name may come twice if it does so there."""
    segments: tuple[ModelSegment, ...]
    tensors: tuple[ModelWire, ...]
    weights_folder: str = ""
    """Absolute, where the weights were left in the files beside the model; empty if this folder holds all it needs."""
    rates: tuple[int, ...] = ()
    """A fleet: how its inputs are shared out among its lanes; empty if there is one way through the model."""

    @property
    def lanes(self) -> int:
        """Ways of an input through the model."""
        return max(len(self.rates), 1)

    def of_lane(self, lane: int) -> tuple[ModelWire, ...]:
        """The tensors of one lane."""
        return tuple(wire for wire in self.tensors if wire.lane == lane)


def segment_file(number: int, count: int) -> str:
    """The name of a segment's file, one of so many."""
    return f"segment_{number:0{len(str(count - 1))}}.onnx"


def write_manifest(manifest: Manifest, folder: Path) -> Path:
    """Write manifest.json into a folder that exists."""
    path = folder / MANIFEST
    write_atomically(path, msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n")
    return path


def read_manifest(folder: Path | str) -> Manifest:
    """Read manifest.json of a folder and check that it fits together."""
    path = Path(folder) / MANIFEST
    try:
        manifest = msgspec.json.decode(read_limited(path, MOST_BYTES), type=Manifest)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not a manifest of segments: {error}", where=str(path)) from error
    wrong = _wrong(manifest)
    if wrong:
        raise InputError(wrong, where=str(path), hint="export the plan again")
    return manifest


def _wrong(manifest: Manifest) -> str:
    """What does not fit together, in words; empty if all does."""
    wires = {(wire.lane, wire.name): wire for wire in manifest.tensors}
    lanes = {segment.lane for segment in manifest.segments} | {wire.lane for wire in manifest.tensors}
    files = {(segment.lane, segment.file) for segment in manifest.segments}
    whole = {
        "two segments are in one file": len(files) < len(manifest.segments),
        "a tensor stands in it twice": len(wires) < len(manifest.tensors),
        "a lane has no share of the inputs": any(rate < 1 for rate in manifest.rates),
        "a segment or tensor is of a lane that does not exist": not lanes <= set(range(manifest.lanes)),
    }
    if wrong := [words for words, holds in whole.items() if holds]:
        return wrong[0]
    for lane in range(manifest.lanes):
        mine = {name: wire for (at, name), wire in wires.items() if at == lane}
        if any(name not in mine or mine[name].source != MODEL_INPUT for name in manifest.inputs):
            return "an input of the model is not among its tensors"
        if any(name not in mine or not mine[name].output for name in manifest.outputs):
            return "an output of the model is not among its tensors"
    faults = [_segment_fault(segment, place, wires) for place, segment in enumerate(manifest.segments)]
    faults += [_wire_fault(wire, manifest.segments) for wire in manifest.tensors]
    return next(filter(None, faults), "")


def _segment_fault(segment: ModelSegment, place: int, wires: Mapping[tuple[int, str], ModelWire]) -> str:
    if segment.number != place:
        return f"segment {segment.number} stands at place {place}"
    if (
        not segment.file
        or segment.file != Path(segment.file).name
        or set(segment.file) & {"\\", "\0"}
        or segment.file == ".."
    ):
        return f"file {segment.file[:80]!r} of segment {place} is not the name of a file beside the manifest"
    for names in (segment.inputs, segment.outputs, segment.ops):
        if len(set(names)) < len(names):
            return f"a name stands twice among those of segment {place}"
    for name in segment.inputs:
        wire = wires.get((segment.lane, name))
        if wire is None or place not in wire.targets or wire.source >= place:
            return f"tensor {name[:80]!r} does not come to segment {place} from an earlier one"
    for name in segment.outputs:
        wire = wires.get((segment.lane, name))
        if wire is None or wire.source != place:
            return f"tensor {name[:80]!r} does not come from segment {place}"
    return ""


def _is_shape(shape: Sequence[int]) -> bool:
    plain = len(shape) <= MOST_DIMENSIONS and all(0 <= size <= MAX_QUANTITY for size in shape)
    return plain and prod(shape) <= MAX_QUANTITY


def _wire_fault(wire: ModelWire, segments: Sequence[ModelSegment]) -> str:
    count = len(segments)
    if not MODEL_INPUT <= wire.source < count:
        return f"tensor {wire.name[:80]!r} comes from segment {wire.source}, which does not exist"
    if not _is_shape(wire.shape):
        return f"tensor {wire.name[:80]!r} has a negative dimension, too many, or is absurdly large"
    odd = wire.between and (len(wire.between) != 2 or wire.between[0] >= wire.between[1])
    if odd or any(not 0 <= axis < len(wire.shape) for axis in (*wire.dynamic, *wire.symbolic)):
        return f"tensor {wire.name[:80]!r} has other axes or other numbers than it can have"
    if wire.source != MODEL_INPUT and wire.name not in segments[wire.source].outputs:
        return f"tensor {wire.name[:80]!r} is no output of segment {wire.source}"
    if any(a >= b for a, b in pairwise((wire.source, *wire.targets))):
        return f"tensor {wire.name[:80]!r} goes to segments that are not ascending, or not behind its own"
    lost = [n for n in wire.targets if not 0 <= n < count or wire.name not in segments[n].inputs]
    ends = [n for n in (wire.source, *wire.targets) if n != MODEL_INPUT]
    torn = not lost and any(segments[n].lane != wire.lane for n in ends)
    where = f"is no input of segment {lost[0]}" if lost else "goes from one lane to another" if torn else ""
    return where and f"tensor {wire.name[:80]!r} {where}"
