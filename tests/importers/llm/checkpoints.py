"""Folders as Hugging Face has them, made for tests: a small config.json, and safetensors files that are all header."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Mapping
from math import prod
from pathlib import Path
from typing import Any

Shape = tuple[int, ...]
BYTES = {"BF16": 2, "F16": 2, "F32": 4, "F8_E4M3": 1, "I32": 4, "U8": 1}

SMALL_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}


def safetensors(tensors: Mapping[str, tuple[str, Shape]]) -> bytes:
    """The header of a file with these tensors: name -> type and shape, outermost first."""
    entries, end = {}, 0
    for name, (dtype, shape) in tensors.items():
        begin, end = end, end + BYTES[dtype] * prod(shape)
        entries[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
    text = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
    return struct.pack("<Q", len(text)) + text


def folder(path: Path, config: Mapping[str, Any], *shards: Mapping[str, tuple[str, Shape]]) -> Path:
    """Write a folder; several shards get an index."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "config.json").write_text(json.dumps(config))
    names = [f"model-{i + 1:05d}-of-{len(shards):05d}.safetensors" for i in range(len(shards))]
    for name, tensors in zip(names, shards, strict=True):
        (path / name).write_bytes(safetensors(tensors))
    if len(shards) > 1:
        weights = {tensor: name for name, tensors in zip(names, shards, strict=True) for tensor in tensors}
        (path / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weights}))
    return path


def linear(name: str, rows: int, columns: int, dtype: str = "BF16") -> Iterator[tuple[str, tuple[str, Shape]]]:
    """A matrix as it is, or packed as AWQ does it (`dtype` AWQ), or with the scales of fp8."""
    if dtype == "AWQ":
        yield f"{name}.qweight", ("I32", (columns, rows // 8))
        yield f"{name}.qzeros", ("I32", (columns // 128, rows // 8))
        yield f"{name}.scales", ("F16", (columns // 128, rows))
        return
    yield f"{name}.weight", (dtype, (rows, columns))
    if dtype == "F8_E4M3":
        yield f"{name}.weight_scale_inv", ("F32", (-(-rows // 128), -(-columns // 128)))


def llama(config: Mapping[str, Any], dtype: str = "BF16") -> dict[str, tuple[str, Shape]]:
    """Tensors of a dense Llama."""
    hidden, ffn, kv = config["hidden_size"], config["intermediate_size"], config["num_key_value_heads"] * 64
    found: dict[str, tuple[str, Shape]] = {"model.embed_tokens.weight": ("BF16", (config["vocab_size"], hidden))}
    for i in range(config["num_hidden_layers"]):
        at = f"model.layers.{i}"
        sizes = {"q": (hidden, hidden), "k": (kv, hidden), "v": (kv, hidden), "o": (hidden, hidden)}
        for name, shape in sizes.items():
            found |= dict(linear(f"{at}.self_attn.{name}_proj", *shape, dtype))
        for name, (rows, columns) in {"gate": (ffn, hidden), "up": (ffn, hidden), "down": (hidden, ffn)}.items():
            found |= dict(linear(f"{at}.mlp.{name}_proj", rows, columns, dtype))
        found |= {f"{at}.{name}_layernorm.weight": ("BF16", (hidden,)) for name in ("input", "post_attention")}
    found["model.norm.weight"] = ("BF16", (hidden,))
    found["lm_head.weight"] = ("BF16", (config["vocab_size"], hidden))
    return found
