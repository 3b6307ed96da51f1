"""What a host processor reaches: one desktop that ran a model with weights, or whole layers, in its own memory.

In: the rows of that desktop in measured.csv, and the constants of its card. Out: multiples of the time that the peak
bandwidth of the memory takes, for weights and for the cache. Simplified: one machine, so nothing can be held out; how
many blocks lay where follows from what its owner wrote.

The owner (unsloth pull request 9872 and issue 9861) wrote: an i5-12400F with 94 GB in two channels, which is two
modules of 48 GB, so DDR5, at this processor's 4800 MT/s; RTX 6000 Ada with 38,016 MiB free; a 70B model in UD-Q4_K_XL;
a cache for 32,768 tokens. A: 38 of 80 blocks have their weights in the host's memory, all of the cache is on the card.
B: as many whole layers on the card as fit below a margin of 1 GiB.
"""

from __future__ import annotations

import csv
from collections.abc import Sequence

import numpy as np

from benchmarks.llm.rows import data_folder
from weftline.cluster.catalogue import find_accelerator
from weftline.cost.llm import LlmSettings, cache_read, layer_cache, layer_weights, llm_device, output_weights
from weftline.importers.llm import read_language_model

__all__ = ["host_coefficients"]

CARD, MEMORY, MODEL, QUANT = "RTX 6000 Ada", "DDR5-4800", "llama-3.3-70b", "q4_k_m"
FREE_BYTES, MARGIN_BYTES, ALLOCATED = 38016 << 20, 1 << 30, 32768
COMPUTE_BYTES = 400 << 20
SPILLED_BLOCKS = 38


def host_coefficients(card_fit: Sequence[float]) -> tuple[float, float, list[float]]:
    """Multiples for weights and cache, and the ratio of measured to fitted rate of each row."""
    model = read_language_model(MODEL, QUANT)
    card, memory = find_accelerator(CARD), find_accelerator(MEMORY)
    device, rate = llm_device("card", card, FREE_BYTES), memory.bandwidth / 1e9
    block, count = layer_weights(model.layers[1]), len(model.layers)
    room = FREE_BYTES - MARGIN_BYTES - COMPUTE_BYTES - output_weights(model)
    whole = count - room // (block + layer_cache(model.layers[1], LlmSettings(context=ALLOCATED)))
    terms, rests, times = [], [], []
    for depth, time, kept in _rows():
        away = SPILLED_BLOCKS if kept else whole
        cache = cache_read(model.layers[1], LlmSettings(context=ALLOCATED, live=depth))
        here = (count - away) * block + output_weights(model)
        parameters = 2 * (model.parameters - model.hidden * model.vocabulary) * (count - away) / count
        cells = cache * (count if kept else count - away)
        peaks = (here * 1e9 / device.bandwidth, cells * 1e9 / device.bandwidth, parameters * 1e9 / device.vector_flops)
        on_card = sum(one * two for one, two in zip(card_fit, (*peaks, count), strict=False))
        terms.append([away * block / rate, 0.0 if kept else away * cache / rate])
        rests.append(time - on_card)
        times.append(time)
    scale = np.array(times)
    found, *_ = np.linalg.lstsq(np.array(terms) / scale[:, None], np.array(rests) / scale, rcond=None)
    fitted = np.array(terms) @ found + scale - np.array(rests)
    return float(found[0]), float(found[1]), [float(one) for one in fitted / scale]


def _rows() -> list[tuple[int, float, bool]]:
    """Depth, ns per token, and whether the cache stayed on the card."""
    with (data_folder() / "measured.csv").open(encoding="utf-8") as file:
        lines = [line for line in csv.DictReader(file) if line["group"] == "unsloth-9872-Llama-3.3-70B"]
    return [(int(a["depth"]), 1e9 / float(a["decode_tps"]), a["split_detail"].startswith("A")) for a in lines]
