"""Windows, shifts and masks of the Swin transformer."""

from __future__ import annotations

import numpy as np
from tests.zoo.conftest import Run

from weftline import zoo
from weftline.zoo import swin
from weftline.zoo.builder import Builder


def test_windows_and_rolls_can_be_undone(run: Run) -> None:
    """Tests that a roll is numpy's roll, windows are tiles of the image, and both have an inverse."""
    b = Builder("m")
    x = b.input("x", (2, 6, 6, 3))
    rolled = swin._roll(b, x, 1)
    windows = swin._windows(b, rolled, 3)
    back = swin._roll(b, swin._join_windows(b, windows, 3, x.shape), -1)
    for value, name in ((rolled, "rolled"), (windows, "windows"), (back, "back")):
        b.output(value, name)
    image = np.random.default_rng(0).standard_normal((2, 6, 6, 3)).astype(np.float32)
    result = run(b.model(), {"x": image})
    np.testing.assert_array_equal(result["rolled"], np.roll(image, (-1, -1), (1, 2)))
    np.testing.assert_array_equal(result["windows"][1], result["rolled"][0, :3, 3:].reshape(9, 3))
    np.testing.assert_array_equal(result["back"], image)


def test_regions_of_a_shifted_image() -> None:
    """Tests that tokens share a region only if they were neighbours before the roll."""
    regions = swin._regions(window=4, side=8, shift=2)
    place = np.stack(np.meshgrid(np.arange(8), np.arange(8), indexing="ij"), -1)
    before = np.roll(place, (-2, -2), (0, 1)).reshape(2, 4, 2, 4, 2).swapaxes(1, 2).reshape(4, 16, 2)
    for region, origin in zip(regions, before, strict=True):
        near = np.abs(origin[:, None] - origin[None]).max(-1) < 4
        np.testing.assert_array_equal(region[:, None] == region[None], near)


def test_shifts_only_where_there_are_several_windows() -> None:
    """Tests that every second block is shifted, except at the last stage, which is one window."""
    graph = zoo.build("swin", weights=False).graph
    masked = {node.name.rsplit("/attn", 1)[0] for node in graph.node if node.op_type == "Where"}
    shifted = {"/layers.0/blocks.1", "/layers.1/blocks.1", *(f"/layers.2/blocks.{i}" for i in (1, 3, 5))}
    assert masked == shifted
