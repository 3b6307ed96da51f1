"""Tests of blocks and their JSON form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from weftline.errors import InputError
from weftline.problem import blocks_from_json, blocks_to_file, read_blocks
from weftline.problem.model import NO_LIMIT
from weftline.schedule.make_blocks import SHAPES, make_shape

GOOD = {
    "name": "two",
    "devices": 2,
    "blocks": [
        {"id": 7, "kind": "F", "span": 2, "devices": [0], "memory": 1},
        {"id": 3, "kind": "B", "span": 3, "devices": [1, 0], "memory": [5, -1]},
    ],
    "edges": [[7, 3, 4]],
}


@pytest.mark.parametrize("name", SHAPES)
def test_json_round_trip(name: str) -> None:
    """Tests that blocks survive their JSON form."""
    blocks = make_shape(name, 4).with_memory(6)
    assert blocks_from_json(json.dumps(blocks_to_file(blocks))) == blocks


def test_what_is_reserved_leaves_less_room() -> None:
    """Tests that it survives the JSON form and other limits, and is refused on links and below 0."""
    lanes = [{"id": "a", "memory": 9, "reserved": 4}, {"id": "b", "reserved": 2}]
    blocks = blocks_from_json(json.dumps({**GOOD, "devices": lanes}))
    assert blocks_from_json(json.dumps(blocks_to_file(blocks))) == blocks
    assert [lane.room for lane in blocks.devices] == blocks.table.limit.tolist() == [5, NO_LIMIT]
    assert [lane.room for lane in blocks.with_memory(7).devices] == [3, 5]
    for wrong in (
        {"id": "b", "reserved": -1},
        {"id": "b", "reserved": 2**47},
        {"id": "b", "link": True, "reserved": 1},
    ):
        with pytest.raises(InputError, match=r"devices\[1\]\.reserved"):
            blocks_from_json(json.dumps({**GOOD, "devices": [{"id": "a"}, wrong]}))


def test_ids_may_be_any_numbers() -> None:
    """Tests that blocks are ordered by id, edges follow, and memory follows its device."""
    blocks = blocks_from_json(json.dumps(GOOD))
    assert [b.kind for b in blocks.blocks] == ["B", "F"]
    assert blocks.blocks[0].devices == (0, 1)
    assert blocks.blocks[0].memory == (-1, 5)
    assert blocks.edges == ((1, 0, 4),)
    assert blocks.loads == (5, 3)
    assert blocks.kept == (0, 5)
    assert not blocks.balanced
    assert blocks.devices[0].memory == NO_LIMIT


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"devices": 0}, "devices"),
        ({"devices": -3}, "devices"),
        ({"devices": [{"id": "a b"}, {"id": "b"}]}, "id"),
        ({"devices": [{"id": "a"}, {"id": "a"}]}, "same id"),
        ({"blocks": [], "edges": []}, "blocks"),
        ({"edges": [[7, 9]]}, "edge"),
        ({"edges": [[7]]}, "edge"),
        ({"edges": [[7, 3, -1]]}, "latency"),
        ({"edges": [[7, 3], [3, 7]]}, "circle"),
        ({"edges": [[7, 7]]}, "two blocks"),
        ({"extra": 1}, "extra"),
        ({"devices": [{"id": "a", "link": True}, {"id": "b", "link": True}]}, "links"),
        ({"devices": [{"id": "a", "link": True}, {"id": "b"}]}, "a link holds no memory"),
    ],
)
def test_wrong_files_are_refused(change: dict[str, object], message: str) -> None:
    """Tests that each mistake gives one error that names it."""
    with pytest.raises(InputError, match=message):
        blocks_from_json(json.dumps({**GOOD, **change}))


@pytest.mark.parametrize(
    "change",
    [
        {"kind": "X"},
        {"span": 0},
        {"span": 2**60},
        {"devices": []},
        {"devices": [2]},
        {"devices": [0, 0]},
        {"memory": [1, 2]},
        {"memory": 2**60},
        {"id": 3},
        {"stage": 2**40},
        {"span": 1.5},
    ],
)
def test_wrong_blocks_are_refused(change: dict[str, object]) -> None:
    """Tests that a block that makes no sense is refused."""
    blocks = [{**GOOD["blocks"][0], **change}, GOOD["blocks"][1]]  # type: ignore[index]
    with pytest.raises(InputError):
        blocks_from_json(json.dumps({**GOOD, "blocks": blocks}))


def test_errors_name_the_file(tmp_path: Path) -> None:
    """Tests that an unreadable or broken file is named."""
    with pytest.raises(InputError, match=r"none\.json"):
        read_blocks(tmp_path / "none.json")
    (tmp_path / "bad.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match=r"bad\.json"):
        read_blocks(tmp_path / "bad.json")


def test_limits_are_one_or_one_for_each_device() -> None:
    """Tests that links keep having no limit."""
    blocks = make_shape("vshape", 3)
    assert [lane.memory for lane in blocks.with_memory([1, 2, 3]).devices] == [1, 2, 3]
    for wrong in ([1, 2], -1, 10**23):
        with pytest.raises(InputError):
            blocks.with_memory(wrong)
