"""What the zoo knows about one architecture: its name, its sizes and the function that writes it into a `Builder`.

The architectures by name, and `build`, which turns a name and a size into an ONNX model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from weftline.errors import UsageError, near
from weftline.plugins import load_plugins
from weftline.zoo.builder import Builder

if TYPE_CHECKING:
    import onnx

__all__ = ["Architecture", "architectures", "build"]

MAX_PARAMETER = 2**22


@dataclass(frozen=True)
class Architecture:
    """One architecture; `sizes` always has "full" and "small"."""

    name: str
    description: str
    write: Callable[..., None]
    """Writes the network into the builder given first; takes the parameters by keyword."""
    sizes: Mapping[str, Mapping[str, int]]
    """Size -> parameters. "full" names every parameter, the others only what differs from it; "small" is for tests."""
    inputs: tuple[str, ...]
    """Names of the model's inputs; `example_inputs` makes values for them."""

    def parameters(self, size: str = "full", **changes: int) -> dict[str, int]:
        """All parameters of a size, with changes; unknown ones and impossible values are a `UsageError`."""
        if size not in self.sizes:
            raise UsageError(f"{self.name} has no size {size!r}; it has: {', '.join(self.sizes)}")
        full = self.sizes["full"]
        for name, value in changes.items():
            if name not in full:
                raise UsageError(f"{self.name} has no parameter {name!r}; it has: {', '.join(full)}")
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_PARAMETER:
                raise UsageError(f"{self.name}: {name} = {value!r} is not a whole number in 1..{MAX_PARAMETER}")
        return {**full, **self.sizes[size], **changes}


_BUILT_IN = ("convolutional", "language", "two_sided", "swin", "mixture")


@cache
def architectures() -> dict[str, Architecture]:
    """All architectures by name: ours, then those other packages offer as `weftline.architectures` entry points."""
    found = [entry for module in _BUILT_IN for entry in import_module(f"weftline.zoo.{module}").ARCHITECTURES]
    found += load_plugins("weftline.architectures")
    return {architecture.name: architecture for architecture in found}


def build(name: str, *, size: str = "full", seed: int = 0, weights: bool = True, **parameters: int) -> onnx.ModelProto:
    """An architecture as a runnable ONNX model.

    `size` is "full" (as published), "small" (for tests) or another size of the architecture; `parameters` change single
    numbers of it (layers, hidden, sequence, batch, image ...). Without `weights` the model has the same ops but only
    names a weight file, which is all that planning needs: 13 G parameters then fit in a megabyte.
    """
    known = architectures()
    if name not in known:
        raise UsageError(f"the zoo has no architecture {name!r:.100}{near(name, known)} (it has: {', '.join(known)})")
    architecture = known[name]
    chosen = architecture.parameters(size, **parameters)
    builder = Builder(name if size == "full" else f"{name}-{size}", seed=seed, weights=weights)
    architecture.write(builder, **chosen)
    return builder.model()
