"""Names, parameters and constants of the Builder; the formulas of the layers against numpy."""

from __future__ import annotations

from math import erf, sqrt

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.zoo.conftest import Run

from weftline.errors import UsageError
from weftline.zoo import layers
from weftline.zoo import layers as attention
from weftline.zoo.builder import Builder


def _weights(model: onnx.ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_names_follow_the_scopes() -> None:
    """Tests that ops, outputs, constants and parameters are named after the open scopes, repeated ops with a number."""
    b = Builder("m")
    x = b.input("x", (2, 3))
    with b.scope("encoder"), b.scope("layer.0"):
        y = b.mul(b.mul(x, 2.0), b.param("weight", (3,), 1.0))
    b.output(y, "y")
    graph = b.model().graph
    assert [node.name for node in graph.node] == ["/encoder/layer.0/Mul", "/encoder/layer.0/Mul_1"]
    assert list(graph.node[1].input) == ["/encoder/layer.0/Mul_output_0", "encoder.layer.0.weight"]
    assert [tensor.name for tensor in graph.initializer] == ["encoder.layer.0.weight", "/encoder/layer.0/Mul_input_1"]
    assert list(graph.node[1].output) == ["y"]


def test_a_parameter_is_made_once() -> None:
    """Tests that two layers under one name are refused instead of sharing a weight by accident."""
    b = Builder("m")
    b.param("weight", (3,), 1.0)
    with pytest.raises(UsageError, match="two parameters called 'weight'"):
        b.param("weight", (3,), 1.0)


def test_parameters_have_mean_and_scale() -> None:
    """Tests that values are normal with the asked mean and deviation, and differ between names and seeds."""
    drawn: list[np.ndarray] = []
    for seed in (0, 1):
        b = Builder("m", seed=seed)
        for name in ("a", "b"):
            b.param(name, (100, 100), 0.5, 2.0)
        drawn.extend(_weights(b.model()).values())
    for values in drawn:
        assert values.mean() == pytest.approx(2.0, abs=0.05)
        assert values.std() == pytest.approx(0.5, abs=0.05)
    assert len({values.tobytes() for values in drawn}) == 4


def test_reshape_keeps_the_elements() -> None:
    """Tests that a reshape to another number of elements is refused."""
    b = Builder("m")
    with pytest.raises(UsageError, match="cannot be reshaped"):
        b.reshape(b.input("x", (2, 3)), 7)


@settings(deadline=None)
@given(
    image=st.integers(5, 20),
    kernel=st.sampled_from([1, 2, 3, 5, (1, 3), (5, 1)]),
    stride=st.integers(1, 3),
    padding=st.sampled_from([None, 0, 1]),
    groups=st.sampled_from([1, 2]),
)
def test_convolution_shapes(
    image: int, kernel: int | tuple[int, int], stride: int, padding: int | None, groups: int
) -> None:
    """Tests that the shapes computed for convolutions and pools are those that ONNX infers."""
    b = Builder("m")
    x = b.input("x", (1, 4, image, image))
    x = layers.convolution_norm(b, x, 6, kernel, stride=stride, padding=padding, groups=groups)
    if min(x.shape[2:]) > 1:
        x = layers.pool(b, "AveragePool", x, 2, stride, padding=1)
    with b.scope("up"):
        x = layers.upsample(b, x, 3)
    b.output(x, "y")
    onnx.checker.check_model(b.model(), full_check=True)


def test_activations_and_norms(run: Run) -> None:
    """Tests GELU (both), layer and root-mean-square normalisation against their formulas."""
    b = Builder("m")
    x = b.input("x", (2, 4, 8))
    b.output(layers.gelu(b, x), "gelu")
    b.output(layers.gelu_tanh(b, x), "gelu_tanh")
    b.output(layers.rms_norm(b, x, "rms"), "rms_norm")
    b.output(layers.layer_norm(b, x, "ln"), "layer_norm")
    model = b.model()
    weight = _weights(model)
    value = np.random.default_rng(0).standard_normal((2, 4, 8)).astype(np.float32)
    result = run(model, {"x": value})
    exact = value * (1 + np.vectorize(erf)(value / sqrt(2))) / 2
    np.testing.assert_allclose(result["gelu"], exact, atol=1e-5)
    np.testing.assert_allclose(result["gelu_tanh"], exact, atol=2e-3)
    root = np.sqrt((value**2).mean(-1, keepdims=True))
    np.testing.assert_allclose(result["rms_norm"], value / root * weight["rms.weight"], rtol=1e-3, atol=1e-5)
    centred = (value - value.mean(-1, keepdims=True)) / value.std(-1, keepdims=True)
    np.testing.assert_allclose(
        result["layer_norm"], centred * weight["ln.weight"] + weight["ln.bias"], rtol=1e-3, atol=1e-4
    )


@pytest.mark.parametrize("scaled", [True, False])
def test_attention(run: Run, scaled: bool) -> None:
    """Tests multi-head attention to another sequence, with a mask, against the textbook formula."""
    b = Builder("m")
    x, memory = b.input("x", (2, 3, 8)), b.input("memory", (2, 5, 8))
    mask = attention.padding_mask(b, b.input("mask", (2, 5), "int64"))
    y = attention.multi_head_attention(
        b, x, 2, memory=memory, width=12, scaled=scaled, adjust=lambda scores: b.add(scores, mask)
    )
    b.output(y, "y")
    model = b.model()
    weight = _weights(model)
    generator = np.random.default_rng(1)
    inputs = {
        "x": generator.standard_normal((2, 3, 8)).astype(np.float32),
        "memory": generator.standard_normal((2, 5, 8)).astype(np.float32),
        "mask": np.array([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]),
    }

    def project(value: np.ndarray, name: str) -> np.ndarray:
        result: np.ndarray = value @ weight[f"{name}.weight"] + weight[f"{name}.bias"]
        return result

    query, key, value = project(inputs["x"], "q"), project(inputs["memory"], "k"), project(inputs["memory"], "v")
    context = np.zeros((2, 3, 12))
    for head in (slice(0, 6), slice(6, 12)):
        scores = query[..., head] @ key[..., head].swapaxes(1, 2) / (sqrt(6) if scaled else 1)
        scores = np.where(inputs["mask"][:, None], scores, -np.inf)
        share = np.exp(scores - scores.max(-1, keepdims=True))
        context[..., head] = share / share.sum(-1, keepdims=True) @ value[..., head]
    np.testing.assert_allclose(run(model, inputs)["y"], project(context, "out"), rtol=1e-3, atol=1e-5)
