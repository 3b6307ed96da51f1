"""Tests that llama.cpp itself puts layers, tensors and bytes where plans say: two or three CPU servers are devices."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.llamacpp import llamacpp

from weftline.cost.llm import (
    LlmSettings,
    Position,
    compute_buffer,
    embedding_bytes,
    host_buffer,
    layer_cache,
    layer_weights,
    output_weights,
)
from weftline.importers.llm import LanguageModel, read_language_model
from weftline.plans.launch import LlamaCppLaunch, llamacpp_line
from weftline.testing.gguf import write_gguf_header
from weftline.testing.llamacpp import (
    DeviceMemory,
    LlamaCppPrograms,
    assigned_devices,
    free_ports,
    generated,
    memory_of,
    rpc_servers,
    started_server,
)

PLANS = int(os.environ.get("WEFTLINE_LLAMACPP_PLANS", "100"))
MODELS = 20
ONE_MIB = 1 << 20
DENSE = ("llama", "qwen2", "qwen3")
CACHES = ("f16", "q8_0")


@pytest.fixture(scope="module")
def programs() -> LlamaCppPrograms:
    return llamacpp()


@pytest.fixture(scope="module")
def servers(programs: LlamaCppPrograms) -> Iterator[list[str]]:
    with rpc_servers(programs, 3) as addresses:
        yield addresses


def drawn_model(chance: random.Random, folder: Path, *, tiny: bool) -> LanguageModel:
    """A model of an architecture that its makers could have chosen, with few layers where it is loaded for real."""
    kind = chance.choice((*DENSE, "qwen3_moe"))
    heads = chance.choice([4, 8]) if tiny else chance.choice([16, 32, 40])
    length = 32 if tiny else chance.choice([64, 128])
    config = {
        "architectures": [kind],
        "model_type": kind,
        "hidden_size": heads * length,
        "head_dim": length,
        "intermediate_size": 256 if tiny else heads * length * chance.randint(5, 9) // 2,
        "num_hidden_layers": chance.randint(1, 24 if tiny else 64),
        "num_attention_heads": heads,
        "num_key_value_heads": heads // chance.choice([1, 2, 4]),
        "vocab_size": 512 if tiny else 512 * chance.randint(60, 300),
        "max_position_embeddings": 131_072,
        "tie_word_embeddings": chance.random() < 0.3,
        "rms_norm_eps": 1e-6,
        "torch_dtype": "float16",
    }
    if kind == "qwen3_moe":
        config |= {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 256}
    file = folder / "config.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    return read_language_model(str(file), chance.choice(["q4_0", "q8_0", "f16"]))


def drawn_counts(chance: random.Random, layers: int, devices: int) -> tuple[int, ...]:
    """Layers in a row for each device; they need not be all, and a device may have none."""
    total = layers if chance.random() < 0.6 else chance.randint(1, layers)
    cuts = sorted(chance.randint(0, total) for _ in range(devices - 1))
    return tuple(last - first for first, last in zip([0, *cuts], [*cuts, total], strict=True))


@pytest.mark.parametrize("part", range(4))
def test_layers_are_where_they_were_planned(
    part: int, programs: LlamaCppPrograms, servers: list[str], tmp_path: Path
) -> None:
    """Tests that llama-server, started by our line, assigns every layer as planned, and answers."""
    chance = random.Random(part)
    for _ in range(PLANS // 4):
        model = drawn_model(chance, tmp_path, tiny=True)
        file = tmp_path / "model.gguf"
        write_gguf_header(file, model)
        count = chance.randint(1, 3)
        devices = tuple(f"RPC{number}" for number in range(count))
        layers = drawn_counts(chance, len(model.layers) + 1, count)
        (port,) = free_ports(1)
        plan = LlamaCppLaunch(
            str(file), len(model.layers), devices, layers, 256, servers=tuple(servers[:count]), port=port
        )
        words = llamacpp_line(plan).program[1:]
        planned = [name for name, held in zip(devices, layers, strict=True) for _ in range(held)]
        with started_server(programs, words[: words.index("--port")], port) as log:
            assert assigned_devices(log) == ["CPU"] * (len(model.layers) + 1 - len(planned)) + planned
            assert generated(port, 3)[0] == 3


@pytest.mark.parametrize("seed", range(MODELS))
def test_memory_is_what_llamacpp_says(
    seed: int, programs: LlamaCppPrograms, servers: list[str], tmp_path: Path
) -> None:
    """Tests weights, cache and compute buffer of each device against llama.cpp's own count for files without weights:
    within 1 % or 16 MiB, whichever is more."""
    chance = random.Random(seed)
    model = drawn_model(chance, tmp_path, tiny=False)
    file = tmp_path / "model.gguf"
    write_gguf_header(file, model)
    count = chance.randint(1, 3)
    cache = chance.choice(CACHES)
    batch = chance.choice([128, 512, 1024])
    settings = LlmSettings(1024 * chance.randint(1, 32), kv_type_k=cache, kv_type_v=cache, micro_batch=batch)
    layers = drawn_counts(random.Random(seed), len(model.layers) + 1, count)
    layers = (*layers[:-1], len(model.layers) + 1 - sum(layers[:-1]))
    devices = tuple(f"RPC{number}" for number in range(count))
    plan = LlamaCppLaunch(
        str(file),
        len(model.layers),
        devices,
        layers,
        settings.context,
        kv_type_k=cache,
        kv_type_v=cache,
        micro_batch=batch,
        servers=tuple(servers[:count]),
    )
    words = list(llamacpp_line(plan).program[1:])
    del words[words.index("--port") : words.index("--port") + 2]
    said = memory_of(programs, words)
    for name, ours in counted(model, settings, devices, layers).items():
        for what, mine, theirs in zip(DeviceMemory._fields, ours, said[name], strict=True):
            assert abs(mine - theirs) <= max(16, 0.01 * theirs), (name, what, mine, theirs, words, said)


def counted(
    model: LanguageModel, settings: LlmSettings, devices: tuple[str, ...], layers: tuple[int, ...]
) -> dict[str, DeviceMemory]:
    """Our own count, in MiB; devices that hold nothing are left out."""
    weights = [*map(layer_weights, model.layers), output_weights(model)]
    caches = [*(layer_cache(layer, settings) for layer in model.layers), 0]
    used = [(name, held) for name, held in zip(devices, layers, strict=True) if held]
    found, first = {}, 0
    for number, (name, held) in enumerate(used):
        inner = Position.FIRST if number == 0 else Position.MIDDLE
        last = Position.LAST if held > 1 else Position.OUTPUT
        place = Position.ONLY if len(used) == 1 else last if number == len(used) - 1 else inner
        rows = slice(first, first + held)
        mine = (sum(weights[rows]), sum(caches[rows]), compute_buffer(model, settings, place))
        found[name] = DeviceMemory(*(size // ONE_MIB for size in mine))
        first += held
    host = (embedding_bytes(model), 0, host_buffer(model, settings, len(used)))
    found["Host"] = DeviceMemory(*(size // ONE_MIB for size in host))
    return found
