"""Makes the trees over orders with which the checker shows that no schedule ends before a target.

In: blocks as the checker reads them, micro-batches, a target. Out: the tree in preorder, or None. Simplified: depth
first, always the pair of operations that leaves least slack; the checker's own rules decide what a leaf is.
"""

from __future__ import annotations

from weftline.certify.allowance import Allowance
from weftline.certify.bound_orders import OrderState, first_state
from weftline.certify.problem import Refusal
from weftline.certify.schedule_blocks import ScheduleBlocks

__all__ = ["MOST_ORDERED", "order_tree"]

MOST_ORDERED = 160
"""Operations of a schedule for which trees are tried."""
MOST_NODES = 4_000

Tree = list[int | list[int]]


def order_tree(blocks: ScheduleBlocks, count: int, target: int, seconds: float) -> Tree | None:
    """None: a schedule is left, or there are too many nodes, or no time."""
    if blocks.n * count > MOST_ORDERED:
        return None
    try:
        return _tree(blocks, count, target, Allowance(seconds))
    except Refusal:
        return None


def _tree(blocks: ScheduleBlocks, count: int, target: int, allowance: Allowance) -> Tree | None:
    tree: Tree = []
    waiting: list[OrderState | None] = [first_state(blocks, count, target - 1)]
    while waiting:
        state = waiting.pop()
        if len(tree) >= MOST_NODES:
            return None
        if state is None or not state.ends_within(allowance):
            tree.append(0)
            continue
        pair = _tightest(state)
        if pair is None:  # all is decided: there is such a schedule
            return None
        tree.append([*pair])
        waiting += [_with(state, *pair[::-1]), _with(state, *pair)]
    return tree


def _with(state: OrderState, x: int, y: int) -> OrderState | None:
    other = state.copy()
    return other if other.put(x, y) else None


def _tightest(state: OrderState) -> tuple[int, int] | None:
    """The two operations of one device, not in order yet, whose orders leave least room; the tighter order first."""
    best: tuple[int, int, tuple[int, int]] | None = None
    for mine in state.on:
        for place, x in enumerate(mine):
            known = state.above[x] | state.below[x]
            for y in mine[place + 1 :]:
                if known >> y & 1:
                    continue
                x_first = state.head[x] + state.tail[y]
                y_first = state.head[y] + state.tail[x]
                spans = 2 * (state.span[x] + state.span[y])
                pair = (x, y) if x_first >= y_first else (y, x)
                found = (-(x_first + y_first + spans), -max(x_first, y_first), pair)
                best = found if best is None else min(best, found)
    return None if best is None else best[2]
