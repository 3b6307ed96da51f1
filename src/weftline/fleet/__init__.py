"""The rate of the whole cluster: copies of the model, pipelines side by side, shared stages, shares of the inputs.

In: a FleetSearch on a Problem with objective throughput, a LayerSearch on a LayerProblem, or a FitProblem (`fit/`).
Out: a deployment, lanes with rates, costed by the simulator, and a bound that holds for every deployment at all.
Simplified: devices never wait for each other.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from weftline.lazy import lazy_names

if TYPE_CHECKING:
    from weftline.fleet.search import FleetSearch, FleetSolver, FrontPoint, LayerSearch

__all__ = ["FleetSearch", "FleetSolver", "FrontPoint", "LayerSearch", "fleet_solvers", "prepare"]

__getattr__ = lazy_names(
    __name__, dict.fromkeys(("FleetSearch", "FleetSolver", "FrontPoint", "LayerSearch"), "weftline.fleet.search")
)


@cache
def fleet_solvers(*, layers: bool = False) -> dict[str, FleetSolver]:
    """All solvers by name: of ops on devices, or of layers on devices with tables."""
    from weftline.fleet import columns, exact
    from weftline.fleet import layers as tables
    from weftline.plugins import registered

    own = tables.SOLVERS + exact.SOLVERS if layers else columns.SOLVERS
    found = registered("weftline.fleet", own)
    return {name: solver for name, solver in found.items() if solver.layers == layers}


@cache
def prepare() -> None:
    """Compile (or load) the kernels of this room before a clock runs: a tiny problem goes through all of them, once."""
    import numpy as np

    from weftline.cost import CostTable, devices_of_file, expand_file_costs
    from weftline.fleet.holdings import memory_bound
    from weftline.fleet.search import FleetSearch
    from weftline.problem import Problem, Rules
    from weftline.zoo import regal_costs, synthetic

    graph = synthetic("erdos_renyi", ops=12, seed=1)
    costs = regal_costs(graph, 3)
    equal = expand_file_costs(costs)
    table = CostTable(equal.time * np.array([1, 2, 3]), equal.transfer, equal.transfer_row, equal.source)
    problem = Problem(graph, devices_of_file(costs), table, Rules(objective="throughput"))
    search = FleetSearch(problem, work_limit=50)
    fleet_solvers()["auto"].solve(search)
    memory_bound(search)
