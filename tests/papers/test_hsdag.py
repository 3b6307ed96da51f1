"""The learned solvers as a user meets them: presets, settings, events, limits, a machine without torch."""

import subprocess
import sys
from types import ModuleType
from typing import Literal

import numpy as np
import pytest

from weftline.cost import CostTable, devices_of_file, expand_file_costs
from weftline.errors import InfeasibleError, UsageError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.measured.trials import Trials, make_nodes, simulated
from weftline.latency.policy import settings as torch_backend
from weftline.papers import hsdag, placeto, rnn
from weftline.problem import Problem, Rules
from weftline.search import Search
from weftline.simulate import simulate_latency
from weftline.simulate.latency import INFEASIBLE
from weftline.testing.generate import problem_of, random_problem
from weftline.zoo import regal_costs, synthetic

Runtime = Literal["parallel", "sequential"]


def _problem(ops: int = 40, runtime: Runtime = "parallel") -> Problem:
    graph = synthetic("series_parallel", ops=ops, seed=3)
    costs = regal_costs(graph, 3)
    table = expand_file_costs(costs)
    table = CostTable(table.time * np.array([4, 5, 6]), table.transfer // 50, table.transfer_row, table.source)
    return Problem(graph, devices_of_file(costs), table, Rules(runtime=runtime))


def _solved(solver: ModuleType, problem: Problem, **options: str) -> tuple[Search, list[str]]:
    said: list[str] = []
    search = Search(problem, options=options, on_event=lambda event: said.append(event.message))
    solver.SOLVER.solve(search)
    return search, said


def _value(search: Search) -> int:
    assert search.best is not None
    return search.best.value


def _best_single(problem: Problem) -> int:
    n, k = problem.cost.time.shape
    return min(simulate_latency(problem, np.full(n, device, np.int32)).value for device in range(k))


class _Counting:
    """The simulator, and how many placements it was asked about at a time."""

    over, samples = False, 64

    def __init__(self, problem: Problem) -> None:
        self.drawn: list[int] = []
        self._simulator = simulated(problem)

    def __call__(self, placements: Indices, /) -> Ints:
        self.drawn.append(len(placements))
        return self._simulator(placements)


def test_paper_draws_500_placements_in_25_steps() -> None:
    """Tests that the published method is run whole, and that its answer is no worse than any single device."""
    problem, said, meter = _problem(), [], _Counting(_problem())
    search = Search(problem, options={"preset": "paper"}, on_event=lambda event: said.append(event.message))
    hsdag.solve(search, meter)
    assert meter.drawn == [3, *[20] * 25]  # single devices first
    episodes = [line for line in said if line.startswith("episode")]
    assert len(episodes) == 25
    assert all("reward" in line and "best" in line and "entropy" in line for line in episodes)
    assert _value(search) <= _best_single(problem)


def test_default_learns_and_the_polish_helps() -> None:
    """Tests that training ends below the best single device, and that the polish is no worse than training alone."""
    problem = _problem()
    learned, _ = _solved(hsdag, problem, episodes="120", polish="off")
    polished, said = _solved(hsdag, problem, episodes="120")
    assert _value(learned) < _best_single(problem)
    assert _value(polished) <= _value(learned)
    assert any(line.startswith("annealing from the best") for line in said)


def test_training_raises_the_reward() -> None:
    """Tests that later episodes draw better placements than the first ones."""
    rewards = []
    search = Search(
        _problem(),
        options={"episodes": "160", "polish": "off"},
        on_event=lambda event: (
            rewards.append(float(event.message.split("reward ")[1].split(",")[0]))
            if event.message.startswith("episode")
            else None
        ),
    )
    hsdag.SOLVER.solve(search)
    assert rewards[-1] > rewards[0] + 0.05


@pytest.mark.parametrize("setting", ["levels=0", "levels=3", "features=-cost", "features=kind", "nodes=ops"])
@pytest.mark.parametrize("preset", ["paper", "weftline"])
def test_parts_can_be_left_out(preset: str, setting: str) -> None:
    """Tests that every part of the ablation trains."""
    name, _, word = setting.partition("=")
    few = "2" if preset == "paper" else "20"
    search, said = _solved(hsdag, _problem(20), preset=preset, polish="off", episodes=few, **{name: word})
    assert _value(search) <= _best_single(_problem(20))
    assert any(line.startswith(f"episode {few}:") for line in said)


@pytest.mark.parametrize("solver", [placeto, rnn])
@pytest.mark.parametrize("runtime", ["parallel", "sequential"])
def test_baselines_are_no_worse_than_single_devices(solver: ModuleType, runtime: Runtime) -> None:
    """Tests that Placeto and the RNN placer train, report, and keep single devices as candidates."""
    problem = _problem(20, runtime)
    search, said = _solved(solver, problem, episodes="3")
    assert _value(search) <= _best_single(problem)
    assert sum(line.startswith("episode") for line in said) == 3
    polished, _ = _solved(solver, problem, episodes="3", polish="on")
    assert _value(polished) <= _value(search)


@pytest.mark.parametrize("solver", [hsdag, placeto, rnn])
def test_time_limit_ends_training(solver: ModuleType) -> None:
    """Tests that a search whose time is over returns what it has."""
    search = Search(_problem(), time_limit=0.5, options={"episodes": "1000000"})
    solver.SOLVER.solve(search)
    assert search.best is not None


@pytest.mark.parametrize(
    ("option", "says"),
    [
        ({"preset": "best"}, "there are: paper, weftline"),
        ({"levels": "many"}, "whole number"),
        ({"levels": "9"}, "between 0 and 8"),
        ({"episodes": "-1"}, "whole number"),
        ({"polish": "later"}, "on, off or a time"),
        ({"nodes": "blocks"}, "chains, ops"),
        ({"features": "smell"}, "there are: kind"),
    ],
)
def test_senseless_settings_are_refused(option: dict[str, str], says: str) -> None:
    """Tests that the message says what could have been written."""
    with pytest.raises(UsageError, match=says):
        _solved(hsdag, _problem(10), **option)


def test_simulated_values_are_those_of_the_simulator() -> None:
    """Tests that many placements at once cost what each costs alone, and that limits are seen."""
    checked = 0
    for seed in range(60):
        problem = random_problem(seed, "latency")
        rng = np.random.default_rng(seed)
        placements = rng.integers(0, len(problem.devices), (6, len(problem.graph.ops))).astype(np.int32)
        for placement, value in zip(placements, simulated(problem)(placements).tolist(), strict=True):
            search = Search(problem)
            if any(len(set(placement[list(members)])) > 1 for members in problem.together):
                continue  # torn sets are mended by `lift`, not seen here
            offered = search.offer(placement)
            assert offered == (None if value >= INFEASIBLE else value)
            checked += 1
    assert checked > 100


def test_trials_know_when_all_is_tried() -> None:
    """Tests that a small problem is exhausted once every placement of its nodes was tried."""
    problem = random_problem(12, "latency", max_ops=5, limits=False)
    nodes = make_nodes(problem)
    trials = Trials(Search(problem), nodes)
    k = len(problem.devices)
    every = np.stack(np.meshgrid(*[np.arange(k)] * nodes.count, indexing="ij"), -1).reshape(-1, nodes.count)
    assert len(every) > 1
    trials.values(every[1:].astype(np.int32))
    assert not trials.exhausted
    trials.values(every[:1].astype(np.int32))
    assert trials.exhausted
    assert trials.best == min(simulate_latency(problem, nodes.lift(row.astype(np.int32))).value for row in every)


def test_modules_load_without_torch() -> None:
    """Tests that no module of the room imports torch when it is loaded, and what is said when it is missing."""
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import importlib, pkgutil, weftline.papers, weftline.latency.policy\n"
        "rooms = (weftline.papers, weftline.latency.policy)\n"
        "own = [m.name for r in rooms for m in pkgutil.walk_packages(r.__path__, r.__name__ + '.')]\n"
        "[importlib.import_module(name) for name in own]\n"
        "from weftline.latency.policy.settings import load_torch\n"
        "from weftline.errors import MissingExtra\n"
        "try:\n    load_torch()\nexcept MissingExtra as error:\n    sys.stdout.write(str(error))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "pip install 'weftline[torch]'" in done.stdout


def test_threads_are_given_back() -> None:
    """Tests that training on one thread leaves PyTorch's setting as it was."""
    torch = torch_backend.load_torch()
    before = torch.get_num_threads()
    with torch_backend.one_thread():
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == before


@pytest.mark.parametrize("solver", [hsdag, placeto, rnn])
def test_no_time_still_gives_an_answer(solver: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that single devices come before nodes and torch, so that a search without any time has an answer."""

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("too early")

    monkeypatch.setattr(solver, "make_nodes", refuse)
    monkeypatch.setattr(torch_backend, "load_torch", refuse)
    search = Search(_problem(), time_limit=0.0)
    solver.SOLVER.solve(search)
    assert search.best is not None


def test_no_time_and_no_single_device_is_said() -> None:
    """Tests that the message says that time ran out, beside the limit that the last placement broke."""
    problem = problem_of([[1, 1]] * 2, weights=[4, 4], capacity=[1, 1])
    with pytest.raises(InfeasibleError, match="time ran out") as caught:
        hsdag.SOLVER.solve(Search(problem, time_limit=0.0))
    assert caught.value.conflicts


@pytest.mark.parametrize("name", ["preset", "levels", "episodes", "polish", "nodes", "features", "checkpoint"])
def test_settings_that_are_no_text_are_refused(name: str) -> None:
    """Tests that numbers from the API are a usage error, and so is a path with a null character."""
    with pytest.raises(UsageError, match=f"{name}=4 is not text"):
        _solved(hsdag, _problem(10), **{name: 4})  # type: ignore[arg-type]
    with pytest.raises(UsageError):
        _solved(hsdag, _problem(10), **{name: "\0"})
