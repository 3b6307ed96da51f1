"""What a user's model must give to be trained by a schedule, and how it is found.

In: `FILE:FUNCTION` or `module:function`, named by the user. Out: the function; called with a `Layout` and a seed it
gives a `StageModel`. This imports the user's code, so it happens in `run` alone. Simplified: a stage takes one tensor
from each stage that feeds it and gives one tensor.
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

from weftline.errors import InputError

__all__ = ["Layout", "Shard", "StageModel", "load_model", "model_reference"]


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
        raise InputError("there is no such file", where=place)
    name = f"weftline_model_{path.stem}"
    spec = spec_from_file_location(name, path.resolve())
    if spec is None or spec.loader is None:
        raise InputError("is not a Python file", where=place)
    module = module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module
