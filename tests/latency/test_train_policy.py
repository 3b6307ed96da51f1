"""Training the policy: the same bytes from the same seed, going on after a kill, and gradients that point downhill."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weftline.errors import InputError, UsageError
from weftline.latency.policy import load_weights
from weftline.latency.policy import train as training
from weftline.latency.policy.features import see
from weftline.latency.policy.instances import fresh_problem
from weftline.latency.policy.network import PolicyOutput, first_weights
from weftline.latency.policy.samples import no_bias
from weftline.latency.policy.train import advantages, judge, train_policy
from weftline.latency.policy.train_network import checkpoint_of, first_state, load_state, save_state
from weftline.search import Event
from weftline.simulate.sentinels import NEVER


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Short runs that save often."""
    monkeypatch.setattr(training, "GRAPHS_PER_STEP", 2)
    monkeypatch.setattr(training, "STEPS_PER_CHECK", 2)
    monkeypatch.setattr(training, "STEPS_PER_CHECKPOINT", 1)


def _train(folder: Path, name: str, *, steps: int = 4, resume: bool = False, kill_at: int | None = None) -> Path:
    def watch(event: Event) -> None:
        if kill_at is not None and event.message.startswith(f"step {kill_at} "):
            raise RuntimeError("killed")

    return train_policy(
        folder / f"{name}.safetensors", steps=steps, seed=3, resume=resume, on_event=watch, check_problems=2
    )


@pytest.mark.usefixtures("small")
def test_same_seed_same_bytes(tmp_path: Path) -> None:
    """Tests that weights and checkpoints of two runs are equal, and that something was learnt."""
    first, second = (_train(tmp_path, name) for name in ("a", "b"))
    assert first.read_bytes() == second.read_bytes()
    assert checkpoint_of(first).read_bytes() == checkpoint_of(second).read_bytes()
    state = load_state(checkpoint_of(first))
    assert state.step == 4
    untrained = first_weights(3)
    assert any(not np.array_equal(state.now[name], untrained[name]) for name in untrained)
    load_weights(first)


@pytest.mark.usefixtures("small")
def test_killed_training_goes_on(tmp_path: Path) -> None:
    """Tests that a run that was killed and goes on ends with the bytes of one that was not."""
    whole = _train(tmp_path, "whole")
    with pytest.raises(RuntimeError, match="killed"):
        _train(tmp_path, "broken", kill_at=2)
    assert load_state(checkpoint_of(tmp_path / "broken.safetensors")).step == 1
    again = _train(tmp_path, "broken", resume=True)
    assert again.read_bytes() == whole.read_bytes()
    assert checkpoint_of(again).read_bytes() == checkpoint_of(whole).read_bytes()


@pytest.mark.usefixtures("small")
def test_broken_checkpoints_are_refused(tmp_path: Path) -> None:
    """Tests checkpoints that are cut off, missing, of another seed, or only weights."""
    output = _train(tmp_path, "a", steps=1)
    checkpoint = checkpoint_of(output)
    with pytest.raises(UsageError, match="seed 3"):
        train_policy(output, steps=2, seed=4, resume=True)
    data = checkpoint.read_bytes()
    for broken in (data[:-5], output.read_bytes(), b""):
        checkpoint.write_bytes(broken)
        with pytest.raises(InputError):
            _train(tmp_path, "a", resume=True)
    checkpoint.unlink()
    with pytest.raises(InputError):
        _train(tmp_path, "a", resume=True)


def test_either_seconds_or_steps(tmp_path: Path) -> None:
    """Tests that a run has exactly one end."""
    for ends in ({}, {"seconds": 1.0, "steps": 1}):
        with pytest.raises(UsageError, match="seconds or steps"):
            train_policy(tmp_path / "x.safetensors", **ends)  # type: ignore[arg-type]


def test_runs_by_time_end(tmp_path: Path) -> None:
    """Tests that a run by seconds writes its weights and says where it is."""
    told: list[str] = []
    output = train_policy(
        tmp_path / "timed.safetensors",
        seconds=0.01,
        on_event=lambda event: told.append(event.message),
        check_problems=2,
    )
    load_weights(output)
    assert any("of cPEFT" in message for message in told)
    assert load_state(checkpoint_of(output)).seconds >= 0.01


