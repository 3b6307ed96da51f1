"""Constants of decode and prefill per class of devices and family of number formats.

In: a class of devices and a model. Out: `LlmConstants`, with the range that measurements fell into.
Simplified: one efficiency for all sizes of matrices; what a class was not measured for is taken from the nearest one.
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

__all__ = ["SERVER_CONSTANTS", "LlmConstants", "constants_for", "fitted_constants", "number_family"]


class LlmConstants(msgspec.Struct, frozen=True):
    """Of one class of devices and one family of number formats. A decoded token takes

    weights / (memory x bandwidth) + cache / (cache x bandwidth) + FLOPs / (vector x 32-bit rate) + layer + hop times,

    a prompt FLOPs / (matrix x matrix rate) + attention / (attention x matrix rate) + layer times per micro-batch.
    Shares are parts per million of peaks; a share of 0 leaves its term out.
    """

    memory_ppm: int
    cache_ppm: int
    vector_ppm: int
    layer_ns: int
    """Launches and small kernels, per layer."""
    hop_ns: int
    """From one device to the next."""
    matrix_ppm: int
    attention_ppm: int
    batch_layer_ns: int
    """Per layer and micro-batch of a prompt."""
    low_ppm: int
    """Most measured rates lay between these shares of the estimate."""
    high_ppm: int
    prefill_low_ppm: int
    prefill_high_ppm: int
    source: str

    def decode_interval(self, time_ns: int, calibration: LlmCalibration = UNCALIBRATED) -> Interval:
        """Times of a decoded token that measurements fall into, in ns, around an estimate."""
        return calibration.decode_interval(time_ns, self.low_ppm, self.high_ppm)

    def prefill_interval(self, time_ns: int, calibration: LlmCalibration = UNCALIBRATED) -> Interval:
        """The same of a prompt."""
        return calibration.prefill_interval(time_ns, self.prefill_low_ppm, self.prefill_high_ppm)


FLOAT_FAMILY, QUANTISED_FAMILY = "float", "quantised"
_FLOAT_TYPES = {"f64", "f32", "f16", "bf16"}
_NEAREST = {CostClass.INTEL: CostClass.AMD}
"""Classes that nobody measured, and the class whose constants they take."""


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
    matrix_ppm=550_000,
    attention_ppm=300_000,
    batch_layer_ns=60_000,
    low_ppm=550_000,
    high_ppm=1_250_000,
    prefill_low_ppm=400_000,
    prefill_high_ppm=1_600_000,
    source="AIConfigurator: 0.8 of the bandwidth, 3 us for each of about ten kernels of a layer; not fitted",
)
"""vLLM and SGLang: nobody published enough measurements to fit them."""


@cache
def constants_for(cost_class: CostClass, family: str, engine: LlmEngine = LlmEngine.LLAMACPP) -> LlmConstants:
    """The constants of a class, or of the nearest class that was measured."""
    if engine is not LlmEngine.LLAMACPP:
        return SERVER_CONSTANTS
    return fitted_constants()[_NEAREST.get(cost_class, cost_class), family]


@cache
def fitted_constants() -> dict[tuple[CostClass, str], LlmConstants]:
    """The table beside this file, written by `python -m benchmarks.llm.write` and never by hand."""
    text = (files("weftline.cost.llm") / "constants.csv").read_text(encoding="utf-8")
    rows = csv.DictReader(text.splitlines())
    return {(CostClass(row["class"]), row["family"]): msgspec.convert(row, LlmConstants, strict=False) for row in rows}
