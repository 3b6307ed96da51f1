"""Targets that think in whole layers: what they write, and what they refuse."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest
from tests.export.layer_plans import by_layer, placed

from weftline.errors import InputError, UsageError
from weftline.export import ExportOptions, plan_exporters
from weftline.export.layers import layers_of, megatron_layout, read_layout, vllm_partition
from weftline.export.weights import accelerate_map, check_device_map, llamacpp_arguments
from weftline.plans import Plan
from weftline.plans.launch import assigned_layers, check_partition

FOUR = ["gpu0", "gpu0", "gpu0", "gpu1"]


def gpt(devices: list[str], *, cluster: str = "two-gpus", **where: str) -> Plan:
    """A plan of a GPT of so many layers."""
    return placed("gpt2", by_layer(devices, **where), cluster=cluster, layers=len(devices))


def test_vllm(tmp_path: Path) -> None:
    """Tests the partition of layers in a row, and the files."""
    layers, stages = vllm_partition(gpt(FOUR))
    assert (layers.stack, layers.number, layers.embedding, layers.head) == ("transformer/h", 4, "gpu0", "gpu1")
    assert stages == [("gpu0", 3), ("gpu1", 1)]
    files = plan_exporters()["vllm"].write(gpt(FOUR), tmp_path, ExportOptions())
    assert [path.read_text() for path in files[:2]] == ["VLLM_PP_LAYER_PARTITION=3,1\n", "--pipeline-parallel-size 2\n"]
    about = json.loads(files[2].read_text())
    assert [(row["device"], row["first_layer"], row["layers"]) for row in about["stages"]] == [
        ("gpu0", 0, 3),
        ("gpu1", 3, 1),
    ]
    assert vllm_partition(placed("bert", by_layer(["gpu0", "gpu1"])))[1] == [("gpu0", 1), ("gpu1", 1)]
    with pytest.raises(UsageError, match="vllm runs the embedding on gpu0, the plan on gpu1"):
        vllm_partition(gpt(FOUR, embedding="gpu1"))
    with pytest.raises(UsageError, match="runs final norm and head on gpu1, the plan on gpu0"):
        vllm_partition(gpt(FOUR, head="gpu0"))
    for wrong in ("3,x", "3,1,0", "2,1", "4", "3,-1"):
        with pytest.raises(InputError):
            check_partition(wrong, layers=4, ranks=2)


def test_megatron(tmp_path: Path) -> None:
    """Tests layouts: E and L where the plan has them, also on devices of their own."""
    assert megatron_layout(gpt(FOUR))[0] == "Et*3|tL"
    other = ["fast0", "fast0", "fast0", "fast1"]
    assert megatron_layout(gpt(other, cluster="four-unequal", embedding="slow"))[0] == "E|t*3|tL"
    assert megatron_layout(gpt(other, cluster="four-unequal", head="slow"))[0] == "Et*3|t|L"
    assert megatron_layout(gpt(["gpu1"] * 4))[0] == "Et*4L"
    with pytest.raises(UsageError, match="in a row on each device; those of 'gpu0' are not"):
        megatron_layout(gpt(FOUR, head="gpu0"))
    written = plan_exporters()["megatron"].write(gpt(FOUR), tmp_path, ExportOptions())[0].read_text()
    assert shlex.split(written)[-2:] == ["--pipeline-model-parallel-layout", "Et*3|tL"]
    assert read_layout("Et*12|t|tL") == [12, 1, 1]
    for wrong in ("t*3|tL", "Et*3|t", "Et*0|tL", "E||tL", "Et*3,tL", "EtE|tL"):
        with pytest.raises(InputError):
            read_layout(wrong)


def test_llamacpp_in_a_row() -> None:
    """Tests that llama.cpp's own rule puts every layer, and the output layer, where the plan has it."""
    assert llamacpp_arguments(gpt(FOUR, embedding="cpu0")) == [
        "--n-gpu-layers 5",
        "--split-mode layer",
        "--device CUDA0,CUDA1",
        "--tensor-split 3,2",
    ]
    begins_on_cpu = gpt(["cpu0", "cpu0", "gpu1", "gpu0"])
    assert not any("--tensor-split" in word for word in llamacpp_arguments(begins_on_cpu))  # builds differ in the rule
    assert r"-ot '^blk\.(0|1)\.=CPU'" in llamacpp_arguments(begins_on_cpu)
    assert llamacpp_arguments(gpt(["cpu0"] * 4)) == ["--n-gpu-layers 0"]
    assert llamacpp_arguments(gpt(FOUR))[-1] == "-ot '^(token_embd|position_embd|token_types)=CUDA0'"
    named = llamacpp_arguments(gpt(FOUR, embedding="cpu0"), {"gpu1": "llamacpp:Vulkan1"})
    assert named[2] == "--device CUDA0,Vulkan1"
    assert assigned_layers(4, 3, ["a", "b"], [1, 2]) == ["CPU", "CPU", "a", "b", "b"]


