"""Every architecture of the zoo goes through the same tests; sizes are compared with what is published."""

from __future__ import annotations

import subprocess
import sys
from math import prod
from typing import Any

import numpy as np
import onnx
import pytest
from tests.zoo.conftest import Run

from weftline import zoo
from weftline.errors import UsageError
from weftline.zoo import builder

NAMES = ["resnet50", "inception-v3", "mobilenet-v3", "unet", "bert", "gpt2", "mt5", "flava", "swin", "moe"]

PUBLISHED = [
    # architecture, size, parameters (with the statistics of batch normalisation), multiply-adds
    ("resnet50", "full", 25.61e6, 4.09e9),
    ("inception-v3", "full", 23.87e6, 5.71e9),
    ("mobilenet-v3", "full", 5.51e6, 0.217e9),
    ("unet", "full", 31.04e6, 48.2e9),
    ("bert", "full", 109.48e6, 11.2e9),
    ("bert", "large", 335.1e6, 39.5e9),
    ("gpt2", "full", 124.44e6, 16.1e9),
    ("gpt2", "medium", 354.8e6, 46.1e9),
    ("gpt2", "large", 774.0e6, 100e9),
    ("gpt2", "xl", 1557.6e6, 202e9),
    ("gpt2", "6.7b", 6.66e9, 855e9),
    ("gpt2", "13b", 12.85e9, 1650e9),
    ("swin", "full", 28.29e6, 4.5e9),
    ("swin", "base", 87.77e6, 15.4e9),
]


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_names() -> None:
    """Tests that the zoo has the architectures it promises, each with a full and a small size."""
    assert list(zoo.architectures()) == NAMES
    for architecture in zoo.architectures().values():
        assert list(architecture.sizes)[:2] == ["full", "small"]
        for parameters in architecture.sizes.values():
            assert parameters.keys() <= architecture.sizes["full"].keys()


def test_small_models_are_valid_and_run(name: str, run: Run) -> None:
    """Tests that a small model passes the full check and runs: outputs finite, not constant, neither tiny nor huge."""
    model = zoo.build(name, size="small")
    onnx.checker.check_model(model, full_check=True)
    assert model.ByteSize() < 3_000_000
    for output in run(model, zoo.example_inputs(model)).values():
        assert np.isfinite(output).all()
        assert 0.1 < output.std() < 100


def test_outputs_depend_on_every_input(name: str, run: Run) -> None:
    """Tests that other values of any one input give another output."""
    model = zoo.build(name, size="small")
    inputs = zoo.example_inputs(model)
    assert tuple(inputs) == zoo.architectures()[name].inputs
    first = run(model, inputs)
    for key, value in inputs.items():
        changed = value.copy()
        changed.flat[-1] = 0 if value.flat[-1] else 1
        changed = changed if value.dtype.kind == "i" else np.negative(value)
        second = run(model, {**inputs, key: changed})
        assert any(np.abs(first[output] - second[output]).max() > 1e-4 for output in first), key


def test_small_models_take_batches(name: str, run: Run) -> None:
    """Tests that a batch of two equal samples gives two equal answers."""
    model = zoo.build(name, size="small", batch=2)
    onnx.checker.check_model(model, full_check=True)
    inputs = zoo.example_inputs(model)
    for value in inputs.values():
        value[1] = value[0]
    single = run(zoo.build(name, size="small"), {key: value[:1] for key, value in inputs.items()})
    for key, output in run(model, inputs).items():
        np.testing.assert_allclose(output[0], output[1], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(output[:1], single[key], rtol=1e-3, atol=1e-4)


def test_same_seed_same_bytes(name: str) -> None:
    """Tests that a model depends on its seed and on nothing else."""
    first, again, other = (
        zoo.build(name, size="small", seed=seed).SerializeToString(deterministic=True) for seed in (3, 3, 4)
    )
    assert first == again
    assert first != other


def test_weights_do_not_depend_on_the_rest_of_the_model() -> None:
    """Tests that a deeper model has the same weights where the names are the same."""
    shallow, deep = (zoo.build("bert", size="small", layers=layers) for layers in (1, 2))
    values = {tensor.name: tensor.raw_data for tensor in deep.graph.initializer}
    for tensor in shallow.graph.initializer:
        assert values[tensor.name] == tensor.raw_data


def test_without_weights(name: str) -> None:
    """Tests that a model without weights has the same ops, holds no values and points into one file without overlap."""
    full = zoo.build(name, size="small")
    bare = zoo.build(name, size="small", weights=False)
    assert list(bare.graph.node) == list(full.graph.node)
    assert list(bare.graph.value_info) == list(full.graph.value_info)
    end = 0
    for tensor, valued in zip(bare.graph.initializer, full.graph.initializer, strict=True):
        assert (tensor.name, list(tensor.dims)) == (valued.name, list(valued.dims))
        assert not tensor.raw_data
        if valued.raw_data:
            where = {entry.key: entry.value for entry in tensor.external_data}
            assert tensor.data_location == onnx.TensorProto.EXTERNAL
            assert where["location"] == f"{name}-small.weights"
            assert int(where["length"]) == len(valued.raw_data)
            assert int(where["offset"]) >= end
            end = int(where["offset"]) + int(where["length"])
        else:
            assert tensor == valued


def test_names_are_unique_and_path_like(name: str) -> None:
    """Tests that ops and tensors have names of their own, written as paths."""
    graph = zoo.build(name, size="small", weights=False).graph
    ops = [node.name for node in graph.node]
    made = [output for node in graph.node for output in node.output]
    tensors = [*made, *(value.name for value in graph.input), *(tensor.name for tensor in graph.initializer)]
    assert len(set(ops)) == len(ops)
    assert len(set(tensors)) == len(tensors)
    assert all(op.startswith("/") and "//" not in op for op in ops)
    described = {value.name for value in [*graph.value_info, *graph.output]}
    assert described == set(made)


@pytest.mark.parametrize(
    ("name", "op"),
    [
        ("resnet50", "/layer2.0/conv1/Conv"),
        ("inception-v3", "/Mixed_6c/branch7x7_2/bn/BatchNormalization"),
        ("mobilenet-v3", "/features/4/squeeze/HardSigmoid"),
        ("unet", "/up1/up/ConvTranspose"),
        ("bert", "/encoder/layer.3/attention/q/MatMul"),
        ("gpt2", "/transformer/h.11/attn/c_attn/MatMul"),
        ("mt5", "/decoder/block.7/cross_attention/k/MatMul"),
        ("flava", "/multimodal_model/encoder/layer.5/attention/Softmax"),
        ("swin", "/layers.2/downsample/reduction/MatMul"),
        ("moe", "/model/layers.0/moe/experts.7/w2/MatMul"),
    ],
)
def test_layers_can_be_recognised(name: str, op: str) -> None:
    """Tests that an op is found where a PyTorch export would have it."""
    assert op in {node.name for node in zoo.build(name, weights=False).graph.node}


def _multiply_adds(graph: onnx.GraphProto) -> int:
    shape = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.output, *graph.value_info):
        shape[value.name] = [size.dim_value for size in value.type.tensor_type.shape.dim]
    total = 0
    for node in graph.node:
        if node.op_type == "Conv":
            total += prod(shape[node.output[0]]) * prod(shape[node.input[1]][1:])
        elif node.op_type == "ConvTranspose":
            total += prod(shape[node.input[0]]) * prod(shape[node.input[1]][1:])
        elif node.op_type in {"MatMul", "Gemm"}:
            total += prod(shape[node.output[0]]) * shape[node.input[0]][-1]
    return total


