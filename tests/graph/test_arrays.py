"""The flat form says the same as the tuples."""

from __future__ import annotations

import numpy as np
import pytest

from weftline.graph import Graph, Op, assemble
from weftline.testing import SeededChooser, make_graph


@pytest.mark.parametrize("graph", [make_graph(SeededChooser(seed), 9, training=seed % 2 == 0) for seed in range(30)])
def test_against_the_tuples(graph: Graph) -> None:
    """Tests that every row and column is what the graph holds."""
    arrays = graph.arrays
    assert arrays is graph.arrays, "made once"

    def row(pointer: np.ndarray, values: np.ndarray, i: int) -> list[int]:
        return list(values[pointer[i] : pointer[i + 1]].tolist())

    for t, tensor in enumerate(graph.tensors):
        assert arrays.producer[t] == tensor.producer
        assert row(arrays.consumer_ptr, arrays.consumer_of, t) == list(tensor.consumers)
        assert (arrays.tensor_bytes[t], arrays.is_output[t]) == (tensor.bytes, tensor.output)
    for i, op in enumerate(graph.ops):
        reads = [t for t, tensor in enumerate(graph.tensors) if i in tensor.consumers]
        makes = [t for t, tensor in enumerate(graph.tensors) if tensor.producer == i]
        assert row(arrays.input_ptr, arrays.input_of, i) == reads
        assert row(arrays.output_ptr, arrays.output_of, i) == makes
        assert (arrays.weight_bytes[i], arrays.workspace_bytes[i]) == (op.weight_bytes, op.workspace_bytes)
        assert arrays.backward[i] == op.backward
    for w, tied in enumerate(graph.tied):
        assert row(arrays.tied_ptr, arrays.tied_of, w) == list(tied.ops)
        assert arrays.tied_bytes[w] == tied.bytes
    expected = [(t.producer, c, i) for i, t in enumerate(graph.tensors) if t.producer >= 0 for c in t.consumers]
    assert list(zip(*(column.tolist() for column in arrays.edges()), strict=True)) == expected


def test_a_graph_without_tensors() -> None:
    """Tests that nothing breaks when every row is empty."""
    arrays = assemble("dot", [Op("a")], []).arrays
    assert arrays.consumer_ptr.tolist() == [0]
    assert arrays.input_ptr.tolist() == arrays.output_ptr.tolist() == [0, 0]
