"""What counts as a layer, and that no file is written that is wrong about it."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from tests.export.layer_plans import by_layer, placed

import weftline as wl
from weftline.ask import make_plan
from weftline.cli.write import export as export_verb
from weftline.cluster import Cluster
from weftline.errors import InputError, UsageError
from weftline.export.layers import check_layers, layers_of, megatron_layout, vllm_partition
from weftline.export.weights import accelerate_map, llamacpp_arguments, read_arguments
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.graph.ir import MODEL_INPUT
from weftline.graph.stack import stacks_of
from weftline.importers.onnx.scope import block_of
from weftline.plans import Plan
from weftline.problem import build_problem
from weftline.zoo import zoo_graph

LAYERED = ("vllm", "megatron", "llamacpp")
BLOCK = ("norm1:LayerNormalization", "linear1:Gemm", "dropout1:Cast", "linear2:Gemm", "dropout2:Cast", ":Add")
"""Modules of one layer, as live modules name them: the innermost one."""


def model(*modules: str, onnx: bool = False) -> Graph:
    """A chain of ops `module:kind`; `module*` is a whole layer of BLOCK. Names are as of live modules, or of ONNX."""
    ops: list[Op] = []
    for word in modules:
        whole = word.endswith("*")
        for part in BLOCK if whole else (f":{word.partition(':')[2]}",):
            inner, _, kind = part.partition(":")
            block = ("/" if onnx else ".").join(filter(None, (word.partition(":")[0].rstrip("*"), inner)))
            name = f"/{block}/{kind}_{len(ops)}" if onnx else f"{block}.{kind}_{len(ops)}"
            ops.append(Op(name, kind, 1000, 4096, 0, 1000, block_of(name) if onnx else block))
    tensors = [Tensor("x", MODEL_INPUT, (0,), 64)]
    tensors += [Tensor(f"t{i}", i, (i + 1,) if i + 1 < len(ops) else (), 64) for i in range(len(ops))]
    return assemble("hand-made", ops, tensors)


def plan_of(graph: Graph, choose: Callable[[Op], str], cluster: str = "two-gpus") -> Plan:
    plan = make_plan(build_problem(graph, Cluster.preset(cluster)), solver="single-device", work_limit=1)
    return msgspec.structs.replace(plan, placement={op.name: choose(op) for op in graph.ops})


def second_half(*late: str) -> Callable[[Op], str]:
    """What has a name that begins like one of these on gpu1, the rest on gpu0."""
    return lambda op: "gpu1" if op.name.startswith(late) else "gpu0"


DECODER = model("embed:Gather", *(f"layers.{n}*" for n in range(4)), "norm:LayerNormalization", "lm_head:Gemm")
SEQUENTIAL = ("embed:Gather", *(f"h.{n}*" for n in range(4)), "h.4:LayerNormalization", "lm_head:Gemm")


@pytest.mark.parametrize("onnx", [False, True])
def test_a_final_norm_is_no_layer(onnx: bool, tmp_path: Path) -> None:
    """Tests that the norm, embedding and head inside a numbered sequence are not counted: 3,1 and not 3,2."""
    start = "/" * onnx
    plan = plan_of(model(*SEQUENTIAL, onnx=onnx), second_half(f"{start}h.3", f"{start}h.4", f"{start}lm_head"))
    assert layers_of(plan, "vllm").number == 4
    files = wl.export(plan, "vllm", tmp_path)
    assert files[0].read_text() == "VLLM_PP_LAYER_PARTITION=3,1\n"
    assert megatron_layout(plan)[0] == "Et*3|tL"
    assert "--tensor-split 3,2" in llamacpp_arguments(plan)  # its output layer is one more
    assert [accelerate_map(plan)[name] for name in ("h.2", "h.3", "h.4")] == [0, 1, 1]
    everything = model("0:Gather", *(f"{n}*" for n in range(1, 5)), "5:LayerNormalization", "6:Gemm")
    plan = plan_of(everything, second_half("3.", "4.", "5.", "6."))
    assert [count for _, count in vllm_partition(plan)[1]] == [2, 2]


@pytest.mark.parametrize("target", LAYERED)
def test_names_that_end_in_a_digit_are_no_layers(target: str, tmp_path: Path) -> None:
    """Tests whole layers with parts linear1, linear2, as of torch.nn.TransformerEncoderLayer."""
    plan = plan_of(DECODER, second_half("layers.2", "layers.3", "norm", "lm_head"))
    assert layers_of(plan, target).devices == ("gpu0", "gpu0", "gpu1", "gpu1")
    assert wl.export(plan, target, tmp_path)
    flat = model("linear1:Gemm", "linear2:Gemm", "linear3:Gemm")
    with pytest.raises(UsageError, match="no block is numbered"):
        layers_of(plan_of(flat, second_half()), target)


def test_stacks() -> None:
    """Tests parts of layers, heads, experts side by side, and a stack inside one member of a sequence."""

    def names(*modules: str) -> list[tuple[str, int]]:
        return [(stack.name, len(stack.layers)) for stack in stacks_of(model(*modules))]

    assert names("h.0*", "h.1*", "head.0:Gemm", "head.2:Gemm") == [("h", 2)]
    assert names("h.0.part.0*", "h.0.part.1*", "h.1.part.0*", "h.1.part.1*") == [("h", 2)]
    assert names("0:Gather", "1.layers.0*", "1.layers.1*", "2.a*") == [("1.layers", 2)]
    assert names("enc.0*", "enc.1*", "dec.0*", "dec.1*") == [("enc", 2), ("dec", 2)]
    assert names("layer_0*", "layer_1*") == [("layer", 2)]
    assert names("h.0*") == [("h", 1)]
    inner = model("gpt2/wte:Gather", "gpt2/h.0*", "gpt2/h.1*", onnx=True)  # the importer has all of it in block gpt2
    assert [(stack.name, len(stack.layers)) for stack in stacks_of(inner)] == [("gpt2/h", 2)]
    experts = [Op(f"experts.{n}.{kind}", kind, block=f"experts.{n}") for n in range(2) for kind in ("MatMul", "Gemm")]
    beside = [Tensor("x", MODEL_INPUT, (0, 2), 64), Tensor("a", 0, (1,), 64), Tensor("b", 2, (3,), 64)]
    assert stacks_of(assemble("experts", experts, beside)) == []


def test_a_gap_is_refused() -> None:
    """Tests a member in the middle that is no layer."""
    plan = plan_of(model("h.0*", "h.1:Cast", "h.2*"), second_half())
    with pytest.raises(UsageError, match="number 1 of 'h' is none"):
        layers_of(plan, "vllm")


def test_a_device_map_has_whole_layers() -> None:
    """Tests that a layer is one entry, and that its parts on two devices are refused."""
    whole = plan_of(DECODER, second_half("layers.2", "layers.3", "norm", "lm_head"))
    assert accelerate_map(whole) == {
        "embed": 0,
        **{f"layers.{n}": n // 2 for n in range(4)},
        "norm": 1,
        "lm_head": 1,
    }
    cut = plan_of(DECODER, second_half("layers.1.linear2", "layers.2", "layers.3", "norm", "lm_head"))
    with pytest.raises(UsageError, match=r"accelerate cannot cut inside layer 1 \(layers\).*\"layers\.1\.\*\""):
        accelerate_map(cut)


@pytest.mark.parametrize("target", ["vllm", "megatron"])
def test_stages_on_cpus_are_refused(target: str, tmp_path: Path) -> None:
    """Tests that the sentence says what to do, whatever is on the CPU."""
    first = by_layer(["cpu0", "cpu0", "gpu0", "gpu1"])
    for choose in (first, by_layer(["gpu0"] * 4, embedding="cpu0"), by_layer(["gpu0"] * 4, head="cpu0")):
        with pytest.raises(UsageError, match=rf"{target} has no stages on CPUs.*'cpu0'.*--without cpus"):
            wl.export(placed("gpt2", choose, layers=4), target, tmp_path / "out")
    with pytest.raises(UsageError, match="plan for GPUs"):
        wl.export(plan_of(DECODER, lambda _: "pi0", "edge"), target, tmp_path / "out")


def test_files_are_held_to_the_model() -> None:
    """Tests that a file with too many layers, or with one elsewhere, is refused."""
    plan = plan_of(DECODER, second_half("layers.3", "norm", "lm_head"))
    check_layers(plan, ["gpu0", "gpu0", "gpu0", "gpu1"], "vllm")
    with pytest.raises(InputError, match="has 5 layers, the model 4"):
        check_layers(plan, ["gpu0", "gpu0", "gpu0", "gpu1", "gpu1"], "vllm")
    with pytest.raises(InputError, match="has layer 2 on gpu1, the plan on 'gpu0'"):
        check_layers(plan, ["gpu0", "gpu0", "gpu1", "gpu1"], "vllm")
    words = llamacpp_arguments(placed("gpt2", by_layer(["gpu0", "cpu0", "gpu1", "gpu0"]), layers=4))
    assert read_arguments(words, 4) == ["CUDA0", "CPU", "CUDA1", "CUDA0"]


@pytest.mark.parametrize("target", [*LAYERED, "accelerate"])
def test_hints_have_the_names_of_the_model(target: str, tmp_path: Path) -> None:
    """Tests that the set in the hint is one that the cluster file can have, for the layer that was cut."""
    plan = placed("gpt2", second_half("/transformer/h.1/mlp", "/transformer/ln_f", "/lm_head"))
    with pytest.raises(UsageError, match=r'together = \[\["/transformer/h\.1/\*"\], \.\.\.\]'):
        wl.export(plan, target, tmp_path / "out")
    around = placed("gpt2", second_half("/transformer/wpe"))
    with pytest.raises(UsageError, match=r'"/transformer/wte/\S*", "/transformer/wpe/'):
        layers_of(around, target)


def test_a_refused_export_leaves_nothing(tmp_path: Path) -> None:
    """Tests that folders that were made go again, and that those that were there stay."""
    cut = placed("gpt2", second_half("/transformer/h.1/mlp"))
    there = tmp_path / "there"
    there.mkdir()
    for folder in (there, there / "new", there / "a" / "b"):
        for target in ("vllm", "accelerate", "ort", "onnx-stages", "openvino"):
            with pytest.raises((UsageError, InputError)):
                wl.export(cut, target, folder)
    assert list(tmp_path.rglob("*")) == [there]
    (there / "file").touch()
    with pytest.raises(InputError, match="cannot be made"):
        wl.export(cut, "vllm", there / "file" / "below")


def _launched(folder: Path, program: str, *words: str) -> list[str]:
    """What the script gives to a program that says what it got."""
    fake = folder / program
    fake.write_text('#!/bin/sh\necho "$CUDA_VISIBLE_DEVICES" "$VLLM_PP_LAYER_PARTITION" "$@"\n')
    fake.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["sh", folder / "launch.sh", *words],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    return (done.stdout if done.returncode == 0 else done.stderr).split()


def test_launch_lines(tmp_path: Path) -> None:
    """Tests that rank r sees the device of the r-th stage, as scripts and as an account."""
    plan = placed("gpt2", by_layer(["gpu1", "gpu1", "gpu1", "gpu0"]), layers=4)
    wl.export(plan, "vllm", tmp_path)
    assert _launched(tmp_path, "vllm", "gpt2") == ["1,0", "3,1", "serve", "gpt2", "--pipeline-parallel-size", "2"]
    assert "MODEL" in " ".join(_launched(tmp_path, "vllm"))
    assert "# rank 0 is gpu1, GPU 1\n# rank 1 is gpu0, GPU 0\n" in (tmp_path / "launch.sh").read_text()
    wl.export(plan, "megatron", tmp_path, runtimes={"gpu1": "torch:cuda:5"})
    words = _launched(tmp_path, "torchrun", "pretrain_gpt.py")
    assert words[:4] == ["5,0", "--nproc-per-node", "2", "pretrain_gpt.py"]
    assert words[-2:] == ["--pipeline-model-parallel-layout", "Et*3|tL"]
    stages = json.loads((tmp_path / "stages.json").read_text())["stages"]
    assert [(row["rank"], row["device"], row["gpu"]) for row in stages] == [(0, "gpu1", 5), (1, "gpu0", 0)]
    with pytest.raises(UsageError, match="two devices are the same GPU"):
        wl.export(plan, "vllm", tmp_path, runtimes={"gpu1": "torch:cuda:0"})
    with pytest.raises(UsageError, match="not like torch:cuda:0"):
        wl.export(plan, "vllm", tmp_path, runtimes={"gpu1": "cuda"})


def test_an_unknown_target_is_named_first() -> None:
    """Tests that nothing else is asked for before the target is known."""
    for answer in (None, Path("no-such-plan.json")):
        with pytest.raises(UsageError, match=r"unknown target 'tensorrt' \(there are: .*megatron"):
            export_verb(answer, to="tensorrt")
    with pytest.raises(UsageError, match="did you mean 'vllm'"):
        wl.export("no-such-plan.json", "vlm", "out")


def test_layers_without_names(tmp_path: Path) -> None:
    """Tests that the targets that count layers take those of the structure, and that names are not made up."""
    named = zoo_graph("gpt2", size="small", layers=4)
    graph = msgspec.structs.replace(
        named, ops=tuple(msgspec.structs.replace(op, name=f"node_{i}", block="") for i, op in enumerate(named.ops))
    )
    late = {f"node_{op}" for ops in stacks_of(graph)[0].layers[1:] for op in ops}
    head = {f"node_{i}" for i, op in enumerate(named.ops) if op.block.startswith(("transformer/ln_f", "lm_head"))}
    plan = plan_of(graph, lambda op: "gpu1" if op.name in late | head else "gpu0")
    assert wl.export(plan, "vllm", tmp_path)[0].read_text() == "VLLM_PP_LAYER_PARTITION=1,3\n"
    assert megatron_layout(plan)[0] == "Et|t*3L"
    with pytest.raises(UsageError, match="needs names of modules"):
        accelerate_map(plan)
    cut = plan_of(graph, lambda op: "gpu1" if op.name in late | head and op.name != max(late) else "gpu0")
    with pytest.raises(UsageError, match="plan again with --keep layers"):
        vllm_partition(cut)
