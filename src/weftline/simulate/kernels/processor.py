"""The processor that machine code in a wheel is made for, and whether it runs on this one.

In: what numba or LLVM say of a processor. Out: yes or no. Numba is not imported here: a process that is to compile for
another processor must say so before it is. Simplified: one baseline, that of x86-64 since about 2013; everywhere else
everything is compiled.
"""

from __future__ import annotations

import llvmlite.binding as llvm

__all__ = ["BASELINE_CPU", "BASELINE_ENVIRONMENT", "BASELINE_FEATURES", "fits_baseline", "this_processor"]

BASELINE_CPU = "x86-64-v3"
"""As LLVM calls it."""
BASELINE_FEATURES = frozenset(
    (
        *("avx", "avx2", "bmi", "bmi2", "cx16", "f16c", "fma", "lzcnt", "movbe"),
        *("popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3", "xsave"),
    )
)
"""What such a processor has."""
BASELINE_ENVIRONMENT = {"NUMBA_CPU_NAME": BASELINE_CPU, "NUMBA_CPU_FEATURES": ""}
"""A process that is started with these compiles for it."""


def fits_baseline(processor: tuple[str, str, str]) -> bool:
    """Whether a processor, as numba describes it (system, name, features), runs machine code for the baseline."""
    _, name, features = processor
    return name == BASELINE_CPU or {word[1:] for word in features.split(",") if word[:1] == "+"} >= BASELINE_FEATURES


def this_processor() -> tuple[str, str, str]:
    """As numba describes it."""
    return llvm.get_process_triple(), llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
