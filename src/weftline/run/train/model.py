"""What a user's model must give to be trained by a schedule, how it is found, and the jobs that processes are told.

In: `FILE:FUNCTION` or `module:function`, named by the user. Out: the function; called with a `Layout` and a seed it
gives a `StageModel`. This imports the user's code, so it happens in `run` alone. `TrainJob` and `Report` travel as
JSON; torch is not imported here, so that workers start fast. Simplified: a stage takes one tensor from each stage that
feeds it and gives one tensor.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, Protocol

import msgspec

from weftline.errors import InputError, no_such_file

__all__ = [
    "ACTIVATION",
    "GRADIENT",
    "TOKEN",
    "Edge",
    "Layout",
    "RankBlock",
    "Report",
    "Shard",
    "StageModel",
    "TrainJob",
    "load_model",
    "model_reference",
]


class Layout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How the model is cut: what a user's function needs to know about a schedule."""

    micro_batches: int
    inputs: tuple[tuple[int, ...], ...]
    """Stage -> the stages that feed it, ascending; their tensors are its arguments in this order."""
    shards: tuple[int, ...]
    """Stage -> number of devices that compute it together."""
    trained: tuple[bool, ...]
    """Stage -> whether it has a backward block; the others are frozen."""

    @property
    def stages(self) -> int:
        """Number of stages."""
        return len(self.inputs)

    @property
    def sources(self) -> tuple[int, ...]:
        """Stages that take a micro-batch of data."""
        return tuple(stage for stage, row in enumerate(self.inputs) if not row)

    @property
    def sinks(self) -> tuple[int, ...]:
        """Stages that feed no other: the loss is computed on what they give."""
        feeding = {stage for row in self.inputs for stage in row}
        return tuple(stage for stage in range(self.stages) if stage not in feeding)


@dataclass(frozen=True)
class Shard:
    """Which part of a stage a process holds; (0, 1, None) is the whole."""

    rank: int = 0
    size: int = 1
    group: Any = None
    """The process group of the stage's devices."""

    def part(self, tensor: Any, dim: int) -> Any:
        """The shard of a whole tensor: equal slices along one dimension, in the order of ranks."""
        return tensor.tensor_split(self.size, dim)[self.rank].clone()


class StageModel(Protocol):
    """A model in stages; the same seed must give the same weights and data in every process."""

    def stage(self, number: int, shard: Shard) -> Any:
        """The module of a stage: `forward(*inputs) -> tensor`, with whole tensors even on a shard.

        A parameter of a shard is either whole, or a slice made as by `shard.part`; partial results are joined by
        `sum_over_group` and whole inputs enter by `copy_to_group`. Called with the random generator freshly seeded.
        """

    def data(self, stage: int, step: int) -> Any:
        """The batch of a source stage in a step; it is split along dimension 0 in equal micro-batches."""

    def target(self, stage: int, step: int) -> Any:
        """What the loss of a sink stage is computed with, split in the same way."""

    def loss(self, output: Any, target: Any) -> Any:
        """A number for one micro-batch; the loss of a batch is the mean over micro-batches."""


def model_reference(model: str | Callable[..., Any]) -> str:
    """The name under which other processes find a function: FILE:FUNCTION."""
    if isinstance(model, str):
        return model
    code = getattr(model, "__code__", None)
    name = getattr(model, "__qualname__", "")
    if code is None or not name.isidentifier():
        raise InputError("a model must be a function at the top of a file, or FILE:FUNCTION")
    return f"{Path(code.co_filename).resolve()}:{name}"


def load_model(reference: str) -> Callable[[Layout, int], StageModel]:
    """Import the user's function; an `InputError` says what was not found."""
    place, separator, name = reference.rpartition(":")
    if not separator or not place or not name.isidentifier():
        raise InputError(f"{reference!r} does not name a function", hint="FILE:FUNCTION or module:function")
    try:
        found = getattr(_module(place), name, None)
    except InputError:
        raise
    except Exception as error:
        raise InputError(f"cannot be imported: {type(error).__name__}: {error}", where=place) from error
    if not callable(found):
        raise InputError(f"has no function {name!r}", where=place)
    loaded: Callable[[Layout, int], StageModel] = found
    return loaded


def _module(place: str) -> Any:
    path = Path(place)
    if path.suffix != ".py" and not path.exists():
        return import_module(place)
    if not path.is_file():
        raise no_such_file(place)
    name = f"weftline_model_{path.stem}"
    spec = spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError("is not a Python file", where=place)
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


ACTIVATION, GRADIENT, TOKEN = "activation", "gradient", "token"


class RankBlock(msgspec.Struct, frozen=True):
    """A block, as a rank sees it."""

    kind: str
    ranks: tuple[int, ...]
    stage: int
    """-1 for communication."""
    split: bool
    """Whether the gradients of its stage's weights are computed by a block of their own."""


class Edge(msgspec.Struct, frozen=True):
    """Data from one block to another."""

    source: int
    target: int
    what: str
    """activation, gradient, or token (nothing but the fact that the source is done)."""
    stage: int
    """Whose activation it is, or whose activation it is the gradient of."""
    giver: int
    """For a gradient: the stage that computed it."""


class TrainJob(msgspec.Struct, frozen=True):
    """One schedule to run."""

    engine: str
    model: str
    layout: Layout
    ranks: int
    blocks: tuple[RankBlock, ...]
    edges: tuple[Edge, ...]
    actions: tuple[tuple[tuple[str | int, ...], ...], ...]
    """Rank -> its action rows (engine weftline), with ranks in place of devices."""
    rows: tuple[tuple[str, ...], ...]
    """Rank -> its cells (engine torch)."""
    chain: tuple[int, ...]
    """torch's stage -> stage of the layout (engine torch)."""
    seeds: tuple[int, ...]
    steps: int
    rate: float
    """Learning rate."""
    check: bool
    time_limit: float
    """Seconds that a process waits for another."""


class Report(msgspec.Struct, frozen=True):
    """What one rank saw."""

    step_seconds: tuple[float, ...]
    """Of all seeds and steps, one after another."""
    losses: tuple[float, ...]
    """Beside it: mean over the micro-batches of the sinks that this rank holds first; empty elsewhere."""
    block_seconds: dict[int, float]
    """Block -> mean time of its computation here."""
    link_seconds: float
    """One way of a small message between ranks 0 and 1; 0 with one rank."""
    gradient_difference: float
    """Largest over everything; only rank 0 compares."""
    output_difference: float
    loss_difference: float
