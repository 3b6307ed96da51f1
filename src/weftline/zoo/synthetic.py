"""Seeded families of synthetic graphs by name: `synthetic("layered", ops=1000, seed=7)`.

In: a family, the exact number of ops, a seed. Out: a Graph, the same for the same three values. Families that look like
networks need a cluster for their costs; REGAL-like ones also have unit costs, see `regal_costs`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weftline.errors import UsageError, near
from weftline.graph import Graph
from weftline.zoo import network_graphs, random_graphs
from weftline.zoo.unit_costs import regal_costs, to_cost_graph_text

__all__ = ["FAMILIES", "MAX_SYNTHETIC_OPS", "Family", "regal_costs", "synthetic", "to_cost_graph_text"]

MAX_SYNTHETIC_OPS = 200_000


@dataclass(frozen=True)
class Family:
    """One way to draw graphs."""

    name: str
    description: str
    build: Callable[[str, int, np.random.Generator], Graph]
    """(name of the graph, number of ops, random generator) -> graph."""
    unit_costs: bool = False
    """True if costs and sizes are REGAL's units, so that `regal_costs` applies."""


def _family(build: Callable[[str, int, np.random.Generator], Graph], *, unit_costs: bool = False) -> Family:
    description = (build.__doc__ or "").strip().splitlines()[0]
    return Family(build.__name__, description, build, unit_costs)


FAMILIES: dict[str, Family] = {
    family.name: family
    for family in (
        _family(network_graphs.chain),
        _family(network_graphs.layered),
        _family(network_graphs.series_parallel),
        _family(network_graphs.transformer_like),
        _family(random_graphs.erdos_renyi, unit_costs=True),
        _family(random_graphs.barabasi_albert, unit_costs=True),
        _family(random_graphs.watts_strogatz, unit_costs=True),
        _family(random_graphs.block_model, unit_costs=True),
    )
}


def synthetic(name: str, *, ops: int, seed: int = 0) -> Graph:
    """A graph of the family with exactly `ops` ops; the seed decides everything that is drawn."""
    if name not in FAMILIES:
        raise UsageError(f"no synthetic family {name!r:.100}{near(name, FAMILIES)} (there are: {', '.join(FAMILIES)})")
    if not 1 <= ops <= MAX_SYNTHETIC_OPS:
        raise UsageError(f"a synthetic graph has 1 to {MAX_SYNTHETIC_OPS} ops, not {ops}")
    if seed < 0:
        raise UsageError(f"a seed is not negative, this one is {seed}")
    return FAMILIES[name].build(f"{name}-{ops}-seed{seed}", ops, np.random.default_rng(seed))
