"""From the shape of a stack to tensors with their bytes.

In: a `StackShape`, or a model and the name of a quantisation. Out: a `LanguageModel`. Simplified: tensors are those of
GGUF files; those with one row are 32-bit there, and as published elsewhere.
"""

from __future__ import annotations

from functools import cache
from typing import NamedTuple

from msgspec.structs import replace

from weftline.importers.llm.gguf_model import GGUF_ARCHITECTURES
from weftline.importers.llm.model import AttentionKind, LanguageModel, LlmLayer, LlmTensor, TensorPart
from weftline.importers.llm.recipes import TensorFacts, find_quantisation, published_type, recipe_types
from weftline.importers.llm.stack import LatentShape, LayerShape, LinearShape, MambaShape, StackShape, TensorStyle
from weftline.importers.llm.types import tensor_bytes

__all__ = ["build_model", "requantised"]


class _Row(NamedTuple):
    name: str
    part: TensorPart
    shape: tuple[int, ...]


def build_model(stack: StackShape) -> LanguageModel:
    """The model as it was published."""
    rows = [_layer_rows(layer, stack.hidden, stack.style) for layer in stack.layers]
    extra = [_mtp_rows(layer, stack) for layer in stack.mtp]
    embedding = [_Row("token_embd.weight", TensorPart.EMBEDDING, (stack.hidden, stack.vocabulary))]
    if stack.positions:
        embedding.append(_Row("position_embd.weight", TensorPart.EMBEDDING, (stack.hidden, stack.positions)))
    output = [_Row("output_norm.weight", TensorPart.OUTPUT, (stack.hidden,))]
    if stack.style.norm_bias:
        output.append(_Row("output_norm.bias", TensorPart.OUTPUT, (stack.hidden,)))
    if not stack.tied:
        output.append(_Row("output.weight", TensorPart.OUTPUT, (stack.hidden, stack.vocabulary)))
    blocks = [[row._replace(name=f"blk.{i}.{row.name}") for row in block] for i, block in enumerate(rows + extra)]
    every = [*embedding, *output, *(row for block in blocks for row in block)]
    made = {row.name: _tensor(row, published_type(row.name, stack.type, stack.quantisation)) for row in every}
    wide = {layer: _layer(layer, ()) for layer in {*stack.layers, *stack.mtp}}
    layers = [
        replace(wide[layer], tensors=tuple(made[row.name] for row in block))
        for layer, block in zip((*stack.layers, *stack.mtp), blocks, strict=True)
    ]
    return LanguageModel(
        name=stack.name,
        architecture=stack.architecture,
        source=stack.source,
        hidden=stack.hidden,
        vocabulary=stack.vocabulary,
        context=stack.context,
        layers=tuple(layers[: len(stack.layers)]),
        embedding=tuple(made[row.name] for row in embedding),
        output=tuple(made[row.name] for row in output),
        tied=stack.tied,
        mtp=tuple(layers[len(stack.layers) :]),
        quantisation=stack.quantisation or stack.type,
        notes=stack.notes,
    )


def _tensor(row: _Row, type: str) -> LlmTensor:
    return LlmTensor(row.name, row.part, row.shape, type, tensor_bytes(type, row.shape))