@pytest.mark.parametrize(("name", "size", "parameters", "multiply_adds"), PUBLISHED)
def test_published_sizes(name: str, size: str, parameters: float, multiply_adds: float) -> None:
    """Tests that parameters and multiply-adds are those of the published network, and the file stays small."""
    model = zoo.build(name, size=size, weights=False)
    counted = sum(prod(tensor.dims) for tensor in model.graph.initializer if tensor.external_data)
    assert counted == pytest.approx(parameters, rel=0.001)
    assert _multiply_adds(model.graph) == pytest.approx(multiply_adds, rel=0.01)
    assert model.ByteSize() < 4_000_000


def test_shapes_of_full_models(name: str) -> None:
    """Tests that the shapes written into a full model are those that ONNX infers."""
    model = zoo.build(name, weights=False)
    inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    assert {value.name: value for value in inferred.graph.value_info} == {
        value.name: value for value in model.graph.value_info
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"name": "resnet51"},
            "the zoo has no architecture 'resnet51', did you mean 'resnet50'? (it has: resnet50, inception-v3",
        ),
        ({"name": "llama"}, "the zoo has no architecture 'llama' (it has: resnet50, inception-v3"),
        ({"name": "bert", "size": "huge"}, "bert has no size 'huge'; it has: full, small, base, large"),
        ({"name": "unet", "heads": 4}, "unet has no parameter 'heads'; it has: image, width, classes, batch"),
        ({"name": "bert", "layers": 0}, "layers = 0 is not a whole number"),
        ({"name": "bert", "layers": 1.5}, "layers = 1.5 is not a whole number"),
        ({"name": "bert", "hidden": 100}, "attention width 100 is not divisible by 12"),
        ({"name": "bert", "seed": -1}, "seed -1 is negative"),
        ({"name": "inception-v3", "image": 60}, "would be empty"),
        ({"name": "unet", "image": 100}, "image size 100 is not divisible by 16"),
        ({"name": "swin", "image": 200}, "image size 200 is not divisible by 224"),
        ({"name": "swin", "image": 2**22, "window": 2}, "images are at most 4096"),
        ({"name": "mt5", "sequence": 2**22}, "use shorter sequences"),
        ({"name": "flava", "image": 100}, "image size 100 is not divisible by 16"),
        ({"name": "moe", "active": 9}, "active 9 is more than the number of experts 8"),
        ({"name": "gpt2", "size": "13b", "weights": True}, "build it with weights=False"),
    ],
)
def test_usage_errors(arguments: dict[str, Any], message: str) -> None:
    """Tests that what cannot be built is refused with a sentence that says why and what exists."""
    with pytest.raises(UsageError, match=r".") as error:
        zoo.build(**{"weights": False, **arguments})
    assert message in str(error.value)


def test_too_many_ops(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a network of absurd depth is refused while it is written, not when memory ends."""
    monkeypatch.setattr(builder, "MAX_NODES", 500)
    with pytest.raises(UsageError, match="more than 500 ops: use fewer layers"):
        zoo.build("bert", size="small", layers=2**22, weights=False)


def test_import_is_light() -> None:
    """Tests that listing the zoo loads neither ONNX nor a runtime."""
    program = (
        "import sys; from weftline import zoo; zoo.architectures(); "
        "print([name for name in ('onnx', 'onnxruntime', 'torch', 'numba') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
