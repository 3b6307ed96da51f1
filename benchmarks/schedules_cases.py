"""The questions of the section on schedules: Tessel's shapes, pipelines with fine times, the published schedules.

A case names itself and its Blocks; memory of fine-grained cases is in half-activations, as X * p.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from weftline.problem.blocks import Blocks
from weftline.schedule.shapes import chunked, make_shape

__all__ = ["Case", "fine_cases", "formula_cases", "shape_cases"]

SHAPES_4 = (
    ("vshape", 4), ("vshape", 3), ("vshape", 2), ("vshape", 1), ("xshape", 4), ("kshape", 6), ("mshape", 6),
    ("mshape", 5), ("mshape", 4), ("mshape", 3), ("nnshape", 6), ("nnshape-eager", 6), ("mllm", 6), ("finetune", 4),
    ("alphafold", 4),
)  # fmt: skip
"""Shape and memory, 4 devices; Tessel's lazy search is asked as well."""
ROOMY = 20
"""Memory at which tessel-fast, which does not look at memory, fits."""
LARGE = (
    ("vshape", 8, 8), ("vshape", 16, 16), ("xshape", 8, 8), ("xshape", 16, 16), ("kshape", 8, 20), ("kshape", 16, 20),
    ("mshape", 8, 20), ("mshape", 16, 40), ("nnshape", 8, 20), ("nnshape", 16, 40), ("mllm", 8, 20),
    ("finetune", 8, 8), ("finetune", 8, 20), ("alphafold", 8, 20), ("alphafold", 16, 40),
)  # fmt: skip
"""Shape, devices, memory."""
INFERENCE = ("vshape", "xshape", "kshape", "mshape", "nnshape")
FINE = (("linear", 1.5), ("linear", 2), ("linear", 3), ("zigzag", 2), ("zigzag", 3), ("zigzag", 4))
"""Placement, and memory in half-activations per device of the pipeline."""


@dataclass(frozen=True)
class Case:
    """One question."""

    name: str
    blocks: Blocks
    micro_batches: int
    tessel: tuple[str, ...] = ()
    """Tessel's own algorithms that are asked as well."""


def shape_cases(devices: tuple[int, ...]) -> list[Case]:
    """Tessel's shapes, 32 micro-batches."""
    found = []
    if 4 in devices:
        for shape, memory in SHAPES_4:
            blocks = make_shape(shape, 4).with_memory(memory)
            found.append(Case(f"{shape} 4, memory {memory}", blocks, 32, ("tessel-lazy",)))
        for shape in dict.fromkeys(shape for shape, _ in SHAPES_4):
            blocks = make_shape(shape, 4).with_memory(ROOMY)
            found.append(Case(f"{shape} 4, memory {ROOMY}", blocks, 32, ("tessel-fast",)))
        for shape in INFERENCE:
            both = ("tessel-lazy", "tessel-fast")
            found.append(Case(f"{shape} 4, inference", make_shape(shape, 4, train=False), 32, both))
    for shape, count, memory in LARGE:
        if count in devices:
            found.append(Case(f"{shape} {count}, memory {memory}", make_shape(shape, count).with_memory(memory), 32))
    return found


def fine_cases(devices: tuple[int, ...], seed: int = 0) -> list[Case]:
    """Split backward pass, about 3,500 units per period, unequal stages, latency 0 and 50; N = 4p."""
    found = []
    for p in devices:
        for latency in (0, 50):
            for placement, share in FINE:
                stages = [*range(p)] if placement == "linear" else [*range(p), *reversed(range(p))]
                dice = Random(f"{seed} {p} {placement}")
                size = 1000 if placement == "linear" else 500
                times = [[round(size * part * dice.uniform(0.85, 1.15)) for _ in stages] for part in (1.05, 1.15, 0.9)]
                name = f"{placement} {p}, latency {latency}, memory {share:g}p"
                blocks = chunked(name, stages, times[0], times[1], times[2], latency=latency)
                found.append(Case(name, blocks.with_memory(round(share * p)), 4 * p))
    return found


def formula_cases(devices: tuple[int, ...]) -> list[Case]:
    """The memory of each published schedule, with its own and with other times."""
    found = []
    for p in devices:
        for times in ((1, 1, 1), (10, 11, 8)):
            placements = {
                "linear": ([*range(p)], {"memory of ZB-H1": 2 * p, "memory of ZB-H2": 4 * p - 2}),
                "zigzag": ([*range(p), *reversed(range(p))], {"memory of ZB-V": 4 * p, "half of that": 2 * p}),
                "interleaved": ([*range(p), *range(p)], {"memory of interleaved 1F1B": 2 * (3 * p - 1)}),
            }
            for placement, (stages, limits) in placements.items():
                f, b, w = ([time] * len(stages) for time in times)
                for label, memory in limits.items():
                    name = f"{placement} {p}, times {times}, {label}"
                    blocks = chunked(name, stages, f, b, w).with_memory(memory)
                    found.append(Case(name, blocks, 4 * p))
    return found
