"""What worker processes are told and what they answer: plain structs that travel as JSON.

In: nothing. Out: `TrainJob` (one schedule to run) and `Report` (what one rank saw). No solver, simulator or torch is
imported here, so that workers start fast.
"""

from __future__ import annotations

import msgspec

from weftline.run.train.model import Layout

__all__ = ["ACTIVATION", "GRADIENT", "TOKEN", "BlockWork", "Edge", "Report", "TrainJob"]

ACTIVATION, GRADIENT, TOKEN = "activation", "gradient", "token"


class BlockWork(msgspec.Struct, frozen=True):
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
    blocks: tuple[BlockWork, ...]
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
