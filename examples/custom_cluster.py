"""Describe a cluster in TOML, with limits, and see where the ops of a small model go; then drop a limit and compare."""

from __future__ import annotations

from collections import Counter

import weftline as wl
from weftline.zoo import zoo_graph

DEVICES = """
version = 1

[[device]]
id = "board"
kind = "npu"
memory = "2 GiB"
rate = { fp32 = "4 TFLOP/s", bandwidth = "60 GB/s", launch = "2 us", source = "guess" }

[[device]]
id = "host"
kind = "cpu"
memory = "16 GiB"
reserve = "4 GiB"
rate = { fp32 = "0.5 TFLOP/s", bandwidth = "40 GB/s", launch = "1 us", source = "guess" }

[[link]]
between = ["board", "host"]
bandwidth = "3 GB/s"
latency = "20 us"
source = "guess"
"""

LIMITS = """
[limits]
pin = [{ op = "/embeddings/*", device = "host" }]
forbid = [{ op = "/encoder/*", device = "host" }]
"""


def main() -> None:
    """The same model with and without limits."""
    graph = zoo_graph("bert", layers=2)
    limited = wl.plan(graph, wl.Cluster.parse(DEVICES + LIMITS), work_limit=10)
    free = wl.plan(graph, wl.Cluster.parse(DEVICES), work_limit=10)
    for name, plan in (("with limits", limited), ("without", free)):
        print(f"{name}: {plan.value_ns} ns, gap {plan.gap:.1%}, ops {dict(Counter(plan.placement.values()))}")
    print(wl.diff(limited, free))


if __name__ == "__main__":
    main()
