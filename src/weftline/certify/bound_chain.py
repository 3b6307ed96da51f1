"""Latency by a chain of blocks: every plan takes one of the ways through them, and the shortest way is this long.

**Theorem.** Let c_1, ..., c_m be ops, each an ancestor of the next; B_i any ops that are descendants of c_(i-1) and
ancestors of c_i (B_1: ancestors of c_1; B_(m+1): descendants of c_m; without a chain B_1 may hold any ops). For devices
k, j let L_i(k, j) be such that no plan with c_(i-1) on k and c_i on j has end(c_i) - end(c_(i-1)) < L_i(k, j), where
the first block begins at 0 and the last one ends when everything has. Then no plan is faster than the shortest way
through all blocks, the sum of L_i(k_i, k_(i+1)) at its least over the devices k.
*Proof.* What B_i holds runs, and what its ops send each other is sent, after c_(i-1) has ended and before c_i ends. So
each interval is at least L_i at the devices of the plan; the intervals are disjoint and make up its latency.

L is the longest path through the block (heads of `chain_block` without a horizon; at the open ends also heads and tails
of the whole graph). A part `{"block", "k", "j", "H", "tree"}` raises it to H + 1 if the tree shows that no plan of the
block meets H (`chain_leaves`); k and j are left out at open ends. It holds for all blocks with the same tables.

In: the embedded problem, a witness `{"kind": "chain", "target", "ops", "blocks", "parts"}`. Out: whether the shortest
way is no shorter than the target. Simplified: what no block holds is ignored. Large parts are text: base64 of zlib.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Sequence
from typing import Any

from weftline.certify.allowance import Allowance
from weftline.certify.chain_block import ChainBlock, begin_block, shrink
from weftline.certify.chain_leaves import is_refuted
from weftline.certify.problem import NO_WAY, PlanProblem, members, need, rows, whole

__all__ = ["ChainOfBlocks", "Lengths", "refute_chain", "shortest_way"]

Lengths = list[list[int]]
"""Of a block, by devices before and after it; one row (column) where it has no op before (after) it."""
MOST_PARTS_BYTES = 16 * 2**20
"""Of parts that were compressed."""


def refute_chain(problem: PlanProblem, witness: dict[str, Any], target: int, allowance: Allowance) -> bool:
    """Is no plan faster than the target?"""
    chain = ChainOfBlocks(problem, witness["ops"], witness["blocks"], allowance)
    for part in read_parts(witness.get("parts", [])):
        number = whole(part["block"], "block", 0, len(chain.blocks) - 1)
        block = chain.blocks[number]
        ends = _end(block, block.first, part.get("k")), _end(block, block.last, part.get("j"))
        horizon = whole(part["H"], "H")
        if not is_refuted(block, ends, horizon, part["tree"], allowance):
            return False
        chain.raise_to(number, ends, horizon + 1)
    return shortest_way(chain.lengths) >= target


def _end(block: ChainBlock, op: int, device: Any) -> int | None:
    need((op >= 0) == (device is not None), "witness", "a part has a device for each op at its ends")
    return None if device is None else whole(device, "device of a part", 0, block.k - 1)


def read_parts(given: Any) -> Sequence[Any]:
    """A list, or base64 of zlib of one."""
    if not isinstance(given, str):
        return rows(given, "parts")
    try:
        packed = base64.b64decode(given, validate=True)
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(packed, MOST_PARTS_BYTES)
    except (binascii.Error, zlib.error) as error:
        need(False, "witness", f"parts that cannot be unpacked: {error}")
        raise
    need(not unpacker.unconsumed_tail, "witness-size", "the parts are too long")
    need(unpacker.eof, "witness", "the parts end too early")
    return rows(json.loads(text), "parts")


class ChainOfBlocks:
    """The blocks, their tables, and what is known about their lengths."""

    def __init__(self, problem: PlanProblem, ops: Any, blocks: Any, allowance: Allowance) -> None:
        parallel = problem.rule("objective", "latency") and problem.rule("runtime", "parallel")
        need(parallel, "witness", "a chain bounds the latency of the parallel runtime alone")
        self.problem, self.allowance = problem, allowance
        n = len(problem.names)
        self.ops = [whole(op, "op of the chain", 0, n - 1) for op in rows(ops, "ops")]
        inside = [members(block, "op of a block", n, "witness") for block in rows(blocks, "blocks")]
        need(len(inside) == len(self.ops) + 1, "witness", "a chain has one more block than ops")
        self._check_order(inside)
        ends = [-1, *self.ops, -1]
        self.blocks = [
            ChainBlock(problem, sorted({*block, *(op for op in ends[i : i + 2] if op >= 0)}), *ends[i : i + 2])
            for i, block in enumerate(inside)
        ]
        self._equal: dict[tuple[object, ...], list[int]] = {}
        """The same tables -> blocks."""
        for number, block in enumerate(self.blocks):
            self._equal.setdefault(block.key, []).append(number)
        self.lengths: list[Lengths] = [[] for _ in self.blocks]
        self.alike: list[list[int]] = [[] for _ in self.blocks]
        for numbers in self._equal.values():
            found = self._paths(self.blocks[numbers[0]])
            for number in numbers:
                self.lengths[number], self.alike[number] = [list(row) for row in found], numbers
        if self.ops:
            self._open_ends()

    def _check_order(self, inside: list[list[int]]) -> None:
        """Every op of a block comes after the op before the block, and before the op behind it."""
        problem, m = self.problem, len(self.ops)
        place = {op: i + 1 for i, op in enumerate(self.ops)}
        need(len(place) == m, "witness", "an op stands in the chain twice")
        ahead = [0] * len(problem.names)
        """Of each op: the last op of the chain before it (from 1), 0 = none."""
        for op, tensors in enumerate(problem.inputs):
            makers = {problem.producer[t] for t in tensors}
            ahead[op] = max((max(ahead[maker], place.get(maker, 0)) for maker in makers), default=0)
        behind = [m + 1] * len(problem.names)
        for op in range(len(problem.names) - 1, -1, -1):
            here = min(behind[op], place.get(op, m + 1))
            for t in problem.inputs[op]:
                behind[problem.producer[t]] = min(behind[problem.producer[t]], here)
        for i, op in enumerate(self.ops):
            need(ahead[op] >= i, "witness", f"op {op} of the chain does not come after the one before it")
        for i, block in enumerate(inside):
            wrong = next((op for op in block if ahead[op] < i or behind[op] > i + 1), None)
            need(wrong is None, "witness", f"op {wrong} does not lie between the ends of block {i}")

    def _paths(self, block: ChainBlock) -> Lengths:
        """By paths alone."""
        k = block.k
        found = [[NO_WAY] * (k if block.last >= 0 else 1) for _ in range(k if block.first >= 0 else 1)]
        for source, row in enumerate(found):
            self.allowance.look()
            state = begin_block(block, source if block.first >= 0 else None, None)
            if not shrink(block, state, NO_WAY - 1):
                continue
            if block.last >= 0:
                for d in state.able[block.last]:
                    row[d] = state.head[block.last][d] + block.time[block.last][d]
            else:
                both = zip(state.able, state.head, state.tail, strict=True)
                row[0] = max((min(head[d] + tail[d] for d in able) for able, head, tail in both), default=0)
        return found

    def _open_ends(self) -> None:
        """What all of the graph says about the first and the last op of the chain."""
        whole_graph = ChainBlock(self.problem, range(len(self.problem.names)))
        state = begin_block(whole_graph, None, None)
        need(shrink(whole_graph, state, NO_WAY - 1), "witness", "no plan exists at all")
        first, last = self.ops[0], self.ops[-1]
        for d in range(whole_graph.k):
            begin, end = NO_WAY, NO_WAY
            if d in state.able[first]:
                begin = state.head[first][d] + whole_graph.time[first][d]
            if d in state.able[last]:
                end = state.tail[last][d] - whole_graph.time[last][d]
            self.lengths[0][0][d] = max(self.lengths[0][0][d], begin)
            self.lengths[-1][d][0] = max(self.lengths[-1][d][0], end)

    def raise_to(self, number: int, ends: tuple[int | None, int | None], length: int) -> None:
        """A block, and all that are like it, is no shorter between these devices."""
        k, j = (0 if device is None else device for device in ends)
        for like in self.alike[number]:
            self.lengths[like][k][j] = max(self.lengths[like][k][j], length)


def shortest_way(lengths: list[Lengths]) -> int:
    """Over all devices of the ops between the blocks."""
    ahead = [0]
    for block in lengths:
        ahead = [min(map(sum, zip(ahead, column, strict=True))) for column in zip(*block, strict=True)]
    return min(*ahead, NO_WAY)
