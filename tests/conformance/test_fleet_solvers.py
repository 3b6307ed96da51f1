"""Every solver of fleets through the conformance suites."""

from __future__ import annotations

from os import environ

import pytest

from weftline.fleet import fleet_solvers
from weftline.testing import check_fleet_solver, check_layer_solver, random_layers, random_problem
from weftline.testing.fleets import LAYER_KINDS

COUNT = int(environ.get("WEFTLINE_PROBLEMS", "6"))
"""Problems of each kind."""


@pytest.mark.parametrize("kind", LAYER_KINDS)
@pytest.mark.parametrize("name", fleet_solvers(layers=True))
def test_layers_conform(kind: str, name: str) -> None:
    """Tests limits, value, bound, seed and stop rules on layers with every option."""
    solver = fleet_solvers(layers=True)[name]
    for seed in range(1000, 1000 + (COUNT if name == "exact" else max(1, COUNT // 6))):
        check_layer_solver(solver, random_layers(seed, kind))


@pytest.mark.parametrize("memory", ["static", "dynamic"])
@pytest.mark.parametrize("communication", ["added", "overlapped"])
@pytest.mark.parametrize("name", fleet_solvers())
def test_lanes_conform(name: str, communication: str, memory: str) -> None:
    """Tests limits, value, bound, seed and stop rules on ops with memory, hosts and missing links."""
    solver = fleet_solvers()[name]
    for seed in range(COUNT):
        options = {"communication": communication, "memory": memory, "max_ops": 6, "max_devices": 3, "stages": 0}
        check_fleet_solver(solver, random_problem(seed, "throughput", **options))  # type: ignore[arg-type]


def test_a_solver_that_lies_is_found() -> None:
    """Tests that the suite bites: one that refutes what can be reached, and one that goes on for ever."""
    from dataclasses import replace

    from weftline.fleet import LayerSearch
    from weftline.fleet.coverage import CoverageBound

    auto, problem = fleet_solvers(layers=True)["auto"], random_layers(0, "free")

    def refutes(search: LayerSearch) -> None:
        auto.solve(search)
        search.offer_bound(CoverageBound(1, ((1, 0),), 0, 1, 0))

    def repeats(search: LayerSearch) -> None:
        auto.solve(search)
        for _ in range(5):
            search.offer(search.best.instances if search.best else ())

    with pytest.raises(AssertionError, match="refutes 1, which it reaches"):
        check_layer_solver(replace(auto, solve=refutes), problem)
    with pytest.raises(AssertionError, match="have stopped it"):
        check_layer_solver(replace(auto, solve=repeats), problem)
