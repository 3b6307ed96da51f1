"""Tests that memory per device is what llama.cpp prints for the same model, split and context."""

from __future__ import annotations

import csv
from collections import defaultdict

import pytest
from tests.cost.llm.models import MODELS
from tests.data import present

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

MIB = 1 << 20
Row = dict[str, str]


def printed() -> list[list[Row]]:
    """Rows of each run: its devices, the host last."""
    runs: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    with present("llm/fit_print.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            key = ("model", "devices", "n_ctx", "ubatch", "fa", "ctk", "ts")
            runs[tuple(row[name] for name in key)].append(row)
    return list(runs.values())


def predicted(rows: list[Row]) -> list[tuple[int, int, int]]:
    """Weights, cache and compute buffer of each device, and of the host."""
    first = rows[0]
    model = MODELS[first["model"]]
    settings = LlmSettings(
        context=int(first["n_ctx"]),
        micro_batch=int(first["ubatch"]),
        kv_type_k=first["ctk"],
        kv_type_v=first["ctk"],
        flash_attention=first["fa"] == "on",
    )
    counts = [int(count) for count in first["ts"].split(",")] if first["ts"] else [len(model.layers) + 1]
    found, begin = [], 0
    for at, count in enumerate(counts):
        layers = model.layers[begin : begin + count]
        begin += count
        head = output_weights(model) if at == len(counts) - 1 else 0
        place = Position.ONLY if len(counts) == 1 else Position.LAST if head else Position.FIRST
        found.append(
            (
                sum(map(layer_weights, layers)) + head,
                sum(layer_cache(layer, settings) for layer in layers),
                compute_buffer(model, settings, place),
            )
        )
    return [*found, (embedding_bytes(model), 0, host_buffer(model, settings, len(counts)))]


def test_every_printed_row() -> None:
    """Tests all rows of fit_print.csv: within 1 % or 16 MiB, weights, cache and compute apart."""
    runs = printed()
    assert sum(map(len, runs)) > 50
    for rows in runs:
        for row, found in zip(rows, predicted(rows), strict=True):
            for name, value in zip(("model_mib", "context_mib", "compute_mib"), found, strict=True):
                wanted = int(row[name])
                assert abs(value / MIB - wanted) <= max(16, wanted / 100), (row, name, value / MIB)
                assert value / MIB == pytest.approx(wanted, abs=max(2, wanted / 200)), (row, name, value / MIB)
