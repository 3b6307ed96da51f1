"""measured.csv -> rows that estimates can be compared with: a known model on known, equal cards, one request.

In: the folder of published data (WEFTLINE_DATA). Out: `MeasuredRow`s with the numbers that estimates are made of.
Simplified: rows with spilled weights, unequal cards, tensor splits and other engines are left out.
"""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from benchmarks.measure import ROOT
from weftline.cluster.catalogue import find_accelerator
from weftline.cost.llm import (
    LlmDevice,
    LlmSettings,
    cache_read,
    llm_device,
    number_family,
    output_weights,
    part_parameters,
    part_reads,
)
from weftline.cost.llm.prefill import attention_flops
from weftline.errors import InputError
from weftline.importers.llm import LanguageModel, read_language_model

__all__ = ["MeasuredRow", "data_folder", "measured_rows"]

ENGINES = ("llama.cpp", "llamacpp", "llamafile")
FULL_PERCENT = 85
"""Of a card's memory: rows of unknown offload with more weights than this are left out."""

DEVICES = {
    "NVIDIA GeForce RTX 4060 Ti": "GeForce RTX 4060 Ti 16GB",
    "M1 7-Core GPU 8GB": "Apple M1 (8 GPU cores)",
    "Apple M1 Pro 8P+2E+16GPU": "Apple M1 Pro (16)",
    "Apple M4 Max 12P+4E+40GPU": "Apple M4 Max (40)",
    "AMD EPYC 7352 24-Core Processor (znver2)": "EPYC 7002",
}
"""Names that the catalogue does not know, or that are several of it."""
MODELS = {"Llama-3-8B": "llama-3.1-8b", "Llama-3-70B": "llama-3.1-70b"}


@dataclass(frozen=True)
class MeasuredRow:
    """One line of the file, and what the estimates need to know of it."""

    id: str
    grade: str
    group: str
    """Who measured: rows of one group and device are not independent."""
    model: str
    quant: str
    family: str
    device: LlmDevice
    cards: int
    depth: int
    """Mean tokens in the cache while tokens were generated."""
    prompt: int
    decode_ns: float
    """Per token; 0: not measured."""
    prefill_ns: float
    """Of the whole prompt; 0: not measured."""
    weights: int
    """Bytes that a token reads, without the cache."""
    cache: int
    parameters: int
    layers: int
    attention: int
    """FLOPs of attention over the prompt."""
    prompt_parameters: int
    """Parameters that a token of a prompt is multiplied with: without the output layer."""
    micro_batches: int


def data_folder() -> Path:
    """Where published measurements are."""
    return Path(os.environ.get("WEFTLINE_DATA") or ROOT / "../shared/data") / "llm"


def measured_rows() -> list[MeasuredRow]:
    """All rows that can be compared."""
    with (data_folder() / "measured.csv").open(encoding="utf-8") as file:
        found = [_row(line) for line in csv.DictReader(file)]
    return [row for row in found if row is not None]


def _row(line: Mapping[str, str]) -> MeasuredRow | None:
    alone = line["split"] in ("", "none", "layer") and "cpu-moe" not in line["split_detail"]
    if not (alone and line["engine"].startswith(ENGINES) and line["batch"] in ("", "1")):
        return None
    device, model = _device(line["devices"]), _model(line["model"], line["quant"])
    if device is None or model is None or not line["n_dev"] or not (line["decode_tps"] or line["prefill_tps"]):
        return None
    cards = int(line["n_dev"])
    output = output_weights(model)
    reads = sum(sum(part_reads(layer)) for layer in model.layers) + output
    if line["grade"] != "A" and reads * 100 > device.memory_bytes * cards * FULL_PERCENT:
        return None
    prompt, generated = float(line["prompt"] or 0), float(line["gen"] or 0)
    before = float(line["depth"] or 0) + (prompt if line["engine"].startswith("llamafile") else 0)
    depth, tokens = int(before + generated / 2), int(prompt)
    settings = LlmSettings(context=max(1, depth), live=max(1, depth))
    active = sum(sum(part_parameters(layer)) for layer in model.layers)
    return MeasuredRow(
        id=line["id"],
        grade=line["grade"],
        group=line["source"].split("@")[0].split(" ")[0],
        model=model.name,
        quant=line["quant"],
        family=number_family(model),
        device=device,
        cards=cards,
        depth=depth,
        prompt=tokens,
        decode_ns=1e9 / float(line["decode_tps"]) if line["decode_tps"] else 0.0,
        prefill_ns=tokens * 1e9 / float(line["prefill_tps"]) if line["prefill_tps"] and tokens else 0.0,
        weights=reads,
        cache=sum(cache_read(layer, settings) for layer in model.layers),
        parameters=active + model.hidden * model.vocabulary,
        layers=len(model.layers),
        attention=sum(attention_flops(layer, 0, tokens) for layer in model.layers),
        prompt_parameters=active,
        micro_batches=-(-tokens // settings.micro_batch),
    )


@cache
def _device(name: str) -> LlmDevice | None:
    try:
        found = find_accelerator(DEVICES.get(name, name))
    except InputError:
        return None
    memory = found.memory_bytes or 1 << 50
    size = re.search(r"(\d+)GB", name)
    return llm_device("d0", found, int(size[1]) << 30 if size and found.memory_bytes else memory)


@cache
def _model(name: str, quant: str) -> LanguageModel | None:
    plain = re.sub(r"\.gguf$", "", name, flags=re.IGNORECASE)
    plain = re.sub(r"[-.](I?Q\d\w*|MXFP4|UD-\w+|fp16)+(-fp16)?$", "", plain, flags=re.IGNORECASE)
    try:
        return read_language_model(MODELS.get(plain, plain), _recipe(quant))
    except InputError:
        return None


def _recipe(quant: str) -> str:
    return quant.lower().removeprefix("ud-").replace("_xl", "_m")
