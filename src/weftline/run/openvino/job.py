"""What the processes that run OpenVINO are told, and what they answer; JSON lines over their pipes."""

from __future__ import annotations

import msgspec

from weftline.graph import Graph

__all__ = ["OpenvinoSetup", "PlacementAsk", "PlacementSetup", "Timing"]


class PlacementSetup(msgspec.Struct, frozen=True):
    """Once, at the start."""

    model: str
    """Path of an IR or ONNX file."""
    graph: Graph
    devices: tuple[tuple[str, dict[str, str]], ...]
    """Name and properties of each device in OpenVINO."""
    reference: str
    """The device that runs the whole model, for comparison."""
    inputs: str = ""
    """An .npz file with arr_0, arr_1, ..., or none: then inputs are random."""
    input_names: tuple[str, ...] = ()
    """The inputs that those arrays are for."""
    seed: int = 0


class PlacementAsk(msgspec.Struct, frozen=True):
    """One placement to measure."""

    placement: tuple[int, ...]
    """Number of the device of each op of the graph."""
    rounds: int
    """Pairs of runs that count: one of the placement, one of the reference."""
    warm_up: int
    """Runs of each before that."""
    give_up: float
    """After three rounds, stop if all of them were slower than so many times the reference; 0 = never."""
    against: tuple[int, ...] = ()
    """Another placement that runs in the reference's place."""


class Timing(msgspec.Struct, frozen=True):
    """What was measured; without an error all of it is there."""

    error: str = ""
    kind: str = ""
    """Of an error: input (file, names, devices), compile, inference."""
    seconds: float = 0.0
    """Of one inference: median."""
    reference_seconds: float = 0.0
    """The same for the whole model on one device, in turns with it."""
    ratio: float = 0.0
    """Median over the rounds."""
    quickest_ratio: float = 0.0
    """Of the quickest runs of both: what is left where other programs disturb most runs."""
    spread: float = 0.0
    """Interquartile range of the rounds' ratios, as a share of their median."""
    difference: float = 0.0
    """Of outputs, see `difference`."""
    rounds: int = 0
    ratios: tuple[float, ...] = ()
    """One for each round."""


class OpenvinoSetup(msgspec.Struct, frozen=True):
    """One device to profile."""

    model: str
    """Path of an IR or ONNX file."""
    graph: Graph
    device: str
    """As OpenVINO knows it."""
    properties: dict[str, str]
    runs: int
    """At least so many, unless `most_seconds` are over and there are three."""
    least_seconds: float
    most_seconds: float
    seed: int = 0
