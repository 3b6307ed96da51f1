"""Hugging Face folders: exact bytes from safetensors headers, packed checkpoints, and what is wrong with files."""

from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path

import pytest
from tests.importers.llm.checkpoints import BYTES, SMALL_LLAMA, Shape, folder, linear, llama, safetensors

from weftline.errors import InputError
from weftline.importers.llm import LanguageModel, read_language_model


def size(tensors: dict[str, tuple[str, Shape]]) -> int:
    return sum(BYTES[dtype] * prod(shape) for dtype, shape in tensors.values())


def weight(model: LanguageModel) -> int:
    return sum(tensor.bytes for tensor in model.tensors)


def test_a_plain_folder_is_what_its_configuration_says(tmp_path: Path) -> None:
    """Tests that headers and formula agree on a bf16 checkpoint, and that only the first is called exact."""
    tensors = llama(SMALL_LLAMA)
    bare = read_language_model(folder(tmp_path / "bare", SMALL_LLAMA))
    model = read_language_model(folder(tmp_path / "whole", SMALL_LLAMA, tensors))
    assert (bare.exact_bytes, model.exact_bytes) == (False, True)
    assert weight(bare) == weight(model) == size(tensors)
    assert model.notes == ()
    assert [layer.tensors for layer in bare.layers] == [layer.tensors for layer in model.layers]


def test_shards_are_read_through_their_index(tmp_path: Path) -> None:
    """Tests that several files count as one, by folder and by index; where one is missing the formula stands in."""
    tensors = list(llama(SMALL_LLAMA).items())
    path = folder(tmp_path / "m", SMALL_LLAMA, dict(tensors[:9]), dict(tensors[9:]))
    for source in (path, path / "model.safetensors.index.json"):
        assert read_language_model(source).exact_bytes
        assert weight(read_language_model(source)) == size(dict(tensors))
    (path / "model-00002-of-00002.safetensors").unlink()
    model = read_language_model(path)
    assert not model.exact_bytes
    assert any("not all of its safetensors files" in note for note in model.notes)


def test_a_folder_of_the_cache_of_hugging_face_has_the_name_of_its_model(tmp_path: Path) -> None:
    """Tests that a snapshot, whose folder is called by a hash, is called by its model; its files may be links."""
    path = folder(tmp_path / "models--owner--Small-1B" / "snapshots" / "0a1b2c", SMALL_LLAMA, llama(SMALL_LLAMA))
    blob = tmp_path / "blob"
    (path / "model-00001-of-00001.safetensors").rename(blob)
    (path / "model-00001-of-00001.safetensors").symlink_to(blob)
    model = read_language_model(path)
    assert (model.name, model.exact_bytes) == ("Small-1B", True)


@pytest.mark.parametrize(("dtype", "method"), [("AWQ", "awq"), ("F8_E4M3", "fp8")])
def test_packed_checkpoints(dtype: str, method: str, tmp_path: Path) -> None:
    """Tests that packed matrices have the bytes of all their parts and the parameters of the configuration."""
    config = {**SMALL_LLAMA, "quantization_config": {"quant_method": method}}
    tensors = llama(config, dtype)
    model = read_language_model(folder(tmp_path / "m", config, tensors))
    assert model.exact_bytes
    assert model.quantisation == method
    assert weight(model) == size(tensors)
    assert model.parameters == read_language_model(folder(tmp_path / "bare", SMALL_LLAMA)).parameters


def test_experts_are_one_tensor_of_their_layer(tmp_path: Path) -> None:
    """Tests that experts in files of their own names, one by one, become one tensor each of gate, up and down."""
    config = {
        **SMALL_LLAMA,
        "model_type": "qwen3_moe",
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 128,
        "head_dim": 64,
    }
    tensors = {name: value for name, value in llama(config).items() if ".mlp." not in name}
    for i in range(2):
        at = f"model.layers.{i}"
        for j in range(4):
            for name, (rows, columns) in {"gate": (128, 256), "up": (128, 256), "down": (256, 128)}.items():
                tensors |= dict(linear(f"{at}.mlp.experts.{j}.{name}_proj", rows, columns))
        tensors |= dict(linear(f"{at}.mlp.gate", 4, 256))
        tensors |= {f"{at}.self_attn.{name}_norm.weight": ("BF16", (64,)) for name in ("q", "k")}
    model = read_language_model(folder(tmp_path / "m", config, tensors))
    assert model.notes == ()
    assert weight(model) == size(tensors)
    experts = [tensor for tensor in model.layers[1].tensors if "_exps" in tensor.name]
    assert [tensor.bytes for tensor in experts] == [4 * 128 * 256 * 2] * 3


def test_what_is_not_of_the_text_is_left_out(tmp_path: Path) -> None:
    """Tests that a vision tower does not count, and tensors of unknown names count for their layer, with a note."""
    tensors = llama(SMALL_LLAMA)
    seen = {"vision_tower.blocks.0.attn.qkv.weight": ("BF16", (100, 100))}
    strange = {"model.layers.1.self_attn.something.weight": ("BF16", (10, 10))}
    model = read_language_model(folder(tmp_path / "m", SMALL_LLAMA, {**tensors, **seen, **strange}))
    assert weight(model) == size(tensors) + 200
    assert any("not known" in note for note in model.notes)


