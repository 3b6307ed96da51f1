"""Recipes of quantisation: types tensor by tensor, and sizes of files that were measured."""

from __future__ import annotations

import csv
from collections import Counter
from fractions import Fraction
from itertools import pairwise

import pytest
from tests.data import present

from weftline.errors import InputError
from weftline.importers.llm import (
    NUMBER_TYPES,
    LanguageModel,
    bytes_per_weight,
    find_quantisation,
    number_type,
    quantisation_names,
    quantisations,
    read_language_model,
    requantised,
    tensor_bytes,
)

MEASURED = {
    "Llama-3-8B": "llama-3-8b",
    "Llama-3-70B": "llama-3-70b",
    "Qwen3-32B": "qwen3-32b",
    "TinyLlama-1.1B": "tinyllama-1.1b",
    "gpt-oss-120b": "gpt-oss-120b",
}
"""Of measured.csv: those with a size in the source, made by llama.cpp's own recipes."""


def gigabytes(model: LanguageModel) -> float:
    return sum(tensor.bytes for tensor in model.tensors) / 1e9


def types(model: LanguageModel, end: str) -> list[str]:
    return [tensor.type for tensor in model.tensors if tensor.name.endswith(end)]


def test_sizes_of_files_that_were_measured() -> None:
    """Tests that recipes give the size of the file within 0.3 %."""
    with present("llm/measured.csv").open(encoding="utf-8") as file:
        rows = {
            (row["model"], row["quant"], row["weights_gb"])
            for row in csv.DictReader(file)
            if row["weights_gb"] and row["model"] in MEASURED
        }
    assert len(rows) >= 7
    for name, quantised, size in rows:
        model = read_language_model(MEASURED[name], quantised)
        assert gigabytes(model) == pytest.approx(float(size), rel=0.003), (name, quantised)


@pytest.mark.parametrize(
    ("name", "quantised", "size"),
    [
        ("llama-2-7b", "q4_0", 3.83),
        ("llama-2-7b", "q4_k_m", 4.08),
        ("llama-2-7b", "q5_k_m", 4.78),
        ("llama-2-7b", "q6_k", 5.53),
        ("llama-2-7b", "q8_0", 7.16),
        ("llama-2-7b", "q3_k_m", 3.30),
        ("llama-2-7b", "q2_k", 2.53),
        ("llama-3.1-8b", "q8_0", 8.54),
        ("llama-3.1-8b", "q6_k", 6.60),
        ("llama-3.1-8b", "q4_k_s", 4.69),
        ("llama-3.1-8b", "iq4_xs", 4.45),
        ("llama-3.1-8b", "q3_k_l", 4.32),
        ("llama-3.1-8b", "q2_k", 3.18),
        ("gemma-2-9b", "q4_k_m", 5.76),
        ("qwen2.5-72b", "q4_k_m", 47.42),
        ("gpt-oss-20b", "mxfp4", 12.11),
    ],
)
def test_sizes_of_published_files(name: str, quantised: str, size: float) -> None:
    """Tests sizes, in GB, that publishers of GGUF files state; vocabulary and, of some, an importance matrix aside."""
    assert gigabytes(read_language_model(name, quantised)) == pytest.approx(size, rel=0.012)


def test_more_bits_where_llama_cpp_gives_them() -> None:
    """Tests that Q4_K_M has half of the values and ways down in Q6_K, the output too, and the rest in Q4_K."""
    model = read_language_model("llama-3.1-8b", "q4_k_m")
    assert types(model, "attn_v.weight") == types(model, "ffn_down.weight")
    assert Counter(types(model, "ffn_down.weight")) == {"q4_k": 16, "q6_k": 16}
    assert types(model, "ffn_down.weight")[:8] == ["q6_k"] * 4 + ["q4_k", "q4_k", "q6_k", "q4_k"]
    assert [tensor.type for tensor in model.output] == ["f32", "q6_k"]
    assert set(types(model, "attn_q.weight") + types(model, "token_embd.weight")) == {"q4_k"}
    assert set(types(model, "_norm.weight")) == {"f32"}


def test_narrow_values_of_the_70b_get_more_bits() -> None:
    """Tests the one rule by the number of layers: no value matrix of a 70B is below Q5_K."""
    assert set(types(read_language_model("llama-3.3-70b", "q4_k_m"), "attn_v.weight")) == {"q5_k", "q6_k"}


def test_tied_tables_are_kept_as_the_output_is() -> None:
    """Tests that an embedding that is the output too gets the type of the output."""
    assert types(read_language_model("llama-3.2-1b", "q4_k_m"), "token_embd.weight") == ["q6_k"]


def test_rows_that_are_no_multiple_of_a_block_fall_back() -> None:
    """Tests that a row of 896 numbers, no multiple of 256, is kept in blocks of 32."""
    model = read_language_model("qwen2.5-0.5b", "q4_k_m")
    assert set(types(model, "attn_q.weight")) == {"q5_0"}
    assert types(model, "token_embd.weight") == ["q8_0"]


def test_experts_published_in_four_bits_stay_so() -> None:
    """Tests that gpt-oss keeps its experts, whatever the recipe; the rest follows the recipe."""
    model = read_language_model("gpt-oss-20b", "q8_0")
    assert set(types(model, "_exps.weight")) == {"mxfp4"}
    assert set(types(model, "attn_q.weight")) == {"q8_0"}


@pytest.mark.parametrize("name", quantisation_names())
def test_every_recipe_gives_whole_rows(name: str) -> None:
    """Tests that rows are whole blocks of the type that a recipe gives, whatever the model."""
    for known in ("llama-3.2-1b", "qwen2.5-0.5b", "mixtral-8x7b", "deepseek-v2-lite", "qwen3.5-0.8b"):
        model = read_language_model(known, name)
        assert model.quantisation == name
        if find_quantisation(name).format != "packed":
            assert all(tensor.shape[0] % number_type(tensor.type).block == 0 for tensor in model.tensors)
        assert model.parameters == read_language_model(known).parameters


def test_fewer_bits_are_fewer_bytes() -> None:
    """Tests that recipes for llama.cpp are listed from large to small."""
    model = read_language_model("llama-2-13b")
    names = [one.name for one in quantisations() if one.format == "gguf" and one.name not in ("mxfp4")]
    sizes = [gigabytes(requantised(model, name)) for name in names]
    assert all(after <= before * 1.03 for before, after in pairwise(sizes))


def test_aliases_and_marks() -> None:
    """Tests that capitals, hyphens and short names are understood."""
    assert find_quantisation("Q4-K-M").name == "q4_k_m"
    assert find_quantisation("fp16").name == "f16"
    assert find_quantisation("int4").name == "gptq"


def test_bytes_of_types() -> None:
    """Tests blocks: exact bytes per weight, whole blocks of a tensor, an error for an unknown name."""
    assert bytes_per_weight("q4_k") == Fraction(9, 16)
    assert bytes_per_weight("q8_0") == Fraction(17, 16)
    assert tensor_bytes("q6_k", (256, 3)) == 3 * 210
    assert tensor_bytes("int4", (100,)) == 133
    assert all(one.bytes > 0 and one.block > 0 for one in NUMBER_TYPES.values())
    with pytest.raises(InputError, match="did you mean 'q4_k'"):
        number_type("q4_kk")
