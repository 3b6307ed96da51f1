"""The rate of the whole cluster: copies of the model, pipelines side by side, shared stages, shares of the inputs.

In: a FleetSearch on a Problem with objective throughput. Out: a Deployment, lanes with rates, costed by the simulator,
and a lower bound of the period that holds for every deployment at all. Simplified: devices never wait for each other.
"""

from functools import cache

from weftline.fleet.search import FleetSearch, FleetSolver

__all__ = ["FleetSearch", "FleetSolver", "fleet_solvers", "prepare"]


@cache
def fleet_solvers() -> dict[str, FleetSolver]:
    """All solvers by name."""
    from weftline.fleet.columns import SOLVERS

    return {solver.name: solver for solver in SOLVERS}


@cache
def prepare() -> None:
    """Compile (or load) the kernels of this room before a clock runs: a tiny problem goes through all of them, once."""
    import numpy as np

    from weftline.cost import CostTable, devices_of_file, expand_file_costs
    from weftline.fleet.holdings import memory_bound
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
