"""Checkpoints: the same bytes for the same training, resumed after a kill, refused when anything is odd."""

import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from weftline.cost import CostTable, devices_of_file, expand_file_costs
from weftline.errors import InputError
from weftline.papers.hsdag import hsdag
from weftline.papers.placeto import placeto
from weftline.papers.rnn import rnn
from weftline.papers.training.training import Checkpoint, Owner, read_checkpoint, write_checkpoint
from weftline.problem import Problem, Rules
from weftline.search import Event, Search
from weftline.zoo import regal_costs, synthetic

RUNS: list[tuple[ModuleType, dict[str, str]]] = [
    (hsdag, {"preset": "paper", "episodes": "3"}),
    (hsdag, {"preset": "weftline", "episodes": "120", "polish": "off"}),
    (placeto, {"episodes": "4"}),
    (rnn, {"episodes": "4"}),
]
OWNER = Owner("hsdag", "", {})
IDS = ["paper", "weftline", "placeto", "rnn"]


class _Killed(BaseException):
    """Stands for a process that ends without another word."""


def _problem(seed: int = 1) -> Problem:
    graph = synthetic("layered", ops=14, seed=seed)
    costs = regal_costs(graph, 3)
    table = expand_file_costs(costs)
    table = CostTable(table.time * np.array([1, 2, 3]), table.transfer, table.transfer_row, table.source)
    return Problem(graph, devices_of_file(costs), table)


def _train(
    solver: ModuleType,
    path: Path,
    options: dict[str, str],
    *,
    seed: int = 0,
    problem: Problem | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Search:
    search = Search(
        problem or _problem(),
        seed=seed,
        solver=solver.SOLVER.name,
        options={**options, "checkpoint": str(path)},
        on_event=on_event,
    )
    solver.SOLVER.solve(search)
    return search


@pytest.mark.parametrize(("solver", "options"), RUNS, ids=IDS)
def test_killed_training_resumes_to_the_same_bytes(solver: ModuleType, options: dict[str, str], tmp_path: Path) -> None:
    """Tests that two trainings are equal byte by byte, and so is one that was killed in the middle and resumed."""
    first = _train(solver, tmp_path / "a", options)
    again = _train(solver, tmp_path / "b", options)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    half = "episode 100" if "120" in options.values() else "episode 2"

    def kill(event: Event) -> None:
        if event.message.startswith(half):
            raise _Killed

    with pytest.raises(_Killed):
        _train(solver, tmp_path / "c", options, on_event=kill)
    assert (tmp_path / "c").read_bytes() != (tmp_path / "a").read_bytes()
    resumed = _train(solver, tmp_path / "c", options)
    assert (tmp_path / "c").read_bytes() == (tmp_path / "a").read_bytes()
    assert [search.best is not None and search.best.value for search in (again, resumed)] == [
        first.best is not None and first.best.value
    ] * 2
    _train(solver, tmp_path / "d", options, seed=1)
    assert (tmp_path / "d").read_bytes() != (tmp_path / "a").read_bytes()


def test_foreign_and_damaged_files_are_refused(tmp_path: Path) -> None:
    """Tests that every file that is not a whole checkpoint of this training is refused, and left as it was."""
    options = {"preset": "paper", "episodes": "1"}
    path = tmp_path / "train.safetensors"
    _train(hsdag, path, options)
    data = path.read_bytes()
    damaged = {
        "empty": b"",
        "text": b"not a checkpoint at all",
        "cut": data[:-100],
        "flipped": data[:-50] + bytes([data[-50] ^ 1]) + data[-49:],
        "version": data.replace(b'\\"version\\":1', b'\\"version\\":9'),
        "pickle": b"\x80\x04K\x01.",
        "header": (2**40).to_bytes(8, "little") + data[8:],
        "nothing of ours": b"\x02\x00\x00\x00\x00\x00\x00\x00{}",
    }
    for name, content in damaged.items():
        assert content != data, name
        path.write_bytes(content)
        with pytest.raises(InputError, match=r"train\.safetensors"):
            _train(hsdag, path, options)
        assert path.read_bytes() == content, name


def test_checkpoints_of_other_trainings_are_refused(tmp_path: Path) -> None:
    """Tests that the solver, the problem and the settings must be those of the checkpoint."""
    path = tmp_path / "train.safetensors"
    options = {"preset": "paper", "episodes": "1"}
    _train(hsdag, path, options)
    with pytest.raises(InputError, match="levels=1, not 0"):
        _train(hsdag, path, {**options, "levels": "0"})
    with pytest.raises(InputError, match="another problem"):
        _train(hsdag, path, options, problem=_problem(2))
    with pytest.raises(InputError, match="another problem"):
        _train(hsdag, path, options, problem=_problem().with_rules(Rules(runtime="sequential")))
    with pytest.raises(InputError, match="training of 'hsdag'"):
        _train(rnn, path, {"episodes": "1"})
    with pytest.raises(InputError, match="cannot be"):
        _train(hsdag, tmp_path / "no folder" / "file", options)


def test_training_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Tests that two episodes and then two more are four."""
    options = {"preset": "paper"}
    _train(hsdag, tmp_path / "a", {**options, "episodes": "2"})
    _train(hsdag, tmp_path / "a", {**options, "episodes": "4"})
    _train(hsdag, tmp_path / "b", {**options, "episodes": "4"})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_other_seeds_are_refused(tmp_path: Path) -> None:
    """Tests that a training goes on only with the seed that it began with."""
    options = {"preset": "paper", "episodes": "1"}
    _train(hsdag, tmp_path / "a", options)
    with pytest.raises(InputError, match="seed=0, not 1"):
        _train(hsdag, tmp_path / "a", options, seed=1)


def test_paths_that_are_no_files_are_refused(tmp_path: Path) -> None:
    """Tests that a pipe, a device, a folder and a name that is too long are bad input, and that nothing waits."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero"), tmp_path, tmp_path / ("x" * 5000)):
        with pytest.raises(InputError, match=r"regular file|too long"):
            read_checkpoint(path, OWNER, {})


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused(number: float, tmp_path: Path) -> None:
    """Tests that a checkpoint with a good digest and bad weights is bad input."""
    write_checkpoint(tmp_path / "a", OWNER, Checkpoint(1, 1, {"weight/w": np.array([0.0, number], np.float32)}))
    with pytest.raises(InputError, match="weight/w that are not finite"):
        read_checkpoint(tmp_path / "a", OWNER, {"weight/w": (2,)})


@pytest.mark.parametrize(("episode", "steps"), [(-1, 0), (0, -1), (10**400, 0), (0, 10**13)])
def test_impossible_counts_are_refused(episode: int, steps: int, tmp_path: Path) -> None:
    """Tests that a training stands at a step that it can have reached."""
    write_checkpoint(tmp_path / "a", OWNER, Checkpoint(0, 0, {}))
    data = (tmp_path / "a").read_bytes()
    header = data[8:].rstrip().replace(b'\\"episode\\":0', f'\\"episode\\":{episode}'.encode())
    header = header.replace(b'\\"steps\\":0', f'\\"steps\\":{steps}'.encode())
    (tmp_path / "a").write_bytes(len(header).to_bytes(8, "little") + header)
    with pytest.raises(InputError, match=r"where training stood|no training"):
        read_checkpoint(tmp_path / "a", OWNER, {})
