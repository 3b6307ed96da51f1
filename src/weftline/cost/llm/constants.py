"""Constants of decode and prefill per class of devices and family of number formats.

In: a class of devices and a model. Out: `DecodeConstants`, with the range that measurements fell into.
Simplified: one efficiency for all sizes of matrices; what a class was not measured for is taken from the nearest one.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from weftline.cost.llm.devices import CostClass
from weftline.cost.llm.interval import UNCALIBRATED, Interval, LlmCalibration
from weftline.importers.llm import LanguageModel

__all__ = ["DecodeConstants", "constants_for", "number_family"]


class DecodeConstants(msgspec.Struct, frozen=True):
    """Of one class of devices and one family of number formats."""

    memory_ppm: int
    """Share of the peak bandwidth that decode reaches, in parts per million."""
    layer_ns: int
    """Launches and small kernels, per layer."""
    hop_ns: int
    """From one device to the next."""
    compute_ppm: int
    """Share of the dense 16-bit peak that prefill reaches."""
    low_ppm: int
    """Measured rates lay between these shares of the estimate."""
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
_SPEC = "llama-bench rows of GPU-Benchmarks-on-LLM-Inference, May 2024"

_TABLE: dict[tuple[CostClass, str], DecodeConstants] = {
    (CostClass.GDDR, "float"): DecodeConstants(
        880_000, 85_000, 112_000, 600_000, 800_000, 1_200_000, 500_000, 1_800_000, _SPEC
    ),
    (CostClass.GDDR, "quantised"): DecodeConstants(
        870_000, 94_000, 185_000, 600_000, 750_000, 1_250_000, 500_000, 1_800_000, _SPEC
    ),
    (CostClass.HBM, "float"): DecodeConstants(
        640_000, 165_000, 506_000, 300_000, 650_000, 1_400_000, 400_000, 1_800_000, _SPEC
    ),
    (CostClass.HBM, "quantised"): DecodeConstants(
        610_000, 115_000, 556_000, 300_000, 700_000, 1_400_000, 400_000, 1_800_000, _SPEC
    ),
    (CostClass.APPLE, "float"): DecodeConstants(
        840_000, 220_000, 300_000, 700_000, 400_000, 1_500_000, 500_000, 1_500_000, _SPEC
    ),
    (CostClass.APPLE, "quantised"): DecodeConstants(
        660_000, 191_000, 300_000, 700_000, 600_000, 1_500_000, 500_000, 1_500_000, _SPEC
    ),
}
_NEAREST = {
    CostClass.AMD: CostClass.GDDR,
    CostClass.INTEL: CostClass.GDDR,
    CostClass.UNIFIED: CostClass.GDDR,
    CostClass.CPU: CostClass.GDDR,
}


def number_family(model: LanguageModel) -> str:
    """ "float" or "quantised": what most bytes of the model are."""
    sizes: Counter[str] = Counter()
    for tensor in model.tensors:
        sizes[FLOAT_FAMILY if tensor.type in _FLOAT_TYPES else QUANTISED_FAMILY] += tensor.bytes
    return max(sizes, key=lambda family: sizes[family], default=FLOAT_FAMILY)


def constants_for(cost_class: CostClass, family: str) -> DecodeConstants:
    """The constants of a class, or of the nearest class that was measured."""
    return _TABLE[_NEAREST.get(cost_class, cost_class), family]
