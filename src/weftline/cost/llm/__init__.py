"""What a language model costs: bytes of weights, cache and buffers per engine, time per token, time of a prompt.

In: a LanguageModel, `LlmSettings`, `LlmDevice`s. Out: integer bytes and ns that add up over layers, parts and devices,
`Interval`s around them, and `LlmCalibration` by one measurement. Simplified: nothing overlaps while a token is decoded;
constants are fitted per class of devices, not per card.
"""

from weftline.cost.llm.buffers import Position, buffers_are_exact, compute_buffer, host_buffer
from weftline.cost.llm.constants import LlmConstants, constants_for, fitted_constants, number_families, number_family
from weftline.cost.llm.decode import (
    DecodeCosts,
    decode_costs,
    decode_time,
    experts_touched,
    hop_time,
    matrix_time,
    part_parameters,
    part_reads,
    read_time,
    weight_time,
)
from weftline.cost.llm.devices import CostClass, LlmDevice, cost_class, llm_device
from weftline.cost.llm.interval import Interval, LlmCalibration, LlmMeasurement, calibrate, read_measurement
from weftline.cost.llm.memory import (
    cache_per_token,
    cache_read,
    engine_overhead,
    layer_cache,
    layer_cells,
    usable_memory,
)
from weftline.cost.llm.prefill import layer_prefill, prefill_time
from weftline.cost.llm.settings import CACHE_TYPES, LlmEngine, LlmSettings, cache_bytes
from weftline.cost.llm.weights import (
    MOVABLE_PARTS,
    embedding_bytes,
    layer_weights,
    moved_part,
    output_weights,
    part_weights,
    tensor_share,
)

__all__ = [
    "CACHE_TYPES",
    "MOVABLE_PARTS",
    "CostClass",
    "DecodeCosts",
    "Interval",
    "LlmCalibration",
    "LlmConstants",
    "LlmDevice",
    "LlmEngine",
    "LlmMeasurement",
    "LlmSettings",
    "Position",
    "buffers_are_exact",
    "cache_bytes",
    "cache_per_token",
    "cache_read",
    "calibrate",
    "compute_buffer",
    "constants_for",
    "cost_class",
    "decode_costs",
    "decode_time",
    "embedding_bytes",
    "engine_overhead",
    "experts_touched",
    "fitted_constants",
    "hop_time",
    "host_buffer",
    "layer_cache",
    "layer_cells",
    "layer_prefill",
    "layer_weights",
    "llm_device",
    "matrix_time",
    "moved_part",
    "number_families",
    "number_family",
    "output_weights",
    "part_parameters",
    "part_reads",
    "part_weights",
    "prefill_time",
    "read_measurement",
    "read_time",
    "tensor_share",
    "usable_memory",
    "weight_time",
]
