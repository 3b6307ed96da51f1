"""Plan a model of the zoo for latency and for throughput, and see how far each plan can be from the best one."""

from __future__ import annotations

import weftline as wl
from weftline.zoo import zoo_graph


def main() -> None:
    """Two questions about one model."""
    graph = zoo_graph("resnet50")
    cluster = wl.Cluster.preset("two-gpus")
    for plan in (wl.plan(graph, cluster), wl.plan(graph, cluster, objective="throughput")):
        print(plan.summary())
        verdict = wl.verify(plan)
        print(f"verified: value {verdict.value_ns} ns, proved bound {verdict.proved_bound_ns} ns")
        print()


if __name__ == "__main__":
    main()
