"""Tests of arrays between processes: tokens, memory, the end of a peer, and what moving costs."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest
from msgspec.structs import replace

from weftline.errors import InputError, WeftlineError
from weftline.measure.links import measure_hop
from weftline.run.devices import CPU, OrtDevice
from weftline.run.dist.messages import RankWires, messages_of
from weftline.run.local.channel import (
    SLOT_FILLED,
    SLOT_FREE,
    Line,
    PeerGone,
    SharedBlock,
    fit,
    make_memory,
    measure_channel,
)
from weftline.run.local.engine import Engine
from weftline.run.local.layout import lay_out
from weftline.run.split.manifest import Manifest, ModelSegment, ModelWire


def _lines() -> tuple[Line, Line]:
    """Both ends, in one process."""
    there, back = os.pipe(), os.pipe()
    return Line(back[0], there[1]), Line(there[0], back[1])


def test_memory_is_shared_and_has_no_name() -> None:
    """Tests that two mappings of a descriptor show the same tensor, also after the descriptor is closed."""
    descriptor = make_memory(8192)
    one, two = SharedBlock(descriptor), SharedBlock(descriptor)
    os.close(descriptor)
    one.array(4096, (2, 3), np.dtype(np.float32))[:] = 7
    assert two.array(4096, (6,), np.dtype(np.float32)).tolist() == [7.0] * 6
    assert two.array(0, (), np.dtype(np.int64)) == 0
    assert two.array(0, (0, 4), np.dtype(np.int64)).shape == (0, 4)


def test_tokens_wait_for_their_wire() -> None:
    """Tests that tokens of several wires share a line and are taken one by one, each for its own wire and kind."""
    here, there = _lines()
    for wire, kind in ((3, SLOT_FILLED), (70_000, SLOT_FREE), (3, SLOT_FILLED)):
        here.post(wire, kind)
    assert not there.has(3, SLOT_FILLED)
    here.flush()
    there.wait(70_000, SLOT_FREE)
    assert [there.take(3, SLOT_FREE), there.take(3, SLOT_FILLED), there.has(3, SLOT_FILLED)] == [False, True, True]
    there.wait(3, SLOT_FILLED)
    assert not there.take(3, SLOT_FILLED)


def test_two_full_pipes_do_not_stop_each_other() -> None:
    """Tests that both ends send more tokens than a pipe holds before either takes one."""
    here, there = _lines()
    count = 60_000
    threads = [threading.Thread(target=_send_many, args=(line, count), daemon=True) for line in (here, there)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)


def _send_many(line: Line, count: int) -> None:
    for wire in range(count):
        line.post(wire, SLOT_FILLED)
    line.flush()
    for wire in range(count):
        line.wait(wire, SLOT_FILLED)


def test_many_tokens_at_once() -> None:
    """Tests that more tokens than one write takes arrive whole."""
    here, there = _lines()
    for wire in range(5000):
        here.post(wire, SLOT_FILLED)
    here.flush()
    for wire in reversed(range(5000)):
        there.wait(wire, SLOT_FILLED)


def test_a_peer_that_leaves() -> None:
    """Tests that both waiting for and writing to one that has left are the same error."""
    here, there = _lines()
    there.close()
    with pytest.raises(PeerGone):
        here.wait(0, SLOT_FILLED)
    here.post(0, SLOT_FILLED)
    with pytest.raises(PeerGone):
        here.flush()


def test_fit() -> None:
    """Tests that a line is found again, and that noise never makes time negative."""
    sizes = (0, 1000, 10**6)
    assert fit(sizes, [2000 + size // 2 for size in sizes]) == (2000, 2 * 10**9)
    assert fit((1000,), [500]) == (500, 10**13)
    assert fit((1000, 2000), [500, 400]) == (450, 10**13)
    latency, bandwidth = fit((1000, 10**6), [1, 10**6])
    assert latency >= 0
    assert bandwidth > 0


def test_measured() -> None:
    """Tests that two processes exchange arrays, and that every size is timed."""
    found = measure_channel((0, 2**10, 2**20), rounds=10)
    assert found.sizes == (0, 2**10, 2**20)
    assert all(time > 0 for time in found.one_way)
    assert found.latency >= 0
    assert found.bandwidth > 0


def test_a_core_that_does_not_exist() -> None:
    """Tests that a failure over there is told here."""
    with pytest.raises(WeftlineError, match="cannot be measured"):
        measure_channel((1,), cores=((99_999,), (0,)), rounds=1)


def test_a_step_between_two_workers_is_measured() -> None:
    """Tests that a step takes at least a microsecond and, even where both share a core, no more than a blink."""
    device = OrtDevice("ort:CPUExecutionProvider", CPU, {}, (min(os.sched_getaffinity(0)),), 1, False)
    assert 1_000 < measure_hop(device, device) < 50_000_000


def test_tensors_that_no_memory_holds() -> None:
    """Tests that they are one error before any process is started, by both engines, and that it names the largest."""
    segments = tuple(ModelSegment(n, "ab"[n], f"{n}.onnx", (f"op{n}",), (), ()) for n in range(2))
    wires = (
        ModelWire("x", "float32", (4,), -1, (0,), False),
        ModelWire("large", "float32", (2**50,), 0, (1,), False),
        ModelWire("y", "float32", (4,), 1, (), True),
    )
    segments = (
        replace(segments[0], inputs=("x",), outputs=("large",)),
        replace(segments[1], inputs=("large",), outputs=("y",)),
    )
    manifest = Manifest("weftline-stages", 1, "m", "", ("x",), ("y",), segments, wires)
    with pytest.raises(InputError, match=r"'large', 4096 TiB of it: .*more than this machine has memory for"):
        Engine([(lay_out(manifest, "nowhere", pipelined=False), {})])
    with pytest.raises(InputError, match="'large'"):
        RankWires(messages_of(manifest, ["a", "b"]), 0, ["a", "b"], [1], 1.0)
