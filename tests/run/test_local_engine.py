"""Tests of the local engine: right outputs in every shape of plan, and nothing left behind, whoever dies."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import psutil
import pytest
from tests.run.local_samples import engine, expected, feeds, seats, small_model, split, stages

from weftline.errors import InputError, WeftlineError
from weftline.files import RUN_PREFIX, remove_forgotten
from weftline.run import devices as ort_session
from weftline.run.compare import difference
from weftline.run.devices import CPU, OrtDevice
from weftline.run.local.engine import Engine, LanePass
from weftline.run.local.layout import REQUESTS_AHEAD, WorkerAnswer

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_model(tmp_path / "small.onnx")


@pytest.fixture(autouse=True)
def nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No descriptor, process or folder survives a test."""
    here = tmp_path / "temporary"
    here.mkdir()
    monkeypatch.setenv("TMPDIR", str(here))
    monkeypatch.setattr("tempfile.tempdir", str(here))
    process = psutil.Process()
    descriptors = process.num_fds()
    children = set(process.children())  # of tests before: Python's tracker of shared memory lives on
    yield
    gc.collect()
    assert process.num_fds() <= descriptors
    remove_forgotten(here)  # as the next run does, after one that was killed
    assert not list(here.glob(f"{RUN_PREFIX}*"))
    assert set(process.children()) <= children


def test_time_of_a_request() -> None:
    """Tests the mean of latencies, and that of a full pipeline from completion to completion, also of few requests."""

    def lane(*done: int) -> LanePass:
        return LanePass((0,) * len(done), done, (WorkerAnswer("done"), WorkerAnswer("done")), {})

    assert lane(30, 50, 60, 90, 110, 140).taken(pipelined=True) == (140 - 60) / 3
    assert lane(30, 50, 60, 90, 110, 140).taken(pipelined=False) == 80
    assert lane(10).taken(pipelined=True) == 10
    assert lane(10, 24).taken(pipelined=True) == 14
    assert lane(10, 24, 30).taken(pipelined=True) == 6


@pytest.mark.parametrize("workers", [1, 2, 3, 7])
def test_rings_come_round_together(workers: int, model: Path) -> None:
    """Tests that a pipeline's rings have powers of two as slots, enough for all stages between, and few bindings."""
    with split(model, stages(workers)) as layout:
        slots = {wire.slots for wire in layout.wires if wire.readers}
        assert all(count & (count - 1) == 0 and count >= 2 + REQUESTS_AHEAD for count in slots)
        assert layout.most_slots == max(slots) <= 32
    with split(model, stages(workers), pipelined=False) as layout:
        assert layout.most_slots == 1


@pytest.mark.parametrize(
    ("placement", "pipelined"),
    [
        (stages(1), True),
        (stages(2), True),
        (stages(3), True),
        ([i % 2 for i in range(14)], False),
        ([0, 1, 2, 2, 0, 1, 1, 0, 2, 2, 1, 1, 0, 2], False),
        ([i % 3 for i in range(14)], True),
    ],
    ids=["one", "two stages", "three stages", "alternating", "scattered", "scattered and pipelined"],
)
def test_outputs_of_every_request(model: Path, placement: list[int], pipelined: bool) -> None:
    """Tests that every request gives the outputs of its own inputs, although several are on their way at once."""
    given = feeds()
    wanted = [expected(model, feed) for feed in given]
    with engine(model, placement, pipelined=pipelined) as running:
        for count in (25, 4):
            done = running.run([count], given, keep=[frozenset(range(count))])[0]
            assert len(done.sent_ns) == len(done.done_ns) == len(done.kept) == count
            assert list(done.done_ns) == sorted(done.done_ns)
            for request, outputs in done.kept.items():
                names = sorted(outputs)
                assert names == sorted(wanted[0])
                theirs = wanted[request % len(given)]
                assert difference([outputs[n] for n in names], [theirs[n] for n in names]) < 1e-4
            if not pipelined:
                assert all(a <= b for a, b in zip(done.done_ns, done.sent_ns[1:], strict=False))


def test_replicas_run_side_by_side(model: Path) -> None:
    """Tests two lanes of one worker each, with counts of their own."""
    with split(model, stages(1)) as layout:
        places = seats((1,))
        with Engine([(layout, places), (layout, places)]) as running:
            one, two = running.run([7, 3], feeds(), keep=[frozenset(range(7)), frozenset(range(3))])
    assert (len(one.done_ns), len(two.done_ns)) == (7, 3)
    for request in range(3):
        assert np.array_equal(one.kept[request]["y"], two.kept[request]["y"])