def test_advantages() -> None:
    """Tests that less is better, failures are worst, and risk looks at the best quarter alone."""
    planned = np.array([100, 90, 110, NEVER, 100, 100, 100, 100], np.int64)
    mean = advantages(planned, risk=False)
    assert mean.argmax() == 1
    assert mean.argmin() == 3
    assert abs(mean.sum()) < 1e-9
    risk = advantages(planned, risk=True)
    assert np.flatnonzero(risk).tolist() == [1]
    assert not advantages(np.full(4, 7), risk=False).any()
    assert not advantages(np.full(4, NEVER), risk=True).any()


def test_pushes_point_downhill() -> None:
    """Tests that the mean push over many draws moves a bias that keeps the fast device away back towards it."""
    problem = fresh_problem(np.random.default_rng(11), 2, 30)
    seen = see(problem)
    assert seen is not None
    fast = int(seen.simple_values[:2].argmin())
    center = no_bias(seen)
    center.bias[:, fast] += 2.0
    output = PolicyOutput(center, center, np.zeros_like(center.bias))
    pushes = [judge(problem, seen, output, np.random.default_rng(i), risk=False).one.device for i in range(10)]
    mean = np.mean(pushes, axis=0)
    assert mean[fast] > mean[1 - fast]


def test_fresh_problems_differ_and_can_be_solved() -> None:
    """Tests that drawn problems have the promised sizes, that none comes twice, and that most can be decoded."""
    problems = [fresh_problem(np.random.default_rng([9, i]), 2 + i % 4) for i in range(30)]
    assert {len(problem.devices) for problem in problems} == {2, 3, 4, 5}
    assert all(30 <= len(problem.graph.ops) <= 250 for problem in problems)
    assert len({problem.cost.time.tobytes() for problem in problems}) == 30
    assert sum(see(problem) is not None for problem in problems) >= 27
    assert any(problem.buses for problem in problems)
    assert any((problem.cost.time < 0).any() for problem in problems)
    assert any(device.capacity is not None for problem in problems for device in problem.devices)


def test_ctrl_c_before_the_first_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that no file is promised where none was written."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "check", interrupt)
    with pytest.raises(KeyboardInterrupt):
        _train(tmp_path, "a")
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("small")
def test_ctrl_c_after_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that an interrupted run leaves its weights, and so does a resumed one whose weights were lost."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(training, "_fresh", interrupt)
    load_weights(_train(tmp_path, "a"))
    monkeypatch.undo()
    output = _train(tmp_path, "b", steps=1)
    output.unlink()
    monkeypatch.setattr(training, "_fresh", interrupt)
    load_weights(_train(tmp_path, "b", resume=True))


def test_outputs_are_checked_first(tmp_path: Path) -> None:
    """Tests that folders and paths that cannot be written are refused before anything is trained."""
    (tmp_path / "file").touch()
    odd = (
        ".",
        "",
        "..",
        "/",
        tmp_path,
        tmp_path / "none" / "p",
        tmp_path / "file" / "p",
        tmp_path / ("x" * 250),
        "a\0",
    )
    for output in odd:
        with pytest.raises(InputError):
            train_policy(output, steps=1)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_outputs_have_checkpoints_of_their_own() -> None:
    """Tests that names that differ in their suffix alone do not share a checkpoint."""
    assert checkpoint_of("p.a") != checkpoint_of("p.b")


@pytest.mark.parametrize(
    "change",
    [
        {"step": -1},
        {"step": 10**400},
        {"best_step": 3},
        {"best_step": -1},
        {"seed": -1},
        {"seconds": float("nan")},
        {"seconds": -1.0},
        {"score": float("nan")},
        {"score": float("inf")},
    ],
    ids=str,
)
def test_impossible_states_are_refused(change: dict[str, Any], tmp_path: Path) -> None:
    """Tests that a checkpoint cannot stand where no training can."""
    state = first_state(3)
    save_state(tmp_path / "a", state, timed=True)
    load_state(tmp_path / "a")
    save_state(tmp_path / "a", replace(state, **change), timed=True)
    with pytest.raises(InputError, match="stands where"):
        load_state(tmp_path / "a")
