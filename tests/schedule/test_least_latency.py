"""Tests of inference at a given rate."""

from __future__ import annotations

import pytest

from weftline.ask.scheduling import make_schedule
from weftline.errors import InfeasibleError
from weftline.schedule.make_blocks import chunked, make_shape


def test_a_pipeline_with_room_has_no_waiting() -> None:
    """Tests that requests at the greatest rate pass a plain pipeline in the time of its longest chain."""
    found = make_schedule(make_shape("vshape", 4, train=False), 6, arrivals=1, time_limit=5)
    assert (found.objective, found.latency, found.bound, found.period) == ("latency", 4, 4, 1)


def test_latency_depends_on_the_rate() -> None:
    """Tests a device that serves twice, worked out on paper: visits collide modulo 5, need a wait at 4, none at 9."""
    blocks = chunked("round", [0, 1, 0], [2, 3, 2], [1] * 3, train=False)
    latencies = [make_schedule(blocks, 8, arrivals=period, time_limit=5).latency for period in (4, 5, 9)]
    assert latencies == [8, 9, 7]


def test_too_many_requests_are_infeasible() -> None:
    """Tests that a rate above what a device can serve names the device."""
    with pytest.raises(InfeasibleError, match="requests come every 1"):
        make_schedule(make_shape("mshape", 4, train=False), 6, arrivals=1)