def requantised(model: LanguageModel, quantisation: str) -> LanguageModel:
    """The same model with the types that a recipe gives to its tensors."""
    name = find_quantisation(quantisation).name
    layers = (*model.layers, *model.mtp)
    kept = GGUF_ARCHITECTURES.get(model.architecture) != "deepseek2"  # its GGUF files come without further layers
    first = model.layers[:1] if model.architecture.startswith("nemotron_h") else layers  # whose group llama.cpp takes
    looking = next((layer for layer in first if layer.heads and layer.attention is not AttentionKind.RECURRENT), None)
    blocks = [tensor for layer in layers for tensor in layer.tensors]
    facts = TensorFacts(
        architecture=model.architecture,
        layers=len(layers) if kept else len(model.layers),
        heads=looking.heads if looking else 0,
        kv_heads=looking.kv_heads if looking else 0,
        experts=max((layer.experts for layer in layers), default=0),
        tied=model.tied,
        small_experts=any(tensor.type == "mxfp4" and tensor.part is TensorPart.EXPERTS for tensor in blocks),
    )
    every = (*model.embedding, *model.output, *blocks)
    types = recipe_types(name, [(tensor.name, tensor.shape) for tensor in every], facts)
    found = {
        tensor.name: LlmTensor(tensor.name, tensor.part, tensor.shape, type, tensor_bytes(type, tensor.shape))
        for tensor, type in zip(every, types, strict=True)
    }

    def retyped(tensors: tuple[LlmTensor, ...]) -> tuple[LlmTensor, ...]:
        return tuple(found[tensor.name] for tensor in tensors)

    return replace(
        model,
        layers=tuple(replace(layer, tensors=retyped(layer.tensors)) for layer in model.layers),
        mtp=tuple(replace(layer, tensors=retyped(layer.tensors)) for layer in model.mtp),
        embedding=retyped(model.embedding),
        output=retyped(model.output),
        quantisation=name,
        exact_bytes=False,
    )


def _layer(layer: LayerShape, tensors: tuple[LlmTensor, ...]) -> LlmLayer:
    latent, linear = layer.latent, layer.linear
    return LlmLayer(
        attention=layer.attention,
        tensors=tensors,
        heads=layer.heads,
        kv_heads=layer.kv_heads,
        key_length=layer.key_length,
        value_length=layer.value_length,
        latent_length=latent.row + latent.rotary + latent.index_length if latent else 0,
        window=layer.window,
        state_bytes=_state_bytes(linear) if linear else _mamba_bytes(layer.mamba) if layer.mamba else 0,
        ffn=layer.ffn,
        experts=layer.experts,
        experts_used=layer.experts_used,
        expert_ffn=layer.expert_ffn,
        shared_ffn=layer.shared_ffn,
    )


def _state_bytes(linear: LinearShape) -> int:
    """Of one sequence, 32-bit: the state, and the last tokens of the convolution."""
    channels = 2 * linear.key_heads * linear.key_length + linear.value_heads * linear.value_length
    state = linear.value_heads * linear.key_length * linear.value_length
    return 4 * (state + (linear.kernel - 1) * channels)


def _mamba_bytes(mamba: MambaShape) -> int:
    """Of one sequence, 32-bit."""
    return 4 * (mamba.inner * mamba.state + (mamba.kernel - 1) * mamba.channels)


@cache
def _layer_rows(layer: LayerShape, hidden: int, style: TensorStyle) -> list[_Row]:
    """Tensors of one layer, without its number in their names."""
    names = style.norms + (style.expert_norms if layer.experts else ())
    rows = [_Row(f"{name}.weight", TensorPart.NORM, (hidden,)) for name in names]
    if style.norm_bias:
        rows += [_Row(f"{name}.bias", TensorPart.NORM, (hidden,)) for name in names]
    if layer.linear:
        rows += _linear_rows(layer.linear, hidden)
    elif layer.mamba:
        rows += _mamba_rows(layer.mamba, hidden)
    elif layer.latent:
        rows += _latent_rows(layer.latent, layer.heads, hidden)
    elif layer.heads:
        rows += _attention_rows(layer, hidden, style)
    if layer.ffn:
        rows += _ffn_rows("", layer.ffn, hidden, style, TensorPart.FFN)
    if layer.experts:
        rows += _expert_rows(layer, hidden, style)
    if style.scales:
        rows.append(_Row("layer_output_scale.weight", TensorPart.NORM, (1,)))
    return rows


