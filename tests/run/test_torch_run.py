"""Tests of real runs: processes train by a schedule, and gradients are those of one process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from weftline.errors import ExecutionMismatch, InputError, LimitReached, UsageError, WeftlineError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.run import TrainRunResult, run_schedule, run_schedules
from weftline.schedule.make_blocks import make_shape
from weftline.simulate import Timetable, simulate_schedule

MODEL = str(Path(__file__).parent / "small_model.py")
SMALL = f"{MODEL}:small"


def timetable(blocks: Blocks, count: int, seed: int | None = None) -> Timetable:
    """Latest blocks first, micro-batches in order; with a seed any ready operation may be next."""
    random = np.random.default_rng(seed)
    waits = {(m, b): sum(edge[1] == b for edge in blocks.edges) for m in range(count) for b in range(blocks.n)}
    rows: list[list[int]] = [[] for _ in blocks.devices]
    done = [0] * blocks.n
    while waits:
        ready = sorted(
            key for key, number in waits.items() if not number and (seed is not None or key[0] == done[key[1]])
        )
        m, b = ready[random.integers(len(ready))] if seed is not None else max(ready, key=lambda key: (key[1], -key[0]))
        del waits[m, b]
        done[b] += 1
        for source, target, _ in blocks.edges:
            if source == b:
                waits[m, target] -= 1
        for device in blocks.blocks[b].devices:
            rows[device].append(m * blocks.n + b)
    return simulate_schedule(blocks, count, [np.array(row, np.int64) for row in rows])


def diamond() -> Blocks:
    """Two branches of unequal length with a skip over them, on three devices, with split backward."""
    place = {0: (0,), 1: (1,), 2: (2,), 3: (1,), 4: (0,)}
    forward = [(0, 1), (0, 2), (2, 3), (1, 4), (3, 4), (0, 4)]
    parts = [Block("F", 2, place[s], (1,), f"F{s}", s) for s in range(5)]
    parts += [Block("B", 2, place[s], (0,), f"B{s}", s) for s in range(5)]
    parts += [Block("W", 1, place[s], (-1,), f"W{s}", s) for s in range(5)]
    edges = [*forward, *((5 + b, 5 + a) for a, b in forward), *((s, 5 + s) for s in range(5))]
    edges += [(5 + s, 10 + s) for s in range(5)]
    return Blocks.of("diamond", [Lane(str(d)) for d in range(3)], parts, edges)


def with_links() -> Blocks:
    """A chain of two stages: forward over a link that is no process, back by a block that holds both devices."""
    lanes = [Lane("a"), Lane("wire", link=True), Lane("b")]
    parts = [
        Block("F", 2, (0,), (1,), "F0", 0),
        Block("C", 1, (1,), (0,), "wire"),
        Block("F", 2, (2,), (1,), "F1", 1),
        Block("B", 2, (2,), (-1,), "B1", 1),
        Block("C", 1, (0, 2), (0, 0), "copy"),
        Block("B", 2, (0,), (-1,), "B0", 0),
    ]
    return Blocks.of("links", lanes, parts, [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (0, 5)])


def overlapping() -> Blocks:
    """Stages on sets of devices that overlap, are apart, or lie in each other."""
    sets = [(0, 1), (2, 3), (1, 2, 3), (0,), (0, 1, 2, 3)]
    parts = [Block("F", 1, held, (1,) * len(held), f"F{s}", s) for s, held in enumerate(sets)]
    parts += [Block("B", 1, held, (-1,) * len(held), f"B{s}", s) for s, held in enumerate(sets)]
    forward = [(0, 1), (1, 2), (2, 3), (0, 3), (3, 4), (1, 4)]
    edges = [*forward, *((5 + b, 5 + a) for a, b in forward), *((s, 5 + s) for s in range(5))]
    return Blocks.of("overlapping", [Lane(str(d)) for d in range(4)], parts, edges)


def numbered_otherwise() -> Blocks:
    """A pipeline whose stages and devices are numbered backwards."""
    parts = [Block("F", 1, (1,), (1,), "F", 1), Block("F", 1, (0,), (1,), "G", 0)]
    parts += [Block("B", 1, (0,), (-1,), "H", 0), Block("B", 1, (1,), (-1,), "K", 1)]
    return Blocks.of("backwards", [Lane("0"), Lane("1")], parts, [(0, 1), (1, 2), (2, 3), (0, 3)])


TRAINED = {
    "linear": (make_shape("linear", 4), "torch"),
    "V": (make_shape("zigzag", 2), "torch"),
    "interleaved": (make_shape("interleaved", 2), "torch"),
    "M": (make_shape("mshape", 4), "weftline"),
    "K": (make_shape("kshape", 4), "weftline"),
}


@pytest.fixture(scope="module")
def trained() -> dict[str, TrainRunResult]:
    """All of them in one start of four processes, 20 seeds each."""
    pairs = [(timetable(blocks, 4), engine) for blocks, engine in TRAINED.values()]
    return dict(zip(TRAINED, run_schedules(pairs, model=SMALL, steps=1, seeds=20), strict=True))


@pytest.mark.parametrize("name", TRAINED)
def test_gradients_are_those_of_one_process(name: str, trained: dict[str, TrainRunResult]) -> None:
    """Tests that no gradient of 20 seeds differs by more than 1e-6 from one process, and losses agree."""
    result = trained[name]
    assert result.seeds == tuple(range(20))
    assert result.max_gradient_difference is not None
    assert result.max_gradient_difference <= 1e-6
    result.check()
    assert result.max_loss_difference is not None
    assert result.max_loss_difference <= 1e-6
    assert len(result.losses) == 20
    assert len(set(result.losses)) == 20
    assert len(result.ranks) == len(TRAINED[name][0].devices)
    assert min(result.measured_seconds, result.simulated_seconds, *(rank.busy_seconds for rank in result.ranks)) > 0
    assert "gradients differ from one process by at most" in result.summary()


OTHERS = {
    "linear 2, torch": (make_shape("linear", 2), "torch"),
    "linear": (make_shape("linear", 4), "weftline"),
    "V": (make_shape("zigzag", 2), "weftline"),
    "interleaved": (make_shape("interleaved", 2), "weftline"),
    "M 2": (make_shape("mshape", 2), "weftline"),
    "K 2": (make_shape("kshape", 2), "weftline"),
    "X": (make_shape("xshape", 4), "weftline"),
    "NN": (make_shape("nnshape", 4), "weftline"),
    "mllm": (make_shape("mllm", 2), "weftline"),
    "frozen embedding": (make_shape("finetune", 2), "weftline"),
    "frozen sweeps": (make_shape("alphafold", 2), "weftline"),
    "diamond": (diamond(), "weftline"),
    "overlapping": (overlapping(), "weftline"),
    "links": (with_links(), "weftline"),
    "links, torch": (with_links(), "torch"),
    "one device": (make_shape("linear", 1), "weftline"),
    "backwards": (numbered_otherwise(), "torch"),
    "K inference": (make_shape("kshape", 4, train=False), "weftline"),
    "M inference": (make_shape("mshape", 2, train=False), "weftline"),
}


@pytest.fixture(scope="module")
def others() -> dict[str, TrainRunResult]:
    """More shapes, for three steps of learning; our own engine gets random orders."""
    pairs = [
        (timetable(blocks, 3, seed if engine == "weftline" else None), engine)
        for seed, (blocks, engine) in enumerate(OTHERS.values())
    ]
    return dict(zip(OTHERS, run_schedules(pairs, model=SMALL, steps=3, rate=0.05), strict=True))


@pytest.mark.parametrize("name", OTHERS)
def test_other_shapes(name: str, others: dict[str, TrainRunResult]) -> None:
    """Tests branches, both directions, frozen parts, links, inference and three steps of learning in random orders."""
    result = others[name]
    infers = "inference" in name
    assert (result.max_gradient_difference is None) == infers
    assert (result.max_gradient_difference or 0.0) <= 1e-6
    assert (result.max_loss_difference or 0.0) <= 1e-6
    if OTHERS[name][1] == "weftline":
        assert result.max_output_difference is not None
        assert result.max_output_difference <= 1e-5
    assert len(result.losses) == 3


def test_the_comparison_sees_wrong_gradients() -> None:
    """Tests that shards which forget to sum their gradients are found out, and bad models are named."""
    pairs = [(timetable(make_shape("kshape", 2), 2), "weftline")]
    (result,) = run_schedules(pairs, model=f"{MODEL}:forgets_to_sum", steps=1)
    assert result.max_gradient_difference is not None
    assert result.max_gradient_difference > 1e-4
    with pytest.raises(ExecutionMismatch, match="gradients differ"):
        result.check()
    with pytest.raises(WeftlineError, match="same weights in every process"):
        run_schedules(pairs, model=f"{MODEL}:differs_by_process", steps=1)


def test_an_error_in_one_process_ends_all() -> None:
    """Tests that the user's own error is what is reported, although others wait for that process."""
    with pytest.raises(WeftlineError, match=r"process 1 .*ValueError: no data today"):
        run_schedule(timetable(make_shape("vshape", 2), 2), model=f"{MODEL}:fails_on_one_rank", steps=1)


