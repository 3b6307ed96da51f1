"""fit_print.csv -> what llama.cpp allocates on each device, by itself and by our count.

In: the rows that `llama-fit-params --fit-print on` printed for header-only files. Out: `PrintedDevice`s, in bytes and
MiB. Simplified: its three models are of equal layers, all matrices of one type.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import msgspec

from benchmarks.llm.rows import data_folder
from weftline.cost.llm import (
    LlmSettings,
    Position,
    compute_buffer,
    embedding_bytes,
    host_buffer,
    layer_cache,
    layer_weights,
    output_weights,
)
from weftline.importers.llm import LanguageModel, LlmTensor, TensorPart, read_language_model

__all__ = ["MIB", "PrintedDevice", "printed_devices", "printed_models"]

MIB = 1 << 20
NEAR_MIB, NEAR_SHARE = 16, 0.01
_MODELS = {
    "l8b-q8": ("llama-3.1-8b", "q8_0", 32, 34),
    "l70b-q4k": ("llama-3.1-70b", "q4_k", 256, 144),
    "mixtral-q4k": ("mixtral-8x7b", "q4_k", 256, 144),
}
"""Name -> name in the catalogue, type of matrices, weights of a block, bytes of a block."""
_RUN = ("model", "devices", "n_ctx", "ubatch", "fa", "ctk", "ts")


@dataclass(frozen=True)
class PrintedDevice:
    """One line: weights, cache and compute buffer."""

    run: tuple[str, ...]
    name: str
    printed: tuple[int, int, int]
    """MiB."""
    counted: tuple[int, int, int]
    """Bytes."""

    @property
    def is_near(self) -> bool:
        """All three within 1 % or 16 MiB, whichever is more."""
        pairs = zip(self.counted, self.printed, strict=True)
        return all(abs(ours / MIB - theirs) <= max(NEAR_MIB, NEAR_SHARE * theirs) for ours, theirs in pairs)

    @property
    def farthest(self) -> float:
        """MiB between both, of the worst of the three."""
        return max(abs(ours / MIB - theirs) for ours, theirs in zip(self.counted, self.printed, strict=True))


def printed_models() -> dict[str, LanguageModel]:
    """The models of the file: shapes of the catalogue, all matrices of one type."""
    return {name: _of_one_type(*about) for name, about in _MODELS.items()}


def _of_one_type(name: str, kind: str, block: int, size: int) -> LanguageModel:
    model = read_language_model(name, "f16")

    def typed(tensor: LlmTensor) -> LlmTensor:
        if tensor.part in (TensorPart.NORM, TensorPart.ROUTER) or len(tensor.shape) < 2:
            return tensor
        return msgspec.structs.replace(tensor, type=kind, bytes=tensor.parameters // block * size)

    layers = tuple(msgspec.structs.replace(layer, tensors=tuple(map(typed, layer.tensors))) for layer in model.layers)
    embedding, output = (tuple(map(typed, tensors)) for tensors in (model.embedding, model.output))
    return msgspec.structs.replace(model, layers=layers, embedding=embedding, output=output)


def printed_devices(models: Mapping[str, LanguageModel]) -> Iterator[PrintedDevice]:
    """Every row of the file."""
    runs: dict[tuple[str, ...], list[dict[str, str]]] = defaultdict(list)
    with (data_folder() / "fit_print.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            runs[tuple(row[name] for name in _RUN)].append(row)
    for run, rows in runs.items():
        for row, counted in zip(rows, _counted(models[run[0]], rows[0]), strict=True):
            printed = (int(row["model_mib"]), int(row["context_mib"]), int(row["compute_mib"]))
            yield PrintedDevice(run, row["dev"], printed, counted)


def _counted(model: LanguageModel, row: Mapping[str, str]) -> list[tuple[int, int, int]]:
    """Of each device in the order of the layers, and of the host."""
    settings = LlmSettings(
        context=int(row["n_ctx"]),
        micro_batch=int(row["ubatch"]),
        kv_type_k=row["ctk"],
        kv_type_v=row["ctk"],
        flash_attention=row["fa"] == "on",
    )
    counts = [int(count) for count in row["ts"].split(",")] if row["ts"] else [len(model.layers) + 1]
    found, begin = [], 0
    for at, count in enumerate(counts):
        layers = model.layers[begin : begin + count]
        begin += count
        head = output_weights(model) if at == len(counts) - 1 else 0
        place = Position.ONLY if len(counts) == 1 else Position.LAST if head else Position.FIRST
        cache = sum(layer_cache(layer, settings) for layer in layers)
        found.append((sum(map(layer_weights, layers)) + head, cache, compute_buffer(model, settings, place)))
    return [*found, (embedding_bytes(model), 0, host_buffer(model, settings, len(counts)))]
