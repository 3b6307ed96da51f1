"""The catalogue: names as people write them, and parameters as published."""

from __future__ import annotations

import pytest

from weftline.errors import InputError
from weftline.importers.llm import is_known_model, known_models, quantisation_names, read_language_model
from weftline.importers.llm.catalogue import _entries, _plain

PUBLISHED = {
    "falcon3-1b": 1_669_408_768,
    "falcon3-3b": 3_227_655_168,
    "falcon3-7b": 7_455_550_464,
    "falcon3-10b": 10_305_653_760,
    "glm-4-9b": 9_399_951_360,
    "ernie-4.5-21b-a3b": 21_825_437_888,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "llama-3.3-70b": 70_553_706_496,
    "llama-3.1-405b": 405_853_388_800,
    "llama-2-7b": 6_738_415_616,
    "llama-2-13b": 13_015_864_320,
    "llama-2-70b": 68_976_648_192,
    "llama-13b": 13_015_864_320,
    "llama-30b": 32_528_943_616,
    "llama-65b": 65_285_660_672,
    "codellama-34b": 33_743_970_304,
    "tinyllama-1.1b": 1_100_048_384,
    "yi-34b": 34_388_917_248,
    "yi-1.5-9b": 8_829_407_232,
    "solar-10.7b": 10_731_524_096,
    "deepseek-coder-33b": 33_342_991_360,
    "deepseek-coder-6.7b": 6_740_512_768,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "smollm3-3b": 3_075_098_624,
    "mistral-7b-v0.1": 7_241_732_096,
    "mistral-7b-v0.3": 7_248_023_552,
    "mistral-nemo-12b": 12_247_782_400,
    "ministral-8b": 8_019_808_256,
    "mistral-small-22b": 22_247_282_688,
    "mistral-small-24b": 23_572_403_200,
    "mistral-large-123b": 122_610_069_504,
    "mixtral-8x7b": 46_702_792_704,
    "mixtral-8x22b": 140_620_634_112,
    "qwen2.5-0.5b": 494_032_768,
    "qwen2.5-1.5b": 1_543_714_304,
    "qwen2.5-3b": 3_085_938_688,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-14b": 14_770_033_664,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "qwen3-30b-a3b": 30_532_122_624,
    "qwen3-235b-a22b": 235_093_634_560,
    "qwen3-coder-480b-a35b": 480_154_875_392,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma-2-2b": 2_614_341_888,
    "gemma-2-9b": 9_241_705_984,
    "gemma-2-27b": 27_227_128_320,
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "phi-3-mini": 3_821_079_552,
    "phi-3-medium": 13_960_238_080,
    "phi-4": 14_659_507_200,
    "phi-4-mini": 3_836_021_760,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_419_200,
    "command-r-35b": 34_980_831_232,
    "command-r-plus-104b": 103_810_674_688,
    "command-a-111b": 111_057_580_032,
    "aya-expanse-8b": 8_028_033_024,
    "aya-expanse-32b": 32_296_476_672,
    "granite-3.1-8b": 8_170_848_256,
    "olmo-2-1b": 1_484_916_736,
    "olmo-2-7b": 7_298_617_344,
    "olmo-2-13b": 13_716_198_400,
    "olmo-2-32b": 32_234_279_936,
    "starcoder2-3b": 3_030_371_328,
    "starcoder2-7b": 7_173_923_840,
    "seed-oss-36b": 36_151_104_512,
}
"""Parameters as the pages of the models on Hugging Face show them."""
ROUGH = ("gemma-7b", "gemma-2b", "yi-1.5-9b", "qwen3.5-0.8b", "qwen3-0.6b", "olmo-2-1b", "falcon3-1b")
"""Models whose names round much."""
NAMES = [model.name for model in known_models()]


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_the_published_ones(name: str) -> None:
    """Tests that the formula counts as many parameters as the published files hold."""
    assert read_language_model(name).parameters == PUBLISHED[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_entry_makes_a_model(name: str) -> None:
    """Tests that every entry has layers, tables and a context, and needs no note about its architecture."""
    model = read_language_model(name)
    assert model.layers
    assert model.context
    assert not any("is not known" in note for note in model.notes)


def test_every_size_is_about_what_its_name_says() -> None:
    """Tests that billions in a name are those of the model, a tenth up or down."""
    for name in NAMES:
        said = [word[:-1] for word in name.split("-") if word.endswith("b") and word[:-1].replace(".", "").isdigit()]
        if said and name not in ROUGH:
            assert 0.8 <= read_language_model(name).parameters / (1e9 * float(said[0])) <= 1.35, name


def test_no_name_means_two_models() -> None:
    """Tests that no spelling of a name or alias leads to two entries."""
    owner: dict[str, str] = {}
    for name, (_, aliases, _) in _entries().items():
        for one in (name, *aliases):
            assert owner.setdefault(_plain(one), name) == name


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3.3-70b"),
        ("Meta-Llama-3.1-8B-Instruct", "llama-3.1-8b"),
        ("llama3.1:8b", "llama-3.1-8b"),
        ("qwen3:8b", "qwen3-8b"),
        ("Qwen/Qwen3-30B-A3B-Instruct-2507", "qwen3-30b-a3b-2507"),
        ("gpt-oss:120b", "gpt-oss-120b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("gemma3:27b", "gemma-3-27b"),
        ("Mistral-7B-Instruct-v0.3", "mistral-7b-v0.3"),
        ("deepseek-ai/DeepSeek-R1", "deepseek-v3"),
    ],
)
def test_spellings(written: str, meant: str) -> None:
    """Tests that owners, capitals, colons and words for tuned models do not matter."""
    assert is_known_model(written)
    assert read_language_model(written).name == meant


def test_a_name_may_hold_the_quantisation() -> None:
    """Tests that qwen3-8b-q4_k_m is qwen3-8b in q4_k_m, and that a quantisation given aside wins."""
    model = read_language_model("qwen3-8b-Q4_K_M")
    assert (model.name, model.quantisation) == ("qwen3-8b", "q4_k_m")
    assert read_language_model("qwen3-8b-Q4_K_M", "q8_0").quantisation == "q8_0"


def test_a_wrong_name_gets_a_guess() -> None:
    """Tests that a name that is nearly right is answered with the right one, and a file that is not there with that."""
    with pytest.raises(InputError, match="did you mean 'llama3"):
        read_language_model("lama-3.3-70b")
    with pytest.raises(InputError, match="no such file"):
        read_language_model("models/llama.gguf")


def test_a_wrong_quantisation_gets_a_guess() -> None:
    """Tests that a quantisation that does not exist is an error with a guess and the whole list."""
    with pytest.raises(InputError, match="did you mean 'q4_k_m'") as caught:
        read_language_model("qwen3-8b", "q4_kk_m")
    assert all(name in str(caught.value) for name in quantisation_names())
