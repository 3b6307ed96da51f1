"""Chains of blocks after a search: which lengths of blocks need a proof, and the witness that holds them all.

In: what a search knew about the blocks of its chains (or chains picked now), and the problem as the checker reads it.
Out: witnesses for `certify/bound_chain.py`. Simplified: one chain, the one with the best bound. Of all lengths only
those are proved that the shortest way needs: numbers phi at every op of the chain and device, 0 at the start and the
target at the end, such that every block lasts at least phi behind it - phi before it; most blocks do so by their paths.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from weftline.ask.prove_blocks import Ends, Node, grow_tree
from weftline.certify.allowance import Allowance
from weftline.certify.bound_chain import ChainOfBlocks, Lengths, shortest_way
from weftline.certify.problem import NO_WAY, Refusal
from weftline.latency.blocks.chain import reach
from weftline.latency.blocks.decompose import chains
from weftline.latency.blocks.decomposition import BLOCK_PLAN, Decomposition
from weftline.latency.bounds import OUT_OF_REACH
from weftline.simulate.tables import tables

if TYPE_CHECKING:
    from weftline.ask.proofs import ProofTask

__all__ = ["prove_chain"]

FIRST_NODES, MOST_NODES = 300, 6_000
"""Of a tree: what is easy comes first."""
CHECK_SHARE = 0.3
"""Of the time, for the checker."""
SEARCH_SHARE = 0.4
"""Of the time, for bounds of blocks that no search has left."""
TEXT_BYTES = 64 * 1024
"""Longer parts are compressed."""
ROUGHLY_NEAR, VERY_NEAR = 0.02, 0.001
"""Between two horizons of a bisection, in shares of them."""
FIRST_SHARE, LARGE_SHARE = 0.5, 0.8
"""Of the time that is left, for one tree at first, and for all large trees later."""


@dataclass
class _Need:
    """A block, and all that are like it, between two devices: how long it must be shown to last."""

    block: int
    ends: Ends
    places: tuple[int, int]
    length: int


@dataclass
class _ChainMaker:
    """One chain: what is claimed, what is proved."""

    chain: ChainOfBlocks
    claimed: list[Lengths]
    left: Callable[[], float]
    """Seconds."""
    parts: dict[tuple[int, Ends], dict[str, object]] = field(default_factory=dict)
    ops: list[int] = field(default_factory=list)
    blocks: list[list[int]] = field(default_factory=list)

    def needs(self, target: int) -> list[_Need]:
        """What must be shown; of two ways to choose the numbers the one with fewer proofs."""
        return min((self._needs(numbers) for numbers in self._potentials(target)), key=len)

    def _potentials(self, target: int) -> tuple[list[list[int]], list[list[int]]]:
        ahead, sure_ahead = _ahead(self.claimed), _ahead(self.chain.lengths)
        behind, sure_behind = _behind(self.claimed), _behind(self.chain.lengths)
        late = [
            [max(s, target - min(b, target)) for s, b in zip(*both, strict=True)]
            for both in zip(sure_ahead, behind, strict=True)
        ]
        early = [
            [min(a, target - min(s, target)) for a, s in zip(*both, strict=True)]
            for both in zip(ahead, sure_behind, strict=True)
        ]
        return late, early

    def _needs(self, numbers: list[list[int]]) -> list[_Need]:
        found: dict[tuple[int, Ends], _Need] = {}
        for number, block in enumerate(self.chain.blocks):
            like = self.chain.alike[number][0]
            for k, row in enumerate(self.chain.lengths[number]):
                for j, least in enumerate(row):
                    length = numbers[number + 1][j] - numbers[number][k]
                    if length <= least or least >= NO_WAY:
                        continue
                    ends = k if block.first >= 0 else None, j if block.last >= 0 else None
                    old = found.get((like, ends))
                    if old is None or old.length < length:
                        found[like, ends] = _Need(like, ends, (k, j), length)
        return list(found.values())

    def prove(self, need: _Need, most_nodes: int, length: int | None = None, share: float = 1.0) -> bool:
        """One tree, within a share of the time that is left."""
        length, end = need.length if length is None else length, (1.0 - share) * self.left()
        block = self.chain.blocks[need.block]
        tree = grow_tree(block, need.ends, length - 1, most_nodes, lambda: self.left() <= max(0.0, end))
        if tree is None:
            return False
        self._keep(need, length, tree)
        return True

    def _keep(self, need: _Need, length: int, tree: list[Node]) -> None:
        own = {name: end for name, end in zip("kj", need.ends, strict=True) if end is not None}
        self.parts[need.block, need.ends] = {"block": need.block, **own, "H": length - 1, "tree": tree}
        self.chain.raise_to(need.block, need.ends, length)

    def nearly(self, need: _Need, near: float) -> None:
        """The longest that can be shown by small trees, by bisection."""
        k, j = need.places
        low, high = self.chain.lengths[need.block][k][j], need.length
        while high - low > max(1, near * need.length) and self.left() > 0:
            middle = (low + high) // 2
            if self.prove(need, FIRST_NODES, middle):
                low = middle
            else:
                high = middle

    def witness(self, target: int) -> dict[str, object]:
        """Of all that was proved."""
        parts: object = list(self.parts.values())
        text = json.dumps(parts, separators=(",", ":"))
        if len(text) > TEXT_BYTES:
            parts = base64.b64encode(zlib.compress(text.encode(), 9)).decode()
        return {"kind": "chain", "target": target, "ops": self.ops, "blocks": self.blocks, "parts": parts}


def _ahead(lengths: list[Lengths]) -> list[list[int]]:
    """From the start to every op of the chain on every device."""
    found = [[0]]
    for block in lengths:
        columns = zip(*block, strict=True)
        found.append([min(*map(sum, zip(found[-1], column, strict=True)), NO_WAY) for column in columns])
    return found


def _behind(lengths: list[Lengths]) -> list[list[int]]:
    """From there to the end."""
    found = [[0]]
    for block in reversed(lengths):
        found.append([min(*map(sum, zip(found[-1], row, strict=True)), NO_WAY) for row in block])
    return found[::-1]


def prove_chain(task: ProofTask) -> None:
    """The best chain that is known, or one that is made now."""
    work = max(_known(task) or _made_now(task), key=Decomposition.bound, default=None)
    if work is None or task.is_over:
        return
    blocks = [[int(op) for op in block] for block in work.chain.blocks]
    try:
        chain = ChainOfBlocks(task.form, list(work.chain.ops), blocks, Allowance(max(0.0, task.left)))
    except Refusal:
        return
    claimed = [_joined(sure, low.tolist()) for sure, low in zip(chain.lengths, work.lengths(), strict=True)]
    end = CHECK_SHARE * task.left
    maker = _ChainMaker(chain, claimed, lambda: task.left - end, ops=list(work.chain.ops), blocks=blocks)
    target = min(task.value, shortest_way(claimed))
    if target <= task.proved:
        return
    task.say(f"proving how long {len(blocks)} blocks last")
    needs = sorted(maker.needs(target), key=lambda need: chain.blocks[need.block].n)
    hard = [need for need in needs if not maker.prove(need, FIRST_NODES, share=FIRST_SHARE)]
    _offer(task, maker, target)
    if not hard:
        return
    for need in hard:
        maker.nearly(need, ROUGHLY_NEAR)
    hard = [
        need for i, need in enumerate(hard) if not maker.prove(need, MOST_NODES, share=LARGE_SHARE / (len(hard) - i))
    ]
    for need in hard:
        maker.nearly(need, VERY_NEAR)
    _offer(task, maker, target)


def _known(task: ProofTask) -> list[Decomposition]:
    """What the search left."""
    notes = [note for note in task.notes.get("chain", ()) if isinstance(note, Decomposition)]
    return [note for note in notes if note.spans and len(note.table.time) == len(task.form.names)]


def _made_now(task: ProofTask) -> list[Decomposition]:
    """After a search that knew nothing of blocks: their bounds by linear programs, for some of the time."""
    problem, table = task.problem, tables(task.problem)
    end = (1 - SEARCH_SHARE) * task.left

    def over() -> bool:
        return task.left <= end

    found = []
    for chain, _ in chains(table, reach(table)):
        work = Decomposition.of(table, problem.group, chain)
        found.append(work)
        while not over() and (steps := work.next_round(task.value)) and work.effort(*steps[0]) < BLOCK_PLAN:
            for step in steps:
                if not over():
                    work.work_on(*step, task.value, over, exact_work=False)
        if over() or work.bound() >= task.value:
            break
    return [work for work in found if work.spans]


def _joined(sure: Lengths, claimed: Lengths) -> Lengths:
    """The larger of what paths and what a search say."""
    return [
        [max(s, NO_WAY if c >= OUT_OF_REACH else c) for s, c in zip(*rows, strict=True)]
        for rows in zip(sure, claimed, strict=True)
    ]


def _offer(task: ProofTask, maker: _ChainMaker, target: int) -> None:
    reached = min(target, shortest_way(maker.chain.lengths))
    if reached > task.proved:
        task.attempt("blocks", maker.witness(reached))
