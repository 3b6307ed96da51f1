"""Models made by hand for the tests of their costs: shapes as published, all matrices of one type."""

from __future__ import annotations

from weftline.importers.llm import AttentionKind, LanguageModel, LlmLayer, LlmTensor, TensorPart

BLOCKS = {"f32": (1, 4), "f16": (1, 2), "q8_0": (32, 34), "q4_k": (256, 144), "q6_k": (256, 210)}


def tensor(name: str, part: TensorPart, shape: tuple[int, ...], kind: str) -> LlmTensor:
    """A tensor with the bytes of its type."""
    count = 1
    for size in shape:
        count *= size
    block, size = BLOCKS[kind]
    return LlmTensor(name, part, shape, kind, count // block * size)


def llama_layer(
    at: int, hidden: int, heads: int, kv_heads: int, ffn: int, kind: str, experts: int = 0, used: int = 0
) -> LlmLayer:
    """A layer as of Llama, or of Mixtral where there are experts."""
    kv, here = hidden // heads * kv_heads, f"blk.{at}."
    tensors = [
        tensor(here + "attn_norm.weight", TensorPart.NORM, (hidden,), "f32"),
        tensor(here + "attn_q.weight", TensorPart.ATTENTION, (hidden, hidden), kind),
        tensor(here + "attn_k.weight", TensorPart.ATTENTION, (hidden, kv), kind),
        tensor(here + "attn_v.weight", TensorPart.ATTENTION, (hidden, kv), kind),
        tensor(here + "attn_output.weight", TensorPart.ATTENTION, (hidden, hidden), kind),
        tensor(here + "ffn_norm.weight", TensorPart.NORM, (hidden,), "f32"),
    ]
    deep, part, end = ((experts,), TensorPart.EXPERTS, "_exps") if experts else ((), TensorPart.FFN, "")
    if experts:
        tensors.append(tensor(here + "ffn_gate_inp.weight", TensorPart.ROUTER, (hidden, experts), "f32"))
    for name, shape in (("gate", (hidden, ffn)), ("up", (hidden, ffn)), ("down", (ffn, hidden))):
        tensors.append(tensor(f"{here}ffn_{name}{end}.weight", part, (*shape, *deep), kind))
    return LlmLayer(
        attention=AttentionKind.FULL,
        tensors=tuple(tensors),
        heads=heads,
        kv_heads=kv_heads,
        key_length=hidden // heads,
        value_length=hidden // heads,
        ffn=0 if experts else ffn,
        experts=experts,
        experts_used=used,
        expert_ffn=ffn if experts else 0,
    )


def llama(
    name: str,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    ffn: int,
    vocabulary: int,
    kind: str = "q8_0",
    experts: int = 0,
    used: int = 0,
) -> LanguageModel:
    """A model of equal layers."""
    return LanguageModel(
        name=name,
        architecture="llama",
        source="tests",
        hidden=hidden,
        vocabulary=vocabulary,
        context=131072,
        layers=tuple(llama_layer(at, hidden, heads, kv_heads, ffn, kind, experts, used) for at in range(layers)),
        embedding=(tensor("token_embd.weight", TensorPart.EMBEDDING, (hidden, vocabulary), kind),),
        output=(
            tensor("output_norm.weight", TensorPart.NORM, (hidden,), "f32"),
            tensor("output.weight", TensorPart.OUTPUT, (hidden, vocabulary), kind),
        ),
        tied=False,
    )


LLAMA_8B = llama("l8b-q8", 32, 4096, 32, 8, 14336, 128256)
LLAMA_70B = llama("l70b-q4k", 80, 8192, 64, 8, 28672, 128256, "q4_k")
MIXTRAL = llama("mixtral-q4k", 32, 4096, 32, 8, 14336, 32000, "q4_k", 8, 2)
MODELS = {model.name: model for model in (LLAMA_8B, LLAMA_70B, MIXTRAL)}
