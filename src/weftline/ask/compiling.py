"""All kernels ahead of time: `doctor --compile`, `make install`, and whoever builds a wheel.

In: names of questions. Out: machine code on disk, for each of them all that its first answer needs. Run as a program
(`python -m weftline.ask.compiling latency`) it compiles for the baseline if this processor can, as for a wheel; inside
another program it compiles for this very processor. Simplified: tiny problems go through every kernel once, so a kernel
that is only used with options nobody gives is compiled when somebody gives them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

__all__ = ["PREPARES", "Prepared", "prepare_all"]

PREPARES = {
    "latency": "weftline.latency.prepare",
    "throughput": "weftline.pipeline",
    "copies": "weftline.fleet",
    "layers": "weftline.fleet.layers",
    "serving": "weftline.fleet.serving",
    "schedule": "weftline.schedule",
    "policy": "weftline.latency.policy",
}
"""Question -> the module whose `prepare` compiles or loads its kernels."""


class Prepared(NamedTuple):
    """What was done."""

    compiled: int
    seconds: float
    folder: str
    """Where machine code is kept that is made here; empty where it cannot be kept."""


def prepare_all(tell: Callable[[str], None] | None = None, questions: tuple[str, ...] = tuple(PREPARES)) -> Prepared:
    """Compile what is not on disk; `tell` hears how far it is."""
    from weftline.simulate.kernels import jit, stored

    modules = [import_module(PREPARES[name]) for name in questions]
    with jit.Compilation(tell) as done:
        for module in modules:
            module.prepare()
    return Prepared(done.count, done.seconds, stored.kept_in(jit.made()))


def _main(words: list[str]) -> None:
    """`[--store PACKAGE] QUESTION ...`: all questions if none is named."""
    from weftline.simulate.kernels.processor import BASELINE_CPU, BASELINE_ENVIRONMENT, fits_baseline, this_processor

    package = Path(words[1]) if words[:1] == ["--store"] else None
    if fits_baseline(this_processor()):
        os.environ.update(BASELINE_ENVIRONMENT)
    elif package is not None:
        sys.exit(f"machine code for {BASELINE_CPU} cannot be made on this processor")
    prepare_all(None, tuple(words if package is None else words[2:]) or tuple(PREPARES))
    if package is not None:
        from weftline.simulate.kernels import jit, stored

        stored.store(jit.made(), package)


if __name__ == "__main__":
    _main(sys.argv[1:])