@pytest.mark.parametrize("layers", [1, 2, 7, 31, 80, 126])
def test_llamacpp_rounding(layers: int) -> None:
    """Tests that shares of whole layers survive single precision for every cut."""
    for first in range(1, layers + 1):
        found = assigned_layers(layers, layers + 1, ["a", "b"], [first, layers + 1 - first])
        assert found == ["a"] * first + ["b"] * (layers + 1 - first)


def test_llamacpp_anywhere() -> None:
    """Tests that layers in no order become patterns, one for each device."""
    words = llamacpp_arguments(gpt(["gpu0", "gpu1", "cpu0", "gpu1"], embedding="cpu0", head="gpu0"))
    assert words == [
        "--n-gpu-layers 5",
        "--device CUDA0,CUDA1",
        "-ot '^(token_embd|position_embd|token_types)=CPU'",
        r"-ot '^blk\.(0)\.=CUDA0'",
        r"-ot '^blk\.(1|3)\.=CUDA1'",
        r"-ot '^blk\.(2)\.=CPU'",
        "-ot '^(output|cls)=CUDA0'",
    ]
    with pytest.raises(UsageError, match="is not like llamacpp:CUDA0"):
        llamacpp_arguments(gpt(FOUR), {"gpu0": "cuda"})
    with pytest.raises(UsageError, match="the same name"):
        llamacpp_arguments(gpt(FOUR), {"gpu0": "llamacpp:CUDA1"})


def test_accelerate(tmp_path: Path) -> None:
    """Tests that every module with weights is covered once, on the device of the plan."""
    found = accelerate_map(gpt(FOUR, embedding="cpu0"))
    assert found == {
        "transformer.wte": "cpu",
        "transformer.wpe": "cpu",
        **{f"transformer.h.{n}": 0 for n in range(3)},
        "transformer.h.3": 1,
        "transformer.ln_f": 1,
        "lm_head": 1,
    }
    assert accelerate_map(gpt(FOUR), {"gpu1": "torch:cuda:5"})["transformer.h.3"] == 5
    bert = accelerate_map(placed("bert", by_layer(["gpu0", "gpu1"])))
    assert bert["encoder.layer.1"] == bert["pooler.dense"] == 1
    assert all(bert[name] == 0 for name in bert if name.startswith("embeddings"))
    path = plan_exporters()["accelerate"].write(gpt(FOUR), tmp_path, ExportOptions())[0]
    assert json.loads(path.read_text()) == accelerate_map(gpt(FOUR))
    with pytest.raises(UsageError, match=r"neither torch:cpu nor torch:cuda:N"):
        accelerate_map(gpt(FOUR), {"gpu0": "openvino:CPU"})
    with pytest.raises(UsageError, match="two devices are the same GPU"):
        accelerate_map(gpt(FOUR), {"gpu0": "torch:cuda:1"})


def test_rules_of_a_device_map() -> None:
    """Tests what the strict reading of a device map refuses."""
    modules = ["a.b", "a.c", "d"]
    check_device_map({"a": 0, "d": "cpu"}, modules)
    check_device_map({"": "disk"}, modules)
    for wrong in (
        {"a": 0},
        {"a": 0, "a.b": 1, "d": 0},
        {"a": 0, "d": 0, "e": 0},
        {"a": True, "d": 0},
        {"a": -1, "d": 0},
    ):
        with pytest.raises(InputError):
            check_device_map(wrong, modules)


@pytest.mark.parametrize("target", ["vllm", "megatron", "llamacpp", "accelerate"])
def test_refused(target: str, tmp_path: Path) -> None:
    """Tests a cut inside a layer, and models whose blocks are no layers."""
    write = plan_exporters()[target].write
    inside = placed("gpt2", lambda op: "gpu1" if op.block.endswith("h.1") and op.kind == "MatMul" else "gpu0", layers=4)
    with pytest.raises(UsageError, match=rf"{target} cannot cut inside .*together"):
        write(inside, tmp_path, ExportOptions())
    if target != "accelerate":
        with pytest.raises(UsageError, match=f"{target} (needs a model of numbered layers|takes one stack)"):
            write(placed("resnet50", lambda _: "gpu0"), tmp_path, ExportOptions())
    if target in ("vllm", "megatron"):
        with pytest.raises(UsageError, match=r"in a row on each device; those of 'gpu0' are not"):
            write(gpt(["gpu0", "gpu1", "gpu0", "gpu0"]), tmp_path, ExportOptions())
    assert not list(tmp_path.iterdir())


def test_parts_around_the_layers_are_whole() -> None:
    """Tests that an embedding or head on two devices is refused by those that cannot say it."""
    plan = placed("gpt2", lambda op: "cpu0" if op.block.endswith("wpe") else "gpu0")
    with pytest.raises(UsageError, match="cannot cut inside what comes before the layers"):
        layers_of(plan, "vllm")
    assert accelerate_map(plan)["transformer.wpe"] == "cpu"
