"""The models of the onnx package in segments: their weights are made by nodes, and are inputs by name."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from tests.run.split_samples import DEVICES, check_equal, even, run_segments, run_whole, scattered, with_logits

from weftline import zoo
from weftline.importers import read_file
from weftline.run.split.split import split_model

LIGHT = sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("light_*.onnx"))


def test_the_models_are_there() -> None:
    """Tests that the list is not empty by accident."""
    assert len(LIGHT) >= 9


@pytest.mark.parametrize("path", LIGHT, ids=lambda path: path.stem)
def test_light(path: Path, tmp_path: Path) -> None:
    """Tests two stages, three stages and a scattered placement; not optimised, for half a gigabyte is folded then."""
    model = with_logits(onnx.load(path))
    path = tmp_path / "model.onnx"
    path.write_bytes(model.SerializeToString())
    graph, inputs = read_file(path).graph, zoo.example_inputs(model)
    whole = run_whole(path, inputs, optimised=False)
    made_by = {name: node.op_type for node in model.graph.node for name in node.output}
    assert any(made_by[name] != "Softmax" for name in whole)  # logits are compared
    for number, parts in enumerate((even(graph, 2), even(graph, 3), scattered(graph))):
        folder = tmp_path / str(number)
        folder.mkdir()
        split_model(path, graph, parts, DEVICES, folder)
        check_equal(run_segments(folder, inputs, optimised=False), whole)