@pytest.mark.parametrize("provider", [CPU, "CUDAExecutionProvider"])
@pytest.mark.parametrize(("speed", "took"), [(1.0, 1_000_000), (0.5, 2_000_000), (0.25, 4_000_000), (0.001, 10**9)])
def test_pace(speed: float, took: int, provider: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests by a clock of our own that a run of 1 ms takes 1 / speed of it, slept for the most part."""
    now, slept, stolen = [5_000_000], [0.0], [0]

    def clock() -> int:
        now[0] += 100
        return now[0]

    def sleep(seconds: float) -> None:
        slept[0] += seconds
        now[0] += round(seconds * 1e9)

    monkeypatch.setattr(time, "perf_counter_ns", clock)
    monkeypatch.setattr(time, "thread_time_ns", lambda: now[0] - stolen[0])
    monkeypatch.setattr(time, "sleep", sleep)
    pace = ort_session.Pace(OrtDevice("ort:x", provider, {}, (0,), 1, True), speed)
    pace.begin()
    now[0] += 1_000_000
    assert pace.end() == pytest.approx(took, rel=0.002)
    assert slept[0] * 1e9 == pytest.approx(max(took - 1_000_000 - ort_session.SPIN_NS, 0), abs=2000 + took // 1000)
    pace.begin()
    now[0] += 1_000_000
    stolen[0] += 400_000  # by somebody else on the same core: it takes its time, but is not stretched
    stretched = 400_000 + 0.6 * took if provider == CPU else took
    assert pace.end() == pytest.approx(stretched if speed < 1 else 1_000_000, rel=0.002)


def test_a_slow_device_computes_longer(tmp_path: Path) -> None:
    """Tests the same model on two workers, one at a quarter of the speed: its computing takes clearly longer."""
    large = small_model(tmp_path / "large.onnx", width=384)
    with split(large, stages(1)) as layout, Engine([(layout, seats((1,))), (layout, seats((0.25,)))]) as running:
        done = running.run([60, 60], feeds(width=384))
    fast, slow = (found.answers[0].compute_ns[0] for found in done)
    assert slow > 2 * fast


def test_a_worker_that_is_killed(model: Path) -> None:
    """Tests for each worker that its end is noticed, named and told with its signal."""
    for victim in range(2):
        with engine(model, stages(2)) as running:
            pids = running.pids
            threading.Timer(0.2, os.kill, (pids[victim], signal.SIGKILL)).start()
            with pytest.raises(WeftlineError, match=rf"device 'd{victim}' was ended by SIGKILL"):
                running.run([10**6], feeds())
        assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_worker_that_hangs(model: Path) -> None:
    """Tests that a stopped worker is a hang after the timeout, that its state is told, and that it is ended."""
    with engine(model, stages(2)) as running:
        pids = running.pids
        os.kill(pids[1], signal.SIGSTOP)
        said = r"no worker has given a sign of life for 2 s.*d1 \(stopped\)"
        running.timeout = 2
        with pytest.raises(WeftlineError, match=said):
            running.run([10**6], feeds())
    assert not any(psutil.pid_exists(pid) for pid in pids)


def kill_and_look(model: Path, victims: Sequence[str], number: int = signal.SIGKILL, *, fleet: bool = False) -> int:
    """Start a run in a process of its own, end some of its processes; its exit code, once all of them are gone."""
    command = [sys.executable, "-m", "tests.run.local_samples", str(model), *(["fleet"] if fleet else [])]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as parent:
        assert parent.stdout is not None
        pids = [int(word) for word in parent.stdout.readline().split()]
        assert len(pids) == 2
        for victim in victims:
            os.kill(parent.pid if victim == "parent" else pids[int(victim)], number)
        try:
            code = parent.wait(timeout=60)
        except subprocess.TimeoutExpired:
            parent.kill()
            raise
        deadline = time.monotonic() + 30
        while any(_alive(pid) for pid in pids):
            assert time.monotonic() < deadline, f"{[pid for pid in pids if _alive(pid)]} of {pids} still run"
            time.sleep(0.02)
    return code


def _alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("victims", [("parent",), ("0", "parent"), ("parent", "1")])
def test_no_worker_outlives_its_parent(model: Path, victims: tuple[str, ...]) -> None:
    """Tests that workers end with a parent that is killed, also if one of them is killed with it."""
    assert kill_and_look(model, victims) == -signal.SIGKILL


def test_interrupted(model: Path) -> None:
    """Tests that Ctrl-C, which every process of a terminal gets, ends the run and all workers."""
    assert kill_and_look(model, ("0", "1", "parent"), signal.SIGINT) != 0


def test_workers_of_a_fleet_end_with_their_parent(model: Path) -> None:
    """Tests the same two for workers that wait for several lanes at once."""
    assert kill_and_look(model, ("parent",), fleet=True) == -signal.SIGKILL
    assert kill_and_look(model, ("0", "1", "parent"), signal.SIGINT, fleet=True) != 0


def test_errors_of_onnxruntime_come_back(model: Path) -> None:
    """Tests that a segment that cannot be loaded, and a provider that is not there, are told with their device."""
    with split(model, stages(2)) as layout:
        Path(layout.folder, layout.manifest.segments[1].file).write_bytes(b"nonsense")
        with pytest.raises(InputError, match=r"device 'd1': .*cannot load it"):
            Engine([(layout, seats((1, 1)))])
    with split(model, stages(2)) as layout, pytest.raises(InputError, match="RocketExecutionProvider is not part of"):
        Engine([(layout, seats((1, 1), "ort:RocketExecutionProvider:0"))])


def test_a_thousand_requests_take_no_more_memory(model: Path) -> None:
    """Tests that neither workers nor this process grow from request 200 to request 1,000."""
    with engine(model, stages(2)) as running:
        first = running.run([200], feeds())[0]
        here = psutil.Process().memory_info().rss
        last = running.run([800], feeds())[0]
        assert psutil.Process().memory_info().rss - here < 4 * 2**20
    for before, after in zip(first.answers, last.answers, strict=True):
        assert after.rss - before.rss < 4 * 2**20


def test_time_between_runs_is_no_hang(model: Path) -> None:
    """Tests that an engine that nobody asked anything for longer than its timeout is not called dead."""
    with engine(model, stages(2), timeout=10.0) as running:
        running._heard -= 1000.0
        assert len(running.run([3], feeds())[0].done_ns) == 3
