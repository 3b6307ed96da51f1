"""Zero-bubble schedules with split backward pass: ZB-H1, ZB-H2, ZB-V and DualPipeV (without overlap) -> orders.

Each device's row is written phase by phase from the published counts; times play no role. A schedule that needs more
micro-batches than there are is planned for enough of them, and what is too much left out: that waits for nothing new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Blocks
from weftline.schedule.classic.pipeline import BlockPipeline, PipelineStage, read_pipeline, with_links
from weftline.simulate import Orders

__all__ = ["dualpipe_v", "zb_h1", "zb_h2", "zb_v"]


class _Row:
    """The operations of one device as they are written; every block goes through the micro-batches in order."""

    def __init__(self, chunks: Sequence[PipelineStage], n: int) -> None:
        self.chunks, self.n = chunks, n
        self.operations: list[int] = []
        self.next: dict[int, int] = {}
        self.pending: deque[int] = deque()
        """Chunks whose gradients of weights are still to be done, oldest first."""

    def forward(self, chunk: int = 0) -> None:
        """Run a chunk forward."""
        self._do(self.chunks[chunk].forward)

    def backward(self, chunk: int = 0) -> None:
        """Gradients of inputs; those of weights are kept for later."""
        self._do(self.chunks[chunk].backward)
        self.pending.append(chunk)

    def weight(self) -> None:
        """The oldest gradients of weights."""
        self._do(self.chunks[self.pending.popleft()].weight)

    def whole(self, chunk: int) -> None:
        """The whole backward pass of a chunk at once."""
        self._do(self.chunks[chunk].backward)
        self._do(self.chunks[chunk].weight)

    def rest(self) -> None:
        """All gradients of weights that are left."""
        while self.pending:
            self.weight()

    def _do(self, block: int) -> None:
        micro = self.next.get(block, 0)
        self.next[block] = micro + 1
        self.operations.append(micro * self.n + block)


def zb_h1(blocks: Blocks, micro_batches: int) -> Orders:
    """Memory of 1F1B: rank r fills p - r micro-batches and keeps the weights' work of the last r."""
    return _linear(blocks, micro_batches, lambda p, r: (p - r, r))


def zb_h2(blocks: Blocks, micro_batches: int) -> Orders:
    """Nearly twice that memory: no device waits between its first and its last step when all times are equal."""
    return _linear(blocks, micro_batches, lambda p, r: (2 * (p - r) - 1, 2 * r))


def _linear(blocks: Blocks, micro_batches: int, counts: Callable[[int, int], tuple[int, int]]) -> Orders:
    """`counts`: devices, rank -> forward steps ahead, backward steps whose weights' part is kept back."""
    pipeline, ranks = _split(blocks, 1)
    rows: list[list[int]] = [[] for _ in blocks.devices]
    for r, device in enumerate(ranks):
        ahead, kept = counts(len(ranks), r)
        row = _Row(pipeline.stages[r : r + 1], blocks.n)
        for k in range(micro_batches + ahead):
            if k >= ahead:
                row.backward()
                if len(row.pending) > kept:
                    row.weight()
            if k < micro_batches:
                row.forward()
        row.rest()
        rows[device] = row.operations
    return with_links(blocks, micro_batches, rows)


def zb_v(blocks: Blocks, micro_batches: int) -> Orders:
    """Two chunks per device, there and back: the memory of 1F1B on every device, no wait if all times are equal."""
    return _two_chunks(blocks, micro_batches, _zb_v_row)


def _zb_v_row(row: _Row, p: int, r: int, micro_batches: int) -> None:
    """Fill with the first chunk, let the second come back, then all six kinds of steps in turn, then drain."""
    for _ in range(2 * (p - r) - 1):
        row.forward(0)
    for _ in range(r):
        row.forward(1)
        row.forward(0)
    for _ in range(p - r):
        row.forward(1)
        row.whole(1)
    for k in range(micro_batches - p):
        if k < micro_batches - (2 * p - 1 - r):
            row.forward(0)
        row.whole(0)
        row.forward(1)
        row.whole(1)
    for _ in range(r):
        row.backward(0)
        row.backward(1)
    for _ in range(p - r):
        row.backward(0)
        row.weight()
    row.rest()


def dualpipe_v(blocks: Blocks, micro_batches: int) -> Orders:
    """DualPipe folded to a V: forward of one chunk beside backward of the other; here one after the other."""
    return _two_chunks(blocks, micro_batches, _dualpipe_v_row)


def _dualpipe_v_row(row: _Row, p: int, r: int, micro_batches: int) -> None:
    """The eight phases in the published counts."""
    for _ in range(2 * (p - r - 1)):
        row.forward(0)
    for _ in range(r + 1):
        row.forward(0)
        row.forward(1)
    for _ in range(p - r - 1):
        row.backward(1)
        row.weight()
        row.forward(1)
    for _ in range(micro_batches - 2 * p + r + 1):
        row.forward(0)
        row.whole(1)
        row.forward(1)
        row.whole(0)
    for _ in range(p - r - 1):
        row.whole(1)
        row.forward(1)
        row.whole(0)
    for k in range(2 * (r + 1)):
        # the second half keeps the weights' part back
        (row.whole if k <= r else row.backward)(1 - k % 2)
    for _ in range(p - r - 1):
        row.weight()
        row.backward(0)
    row.rest()


def _two_chunks(blocks: Blocks, micro_batches: int, write: Callable[[_Row, int, int, int], None]) -> Orders:
    pipeline, ranks = _split(blocks, 2)
    p = len(ranks)
    if pipeline.devices != ranks + ranks[::-1]:
        raise InfeasibleError("the schedule needs two chunks on each device, there and back")
    planned = max(micro_batches, 2 * p)
    rows: list[list[int]] = [[] for _ in blocks.devices]
    for r, device in enumerate(ranks):
        row = _Row((pipeline.stages[r], pipeline.stages[2 * p - 1 - r]), blocks.n)
        write(row, p, r, planned)
        rows[device] = [op for op in row.operations if op < micro_batches * blocks.n]
    return with_links(blocks, micro_batches, rows)


def _split(blocks: Blocks, chunks: int) -> tuple[BlockPipeline, tuple[int, ...]]:
    pipeline = read_pipeline(blocks)
    if not pipeline.splits:
        raise InfeasibleError(
            "a zero-bubble schedule needs a split backward pass, and these blocks have none: --shape linear and zigzag "
            "have one, a plan gets one by --split-backward"
        )
    return pipeline, pipeline.ranks(chunks)
