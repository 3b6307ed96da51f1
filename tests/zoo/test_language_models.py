"""What the language models must and must not see; which weights they share."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest
from tests.zoo.conftest import Run

from weftline import zoo
from weftline.zoo.two_sided import _buckets


def _users(model: onnx.ModelProto, weight: str) -> Counter[str]:
    return Counter(node.op_type for node in model.graph.node if weight in node.input)


def test_gpt_head_is_the_embedding() -> None:
    """Tests that GPT holds one table of (vocabulary, hidden), read by the embedding and by the head."""
    model = zoo.build("gpt2", weights=False)
    tables = [tensor.name for tensor in model.graph.initializer if 50257 in tensor.dims]
    assert tables == ["transformer.wte.weight"]
    assert _users(model, tables[0]) == {"Gather": 1, "Gemm": 1}


def test_mt5_shares_one_embedding() -> None:
    """Tests that encoder, decoder and head of the encoder-decoder read the same table."""
    model = zoo.build("mt5", weights=False)
    tables = [tensor.name for tensor in model.graph.initializer if 250112 in tensor.dims]
    assert tables == ["shared.weight"]
    assert _users(model, tables[0]) == {"Gather": 2, "Gemm": 1}


@pytest.mark.parametrize(("name", "given"), [("gpt2", "input_ids"), ("moe", "input_ids"), ("mt5", "decoder_input_ids")])
def test_decoders_are_causal(name: str, given: str, run: Run) -> None:
    """Tests that a later token changes no earlier logits, and does change its own."""
    model = zoo.build(name, size="small")
    inputs = zoo.example_inputs(model)
    changed = inputs[given].copy()
    changed[0, 5] = (changed[0, 5] + 1) % 50
    first, second = run(model, inputs)["logits"], run(model, {**inputs, given: changed})["logits"]
    np.testing.assert_allclose(first[0, :5], second[0, :5], atol=1e-5)
    assert np.abs(first[0, 5] - second[0, 5]).max() > 1e-3


@pytest.mark.parametrize(
    ("name", "output"), [("bert", "last_hidden_state"), ("mt5", "logits"), ("flava", "text_embedding")]
)
def test_padding_is_not_seen(name: str, output: str, run: Run) -> None:
    """Tests that a token under a zero of the padding mask changes nothing elsewhere."""
    model = zoo.build(name, size="small")
    inputs = zoo.example_inputs(model)
    mask, ids = inputs["attention_mask"].copy(), inputs["input_ids"].copy()
    mask[0, -1] = 0
    ids[0, -1] = (ids[0, -1] + 1) % 100
    first = run(model, {**inputs, "attention_mask": mask})[output]
    second = run(model, {**inputs, "attention_mask": mask, "input_ids": ids})[output]
    seen = slice(0, -1) if name == "bert" else slice(None)
    np.testing.assert_allclose(first[0, seen], second[0, seen], atol=1e-5)


def test_distance_buckets() -> None:
    """Tests that near distances have a bucket each, far ones share, and keys ahead are told from keys behind."""
    both, back = _buckets(300, True), _buckets(300, False)
    assert both[0, 0] == back[0, 0] == 0
    assert list(both[7, :8]) == [7, 6, 5, 4, 3, 2, 1, 0]
    assert list(both[0, 1:8]) == [17, 18, 19, 20, 21, 22, 23]
    assert both[299, 0] == 15
    assert both[0, 299] == back[299, 0] == 31
    assert (back[np.triu_indices(300)] == 0).all()
    assert (np.diff(back[:, 0]) >= 0).all()


def test_experts_are_branches(run: Run) -> None:
    """Tests that each expert is a branch of its own and that a token's gates sum to 1 over `active` experts."""
    model = zoo.build("moe", size="small", experts=5, active=2)
    kinds = Counter(node.name.split("/moe/experts.")[1][0] for node in model.graph.node if "/experts." in node.name)
    assert set(kinds) == set("01234")
    assert len(set(kinds.values())) == 1
    gates = next(node.output[0] for node in model.graph.node if node.op_type == "ScatterElements")
    model.graph.output.append(next(value for value in model.graph.value_info if value.name == gates))
    value = run(model, zoo.example_inputs(model))[gates]
    assert ((value > 0).sum(-1) == 2).all()
    np.testing.assert_allclose(value.sum(-1), 1, atol=1e-5)


def test_towers_are_independent() -> None:
    """Tests that no op of one tower reaches the other before the multimodal encoder."""
    graph = zoo.build("flava", size="small", weights=False).graph
    origin = {value.name: {value.name} for value in graph.input}
    for node in graph.node:
        reached = set().union(*(origin.get(name, set()) for name in node.input))
        origin.update((output, reached) for output in node.output)
        if node.name.startswith("/image_model"):
            assert reached <= {"pixel_values"}
        if node.name.startswith("/text_model"):
            assert "pixel_values" not in reached
    assert origin["match_logits"] == {"pixel_values", "input_ids", "attention_mask", "token_type_ids"}