def _attention_rows(layer: LayerShape, hidden: int, style: TensorStyle) -> list[_Row]:
    part = TensorPart.ATTENTION
    queries = layer.heads * layer.key_length * (2 if style.gated_query else 1)
    keys, values = layer.kv_heads * layer.key_length, layer.kv_heads * layer.value_length
    wide = [("attn_q", queries), ("attn_k", keys), ("attn_v", values)]
    if style.fused_attention:
        wide = [("attn_qkv", queries + keys + values)]
    elif layer.shares_values:
        wide.pop()
    elif not layer.kv_heads:
        wide = wide[:1]
    rows = [_Row(f"{name}.weight", part, (hidden, width)) for name, width in wide]
    rows.append(_Row("attn_output.weight", part, (layer.heads * layer.value_length, hidden)))
    if style.query_bias:
        rows += [_Row(f"{name}.bias", part, (width,)) for name, width in wide]
    if style.output_bias:
        rows.append(_Row("attn_output.bias", part, (hidden,)))
    length, many = layer.key_length, layer.kv_heads
    norms: tuple[tuple[int, ...], ...] = ()
    if style.head_norms:
        norms = (length,), (length,)
    elif style.per_head_norms:
        norms = (length, layer.heads), (length, many)
    elif style.wide_norms:
        norms = (queries,), (keys,)
    rows += [_Row(f"{name}_norm.weight", part, shape) for name, shape in zip(("attn_q", "attn_k"), norms, strict=False)]
    if style.sinks:
        rows.append(_Row("attn_sinks.weight", part, (layer.heads,)))
    return rows


def _latent_rows(latent: LatentShape, heads: int, hidden: int) -> list[_Row]:
    key = latent.plain + latent.rotary
    rows: list[tuple[str, tuple[int, ...]]] = []
    if latent.query_rank:
        rows += [("attn_q_a", (hidden, latent.query_rank)), ("attn_q_a_norm", (latent.query_rank,))]
        rows.append(("attn_q_b", (latent.query_rank, heads * key)))
    else:
        rows.append(("attn_q", (hidden, heads * key)))
    rows += [("attn_kv_a_mqa", (hidden, latent.row + latent.rotary)), ("attn_kv_a_norm", (latent.row,))]
    rows += [("attn_k_b", (latent.plain, latent.row, heads)), ("attn_v_b", (latent.row, latent.value, heads))]
    rows.append(("attn_output", (heads * latent.value, hidden)))
    made = [_Row(f"{name}.weight", TensorPart.ATTENTION, shape) for name, shape in rows]
    if latent.index_heads:
        length, many = latent.index_length, latent.index_heads
        looks = (
            ("attn_k", (hidden, length)),
            ("attn_q_b", (latent.query_rank, many * length)),
            ("proj", (hidden, many)),
        )
        made += [_Row(f"indexer.{name}.weight", TensorPart.ATTENTION, shape) for name, shape in looks]
        made += [_Row(f"indexer.k_norm.{end}", TensorPart.ATTENTION, (length,)) for end in ("weight", "bias")]
    return made


def _linear_rows(linear: LinearShape, hidden: int) -> list[_Row]:
    values = linear.value_heads * linear.value_length
    channels = 2 * linear.key_heads * linear.key_length + values
    rows: list[tuple[str, tuple[int, ...]]] = [
        ("attn_qkv.weight", (hidden, channels)),
        ("attn_gate.weight", (hidden, values)),
        ("ssm_conv1d.weight", (linear.kernel, channels)),
        ("ssm_dt.bias", (linear.value_heads,)),
        ("ssm_a", (linear.value_heads,)),
    ]
    gates = ("ssm_beta", "ssm_alpha")
    rows += [(f"{name}.weight", (hidden, linear.value_heads)) for name in gates if linear.split_gates]
    if not linear.split_gates:
        rows.append(("ssm_ba.weight", (hidden, 2 * linear.value_heads)))
    rows += [("ssm_norm.weight", (linear.value_length,)), ("ssm_out.weight", (values, hidden))]
    return [_Row(name, TensorPart.ATTENTION, shape) for name, shape in rows]


