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


@pytest.mark.parametrize(
    ("field", "value"),
    [("hidden_size", -1), ("num_hidden_layers", 10**9), ("vocab_size", "many"), ("num_attention_heads", None)],
)
def test_what_is_wrong_is_named(field: str, value: object) -> None:
    """Tests that a field that cannot be is named in the error."""
    with pytest.raises(InputError, match=field):
        stack_from_config({**SMALL, field: value}, name="small", source="config.json")