def test_weights_alone_are_no_model(tmp_path: Path) -> None:
    """Tests that files of weights without a config.json are answered with what is missing."""
    (tmp_path / "model.safetensors").write_bytes(safetensors(llama(SMALL_LLAMA)))
    with pytest.raises(InputError, match=r"no config\.json"):
        read_language_model(tmp_path / "model.safetensors")
    with pytest.raises(InputError, match=r"neither config\.json"):
        read_language_model(tmp_path)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"


@pytest.mark.parametrize("name", ["model.safetensors", "model.gguf", "config.json"])
def test_pointers_of_git_lfs_are_named(name: str, tmp_path: Path) -> None:
    """Tests that a file that git-lfs has not fetched is answered with the command that fetches it."""
    path = folder(tmp_path / "m", SMALL_LLAMA)
    (path / name).write_bytes(POINTER)
    with pytest.raises(InputError, match="git lfs pull"):
        read_language_model(path / name)


def header(text: str, length: int | None = None) -> bytes:
    return struct.pack("<Q", len(text) if length is None else length) + text.encode()


def entry(dtype: str = "BF16", shape: str = "[2]", offsets: str = "[0,4]") -> str:
    return f'{{"dtype":"{dtype}","shape":{shape},"data_offsets":{offsets}}}'


WRONG = {
    "empty": (b"", "shorter than 8"),
    "long": (header("{}", 10**12), "announces a header"),
    "no json": (header("[1,2]"), "no header in JSON"),
    "cut": (header('{"a":'), "cannot be read"),
    "deep": (header('{"a":' + "[" * 100_000), "cannot be read"),
    "many": (header('{"a":1,' + '"b":1,' * 400_000 + '"c":1}'), "more than"),
    "type": (header(f'{{"a":{entry("I4")}}}'), "unknown type"),
    "negative": (header(f'{{"a":{entry(shape="[-2]")}}}'), "impossible shape"),
    "huge": (header(f'{{"a":{entry(shape=f"[{2**40},{2**40}]")}}}'), "is said to lie"),
    "hole": (header(f'{{"a":{entry(offsets="[4,8]")}}}'), "not at 0 to 4"),
    "short": (header(f'{{"a":{entry(offsets="[0,2]")}}}'), "not at 0 to 4"),
    "overlap": (header(f'{{"a":{entry()},"b":{entry()}}}'), "not at 4 to 8"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_a_header_is_said(name: str, tmp_path: Path) -> None:
    """Tests that each kind of damage is an error that names it."""
    data, message = WRONG[name]
    path = folder(tmp_path / "m", SMALL_LLAMA)
    (path / "model.safetensors").write_bytes(data)
    with pytest.raises(InputError, match=message):
        read_language_model(path)


@pytest.mark.parametrize("file", ["../secret.safetensors", "/etc/passwd", "a/b.safetensors", "", ".hidden", "a\\b"])
def test_an_index_names_files_of_its_own_folder(file: str, tmp_path: Path) -> None:
    """Tests that an index that leads out of its folder is refused."""
    path = folder(tmp_path / "m", SMALL_LLAMA)
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": file}}))
    with pytest.raises(InputError, match="not in its own folder"):
        read_language_model(path)


def test_an_index_has_limits(tmp_path: Path) -> None:
    """Tests that an index of too many files is refused before any of them is looked for."""
    path = folder(tmp_path / "m", SMALL_LLAMA)
    files = {f"t{i}": f"m{i}.safetensors" for i in range(2001)}
    (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": files}))
    with pytest.raises(InputError, match="2001 files"):
        read_language_model(path)


def test_layers_of_one_thing_each(tmp_path: Path) -> None:
    """Tests a stack of state-space layers, attention and plain feed-forward, by names of its own."""
    config = {
        **SMALL_LLAMA,
        "model_type": "nemotron_h",
        "num_hidden_layers": 3,
        "hybrid_override_pattern": "M*-",
        "mamba_num_heads": 4,
        "mamba_head_dim": 32,
        "ssm_state_size": 16,
        "n_groups": 2,
    }
    at, inner, channels = "backbone.layers", 128, 128 + 2 * 2 * 16
    tensors = {name: value for name, value in llama(SMALL_LLAMA).items() if ".layers." not in name}
    tensors = {name.replace("model.embed_tokens", "backbone.embeddings"): value for name, value in tensors.items()}
    tensors["backbone.norm_f.weight"] = tensors.pop("model.norm.weight")
    tensors |= {f"{at}.{i}.norm.weight": ("BF16", (256,)) for i in range(3)}
    tensors |= dict(linear(f"{at}.0.mixer.in_proj", inner + channels + 4, 256))
    tensors |= dict(linear(f"{at}.0.mixer.out_proj", 256, inner))
    tensors |= {
        f"{at}.0.mixer.conv1d.{end}": ("BF16", (channels, 1, 4)[:many]) for end, many in (("weight", 3), ("bias", 1))
    }
    tensors |= {f"{at}.0.mixer.{name}": ("BF16", (4,)) for name in ("dt_bias", "A_log", "D")}
    tensors[f"{at}.0.mixer.norm.weight"] = ("BF16", (inner,))
    for name, rows in {"q": 256, "k": 128, "v": 128, "o": 256}.items():
        tensors |= dict(linear(f"{at}.1.mixer.{name}_proj", rows, 256))
    tensors |= dict(linear(f"{at}.2.mixer.up_proj", 512, 256)) | dict(linear(f"{at}.2.mixer.down_proj", 256, 512))
    model = read_language_model(folder(tmp_path / "m", config, tensors))
    assert model.notes == ()
    assert weight(model) == size(tensors)
    assert [layer.attention.value for layer in model.layers] == ["recurrent", "full", "none"]