def _mamba_rows(mamba: MambaShape, hidden: int) -> list[_Row]:
    rows: list[tuple[str, tuple[int, ...]]] = [
        ("ssm_in.weight", (hidden, mamba.inner + mamba.channels + mamba.heads)),
        ("ssm_conv1d.weight", (mamba.kernel, mamba.channels)),
        ("ssm_conv1d.bias", (mamba.channels,)),
        ("ssm_dt.bias", (mamba.heads,)),
        ("ssm_a", (1, mamba.heads)),
        ("ssm_d", (1, mamba.heads)),
        ("ssm_norm.weight", (mamba.inner // mamba.groups, mamba.groups)),
        ("ssm_out.weight", (mamba.inner, hidden)),
    ]
    return [_Row(name, TensorPart.ATTENTION, shape) for name, shape in rows]


def _ffn_rows(end: str, ffn: int, hidden: int, style: TensorStyle, part: TensorPart) -> list[_Row]:
    """A gated (or plain) feed-forward; `end` is that of names: none, _shexp."""
    wide = [f"ffn_gate{end}", f"ffn_up{end}"] if style.gate and not style.fused_gate else [f"ffn_up{end}"]
    width = 2 * ffn if style.gate and style.fused_gate else ffn
    rows = [_Row(f"{name}.weight", part, (hidden, width)) for name in wide]
    rows.append(_Row(f"ffn_down{end}.weight", part, (ffn, hidden)))
    if style.ffn_bias:
        rows += [_Row(f"{name}.bias", part, (width,)) for name in wide]
        rows.append(_Row(f"ffn_down{end}.bias", part, (hidden,)))
    return rows


def _expert_rows(layer: LayerShape, hidden: int, style: TensorStyle) -> list[_Row]:
    count, ffn, part = layer.experts, layer.expert_ffn, TensorPart.EXPERTS
    rows = [_Row("ffn_gate_inp.weight", TensorPart.ROUTER, (hidden, count))]
    if style.router_bias:
        rows.append(_Row("ffn_gate_inp.bias", TensorPart.ROUTER, (count,)))
    if style.score_bias:
        rows.append(_Row("exp_probs_b.bias", TensorPart.ROUTER, (count,)))
    wide = ("ffn_gate", "ffn_up") if style.gate else ("ffn_up",)
    rows += [_Row(f"{name}_exps.weight", part, (hidden, ffn, count)) for name in wide]
    rows.append(_Row("ffn_down_exps.weight", part, (ffn, hidden, count)))
    if style.expert_bias:
        rows += [_Row(f"{name}_exps.bias", part, (ffn, count)) for name in wide]
        rows.append(_Row("ffn_down_exps.bias", part, (hidden, count)))
    if style.scales:
        rows.append(_Row("ffn_gate_inp.scale", TensorPart.ROUTER, (hidden,)))
        rows.append(_Row("ffn_down_exps.scale", TensorPart.EXPERTS, (count,)))
    if layer.shared_ffn:
        rows += _ffn_rows("_shexp", layer.shared_ffn, hidden, style, TensorPart.SHARED)
        if style.shared_gate:
            rows.append(_Row("ffn_gate_inp_shexp.weight", TensorPart.SHARED, (hidden,)))
    return rows


def _mtp_rows(layer: LayerShape, stack: StackShape) -> list[_Row]:
    """A layer that predicts one more token: it joins the last state with the embedding of the token."""
    hidden = stack.hidden
    joins = (
        ("eh_proj", (2 * hidden, hidden)),
        ("enorm", (hidden,)),
        ("hnorm", (hidden,)),
        ("shared_head_norm", (hidden,)),
    )
    rows = _layer_rows(layer, hidden, stack.style)
    return rows + [_Row(f"nextn.{name}.weight", TensorPart.OUTPUT, shape) for name, shape in joins]
