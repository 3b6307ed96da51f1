"""config.json -> tensors: parameters as published, and errors that name the field."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.data import present, published

from weftline.errors import InputError
from weftline.importers.llm import read_language_model
from weftline.importers.llm.build import build_model
from weftline.importers.llm.configuration import stack_from_config

CONFIGS = published("llm/configs")
SMALL = {
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 100,
}


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_parameters_are_the_published_ones(path: Path) -> None:
    """Tests that the count of parameters is the published one; where vision is counted there, the formula's."""
    about = json.loads(present(path).read_text())
    model = build_model(stack_from_config(about["config"], name=path.stem, source=path.name))
    assert model.layers
    if "formula" in about:
        text_only = "vision" in about.get("published_note", "")
        known = about["formula"]["total_parameters"] if text_only else about["published_total_parameters"]
        assert model.parameters == known


def test_a_bare_configuration(tmp_path: Path) -> None:
    """Tests that a config.json alone makes a model, and that its folder gives it its name."""
    path = tmp_path / "small" / "config.json"
    path.parent.mkdir()
    path.write_text(json.dumps(SMALL))
    model = read_language_model(str(path))
    assert model.name == "small"
    assert model.parameters == 2 * (4 * 64 * 64 + 3 * 64 * 128 + 2 * 64) + 2 * 64 * 100 + 64
    assert model == read_language_model(str(path.parent)) or model.source != str(path.parent)


def test_a_configuration_inside_another_object() -> None:
    """Tests that collections that keep it under `config` are read, and other objects of this name are not taken."""
    inside = stack_from_config({"name": "Small", "config": SMALL}, name="small", source="s")
    assert inside == stack_from_config(SMALL, name="small", source="s")
    assert stack_from_config({**SMALL, "config": {"model_type": "x"}}, name="small", source="s") == inside


@pytest.mark.parametrize(
    ("field", "value"),
    [("hidden_size", -1), ("num_hidden_layers", 10**9), ("vocab_size", "many"), ("num_attention_heads", None)],
)
def test_what_is_wrong_is_named(field: str, value: object) -> None:
    """Tests that a field that cannot be is named in the error."""
    with pytest.raises(InputError, match=field):
        stack_from_config({**SMALL, field: value}, name="small", source="config.json")


def test_an_unknown_architecture_is_read_as_llama_and_says_so() -> None:
    """Tests that a new name with the usual fields gives a model with a note."""
    model = build_model(stack_from_config({**SMALL, "model_type": "lama9"}, name="small", source="config.json"))
    assert model.parameters == build_model(stack_from_config(SMALL, name="small", source="config.json")).parameters
    assert any("'lama9' is not known" in note for note in model.notes)


@pytest.mark.parametrize(
    "fields",
    [
        {"model_type": "nemotron_x", "hybrid_override_pattern": "M-M*"},
        {"model_type": "granite_x", "layer_types": ["mamba", "attention"]},
        {"model_type": "t9", "is_encoder_decoder": True},
        {"model_type": "falcon_x", "mamba_d_ssm": 64},
        {"model_type": "bert"},
        {"model_type": "something"},
    ],
)
def test_what_is_not_like_llama_is_refused(fields: dict[str, object]) -> None:
    """Tests that an unknown architecture with states, or none of text, is no model with wrong numbers."""
    config = {**SMALL, **fields} if fields["model_type"] != "something" else fields
    with pytest.raises(InputError, match=r"not known|known here|not one that writes"):
        stack_from_config(config, name="small", source="config.json")


def test_windows_are_those_of_the_architecture() -> None:
    """Tests patterns of windows: every second layer of gpt-oss and Gemma 2, five of six of Gemma 3, three of four."""

    def slides(name: str) -> str:
        kinds = [layer.attention.value[0] for layer in read_language_model(name).layers]
        return "".join(kinds[:6])

    assert slides("gpt-oss-20b") == slides("gemma-2-9b") == "sfsfsf"
    assert slides("gemma-3-12b") == slides("gemma-4-31b") == "sssssf"
    assert slides("command-r7b") == slides("llama-4-scout") == "sssfss"
    assert slides("mistral-7b-v0.1") == slides("qwen2.5-7b") == "ffffff"
    assert slides("qwen3.5-27b") == "rrrfrr"
    assert slides("deepseek-v3") == "llllll"


def test_what_layers_cache() -> None:
    """Tests heads and lengths that caches follow from: latent rows, two sizes of heads, states of linear attention."""
    deepseek = read_language_model("deepseek-v3").layers[5]
    assert (deepseek.latent_length, deepseek.experts_used, deepseek.shared_ffn) == (576, 8, 2048)
    gemma = read_language_model("gemma-4-31b").layers
    assert [(one.kv_heads, one.key_length, one.window) for one in gemma[4:6]] == [(16, 256, 1024), (4, 512, 0)]
    state = read_language_model("qwen3.5-27b").layers[0]
    assert state.state_bytes == 4 * (48 * 128 * 128 + 3 * (2 * 16 * 128 + 48 * 128))
