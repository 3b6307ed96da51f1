"""Tests the backend as oracle: regions by hand, every zoo architecture, models that come with onnx, hostile files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tests.reduce.fusion_samples import model_of, samples

from weftline import zoo
from weftline.cluster import Cluster
from weftline.errors import InputError, UsageError
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.importers import ImportOptions, read_file
from weftline.problem import build_problem
from weftline.reduce import fuse
from weftline.reduce.contract import is_acyclic
from weftline.reduce.fusion import oracle as asking
from weftline.reduce.fusion.oracle import OptimisedNode, OracleError, ask, regions

LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
QUICK = ("densenet121", "inception_v2", "shufflenet", "squeezenet")
"""The largest of the others hold a hundred million weights that ONNX Runtime computes first."""


def _chain(kinds: str, outputs: str = "") -> Graph:
    """Ops a, b ... in a row; op a makes tensor A, and so on; capitals in `outputs` leave the model."""
    names = "abcdefgh"[: len(kinds.split())]
    ops = [Op(name, kind) for name, kind in zip(names, kinds.split(), strict=True)]
    tensors = [Tensor("x", -1, (0,), 8)]
    for i, name in enumerate(names):
        last = i + 1 == len(names)
        tensors.append(Tensor(name.upper(), i, () if last else (i + 1,), 8, output=last or name.upper() in outputs))
    return assemble("row", ops, tensors)


def test_regions_by_hand() -> None:
    """Tests that what vanished goes to the region of what survived, and that renaming ops are no kernels."""
    graph = _chain("Conv BatchNormalization Relu MatMul Add")
    nodes = [
        OptimisedNode("FusedConv", ("x", "w"), ("C",)),
        OptimisedNode("Reshape", ("C",), ("new1",)),
        OptimisedNode("Gemm", ("new1",), ("new2",)),
        OptimisedNode("Reshape", ("new2",), ("E",)),
    ]
    found = regions(graph, nodes)
    assert found.group.tolist()[:3] == [found.group[0]] * 3
    assert found.group[3] == found.group[4] != found.group[0]
    assert found.one_kernel.all()


def test_several_kernels_are_one_region() -> None:
    """Tests that nodes joined by new names are one group but no single kernel."""
    graph = _chain("HardSwish Relu")
    nodes = [
        OptimisedNode("HardSigmoid", ("x",), ("new",)),
        OptimisedNode("Mul", ("x", "new"), ("A",)),
        OptimisedNode("Relu", ("A",), ("B",)),
    ]
    assert regions(graph, nodes).one_kernel.tolist() == [False, True]


def test_what_serves_several_regions_stays_alone() -> None:
    """Tests a shape that was folded into two readers."""
    ops = [Op("shape", "Shape"), Op("a", "Reshape"), Op("b", "Reshape")]
    tensors = [Tensor("x", -1, (0, 1, 2), 8), Tensor("S", 0, (1, 2), 8)]
    tensors += [Tensor("A", 1, (), 8, output=True), Tensor("B", 2, (), 8, output=True)]
    graph = assemble("folded", ops, tensors)
    nodes = [OptimisedNode("Reshape", ("x", "c"), ("A",)), OptimisedNode("Reshape", ("x", "c"), ("B",))]
    assert len(set(regions(graph, nodes).group.tolist())) == 3


def test_lost_names_are_an_error() -> None:
    """Tests that an op which is not found again makes the oracle give up, and so do regions on a cycle."""
    graph = _chain("Conv Relu")
    with pytest.raises(OracleError, match="not found again"):
        regions(graph, [OptimisedNode("Conv", ("x",), ("A",))])
    looped = [
        OptimisedNode("Conv", ("x",), ("A", "new")),
        OptimisedNode("Relu", ("A",), ("B",)),
        OptimisedNode("Neg", ("B", "new"), ("C",)),
    ]
    with pytest.raises(OracleError, match="each other's"):
        regions(_chain("Conv Relu Neg"), looped)


def _covered(path: Path) -> int:
    """Ask about a model; its groups are acyclic and hold every op once -> the largest region."""
    graph = read_file(path).graph
    found = regions(graph, ask(path, graph))
    assert found.group.shape == (len(graph.ops),)
    assert is_acyclic(graph, found.group)
    return int(np.bincount(found.group).max())


@pytest.mark.parametrize("name", sorted(zoo.architectures()))
def test_zoo(name: str, tmp_path: Path) -> None:
    """Tests that every architecture is covered without its weights, and that something is fused."""
    path = tmp_path / "model.onnx"
    zoo.save(zoo.build(name, size="small", weights=False), path)
    assert 2 <= _covered(path) <= 32


@pytest.mark.parametrize("name", QUICK)
def test_light_models(name: str) -> None:
    """Tests models that other people exported."""
    assert 2 <= _covered(LIGHT / f"light_{name}.onnx") <= 32


def test_large_weights_are_not_needed(tmp_path: Path) -> None:
    """Tests that 1.5 billion parameters that are not there cost nothing."""
    path = tmp_path / "xl.onnx"
    zoo.save(zoo.build("gpt2", size="xl", weights=False), path)
    assert _covered(path) == 8


def test_symbolic_inputs_have_the_imported_shapes(tmp_path: Path) -> None:
    """Tests that a batch of unknown size is fixed as the importer was told."""
    model = model_of({"matmul-add": samples()["matmul-add"]})
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    path = tmp_path / "symbolic.onnx"
    path.write_bytes(model.SerializeToString())
    graph = read_file(path, ImportOptions(shapes={"matmul-add<x": (3, 4, 8)})).graph
    found = regions(graph, ask(path, graph))
    assert found.group[1] == found.group[2]


def test_other_files_are_never_opened(tmp_path: Path) -> None:
    """Tests that weights in other files, wherever they point, are placeholders."""
    names = ("conv-bn", "conv-add", "conv-mul")
    model = model_of({name: samples()[name] for name in names})
    kernels = [tensor for tensor in model.graph.initializer if tensor.name.endswith(":w")]
    for weight, location in zip(kernels, ("/etc/passwd", "../../secret", "not-there.bin"), strict=True):
        weight.ClearField("raw_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, value in (("location", location), ("offset", "0"), ("length", str(8 * 8 * 9 * 4))):
            weight.external_data.add(key=key, value=value)
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    assert _covered(path) == 2


def test_no_answer_falls_back_and_says_so(tmp_path: Path) -> None:
    """Tests that a model which ONNX Runtime refuses is grouped by rules, with a note."""
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 4))]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 4))]
    nodes = [helper.make_node("Foreign", ["x"], ["a"], domain="elsewhere"), helper.make_node("Relu", ["a"], ["b"])]
    nodes.append(helper.make_node("Clip", ["b"], ["y"]))
    domains = [helper.make_opsetid("", 20), helper.make_opsetid("elsewhere", 1)]
    path = tmp_path / "foreign.onnx"
    graph = helper.make_graph(nodes, "foreign", inputs, outputs)
    path.write_bytes(helper.make_model(graph, opset_imports=domains, ir_version=10).SerializeToString())
    problem = build_problem(read_file(path).graph, Cluster.preset("laptop"))
    found = fuse(problem, "oracle", model=path)
    assert "gcof" in found.note
    assert "ONNX Runtime refused" in found.note
    assert found.group[1] == found.group[2]


def test_time_and_memory_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the process is ended when it takes too long or too much."""
    path = tmp_path / "model.onnx"
    zoo.save(zoo.build("unet", size="small", weights=False), path)
    graph = read_file(path).graph
    with pytest.raises(OracleError, match="in time"):
        ask(path, graph, seconds=0)
    monkeypatch.setattr(asking, "MOST_BYTES", 0)
    with pytest.raises(OracleError, match="memory"):
        ask(path, graph)


def test_only_onnx_models(tmp_path: Path) -> None:
    """Tests that the oracle asks for an ONNX file that can be read."""
    problem = build_problem(_chain("Conv Relu"), Cluster.preset("laptop"))
    with pytest.raises(UsageError, match="ONNX file"):
        fuse(problem, "oracle")
    other = tmp_path / "model.json"
    other.write_text("{}")
    with pytest.raises(UsageError, match="ONNX file"):
        fuse(problem, "oracle", model=other)
    with pytest.raises(InputError, match="no such file"):
        fuse(problem, "oracle", model=tmp_path / "nowhere.onnx")
