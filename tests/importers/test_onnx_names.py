"""Names of ops and blocks."""

from __future__ import annotations

import pytest
from onnx import NodeProto

from weftline.importers.onnx.scope import block_of, unique_names


@pytest.mark.parametrize(
    ("name", "block"),
    [
        ("/encoder/layer.3/attention/q/MatMul", "encoder/layer.3"),
        ("/model/layers/5/mlp/Gemm", "model/layers/5"),
        ("/layer2.0/conv1/Conv", "layer2.0"),
        ("/features/features.12/conv/Conv_1", "features/features.12"),
        ("/embeddings/word/Gather", "embeddings/word"),
        ("/head/MatMul_7", "head"),
        ("MatMul_12", ""),
        ("/Conv", ""),
        ("", ""),
        ("///a///b7///Conv", "a/b7"),
    ],
)
def test_block_of_a_path(name: str, block: str) -> None:
    """Tests that the block is the path up to the first numbered part, else the parent path."""
    assert block_of(name) == block


@pytest.mark.parametrize(
    ("scopes", "block"),
    [
        ("['', 'encoder', 'encoder.layer.3', 'encoder.layer.3.attention', 'matmul']", "encoder.layer.3"),
        ("['', 'head', 'linear_4']", "head"),
        ("['', 'add']", ""),
        ("not a list", ""),
    ],
)
def test_block_of_torch_scopes(scopes: str, block: str) -> None:
    """Tests that the module path in the metadata of newer PyTorch exports wins over the node's name."""
    node = NodeProto(name="/other1/node_matmul_3")
    node.metadata_props.add(key="pkg.torch.onnx.name_scopes", value=scopes)
    assert block_of(node.name, node.metadata_props) == block


def test_unique_names() -> None:
    """Tests that the node's name comes first, then its first output, then a number."""
    nodes = [
        ("a", ("x",), "Relu"),
        ("a", ("y",), "Relu"),
        ("", ("", "z"), "Split"),
        ("", (), "Sink"),
        ("y", ("v",), "Relu"),
        ("v", ("w",), "Relu"),
        ("", ("v",), "Relu"),
    ]
    assert unique_names(nodes) == ["a", "y", "z", "Sink_3", "v", "w", "v#2"]
