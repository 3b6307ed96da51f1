"""The two ways to a problem: a graph and a cluster, or a file with its own costs."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.data import present, published

from weftline.cluster import Cluster
from weftline.cluster.detect import worker_cluster
from weftline.errors import InfeasibleError, InputError, UsageError
from weftline.graph import Op, Tensor, assemble, graph_to_json
from weftline.problem import Problem, Rules, asked_rules, build_problem, load_problem, problem_to_json, read_model
from weftline.problem.load import DROPPABLE

CLUSTER = Cluster.parse(
    """
version = 1
[[device]]
id = "gpu0"
kind = "gpu"
memory = "1 MiB"
rate = { fp32 = "1 TFLOP/s", bandwidth = "100 GB/s", launch = "5 us", source = "guess" }
[[device]]
id = "cpu0"
kind = "cpu"
rate = { fp32 = "1 GFLOP/s", bandwidth = "10 GB/s", launch = "1 us", source = "guess" }
[[link]]
between = ["gpu0", "cpu0"]
bandwidth = "1 GB/s"
latency = "10 us"
shared = "pcie"
source = "guess"
[limits]
pin = [{ op = "a", device = "gpu0" }]
together = [["b", "c"]]
"""
)
GRAPH = assemble(
    "abc",
    [Op(name, "MatMul", flops=600, weight_bytes=100) for name in "abc"],
    [Tensor("t", 0, (1,), 1_000), Tensor("u", 1, (2,), 1_000)],
)


def _fiddle(**changes: object) -> dict[str, Any]:
    """A chain of three in the form of Tarnawski et al., milliseconds; b and c share a colour."""
    nodes = [
        {"id": i, "supportedOnFpga": 1, "cpuLatency": 10.0, "fpgaLatency": 1.0, "size": 50, "isBackwardNode": 0}
        for i in range(3)
    ]
    nodes[1]["colorClass"] = nodes[2]["colorClass"] = 7
    edges = [{"sourceId": i, "destId": i + 1, "cost": 0.5} for i in range(2)]
    return {"maxFPGAs": 2, "maxCPUs": 1, "maxSizePerFPGA": 120, "nodes": nodes, "edges": edges, **changes}


def _write(path: Path, form: object) -> Path:
    path.write_text(json.dumps(form), encoding="utf-8")
    return path


@pytest.fixture
def fiddle(tmp_path: Path) -> Path:
    """A cost file with its own devices."""
    return _write(tmp_path / "fiddle.json", _fiddle())


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A model file without costs."""
    path = tmp_path / "model.json"
    path.write_bytes(graph_to_json(GRAPH))
    return path


def test_graph_and_cluster(model: Path) -> None:
    """Tests that a model on a cluster has its costs, limits and buses, and the file's hash."""
    problem, digest = load_problem(model, cluster=CLUSTER)
    assert digest == hashlib.sha256(model.read_bytes()).hexdigest()
    assert problem.graph == GRAPH
    assert problem.cost.time.tolist() == [[5_001, -1], [5_001, 2_000], [5_001, 2_000]]
    assert problem.cost.transfer[problem.cost.transfer_row[0]].tolist() == [[0, 11_000], [11_000, 0]]
    assert problem.together == ((1, 2),)
    assert problem.buses == ((0, 1, "pcie"), (1, 0, "pcie"))
    assert problem.rules == Rules()
    assert problem.capacity[0] == 2**20


def test_without(model: Path) -> None:
    """Tests that each limit can be dropped, and that the others stay."""
    together, _ = load_problem(model, cluster=CLUSTER, without=("together",))
    assert together.together == ()
    assert together.capacity[0] == 2**20
    memory, _ = load_problem(model, cluster=CLUSTER, without=("memory",))
    assert memory.devices[0].capacity is None
    assert memory.together == ((1, 2),)
    cpus, _ = load_problem(model, cluster=CLUSTER, without=("cpus",))
    assert [device.id for device in cpus.devices] == ["gpu0"]
    assert cpus.cost.transfer.shape[1:] == (1, 1)
    assert cpus.buses == ()
    everything, _ = load_problem(model, cluster=CLUSTER, without=DROPPABLE)
    assert (len(everything.devices), everything.together) == (1, ())


def test_without_something_unknown(model: Path) -> None:
    """Tests that the message lists what can be dropped."""
    with pytest.raises(UsageError, match="cpus, memory, together"):
        load_problem(model, cluster=CLUSTER, without=("gpus",))


