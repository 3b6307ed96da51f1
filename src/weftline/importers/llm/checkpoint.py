"""The files of a Hugging Face folder: what its tensors really take, laid over what its configuration says.

In: a model by its configuration, and its folder. Out: the model with exact bytes. Simplified: a matrix that is packed
in several tensors (weights, scales, zeros) counts as one; towers for pictures and sounds are left out.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec.structs import replace

from weftline.errors import InputError
from weftline.importers.llm.model import LanguageModel, LlmLayer, LlmTensor, TensorPart
from weftline.importers.llm.safetensors import (
    MOST_FILES,
    StoredTensor,
    read_safetensors_header,
    read_weight_map,
)

__all__ = ["stored_tensors", "with_stored_bytes"]

_INDEX = "model.safetensors.index.json"
_OTHER = re.compile(
    r"(^|\.)(visual|vision_\w+|multi_modal_projector|mm_projector|audio_\w+|embed_vision|embed_audio|image_newline|"
    r"patch_\w+|speech_\w+|talker|code2wav|rotary_emb)(\.|$)"
)
"""Names within towers for pictures and sounds, and buffers."""
_PREFIX = re.compile(r"^(model\.|language_model\.|text_model\.|transformer\.|llm\.|thinker\.|gpt_neox\.|backbone\.)+")
_LAYER = re.compile(r"^(?:layers|h|blocks)\.(\d{1,5})\.(.+)$")
_PACKED = re.compile(
    r"[._](qweight|qzeros|scales|g_idx|weight_packed|weight_scale(_\w+)?|weight_shape|weight_zero_point|weight_global_scale"
    r"|(input|output|k|v|q)_scale(_\w+)?|input_global_scale|SCB|weight_format|blocks|weight\.\w+(\.\w+)*)$"
)
"""Ends of the names of tensors that a packed matrix consists of."""
_GLOBAL = {
    **dict.fromkeys(
        ("embed_tokens.weight", "wte.weight", "tok_embeddings.weight", "embeddings.weight"), "token_embd.weight"
    ),
    **dict.fromkeys(("norm.weight", "ln_f.weight", "final_layernorm.weight", "norm_f.weight"), "output_norm.weight"),
    **dict.fromkeys(("norm.bias", "ln_f.bias"), "output_norm.bias"),
    **{"lm_head.weight": "output.weight", "wpe.weight": "position_embd.weight"},
}
_MODULES = {
    **{f"self_attn.{name}_proj": (f"attn_{name}",) for name in "qkv"},
    **{f"self_attn.{name}_norm": (f"attn_{name}_norm",) for name in "qk"},
    **dict.fromkeys(("self_attn.o_proj", "self_attn.dense", "attn.c_proj"), ("attn_output",)),
    **dict.fromkeys(("self_attn.qkv_proj", "attn.c_attn"), ("attn_qkv",)),
    "self_attn.sinks": ("attn_sinks.weight",),
    "self_attn.q_a_proj": ("attn_q_a",),
    "self_attn.q_a_layernorm": ("attn_q_a_norm",),
    "self_attn.q_b_proj": ("attn_q_b",),
    "self_attn.kv_a_proj_with_mqa": ("attn_kv_a_mqa",),
    "self_attn.kv_a_layernorm": ("attn_kv_a_norm",),
    "self_attn.kv_b_proj": ("attn_k_b", "attn_v_b"),
    "self_attn.indexer.wk": ("indexer.attn_k",),
    "self_attn.indexer.wq_b": ("indexer.attn_q_b",),
    "self_attn.indexer.weights_proj": ("indexer.proj",),
    "self_attn.indexer.k_norm": ("indexer.k_norm",),
    "linear_attn.in_proj_qkv": ("attn_qkv",),
    "linear_attn.in_proj_z": ("attn_gate",),
    "linear_attn.in_proj_qkvz": ("attn_qkv", "attn_gate"),
    "linear_attn.in_proj_ba": ("ssm_ba",),
    "linear_attn.in_proj_a": ("ssm_alpha",),
    "linear_attn.in_proj_b": ("ssm_beta",),
    "linear_attn.conv1d": ("ssm_conv1d",),
    "linear_attn.dt_bias": ("ssm_dt.bias",),
    "linear_attn.A_log": ("ssm_a",),
    "linear_attn.norm": ("ssm_norm",),
    "linear_attn.out_proj": ("ssm_out",),
    "mlp.gate_up_proj": ("ffn_up",),
    "mlp.c_fc": ("ffn_up",),
    "mlp.c_proj": ("ffn_down",),
    **{
        f"{owner}.{name}_proj": (f"ffn_{name}",) for owner in ("mlp", "feed_forward") for name in ("gate", "up", "down")
    },
    **dict.fromkeys(("mlp.gate", "mlp.router", "block_sparse_moe.gate", "feed_forward.router"), ("ffn_gate_inp",)),
    **dict.fromkeys(("mlp.gate.e_score_correction_bias", "mlp.e_score_correction_bias"), ("exp_probs_b.bias",)),
    **{"block_sparse_moe.e_score_correction_bias": ("exp_probs_b.bias",)},
    **{f"{owner}experts.gate_up_proj": ("ffn_gate_exps", "ffn_up_exps") for owner in ("mlp.", "feed_forward.", "")},
    **{f"{owner}experts.down_proj": ("ffn_down_exps",) for owner in ("mlp.", "feed_forward.", "")},
    **{"router.proj": ("ffn_gate_inp",), "router.scale": ("ffn_gate_inp.scale",)},
    **{"router.per_expert_scale": ("ffn_down_exps.scale",), "layer_scalar": ("layer_output_scale",)},
    "post_attention_layernorm": ("ffn_norm", "post_attention_norm"),
    "pre_feedforward_layernorm_2": ("pre_ffw_norm_2",),
    "post_feedforward_layernorm_1": ("post_ffw_norm_1",),
    "post_feedforward_layernorm_2": ("post_ffw_norm_2",),
    "mlp.shared_expert_gate": ("ffn_gate_inp_shexp",),
    "eh_proj": ("nextn.eh_proj",),
    "enorm": ("nextn.enorm",),
    "hnorm": ("nextn.hnorm",),
    "shared_head.norm": ("nextn.shared_head_norm",),
    "input_layernorm": ("attn_norm",),
    "norm": ("attn_norm",),
    "ln_1": ("attn_norm",),
    "ln_2": ("ffn_norm",),
    "pre_feedforward_layernorm": ("ffn_norm",),
    "post_feedforward_layernorm": ("post_ffw_norm",),
    "post_self_attn_layernorm": ("post_attention_norm",),
    "post_mlp_layernorm": ("post_ffw_norm",),
}
_MIXERS = {
    **{"in_proj": ("ssm_in",), "conv1d": ("ssm_conv1d",), "norm": ("ssm_norm",), "out_proj": ("ssm_out",)},
    **{"dt_bias": ("ssm_dt.bias",), "A_log": ("ssm_a",), "D": ("ssm_d",)},
}
_EXPERT = re.compile(r"^(?:mlp|block_sparse_moe|feed_forward)\.experts\.\d+\.(gate_proj|up_proj|down_proj|w1|w2|w3)$")
_SHARED = re.compile(r"^(?:mlp|feed_forward)\.shared_experts?\.(gate_proj|up_proj|down_proj)$")
_KINDS = {"w1": "ffn_gate", "w3": "ffn_up", "w2": "ffn_down"}
_TYPES = {
    **{"BF16": "bf16", "F16": "f16", "F32": "f32", "F64": "f64", "F8_E4M3": "fp8_tensor", "F8_E5M2": "fp8_tensor"},
    **{"I8": "int8", "U8": "u8", "BOOL": "bool", "I32": "i32", "I64": "i64", "I16": "i16"},
}


def stored_tensors(folder: Path) -> tuple[StoredTensor, ...] | None:
    """All tensors in the safetensors files of a folder; None where there are none, or not all of them."""
    index = folder / _INDEX
    if index.is_file():
        names = sorted(set(read_weight_map(index).values()))
    else:
        names = sorted(path.name for path in folder.glob("*.safetensors"))
    if not names or len(names) > MOST_FILES or not all((folder / name).is_file() for name in names):
        return None
    found = [tensor for name in names for tensor in read_safetensors_header(folder / name)]
    if len({tensor.name for tensor in found}) < len(found):
        raise InputError("its safetensors files hold the same tensor twice", where=str(folder))
    return tuple(found)


def with_stored_bytes(model: LanguageModel, stored: Iterable[StoredTensor]) -> LanguageModel:
    """The model with the bytes and types that its files have."""
    known = {tensor.name: tensor for tensor in _all_tensors(model)}
    bytes: dict[str, int] = defaultdict(int)
    types: dict[str, set[str]] = defaultdict(set)
    further: dict[int, list[LlmTensor]] = defaultdict(list)
    strange = 0
    for tensor in stored:
        if _OTHER.search(tensor.name):
            continue
        names = [name for name in _gguf_names(tensor.name, len(model.layers)) if name in known]
        if len(names) > 1 and "post_attention_layernorm" in tensor.name:
            names = names[:1] if model.architecture == "glm4" else names[1:]
        if not names:
            strange += _keep_strange(tensor, model, further)
            continue
        total = sum(known[name].parameters for name in names)
        left = tensor.bytes
        for name in names:
            share = left if name == names[-1] else tensor.bytes * known[name].parameters // total
            bytes[name] += share
            left -= share
            types[name].add(tensor.dtype)
    missing = [name for name in known if name not in bytes]
    made = {name: _retyped(tensor, bytes.get(name), types[name]) for name, tensor in known.items()}
    return _overlaid(model, made, further, _notes(missing, strange))


def _all_tensors(model: LanguageModel) -> list[LlmTensor]:
    return [*model.tensors, *(tensor for layer in model.mtp for tensor in layer.tensors)]


def _gguf_names(name: str, layers: int) -> list[str]:
    """Names in our model of a tensor by its name in a checkpoint; none where it is not known."""
    plain = re.sub(r"^(model\.)?mtp\.layers\.(\d)", lambda m: f"layers.{layers + int(m[2])}", name)
    plain = re.sub(r"^(model\.)?mtp\.fc", f"layers.{layers}.eh_proj", plain)
    plain = re.sub(r"^(model\.)?mtp\.norm", f"layers.{layers}.shared_head.norm", plain)
    plain = re.sub(r"^(model\.)?mtp\.pre_fc_norm_embedding", f"layers.{layers}.enorm", plain)
    plain = re.sub(r"^(model\.)?mtp\.pre_fc_norm_hidden", f"layers.{layers}.hnorm", plain)
    plain = _PREFIX.sub("", plain)
    packed = _PACKED.search(plain)
    base = plain[: packed.start()] if packed else plain
    found = _LAYER.match(base)
    if not found:
        return [_GLOBAL[one] for one in (base, f"{base}.weight") if one in _GLOBAL][:1]
    number, rest = found.groups()
    names, end = _module_names(rest), ".weight"
    for known in (".weight", ".bias", "_bias"):
        if not names and not packed and rest.endswith(known):
            names, end = _module_names(rest.removesuffix(known)), known.replace("_", ".")
    return [f"blk.{number}.{one}" if one.endswith(_WHOLE) else f"blk.{number}.{one}{end}" for one in names]


_WHOLE = (".weight", ".bias", ".scale", "ssm_a", "ssm_d")
"""Ends of names that are complete."""


def _module_names(module: str) -> tuple[str, ...]:
    if module.startswith("mixer."):  # of layers that are one thing each
        own = module.removeprefix("mixer.")
        return _MIXERS.get(own) or _module_names(f"self_attn.{own}") or _module_names(f"mlp.{own}")
    found = _EXPERT.match(module) or _SHARED.match(module)
    if found:
        kind = _KINDS.get(found[1]) or f"ffn_{found[1].removesuffix('_proj')}"
        return (f"{kind}_{'shexp' if 'shared' in module else 'exps'}",)
    return _MODULES.get(module, ())


def _keep_strange(tensor: StoredTensor, model: LanguageModel, further: dict[int, list[LlmTensor]]) -> int:
    """A tensor that is not known: it counts for its layer, if it has one. How many bytes it has."""
    found = _LAYER.match(_PREFIX.sub("", tensor.name))
    if found and int(found[1]) < len(model.layers):
        type = _TYPES.get(tensor.dtype, "u8")
        name = f"blk.{found[1]}.{found[2]}"[:200]
        further[int(found[1])].append(
            LlmTensor(name, TensorPart.ATTENTION, tuple(reversed(tensor.shape)), type, tensor.bytes)
        )
        return tensor.bytes
    return 0


def _retyped(tensor: LlmTensor, bytes: int | None, dtypes: set[str]) -> LlmTensor:
    if bytes is None:
        return tensor
    only = next(iter(dtypes)) if len(dtypes) == 1 else ""
    plain = _TYPES.get(only, "")
    type = plain if plain in ("bf16", "f16", "f32") else tensor.type
    if "F8_E4M3" in dtypes and type in ("bf16", "f16", "f32"):
        type = "fp8"
    return replace(tensor, bytes=bytes, type=type)


def _notes(missing: list[str], strange: int) -> tuple[str, ...]:
    notes = []
    if missing:
        notes.append(
            f"{len(missing)} tensors that the configuration implies are not in the files, such as {missing[0]}"
        )
    if strange:
        notes.append(
            f"{strange:,} bytes of tensors with names that are not known count for the attention of their layers"
        )
    return tuple(notes)


def _overlaid(
    model: LanguageModel,
    made: Mapping[str, LlmTensor],
    further: Mapping[int, list[LlmTensor]],
    notes: tuple[str, ...],
) -> LanguageModel:
    def layer(index: int, one: LlmLayer) -> LlmLayer:
        return replace(one, tensors=(*(made[tensor.name] for tensor in one.tensors), *further.get(index, ())))

    count = len(model.layers)
    return replace(
        model,
        layers=tuple(layer(i, one) for i, one in enumerate(model.layers)),
        mtp=tuple(layer(count + i, one) for i, one in enumerate(model.mtp)),
        embedding=tuple(made[tensor.name] for tensor in model.embedding),
        output=tuple(made[tensor.name] for tensor in model.output),
        exact_bytes=not any("not in the files" in note for note in notes),
        notes=(*model.notes, *notes),
    )
