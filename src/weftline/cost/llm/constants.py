"""Constants of decode and prefill per class of devices and family of number formats.

In: a class of devices and a model. Out: `LlmConstants`, with the range that measurements fell into.
Simplified: one efficiency for all sizes of matrices; what a class was not measured for is taken from another.
"""

from __future__ import annotations

import csv
from collections import Counter
from functools import cache
from importlib.resources import files

import msgspec

from weftline.cost.llm.devices import CostClass
from weftline.cost.llm.interval import UNCALIBRATED, Interval, LlmCalibration
from weftline.cost.llm.settings import LlmEngine
from weftline.importers.llm import LanguageModel

__all__ = ["SERVER_CONSTANTS", "LlmConstants", "constants_for", "fitted_constants", "number_families", "number_family"]


class LlmConstants(msgspec.Struct, frozen=True):
    """Of one class of devices and one family of number formats. A decoded token takes

    weights / (memory x bandwidth) + cache / (cache x bandwidth) + FLOPs / (vector x 32-bit rate) + layer + hop times,

    a prompt FLOPs / (matrix x matrix rate) + attention's FLOPs / bandwidth + layer times per micro-batch.
    Shares are parts per million of peaks; a share of 0 leaves its term out.
    """

    memory_ppm: int
    cache_ppm: int
    vector_ppm: int
    overlapped: int
    """1: reading and computing with 32-bit units go on together, and the longer of the two counts."""
    layer_ns: int
    """Launches and small kernels, per layer."""
    hop_ns: int
    """From one device to the next."""
    matrix_ppm: int
    attention_flops_per_kb: int
    """FLOPs of attention for each 1000 bytes of bandwidth: without flash attention scores go through memory."""
    batch_layer_ns: int
    """Per layer and micro-batch of a prompt."""
    card_loss_ppm: int
    """How much longer each further card makes a prompt whose micro-batches overlap over the cards."""
    low_ppm: int
    """Most measured rates lay between these shares of the estimate."""
    high_ppm: int
    prefill_low_ppm: int
    prefill_high_ppm: int
    rows: int
    """Measurements that it was fitted to; 0: taken from another class."""
    devices: int

    def decode_interval(self, time_ns: int, calibration: LlmCalibration = UNCALIBRATED) -> Interval:
        """Times of a decoded token that measurements fall into, in ns, around an estimate."""
        return calibration.decode_interval(time_ns, self.low_ppm, self.high_ppm)

    def prefill_interval(self, time_ns: int, calibration: LlmCalibration = UNCALIBRATED) -> Interval:
        """The same of a prompt."""
        return calibration.prefill_interval(time_ns, self.prefill_low_ppm, self.prefill_high_ppm)


FLOAT_FAMILY, QUANTISED_FAMILY = "float", "quantised"
_FLOAT_TYPES = {"f64", "f32", "f16", "bf16"}


def number_families() -> tuple[str, str]:
    """The families: 16 bits and more, and fewer."""
    return FLOAT_FAMILY, QUANTISED_FAMILY


def number_family(model: LanguageModel) -> str:
    """ "float" or "quantised": what most bytes of the model are."""
    sizes: Counter[str] = Counter()
    for tensor in model.tensors:
        sizes[FLOAT_FAMILY if tensor.type in _FLOAT_TYPES else QUANTISED_FAMILY] += tensor.bytes
    return max(sizes, key=lambda family: sizes[family], default=FLOAT_FAMILY)


SERVER_CONSTANTS = LlmConstants(
    memory_ppm=800_000,
    cache_ppm=800_000,
    vector_ppm=0,
    layer_ns=30_000,
    hop_ns=50_000,
    overlapped=0,
    matrix_ppm=550_000,
    attention_flops_per_kb=60_000,
    batch_layer_ns=60_000,
    card_loss_ppm=100_000,
    low_ppm=550_000,
    high_ppm=1_250_000,
    prefill_low_ppm=400_000,
    prefill_high_ppm=1_600_000,
    rows=0,
    devices=0,
)
"""vLLM and SGLang: nobody published enough measurements to fit them. AIConfigurator's constants: 0.8 of the bandwidth,
3 us for each of about ten kernels of a layer."""


@cache
def constants_for(cost_class: CostClass, family: str, engine: LlmEngine = LlmEngine.LLAMACPP) -> LlmConstants:
    """The constants of a class, or of an engine that nobody measured."""
    if engine is not LlmEngine.LLAMACPP:
        return SERVER_CONSTANTS
    return fitted_constants()[cost_class, family]


@cache
def fitted_constants() -> dict[tuple[CostClass, str], LlmConstants]:
    """The table beside this file, written by `python -m benchmarks.llm.write` and never by hand."""
    text = (files("weftline.cost.llm") / "constants.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {(CostClass(row["class"]), row["family"]): msgspec.convert(row, LlmConstants, strict=False) for row in rows}
