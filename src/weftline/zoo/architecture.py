"""What the zoo knows about one architecture: its name, its sizes and the function that writes it into a `Builder`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from weftline.errors import UsageError

__all__ = ["Architecture"]

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
