"""Papers come through the door for plug-ins: the planner works without them, and with them every name is there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import weftline
from weftline import latency, pipeline
from weftline.importers.registry import importers
from weftline.schedule import schedulers

LATENCY = {
    "round-robin",
    "etf",
    "getf",
    "m-topo",
    "m-etf",
    "m-sct",
    "placeto-greedy",
    "moirai-milp",
    "hsdag",
    "placeto",
    "rnn",
}
PIPELINE = {"brkga-100", "brkga-10000"}
SCHEDULE = {"tessel-lazy", "tessel-fast"}
SCRIPT = """
import json
import weftline as wl
from weftline import latency, pipeline
from weftline.schedule import schedulers
from weftline.zoo import zoo_graph

graph, cluster = zoo_graph("bert", size="small"), wl.Cluster.preset("laptop")
fast = wl.plan(graph, cluster, objective="latency", work_limit=5)
many = wl.plan(graph, cluster, objective="throughput", work_limit=5)
order = wl.schedule(wl.shape("kshape", 4), micro_batches=4, work_limit=5)
names = [*latency.solvers(), *pipeline.solvers(), *schedulers()]
said = {"where": wl.__file__, "names": names, "latency": fast.value_ns, "throughput": many.value_ns}
print(json.dumps({**said, "makespan": order.makespan}))
"""


def test_the_names_of_papers_are_in_the_registries() -> None:
    """Tests that what the room offers can be asked for by name."""
    assert set(latency.solvers()) >= LATENCY
    assert set(pipeline.solvers()) >= PIPELINE
    assert set(schedulers()) >= SCHEDULE
    assert len(importers()) > 3


def test_the_planner_works_without_papers(tmp_path: Path) -> None:
    """Tests plans and a schedule of a copy of weftline from which the room was taken away."""
    copy = tmp_path / "src" / "weftline"
    shutil.copytree(Path(weftline.__file__).parent, copy)  # with machine code: it is known by content
    shutil.rmtree(copy / "papers")
    found = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        env={**os.environ, "PYTHONPATH": str(copy.parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    said = json.loads(found.stdout)
    assert said["where"].startswith(str(tmp_path))
    assert not (LATENCY | PIPELINE | SCHEDULE) & set(said["names"])
    assert said["names"]
    assert said["latency"] > 0
    assert said["throughput"] > 0
    assert said["makespan"] > 0
