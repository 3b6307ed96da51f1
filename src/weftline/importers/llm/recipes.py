"""Quantisations by name: which type each tensor of a model gets.

In: a name such as q4_k_m, and the names and shapes of tensors as GGUF has them. Out: a type for each. A name such as
q4_k_m is a recipe: llama.cpp gives more bits to values, to the way down in some layers, to the output, and falls back
where a row is no multiple of a block. Simplified: files that are made with an importance matrix, or by publishers who
choose types themselves ("dynamic" ones), differ by a few per cent: read the file where there is one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from weftline.errors import InputError, near
from weftline.importers.llm.types import NUMBER_TYPES

__all__ = [
    "Quantisation",
    "TensorFacts",
    "find_quantisation",
    "published_type",
    "quantisation_names",
    "quantisations",
    "recipe_types",
]

Shape = tuple[int, ...]


class Quantisation(msgspec.Struct, frozen=True):
    """A name that `--quant` takes."""

    name: str
    type: str
    """That most weights get."""
    format: str
    """gguf: files for llama.cpp; packed: folders for vLLM and SGLang; plain: both."""
    description: str

    @property
    def bits(self) -> float:
        """Of a weight of the type that most get."""
        return NUMBER_TYPES[self.type].bits


class TensorFacts(msgspec.Struct, frozen=True):
    """What recipes look at, besides names and shapes."""

    architecture: str
    layers: int
    heads: int
    kv_heads: int
    experts: int
    tied: bool
    small_experts: bool = False
    """Are experts published in four bits (mxfp4)? They stay so."""

    @property
    def group(self) -> int:
        """Queries that share a key."""
        return self.heads // self.kv_heads if self.kv_heads else 0

    @property
    def narrow_values(self) -> bool:
        """What llama.cpp calls a 70B: 80 layers with few values, which therefore get more bits."""
        known = self.architecture in ("llama", "qwen2", "deci", "nemotron-nas")
        return known and self.layers == 80 and self.heads != self.kv_heads


_PLAIN = (("f32", "32-bit"), ("bf16", "16-bit (bfloat16)"), ("f16", "16-bit (half)"))
_GGUF = (  # most bits first
    ("q8_0", "q8_0"),
    ("q6_k", "q6_k"),
    ("q5_1", "q5_1"),
    ("q5_k_m", "q5_k"),
    ("q5_k_s", "q5_k"),
    ("q5_0", "q5_0"),
    ("q4_1", "q4_1"),
    ("q4_k_m", "q4_k"),
    ("q4_k_s", "q4_k"),
    ("q4_0", "q4_0"),
    ("iq4_nl", "iq4_nl"),
    ("iq4_xs", "iq4_xs"),
    ("mxfp4", "mxfp4"),
    ("q3_k_l", "q3_k"),
    ("q3_k_m", "q3_k"),
    ("iq3_m", "iq3_s"),
    ("q3_k_s", "q3_k"),
    ("iq3_s", "iq3_s"),
    ("iq3_xs", "iq3_s"),
    ("iq3_xxs", "iq3_xxs"),
    ("q2_k", "q2_k"),
    ("q2_k_s", "q2_k"),
    ("iq2_m", "iq2_s"),
    ("iq2_s", "iq2_xs"),
    ("iq2_xs", "iq2_xs"),
    ("iq2_xxs", "iq2_xxs"),
    ("iq1_m", "iq1_m"),
    ("iq1_s", "iq1_s"),
)
_PACKED = (
    ("fp8", "fp8", "8-bit floats with a scale for each tile"),
    ("int8", "int8", "8-bit integers with a scale for each row"),
    ("nvfp4", "nvfp4", "4-bit floats in groups of 16, with 8-bit scales"),
    ("awq", "int4", "4-bit integers in groups of 128, chosen by activations"),
    ("gptq", "int4", "4-bit integers in groups of 128"),
    ("nf4", "nf4", "4-bit normal floats of bitsandbytes"),
)
_QUANTISATIONS = {
    one.name: one
    for one in (
        *(Quantisation(name, name, "plain", text) for name, text in _PLAIN),
        *(Quantisation(name, type, "gguf", f"llama.cpp's recipe around {type.upper()}") for name, type in _GGUF),
        *(Quantisation(name, type, "packed", text) for name, type, text in _PACKED),
    )
}
_ALIASES = {
    **{"fp16": "f16", "float16": "f16", "half": "f16", "bfloat16": "bf16", "fp32": "f32", "float32": "f32"},
    **{"q8": "q8_0", "q6": "q6_k", "q5": "q5_k_m", "q4": "q4_k_m", "q3": "q3_k_m", "q2": "q2_k"},
    **{"q5_k": "q5_k_m", "q4_k": "q4_k_m", "q3_k": "q3_k_m", "mxfp4_moe": "mxfp4", "int4": "gptq", "w4a16": "gptq"},
    **{"w8a8": "int8", "bnb": "nf4", "bnb4": "nf4", "awq_int4": "awq", "gptq_int4": "gptq", "fp8_e4m3": "fp8"},
}


def quantisations() -> tuple[Quantisation, ...]:
    """All that `--quant` takes; of a format, those with more bits come first."""
    return tuple(_QUANTISATIONS.values())


def quantisation_names() -> tuple[str, ...]:
    """Their names."""
    return tuple(_QUANTISATIONS)


def find_quantisation(name: str) -> Quantisation:
    """One by its name, in any case, with - or _; `InputError` where there is none."""
    plain = re.sub(r"[-. ]+", "_", name.strip().lower())[:100]
    found = _QUANTISATIONS.get(_ALIASES.get(plain, plain))
    if found is None:
        guess = near(plain, (*_QUANTISATIONS, *_ALIASES))
        raise InputError(f"unknown quantisation {name[:100]!r}{guess}", hint=f"there is {', '.join(_QUANTISATIONS)}")
    return found


def recipe_types(name: str, tensors: Sequence[tuple[str, Shape]], facts: TensorFacts) -> list[str]:
    """A type for each tensor (name and shape, innermost first); tensors of one layer stand before those of the next."""
    recipe = find_quantisation(name)
    if recipe.format == "packed":
        return [_packed_type(recipe.type, tensor, "bf16") for tensor, _ in tensors]
    mixing = _Mixing(recipe, facts, sum(_kind(tensor) in _VALUES for tensor, _ in tensors))
    return [mixing.type(tensor, shape) for tensor, shape in tensors]


def published_type(name: str, type: str, quantised: str = "") -> str:
    """What a tensor was published in, where weights are of one type, or quantised by a method."""
    if quantised == "mxfp4":
        return "mxfp4" if name.endswith("_exps.weight") else type
    if quantised in _QUANTISATIONS:
        return _packed_type(_QUANTISATIONS[quantised].type, name, type)
    return type


def _packed_type(type: str, name: str, other: str) -> str:
    """Matrices of layers are packed; tables, norms and routers are not."""
    inside = name.startswith("blk.") and name.endswith(".weight") and "_norm" not in name
    kept = any(word in name for word in _UNPACKED)
    return type if inside and not kept else ("f16" if type == "int4" else other)


_UNPACKED = (
    "ffn_gate_inp",
    "ssm_conv1d",
    "ssm_alpha",
    "ssm_beta",
    "ssm_ba",
    "attn_sinks",
    "nextn.",
    "layer_output_scale",
)
_KINDS = (
    "attn_qkv.weight",
    "attn_kv_b.weight",
    "attn_v.weight",
    "attn_k.weight",
    "attn_q.weight",
    "attn_output.weight",
    "ffn_up",
    "ffn_gate",
    "ffn_down",
)
_VALUES = ("attn_qkv.weight", "attn_kv_b.weight", "attn_v.weight")
_KEPT = ("_norm.weight", "ffn_gate_inp.weight", "altup", "laurel", "per_layer_model_proj", "ssm_conv1d", "attn_rel_b")
_FALLBACK = {
    **dict.fromkeys(("iq1_s", "iq1_m", "iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq4_xs"), "iq4_nl"),
    **dict.fromkeys(("q2_k", "q3_k", "tq1_0", "tq2_0", "q2_0"), "q4_0"),
    **{"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"},
}
_SMALLEST = ("iq2_xxs", "iq2_xs", "iq2_s", "iq2_m", "iq1_s", "iq1_m")
_MIXTRAL = 8
"""Experts of the one model that gets types of its own."""


def _kind(name: str) -> str:
    """What llama.cpp's quantiser takes a tensor for."""
    if name in ("output.weight", "token_embd.weight", "per_layer_token_embd.weight"):
        return name
    return next((kind for kind in _KINDS if kind in name), "")


