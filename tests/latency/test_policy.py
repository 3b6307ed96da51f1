"""The solvers `policy` and `policy+polish`: settings, and what they are never worse than."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from weftline import latency as place
from weftline.cluster import Cluster
from weftline.errors import InputError, UsageError
from weftline.latency import policy
from weftline.latency.policy import forward_backward as policy_mend
from weftline.latency.policy.forward_backward import look_back
from weftline.latency.policy.instances import fresh_problem
from weftline.latency.policy.network import shapes, write_arrays
from weftline.problem import Problem, asked_rules, build_problem
from weftline.search import Search, Solver
from weftline.testing.conformance import optimum, solve
from weftline.testing.generate import KINDS, placement_problems
from weftline.zoo import synthetic

COUNT = 6


def _value(problem: Problem, solver: Solver, **options: str) -> int:
    search = Search(problem, options=options)
    solver.solve(search)
    assert search.best is not None
    return search.best.value


def test_finds_nearly_every_plan() -> None:
    """Tests that tight memory and missing links seldom leave it without an answer."""
    feasible = [
        problem for kind in KINDS for problem in placement_problems(kind, COUNT, 70_000) if optimum(problem) is not None
    ]
    found = [solve(policy.SOLVER_POLICY, problem)[0].best for problem in feasible]
    assert len(feasible) >= 20
    assert sum(best is None for best in found) <= len(feasible) // 20


@pytest.mark.parametrize("decodes", ["1", "64"])
def test_never_worse_than_single_devices(decodes: str) -> None:
    """Tests that even wild weights give nothing worse than the best single device, also after one offer."""
    random = np.random.default_rng(1)
    wild = {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes().items()}
    for seed in range(6):
        problem = fresh_problem(np.random.default_rng(seed), 2 + seed % 4, 40)
        search = Search(problem, work_limit=1)
        policy.offer_policy(search, wild, policy.PolicyParameters(decodes=int(decodes)))
        assert search.best is not None
        assert search.best.value <= _value(problem, place.solvers()["single-device"])


def test_one_decode_looks_back_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests how often a single decode is planned again: milliseconds count there."""
    looks: list[int] = []

    def counted(*words: Any, **more: Any) -> Any:
        looks.append(1)
        return look_back(*words, **more)

    monkeypatch.setattr(policy_mend, "look_back", counted)
    _value(fresh_problem(np.random.default_rng(3), 3, 40), policy.SOLVER_POLICY, decodes="1")
    assert len(looks) == 1


def test_best_of_many_is_never_worse_than_heuristics() -> None:
    """Tests it against HEFT, cPEFT and greedy."""
    for seed in range(4):
        problem = fresh_problem(np.random.default_rng(100 + seed), 2 + seed % 4, 60)
        value = _value(problem, policy.SOLVER_POLICY)
        assert all(value <= _value(problem, place.solvers()[name]) for name in ("heft", "cpeft", "greedy"))
        assert value <= _value(problem, policy.SOLVER_POLICY, decodes="1")
        assert _value(problem, policy.SOLVER_POLISH, steps="500") <= value


def test_memory_is_kept_by_leaving_room() -> None:
    """Tests a cluster whose devices hold less than everything needs, activations included."""
    graph, cluster = synthetic("layered", ops=60, seed=2), Cluster.preset("four-unequal")
    room = sum(op.weight_bytes for op in graph.ops) // 2
    tight = tuple(msgspec.structs.replace(device, memory=room, reserve=0) for device in cluster.devices)
    problem = build_problem(
        graph, msgspec.structs.replace(cluster, devices=tight), rules=asked_rules({"objective": "latency"})
    )
    search = Search(problem)
    policy.SOLVER_POLICY.solve(search)
    assert search.best is not None
    assert np.all(search.best.peak <= problem.capacity)


def test_weights_of_a_file(tmp_path: Path) -> None:
    """Tests that the setting `weights` is read, and refused when the file is something else."""
    problem = fresh_problem(np.random.default_rng(5), 3, 40)
    file = tmp_path / "mine.safetensors"
    write_arrays(file, policy.load_weights(policy.SHIPPED), {})
    assert _value(problem, policy.SOLVER_POLICY, weights=str(file)) == _value(problem, policy.SOLVER_POLICY)
    file.write_bytes(file.read_bytes()[:-1])
    with pytest.raises(InputError, match=r"mine\.safetensors"):
        _value(problem, policy.SOLVER_POLICY, weights=str(file))


@pytest.mark.parametrize("decodes", ["0", "-1", "many", "99999999999999"])
def test_senseless_settings(decodes: str) -> None:
    """Tests that a number of decodes that makes no sense is refused."""
    with pytest.raises(UsageError, match="decodes"):
        _value(fresh_problem(np.random.default_rng(5), 2, 30), policy.SOLVER_POLICY, decodes=decodes)


def test_too_large_for_the_network() -> None:
    """Tests that a graph beyond the network's size is given to heuristics."""
    problem = fresh_problem(np.random.default_rng(6), 2, 40)
    told: list[str] = []
    search = Search(problem, options={"most_rows": "10"}, on_event=lambda event: told.append(event.message))
    policy.SOLVER_POLICY.solve(search)
    assert search.best is not None
    assert any("heuristics" in message for message in told)


@pytest.mark.parametrize("options", [{"weights": "\0"}, {"weights": "\ud800"}, {"weights": 4}, {"decodes": 4}])
def test_settings_of_another_kind_are_refused(options: dict[str, str]) -> None:
    """Tests that what is no text or no path is a usage error."""
    with pytest.raises(UsageError, match=r"is no path|is not text"):
        policy.SOLVER_POLICY.solve(Search(fresh_problem(np.random.default_rng(1), 2, 30), options=options))
