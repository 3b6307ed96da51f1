"""Tests of the lines that start engines as a plan of a language model says, and of the files that hold them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

import weftline as wl
from weftline.errors import UsageError
from weftline.export.fit import compose_text, script_text
from weftline.plans.fit import FitMove
from weftline.plans.fit_words import moved_words

CONFIG = {
    "model_type": "llama",
    "hidden_size": 1024,
    "intermediate_size": 2816,
    "num_hidden_layers": 8,
    "num_attention_heads": 16,
    "vocab_size": 32000,
}


def test_servers_of_other_machines_are_not_started_here() -> None:
    """Tests that a script and a compose file start what runs on this machine, and only say what runs elsewhere."""
    plan = wl.fit("llama-3.1-8b", quantisation="q8_0", gpus=["2x RTX 3060 12GB@6GB"], links=["gpu1=10gbe"])
    assert [line.machine for line in plan.launch] == ["gpu1", ""]
    script = script_text(plan).splitlines()
    assert [line for line in script if "ggml-rpc-server" in line] == ["#   ggml-rpc-server -H gpu1-host -p 50052"]
    assert script[-1].startswith("exec llama-server")
    compose = compose_text(plan)
    assert compose.count("image:") == 1
    assert "ggml-rpc-server" not in compose
    assert '"127.0.0.1:8080:8080"' in compose


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_ranks_are_given_files_of_gguf_as_such(engine: str) -> None:
    """Tests that weights of a recipe of llama.cpp are a file with their name, and that the answer warns."""
    plan = wl.fit("llama-3.1-8b", quantisation="q8_0", gpus=["RTX 4090"], engine=engine)
    words = shlex.split(plan.command[0])
    assert "llama-3.1-8b-q8_0.gguf" in words
    assert words[words.index("--quantization") + 1] == "gguf"
    assert any("experiments" in note for note in plan.notes)
    plain = wl.fit("llama-3.1-8b", quantisation="fp8", gpus=["RTX 4090"], engine=engine)
    assert "--quantization" not in plain.command[0]


def test_micro_batches_are_told_and_take_memory() -> None:
    """Tests that -ub, and -b where it must be as large, are in the line, that buffers grow, and that vLLM has none."""
    usual, large, huge = (
        wl.fit("llama-3.1-8b", quantisation="q8_0", gpus=["RTX 4090"], micro_batch=size) for size in (None, 2048, 4096)
    )
    assert "-ub" not in usual.command[0]
    assert "-ub 2048 -fa" in large.command[0]
    assert "-ub 4096 -b 4096 -fa" in huge.command[0]
    assert large.devices[0].compute_bytes == 4 * usual.devices[0].compute_bytes
    with pytest.raises(UsageError, match="micro-batches"):
        wl.fit("llama-3.1-8b", gpus=["RTX 4090"], engine="vllm", micro_batch=256)


def test_equal_cards_could_be_sliced() -> None:
    """Tests that the note about the tensor mode stands where it could be used, and nowhere else."""

    def noted(gpus: list[str], **more: str) -> bool:
        plan = wl.fit("llama-3.3-70b", quantisation="q4_k_m", gpus=gpus, **more)
        return any("-sm tensor" in note for note in plan.notes)

    assert noted(["2x RTX 3090"])
    assert not noted(["RTX 3090", "RTX 4090"])
    assert not noted(["2x RTX 3090"], kv_type="q8_0")
    assert not noted(["3x RTX 3060 12GB"], cpus=["DDR5-5600"], ram="64GB")  # type: ignore[arg-type]
    assert not noted(["2x A100 80GB"])


def test_llamacpp_says_what_it_cannot_run() -> None:
    """Tests that weights which only other engines read are noted, and those of its own are not."""
    assert any("runs no awq weights" in n for n in wl.fit("llama-3.1-8b", quantisation="awq", gpus=["4090"]).notes)
    assert not any("runs no" in n for n in wl.fit("gpt-oss-20b", gpus=["4090"]).notes)


def test_a_folder_is_no_option(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a folder whose name begins with a dash, or holds what a shell reads, stays one word that is a path."""
    monkeypatch.chdir(tmp_path)
    for name in ("--trust-remote-code", "a b;$(id)"):
        folder = Path(name)
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(CONFIG))
        plan = wl.fit(name, gpus=["RTX 4090"], engine="vllm")
        model = shlex.split(plan.command[0].partition("vllm serve ")[2])[0]
        assert model == (f"./{name}" if name.startswith("-") else name)
        assert plan.launch[0].program[2] == model


def test_the_output_layer_is_no_part_of_layers() -> None:
    """Tests the words for an output layer on the host."""
    assert moved_words(FitMove("output", "gpu0", (48,))) == "output layer (gpu0) in the memory of the host"
    words = moved_words(FitMove("experts", "gpu0", (0, 1, 4)))
    assert words == "experts of layers 0..1, 4 (gpu0) in the memory of the host"