def _kept_whole(name: str, shape: Shape) -> bool:
    return len(shape) < 2 or not name.endswith("weight") or any(word in name for word in _KEPT)


class _Mixing:
    """llama.cpp's choice of types, tensor by tensor (`src/llama-quant.cpp`), without an importance matrix."""

    def __init__(self, recipe: Quantisation, facts: TensorFacts, values: int) -> None:
        self.recipe, self.facts, self.values = recipe.name, facts, values
        self.default = recipe.type
        self.plain = recipe.format == "plain"
        self.seen_values = 0
        self.seen_down = 0

    def type(self, name: str, shape: Shape) -> str:
        if _kept_whole(name, shape):
            return "f32"
        if self.plain:
            return self.default
        if self.facts.small_experts and name.endswith("_exps.weight"):
            return "mxfp4"  # such experts are published in 4 bits, and stay so
        kind = _kind(name)
        chosen = self._mixed(kind, name, shape)
        block = NUMBER_TYPES[chosen].block
        if shape[0] % block:
            chosen = _FALLBACK.get(chosen, "f16")
        return chosen if shape[0] % NUMBER_TYPES[chosen].block == 0 else "f16"

    def _mixed(self, kind: str, name: str, shape: Shape) -> str:  # noqa: PLR0911 (one for each kind of tensor)
        if kind == "output.weight" or (kind and "token_embd" in kind and self.facts.tied):
            return self._output(shape)
        if self.recipe == "mxfp4":
            return "mxfp4" if len(shape) > 2 else "q8_0"  # also the matrices per head of latent attention
        if "token_embd" in kind:
            return self._embedding()
        if self.recipe in _SMALLEST:
            return self._smallest(kind)
        if kind in _VALUES:
            return self._of_values()
        if kind == "attn_k.weight" and self.facts.experts == _MIXTRAL:
            return "q8_0"
        if kind in ("attn_k.weight", "attn_q.weight"):
            return {"iq3_xs": "iq3_xxs", "iq3_xxs": "iq2_s"}.get(self.recipe, self.default)
        if kind == "ffn_down":
            return self._of_down(name)
        if kind == "attn_output.weight":
            return self._of_attention_output()
        if kind in ("ffn_up", "ffn_gate") and self.recipe == "iq3_xs":
            layer, count = self._layer(name), self.facts.layers
            return "iq3_xxs" if count // 8 <= layer < 7 * count // 8 else self.default
        return self.default

    def _output(self, shape: Shape) -> str:
        if self.recipe == "mxfp4" or shape[0] % NUMBER_TYPES[self.default].block:
            return "q8_0"
        if self.recipe in (*_SMALLEST, "iq3_xxs"):
            return "q5_k"
        return "q8_0" if self.default == "q8_0" else "q6_k"

    def _embedding(self) -> str:
        few = {**dict.fromkeys(("iq2_xxs", "iq2_xs", "iq1_s", "iq1_m"), "q2_k")}
        return {**few, **dict.fromkeys(("iq2_s", "iq2_m", "iq3_xxs"), "iq3_s")}.get(self.recipe, self.default)

    def _smallest(self, kind: str) -> str:
        wider = self.recipe in ("iq2_s", "iq2_m")
        better = "iq3_s" if wider else "q2_k"
        if kind in _VALUES:
            return "q4_k" if self.facts.group >= 4 or self.facts.experts >= 4 else better
        if kind == "attn_k.weight" and self.facts.experts == _MIXTRAL:
            return "q4_k"
        if kind == "ffn_down":
            self.seen_down += 1
            return better if self.seen_down <= self.facts.layers // 8 else self.default
        if kind == "attn_output.weight":
            if self.facts.experts == _MIXTRAL:
                return "q5_k"
            return "iq2_xxs" if self.recipe in ("iq1_s", "iq1_m") else "iq3_s" if wider else self.default
        return self.default

    def _of_values(self) -> str:
        chosen, seen, shared = self.default, self.seen_values, self.facts.group >= 4
        match self.recipe:
            case "q2_k":
                chosen = "q4_k" if shared else "q3_k"
            case "iq3_xxs":
                chosen = "q4_k" if shared else "iq3_s"
            case "q2_k_s" | "iq3_xs" | "iq3_s" if shared:
                chosen = "q4_k"
            case "iq3_m":
                chosen = "q4_k"
            case "q3_k_m":
                chosen = "q5_k" if seen < 2 else "q4_k"
            case "q3_k_l":
                chosen = "q5_k"
            case "iq4_nl" | "iq4_xs" if shared:
                chosen = "q5_k"
            case "q4_k_m" | "q5_k_m" if _more_bits(seen, self.values):
                chosen = "q6_k"
            case "q4_k_s" if seen < 4:
                chosen = "q5_k"
        if self.facts.narrow_values and chosen in ("q3_k", "q4_k"):
            chosen = "q5_k"
        self.seen_values += 1
        return "q8_0" if self.facts.experts == _MIXTRAL else chosen

    def _layer(self, name: str) -> int:
        found = re.match(r"blk\.(\d{1,6})\.", name)
        return int(found[1]) if found else 0

    def _of_down(self, name: str) -> str:  # noqa: PLR0911 (one for each recipe)
        layer, count = self.seen_down, self.facts.layers
        if self.facts.experts > 1:
            layer = self._layer(name)
        self.seen_down += 1
        first = layer < count // 8
        match self.recipe:
            case "q2_k":
                return "q3_k"
            case "q2_k_s" if first:
                return "q4_k"
            case "iq3_xxs":
                return "q4_k" if first else "q3_k"
            case "q3_k_m":
                return "q5_k" if layer < count // 16 else "q4_k"
            case "iq3_m" if first or (self.facts.experts == _MIXTRAL and _more_bits(layer, count)):
                return "q4_k"
            case "q3_k_l":
                return "q5_k"
            case "q4_k_m" | "q5_k_m" if _more_bits(layer, count):
                return "q6_k"
            case "iq4_nl" | "iq4_xs" | "q4_k_s" if first:
                return "q5_k"
        return self.default

    def _of_attention_output(self) -> str:
        if self.facts.experts == _MIXTRAL:
            wide = ("q8_0", "q6_k", "q5_k_m", "q5_k_s", "q5_0", "q5_1", "q4_0", "q4_1", "q3_k_l", "q2_k_s")
            return self.default if self.recipe in wide else "q5_k"
        better = {"q2_k": "q3_k", "iq3_xxs": "iq3_s", "q3_k_m": "q4_k", "q3_k_l": "q5_k", "iq3_m": "q4_k"}
        return better.get(self.recipe, self.default)


def _more_bits(layer: int, layers: int) -> bool:
    """Layers that get more bits: the first and the last eighth, and each third between."""
    return layer < layers // 8 or layer >= 7 * layers // 8 or (layer - layers // 8) % 3 == 2
