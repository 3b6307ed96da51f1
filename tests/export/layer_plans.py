"""Plans of small zoo models with placements made by hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import msgspec

from weftline.ask import make_plan
from weftline.cluster import Cluster
from weftline.graph import Op
from weftline.plans import Plan
from weftline.problem import build_problem
from weftline.zoo import zoo_graph

__all__ = ["by_layer", "placed"]


@cache
def _plan(name: str, cluster: str, layers: int) -> Plan:
    changes = {"layers": layers} if layers else {}
    graph = zoo_graph(name, size="small", **changes)
    return make_plan(build_problem(graph, Cluster.preset(cluster)), solver="single-device", work_limit=1)


def placed(name: str, choose: Callable[[Op], str], *, cluster: str = "two-gpus", layers: int = 0) -> Plan:
    """A plan of a zoo model in which `choose` says the device of every op."""
    plan = _plan(name, cluster, layers)
    placement = {op.name: choose(op) for op in plan.load_problem().graph.ops}
    assert set(placement.values()) <= {device.id for device in plan.load_problem().devices}
    return msgspec.structs.replace(plan, placement=placement)


def by_layer(devices: list[str], *, embedding: str = "", head: str = "") -> Callable[[Op], str]:
    """Layer n on devices[n]; what is before and after goes with the first and the last unless said otherwise."""

    def choose(op: Op) -> str:
        name = op.block.rpartition("/")[2]
        stem, _, number = name.rpartition(".")
        if stem and number.isdigit():
            return devices[int(number)]
        late = op.block.startswith(("transformer/ln_f", "lm_head", "pooler"))
        return (head or devices[-1]) if late else (embedding or devices[0])

    return choose
