"""config.json of Hugging Face -> the shape of the stack.

In: the object of a config.json, whatever stands in it. Out: a `StackShape`, or an `InputError` that names the field.
Simplified: text only (of several stacks, the one of the text); an architecture that nobody here knows is taken for one
like Llama, and the model says so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from weftline.errors import InputError
from weftline.importers.llm.architectures import ARCHITECTURES, OTHER_KINDS, llama_like
from weftline.importers.llm.bodies import Body
from weftline.importers.llm.fields import Fields
from weftline.importers.llm.stack import StackShape

__all__ = ["stack_from_config"]

_TEXT_PARTS = ("text_config", "llm_config", "language_config", "thinker_config")
_TYPES = {"float16": "f16", "bfloat16": "bf16", "float32": "f32", "half": "f16"}


def stack_from_config(config: object, *, name: str, source: str) -> StackShape:
    """The stack that a configuration describes."""
    if not isinstance(config, dict) or not all(isinstance(key, str) for key in config):
        raise InputError("is no object of JSON", where=source)
    config = _unwrapped(config)
    outer, inner = Fields(config, source), _text_part(config, source)
    kind = inner.text("model_type") or outer.text("model_type")
    plain = kind.removesuffix("_text")
    if plain in OTHER_KINDS:
        raise InputError(f"a model of the kind {kind!r} is not one that writes text token by token", where=source)
    read = ARCHITECTURES.get(plain)
    notes: tuple[str, ...] = ()
    if read is None:
        if not inner.has("num_hidden_layers", "n_layer") or not inner.has("hidden_size", "n_embd"):
            what = f"no architecture that is known here: model_type is {kind!r}" if kind else "has no model_type"
            raise InputError(what, where=source, hint="give the config.json of a language model")
        _check_alike(inner, kind)
        read, notes = (
            llama_like,
            (f"the architecture {kind or 'without a name'!r} is not known: read as one like Llama",),
        )
    body = read(inner)
    return _stack(body, inner, outer, name=name, source=source, kind=plain, notes=notes)


def _unwrapped(config: Mapping[str, Any]) -> Mapping[str, Any]:
    """What collections of configurations keep under `config`, beside where it is from."""
    inside = config.get("config")
    if not isinstance(inside, dict) or "model_type" not in inside or "model_type" in config:
        return config
    return inside if all(isinstance(key, str) for key in inside) else config


_UNLIKE = re.compile(r"mamba|ssm|rwkv|conv_L|hybrid|block_type|encoder_layers|lightning|hyper_connection|attn_layer")
"""In names of fields: what no stack like Llama's has."""


def _check_alike(fields: Fields, kind: str) -> None:
    """Refuse an unknown architecture that is not like Llama: an answer would be wrong without a sign."""
    strange = next((name for name, value in fields.values.items() if _UNLIKE.search(name) and value), "")
    layers = set(fields.texts("layer_types")) - {"full_attention", "sliding_attention", "attention"}
    if fields.flag("is_encoder_decoder") or strange or layers:
        why = strange or next(iter(sorted(layers)), "is_encoder_decoder")
        what = f"the architecture {kind!r} is not known, and it is not one like Llama ({why})"
        raise InputError(
            what, where=fields.where, hint="give the GGUF file of the model: its header says what each layer is"
        )


def _text_part(config: Mapping[str, Any], source: str) -> Fields:
    """The configuration of the text, which models that also see or hear keep one level down."""
    for part in _TEXT_PARTS:
        found = config.get(part)
        if isinstance(found, dict) and found and all(isinstance(key, str) for key in found):
            if isinstance(deeper := found.get("text_config"), dict) and deeper:
                found = deeper
            shared = {key: config[key] for key in ("tie_word_embeddings",) if key in config and key not in found}
            return Fields({**shared, **found}, f"{source}: {part}")
    return Fields(config, source)


def _stack(
    body: Body, inner: Fields, outer: Fields, *, name: str, source: str, kind: str, notes: tuple[str, ...]
) -> StackShape:
    published = _published(outer if outer.has("quantization_config") else inner)
    context = inner.tokens("max_position_embeddings", "n_positions", "n_ctx", "seq_length", default=0)
    type = outer.text("torch_dtype") or outer.text("dtype") or inner.text("torch_dtype") or inner.text("dtype")
    return StackShape(
        name=name,
        architecture=kind,
        source=source,
        hidden=body.hidden,
        vocabulary=body.vocabulary,
        context=context,
        layers=body.layers,
        style=body.style,
        tied=inner.flag("tie_word_embeddings", body.tied),
        mtp=body.mtp,
        type=_TYPES.get(type, "bf16"),
        quantisation=published,
        positions=body.positions,
        notes=(*notes, *body.notes),
    )


def _published(outer: Fields) -> str:
    """The quantisation that the weights come with."""
    about = outer.inner("quantization_config")
    method = about.text("quant_method").lower()
    if method in ("fp8", "awq", "gptq", "mxfp4"):
        return method
    if method in ("bitsandbytes", "bnb"):
        return "nf4" if about.flag("load_in_4bit") else "int8"
    if method in ("compressed-tensors", "modelopt") or about.values:
        found = re.search(
            r"nvfp4|mxfp4|fp8|float-quantized|int-quantized|pack-quantized", repr(about.values)[:20_000].lower()
        )
        named = {"float-quantized": "fp8", "int-quantized": "int8", "pack-quantized": "gptq"}
        return named.get(found[0], found[0]) if found else ""
    return ""