def test_without_a_cpu_to_drop(model: Path) -> None:
    """Tests that what would drop nothing is an error that names the kinds: a kind may be written in another way."""
    devices = tuple(msgspec.structs.replace(device, kind=device.kind.upper()) for device in CLUSTER.devices)
    other = msgspec.structs.replace(CLUSTER, devices=devices)
    with pytest.raises(UsageError, match=r"no device is of the kind cpu: the kinds of devices are .*CPU"):
        load_problem(model, cluster=other, without=("cpus",))


def test_without_the_last_device(fiddle: Path, tmp_path: Path) -> None:
    """Tests that dropping all devices is an error."""
    path = _write(tmp_path / "cpu.json", _fiddle(maxFPGAs=0))
    with pytest.raises(UsageError, match="no device left"):
        load_problem(path, without=("cpus",))
    assert len(load_problem(fiddle, without=("cpus",))[0].devices) == 2


def test_a_model_needs_a_cluster(model: Path) -> None:
    """Tests that the message says what to do."""
    with pytest.raises(UsageError, match=r"holds no costs, so devices are needed\. Try --gpu .*--cluster laptop"):
        load_problem(model)


def test_a_cost_file_brings_its_devices(fiddle: Path) -> None:
    """Tests that devices, times in ns, colours and rules come from the file."""
    problem, digest = load_problem(fiddle, rules={"objective": "throughput"})
    assert digest == hashlib.sha256(fiddle.read_bytes()).hexdigest()
    assert [device.id for device in problem.devices] == ["acc0", "acc1", "cpu"]
    assert problem.cost.time[0].tolist() == [10**6, 10**6, 10**7]
    assert problem.together == ((1, 2),)
    assert problem.rules == Rules(objective="throughput", memory="static")


def test_a_cost_file_with_a_cluster(fiddle: Path, tmp_path: Path) -> None:
    """Tests that a cluster beside own devices is a contradiction, for problem files too."""
    with pytest.raises(UsageError, match=r"holds its own devices and costs \(msr-fiddle\)"):
        load_problem(fiddle, cluster=CLUSTER)
    path = tmp_path / "problem.json"
    path.write_bytes(problem_to_json(load_problem(fiddle)[0]))
    with pytest.raises(UsageError, match="leave the cluster out"):
        load_problem(path, cluster=CLUSTER)


@pytest.mark.parametrize("stages", [1, 2, 5])
def test_stages_replace_accelerators(fiddle: Path, stages: int) -> None:
    """Tests that asking for K stages gives K accelerators and keeps the CPUs."""
    problem, _ = load_problem(fiddle, rules={"objective": "throughput", "stages": stages})
    kinds = [device.kind for device in problem.devices]
    assert (kinds.count("accelerator"), kinds.count("cpu")) == (stages, 1)
    assert problem.stage_limit == stages + 1
    assert problem.cost.transfer.shape[1:] == (stages + 1, stages + 1)


def test_stages_on_a_cluster(model: Path) -> None:
    """Tests that on a cluster the number of stages limits the devices in use."""
    problem, _ = load_problem(model, cluster=CLUSTER, rules={"objective": "throughput", "stages": 2})
    assert problem.stage_limit == 2
    with pytest.raises(UsageError, match="3 stages need 3 devices, there are 2"):
        load_problem(model, cluster=CLUSTER, rules={"objective": "throughput", "stages": 3})


def test_stages_are_counted_after_dropping(model: Path) -> None:
    """Tests that a dropped CPU is no stage."""
    with pytest.raises(UsageError, match="2 stages need 2 devices, there are 1"):
        load_problem(model, cluster=CLUSTER, rules={"objective": "throughput", "stages": 2}, without=("cpus",))


@pytest.mark.parametrize("stages", [-1, 10**6, 10**30])
def test_absurd_stages(fiddle: Path, stages: int) -> None:
    """Tests that absurd numbers of stages are refused before anything is built."""
    with pytest.raises(UsageError, match="stages make no sense"):
        load_problem(fiddle, rules={"stages": stages})


def test_absurdly_many_devices(tmp_path: Path) -> None:
    """Tests that a file that asks for a table of gigabytes is refused by name."""
    edges = [{"sourceId": 0, "destId": 1, "cost": float(i)} for i in range(60)]
    path = _write(tmp_path / "many.json", _fiddle(maxFPGAs=4096, edges=edges))
    with pytest.raises(InputError, match=r"many\.json: 4097 devices"):
        load_problem(path)


def test_transfers_can_be_overridden(fiddle: Path) -> None:
    """Tests that the file's rule holds unless another one is asked, and that None asks nothing."""
    assert load_problem(fiddle)[0].rules.transfers == "per-tensor"
    assert load_problem(fiddle, rules={"transfers": "per-edge"})[0].rules.transfers == "per-edge"
    assert load_problem(fiddle, rules={"transfers": None})[0].rules.transfers == "per-tensor"


