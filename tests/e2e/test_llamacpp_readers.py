"""llama.cpp itself on our reading of language models: headers that it lays out, types that its quantiser chooses."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.llamacpp import llamacpp

from weftline.cost.llm import LlmSettings, layer_cache
from weftline.importers.llm import known_models, quantisations, read_language_model
from weftline.testing import write_gguf_header
from weftline.testing.llamacpp import LlamaCppPrograms, memory_of, rpc_servers

NAMES = list({model.architecture: model.name for model in known_models()}.values())
"""One model of each architecture."""
QUANTISED = ("llama-3.3-70b", "mixtral-8x7b", "qwen2.5-0.5b", "phi-4", "gemma-3-1b", "deepseek-v3", "qwen3.5-35b-a3b")
TENSOR = re.compile(
    r"^\[ *\d+/ *\d+\] (\S+) +- \[.*?\], type = +(\w+), size = +[\d.]+ MiB(?: -> .*?\((\w+)\))?", re.MULTILINE
)


@pytest.fixture(scope="module")
def programs() -> LlamaCppPrograms:
    return llamacpp()


@pytest.fixture(scope="module")
def server(programs: LlamaCppPrograms) -> Iterator[str]:
    with rpc_servers(programs, 1) as servers:
        yield servers[0]


@pytest.mark.parametrize("name", NAMES)
def test_bytes_are_those_that_llama_cpp_counts(
    name: str, programs: LlamaCppPrograms, server: str, tmp_path: Path
) -> None:
    """Tests that llama.cpp takes headers of every architecture, and counts our weights and caches to the MiB."""
    model = read_language_model(name, "q4_k_m")
    write_gguf_header(tmp_path / "m.gguf", model, words=False)
    found = memory_of(programs, ["-m", str(tmp_path / "m.gguf"), "--rpc", server, "-c", "32768", "-ngl", "999"])
    device = sum(layer.bytes for layer in model.layers) + sum(tensor.bytes for tensor in model.output)
    host = sum(tensor.bytes for tensor in model.embedding)
    if model.tied:
        device += host
    assert found["RPC0"].model == pytest.approx(device / 2**20, abs=1.1)
    cache = sum(layer_cache(layer, LlmSettings(context=32768)) for layer in model.layers)
    assert found["RPC0"].context == pytest.approx(cache / 2**20, abs=1.1)
    assert found["Host"].model == pytest.approx(host / 2**20, abs=1.1)


@pytest.mark.parametrize("name", QUANTISED)
def test_types_are_those_that_llama_cpp_chooses(name: str, programs: LlamaCppPrograms, tmp_path: Path) -> None:
    """Tests that every recipe gives every tensor the type that llama-quantize gives it."""
    write_gguf_header(tmp_path / "m.gguf", read_language_model(name, "f16"), words=False)
    for recipe in quantisations():
        if recipe.format != "gguf":
            continue
        asked = "MXFP4_MOE" if recipe.name == "mxfp4" else recipe.name
        command = [*programs.words("llama-quantize"), "--dry-run", str(tmp_path / "m.gguf"), asked]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        chosen = {tensor: (new or old).lower() for tensor, old, new in TENSOR.findall(done.stdout + done.stderr)}
        model = read_language_model(name, recipe.name)
        layers = (*model.layers, *model.mtp)
        ours = {tensor.name: tensor.type for tensor in (*model.tensors, *(t for one in layers for t in one.tensors))}
        assert len(chosen) >= len(model.tensors), done.stderr[-2000:]
        assert {tensor: ours[tensor] for tensor in chosen} == chosen, recipe.name
