"""Tests of which blocks make up a stage."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weftline.errors import InputError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.lower.lower import stages_of
from weftline.schedule.make_blocks import SHAPES, make_shape


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("train", [True, False])
@pytest.mark.parametrize("devices", [2, 4, 8])
def test_stages_are_found_without_their_numbers(name: str, train: bool, devices: int) -> None:
    """Tests that blocks that do not name their stage are matched as those that do."""
    named = make_shape(name, devices, train=train)
    nameless = replace(named, blocks=tuple(replace(block, stage=-1) for block in named.blocks))
    pairs = [{(s.forward, s.backward, s.weight) for s in stages_of(blocks)} for blocks in (named, nameless)]
    assert pairs[0] == pairs[1]


def test_a_fork_by_hand() -> None:
    """Tests inputs, outputs and devices of a stage that feeds two others."""
    parts = [Block("F", 1, (d,), (0,), stage=d) for d in range(3)]
    lanes = [Lane("0"), Lane("1"), Lane("2"), Lane("wire", link=True)]
    blocks = Blocks.of("fork", lanes, [*parts, Block("C", 1, (3,), (0,))], [(0, 1), (0, 3), (3, 2)])
    first, *others = stages_of(blocks)
    assert (first.inputs, first.outputs, first.devices) == ((), (1, 2), (0,))
    assert [stage.inputs for stage in others] == [(0,), (0,)]


def test_what_is_not_clear_is_asked_for() -> None:
    """Tests that a backward block that could belong to two stages needs a number."""
    parts = [Block("F", 1, (0,), (0,)), Block("F", 1, (0,), (0,)), Block("B", 1, (0,), (0,))]
    with pytest.raises(InputError, match="give `stage`"):
        stages_of(Blocks.of("t", [Lane("0")], parts, [(0, 2), (1, 2)]))
