"""Language models as facts: what every tensor weighs and what every layer caches, without reading a single weight.

In: a Hugging Face folder or config.json, a GGUF header, or the name of a known model. Out: a `LanguageModel`.
Simplified: text only (vision towers are left out), one stack of layers.
"""

from weftline.importers.llm.model import AttentionKind, LanguageModel, LlmLayer, LlmTensor, TensorPart

__all__ = ["AttentionKind", "LanguageModel", "LlmLayer", "LlmTensor", "TensorPart"]