def test_a_run_ends_with_its_time_limit() -> None:
    """Tests that a run that takes too long is ended, with all its processes."""
    with pytest.raises(LimitReached, match="time limit"):
        run_schedule(timetable(make_shape("vshape", 2), 2), model=SMALL, time_limit=0.5)
    assert not [child for child in psutil.Process().children(recursive=True) if "torch_worker" in str(child.cmdline())]


def test_questions_without_an_answer_are_refused_at_once() -> None:
    """Tests that nothing is started for an unknown engine, a shape torch cannot run, or no steps."""
    made = timetable(make_shape("mshape", 2), 2)
    with pytest.raises(InputError, match="--engine weftline"):
        run_schedule(made, model=SMALL, engine="torch")
    with pytest.raises(UsageError, match="unknown engine"):
        run_schedule(made, model=SMALL, engine="steam")
    with pytest.raises(UsageError, match="at least one step"):
        run_schedule(made, model=SMALL, steps=0)
    with pytest.raises(UsageError, match="no schedule"):
        run_schedules([], model=SMALL)


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from test_torch_run import timetable
from weftline.run import run_schedule
from weftline.schedule.make_blocks import make_shape
result = run_schedule(timetable(make_shape(sys.argv[2], 2), 2), model=sys.argv[3], steps=1)
sys.stdout.write(f"{result.max_gradient_difference} {len(result.ranks)}\\n")  # at once: others write, too
"""


@pytest.mark.skipif(sys.platform != "linux", reason="signals and /proc")
def test_no_process_outlives_its_parent(tmp_path: Path) -> None:
    """Tests that workers end when the process that asked for the run is killed."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "pids").mkdir()
    command = [sys.executable, str(tmp_path / "script.py"), str(Path(__file__).parent), "vshape", f"{MODEL}:never_ends"]
    parent = subprocess.Popen(command, env={**os.environ, "WEFTLINE_TEST_PIDS": str(tmp_path / "pids")})
    try:
        _until(lambda: len(list((tmp_path / "pids").iterdir())) == 2, 120)
        pids = [int(path.name) for path in (tmp_path / "pids").iterdir()]
    finally:
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    _until(lambda: not any(Path(f"/proc/{pid}/cmdline").exists() and _runs(pid) for pid in pids), 60)


def test_under_torchrun(tmp_path: Path) -> None:
    """Tests that processes started by torchrun run the schedule themselves and all get the same result."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    command += [str(tmp_path / "script.py"), str(Path(__file__).parent), "mshape", SMALL]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    lines = done.stdout.split("\n")[:2]
    assert [line.split()[1] for line in lines] == ["2", "2"]
    assert max(float(line.split()[0]) for line in lines) <= 1e-6


def _runs(pid: int) -> bool:
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def _until(true: object, seconds: float) -> None:
    end = time.monotonic() + seconds
    while not true():  # type: ignore[operator]
        assert time.monotonic() < end, "waited too long"
        time.sleep(0.05)
