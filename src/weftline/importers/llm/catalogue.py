"""Popular models by name: what their published configurations say, so that no file is needed.

In: a name as people write it. Out: the shape of its stack. Simplified: one entry stands for base and instruct models
alike, which have the same tensors.
"""

from __future__ import annotations

import re
from functools import cache

import msgspec

from weftline.errors import InputError, near
from weftline.importers.llm.build import build_model
from weftline.importers.llm.catalogue_dense import DENSE_FAMILIES
from weftline.importers.llm.catalogue_experts import EXPERT_FAMILIES
from weftline.importers.llm.configuration import stack_from_config
from weftline.importers.llm.stack import StackShape

__all__ = ["KnownModel", "is_known_model", "known_models", "known_stack", "split_name"]


class KnownModel(msgspec.Struct, frozen=True):
    """An entry of the catalogue."""

    name: str
    aliases: tuple[str, ...]
    architecture: str
    layers: int
    context: int
    parameters: int
    source: str
    """Where its numbers are from."""


@cache
def _entries() -> dict[str, tuple[dict[str, object], tuple[str, ...], str]]:
    found: dict[str, tuple[dict[str, object], tuple[str, ...], str]] = {}
    for family in (*DENSE_FAMILIES, *EXPERT_FAMILIES):
        for line in family.models.strip().splitlines():
            name, *cells = line.split()
            names = name.split(",")
            numbers = {
                key: int(value) for key, value in zip(family.columns.split(), cells, strict=True) if value != "-"
            }
            found[names[0]] = ({**family.fields, **numbers}, tuple(names[1:]), family.source)
    return found


@cache
def known_models() -> tuple[KnownModel, ...]:
    """The whole catalogue."""
    found = []
    for name, (_, aliases, source) in _entries().items():
        model = build_model(known_stack(name))
        sizes = {"layers": len(model.layers), "context": model.context, "parameters": model.parameters}
        found.append(KnownModel(name=name, aliases=aliases, architecture=model.architecture, source=source, **sizes))
    return tuple(found)


def _plain(name: str) -> str:
    """A name without what differs between spellings: owner, case, marks, and words for tuned models."""
    plain = re.sub(r"[\s_:-]+", "-", name.strip().lower().rpartition("/")[2][:200])
    plain = re.sub(r"-(instruct|it|chat|hf|base|gguf|bf16|fp16)(?=-|$)", "", plain)
    plain = re.sub(r"^meta-(?=llama)", "", plain)
    return re.sub(r"^([a-z]+)-(?=\d)", r"\1", plain)


@cache
def _names() -> dict[str, str]:
    return {_plain(one): name for name, (_, aliases, _) in _entries().items() for one in (name, *aliases)}


def split_name(name: str) -> tuple[str, str]:
    """A name, and the quantisation that stands behind it, as in qwen3-8b-q4_k_m."""
    found = re.fullmatch(r"(.+?)[-:.](i?q\d\w+|f16|bf16|mxfp4|fp8|awq|gptq)", name.strip(), re.IGNORECASE)
    if found and not is_known_model(name) and is_known_model(found[1]):
        return found[1], found[2]
    return name, ""


def is_known_model(name: str) -> bool:
    """Is this a name of the catalogue?"""
    return _plain(name) in _names()


def known_stack(name: str) -> StackShape:
    """The stack of a model of the catalogue; `InputError` with a guess where there is none."""
    found = _names().get(_plain(name))
    if found is None:
        guess = near(_plain(name), _names())
        hint = "weftline fit --models lists all; a folder, a config.json or a .gguf file is read too"
        raise InputError(f"no model of this name is known{guess}", where=name[:200], hint=hint)
    config, _, source = _entries()[found]
    return stack_from_config(config, name=found, source=source)
