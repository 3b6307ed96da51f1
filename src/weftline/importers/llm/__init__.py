"""Language models as facts: what every tensor weighs and what every layer caches, without reading a single weight.

In: a Hugging Face folder or config.json, a GGUF header, or the name of a known model. Out: a `LanguageModel`.
Simplified: text only (vision towers are left out), one stack of layers.
"""

from weftline.importers.llm.build import requantised
from weftline.importers.llm.catalogue import KnownModel, is_known_model, known_models
from weftline.importers.llm.model import AttentionKind, LanguageModel, LlmLayer, LlmTensor, TensorPart
from weftline.importers.llm.reading import read_language_model
from weftline.importers.llm.recipes import Quantisation, find_quantisation, quantisation_names, quantisations
from weftline.importers.llm.types import NUMBER_TYPES, NumberType, bytes_per_weight, number_type, tensor_bytes

__all__ = [
    "NUMBER_TYPES",
    "AttentionKind",
    "KnownModel",
    "LanguageModel",
    "LlmLayer",
    "LlmTensor",
    "NumberType",
    "Quantisation",
    "TensorPart",
    "bytes_per_weight",
    "find_quantisation",
    "is_known_model",
    "known_models",
    "number_type",
    "quantisation_names",
    "quantisations",
    "read_language_model",
    "requantised",
    "tensor_bytes",
]