def test_problem_file(fiddle: Path, tmp_path: Path) -> None:
    """Tests that our own problem form keeps everything, and takes rules and dropped limits."""
    problem, _ = load_problem(fiddle, rules={"objective": "throughput"})
    path = tmp_path / "problem.json"
    path.write_bytes(problem_to_json(problem))
    again, digest = load_problem(path)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert problem_to_json(again) == path.read_bytes()
    other, _ = load_problem(path, rules={"objective": "latency"}, without=("memory", "together"))
    assert (other.rules.objective, other.rules.stages, other.rules.memory) == ("latency", 0, "static")
    assert (other.together, other.capacity[0]) == ((), 2**62)


def test_read_model(model: Path, fiddle: Path, tmp_path: Path) -> None:
    """Tests that a file is a graph or a problem, whichever it holds."""
    assert read_model(model) == GRAPH
    problem = read_model(fiddle)
    assert isinstance(problem, Problem)
    path = tmp_path / "problem.json"
    path.write_bytes(problem_to_json(problem))
    assert isinstance(read_model(path), Problem)


def test_a_missing_file(tmp_path: Path) -> None:
    """Tests that files, folders and nothing are told apart."""
    with pytest.raises(InputError, match="no such file"):
        load_problem(tmp_path / "nothing.json")
    with pytest.raises(InputError, match="not a file"):
        load_problem(tmp_path)


def test_a_pipe_does_not_hang(tmp_path: Path) -> None:
    """Tests that a named pipe is refused, not waited for."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(InputError, match="not a file"):
        load_problem(pipe)


@pytest.mark.parametrize("asked", [{"runtime": "magic"}, {"colour": "red"}, {"stages": "two"}, {"objective": 3}])
def test_unknown_rules(asked: dict[str, object]) -> None:
    """Tests that rules nobody knows are usage errors."""
    with pytest.raises(UsageError, match=r"unknown rule|is one of"):
        asked_rules(asked)


@pytest.mark.parametrize(
    "asked",
    [
        {"objective": "latency", "communication": "added"},
        {"objective": "throughput", "runtime": "sequential"},
        {"objective": "throughput", "transfers": "per-edge"},
    ],
)
def test_rules_of_the_other_objective(asked: dict[str, object]) -> None:
    """Tests that asking for what has no meaning is a usage error, not silence."""
    with pytest.raises(UsageError, match="has no meaning for the objective"):
        asked_rules(asked)


def test_stages_of_a_latency_problem(model: Path) -> None:
    """Tests that stages belong to throughput alone."""
    with pytest.raises(UsageError, match="stages have no meaning for the objective latency"):
        load_problem(model, cluster=CLUSTER, rules={"objective": "latency", "stages": 2})


def test_infeasible_limits() -> None:
    """Tests that a model that fits nowhere is told before any search."""
    large = assemble("large", [Op("a", weight_bytes=2**21)], [])
    with pytest.raises(InfeasibleError, match="2 MiB"):
        build_problem(large, Cluster(CLUSTER.name, CLUSTER.devices[:1]))


@pytest.mark.parametrize("own", [True, False], ids=["own", "published"])
def test_shared_instances(own: bool, tmp_path: Path) -> None:
    """Tests that an instance of our own and the published ones load with their devices."""
    mine = _write(tmp_path / "own.json", _fiddle())
    for path in [mine] if own else map(present, published("fiddle", "*/*.json") + published("moirai")):
        problem, _ = load_problem(path, without=("memory",))
        assert len(problem.devices) > 1
        assert np.all(problem.cost.time.max(axis=1) >= 0)
        two, _ = load_problem(path, rules={"objective": "throughput", "stages": 2}, without=("memory",))
        accelerators = sum(device.kind == "accelerator" for device in two.devices)
        assert accelerators == 2 or (accelerators == 0 and two.stage_limit == 2)


def test_without_memory_keeps_the_speed() -> None:
    """Tests that dropping limits of memory drops nothing else of a device."""
    graph = assemble("g", [Op("a", flops=10**6)], [Tensor("x", -1, (0,), 4), Tensor("y", 0, (), 4, output=True)])
    found = build_problem(graph, worker_cluster((1.0, 0.5)), without=("memory",))
    assert [device.speed for device in found.devices] == [1.0, 0.5]
    assert [device.runtime for device in found.devices] == ["ort:CPUExecutionProvider"] * 2
