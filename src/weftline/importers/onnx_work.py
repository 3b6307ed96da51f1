"""Work of one node, bodies included: If costs its dearer branch, Loop and Scan their body times the rounds.

In: a node and its `Environment`. Out: `Work` (flops, bytes moved). Simplified: see `onnx_bodies` for trip counts.
"""

from __future__ import annotations

from typing import NamedTuple

from weftline.importers.onnx_bodies import CONTROL_FLOW
from weftline.importers.onnx_flops import flops_of
from weftline.importers.onnx_infer import Environment
from weftline.importers.onnx_scope import Node, Scope
from weftline.importers.onnx_traffic import traffic_of

__all__ = ["Work", "work_of"]


class Work(NamedTuple):
    """What one execution costs."""

    flops: int
    traffic: int


def work_of(node: Node, types: Environment) -> Work:
    """Flops and bytes of one node."""
    runs = []
    if node.domain or node.kind not in CONTROL_FLOW:
        call = types.call(node)
        kinds = [types.type_of(name) for name in node.reads]
        runs.append(Work(flops_of(call), traffic_of(call, sum(kind.bytes for kind in kinds if kind is not None))))
        if not node.bodies:
            return runs[0]
    for entered, inside in types.calls.get(node.position, ()):
        once = _body_work(entered.body, inside)
        runs.append(Work(once.flops * entered.times, once.traffic * entered.times))
    if node.kind == "If":
        return Work(max((run.flops for run in runs), default=0), max((run.traffic for run in runs), default=0))
    return Work(sum(run.flops for run in runs), sum(run.traffic for run in runs))


def _body_work(body: Scope, types: Environment) -> Work:
    works = [work_of(node, types) for node in body.nodes]
    return Work(sum(work.flops for work in works), sum(work.traffic for work in works))
