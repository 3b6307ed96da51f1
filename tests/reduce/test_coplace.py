"""Tests the groupings that only make the search smaller: HSDAG's chains, Baechi's co-placement."""

from __future__ import annotations

import numpy as np
import pytest

from weftline.cost import NO_TIME
from weftline.reduce.contract import chains, contract, coplace
from weftline.testing.generate import Feed, problem_of, random_problem

# 0 -> 1 -> 2 and 3 -> 2, then 2 -> 4 and 2 -> 5, 4 -> 6, 5 -> 6
DIAMOND = [Feed(0, (1,)), Feed(1, (2,)), Feed(3, (2,)), Feed(2, (4, 5)), Feed(4, (6,)), Feed(5, (6,))]


def _sets(group: np.ndarray) -> set[tuple[int, ...]]:
    return {tuple(np.flatnonzero(group == g).tolist()) for g in set(group.tolist())}


def _diamond(**options: object):  # type: ignore[no-untyped-def]
    """Seven ops; op3 is renumbered by the order of the graph, so it stands before op2."""
    wires = [Feed(0, (1,)), Feed(1, (3,)), Feed(2, (3,)), Feed(3, (4, 5)), Feed(4, (6,)), Feed(5, (6,))]
    return problem_of(options.pop("time", [[1, 1]] * 7), wires, **options)  # type: ignore[arg-type]


def test_chains_by_hand() -> None:
    """Tests that only ops in a row are joined: a reader with two makers begins anew."""
    assert _sets(chains(_diamond())) == {(0, 1), (2,), (3,), (4,), (5,), (6,)}


def test_coplace_by_hand() -> None:
    """Tests that every op with one reader goes to it, so that trees become groups."""
    assert _sets(coplace(_diamond())) == {(0, 1, 2, 3), (4, 5, 6)}


def test_a_group_can_run_somewhere() -> None:
    """Tests that ops without a common device are not joined."""
    time = [[1, NO_TIME], [1, 1], [1, 1], [NO_TIME, 1], [1, 1], [1, 1], [1, 1]]
    group = coplace(_diamond(time=time))
    assert group[0] != group[3]
    assert contract(_diamond(time=time), group).problem.cost.time.max(axis=1).min() > 0


def test_a_group_leaves_room() -> None:
    """Tests that a group takes at most half of the largest device."""
    problem = _diamond(weights=[10] * 7, capacity=[50, 20])
    groups = _sets(coplace(problem))
    assert max(map(len, groups)) == 2
    assert len(groups) == 4


@pytest.mark.parametrize("seed", range(120))
@pytest.mark.parametrize("grouping", [chains, coplace])
def test_any_problem_can_be_contracted(seed: int, grouping) -> None:  # type: ignore[no-untyped-def]
    """Tests that the groups of random problems are acyclic and have a device each."""
    problem = random_problem(seed, "latency", max_ops=14)
    small = contract(problem, grouping(problem)).small
    assert (small.cost.time.max(axis=1) > NO_TIME).all()
