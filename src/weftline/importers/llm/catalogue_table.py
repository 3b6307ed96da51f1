"""The table of popular models: facts of their config.json files.

In: nothing. Out: families; of each the fields that its models share, and a line of numbers for every model. Simplified:
what has the value that the architecture assumes is left out; "-" stands for nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

__all__ = ["KNOWN_FAMILIES", "KnownFamily"]


class KnownFamily(msgspec.Struct, frozen=True):
    """Models of one architecture."""

    source: str
    fields: Mapping[str, object]
    """Shared, as config.json names them."""
    columns: str
    """Fields that have a number in every line, after the name and its aliases."""
    models: str


_CONFIG = "config.json of the Hugging Face repositories"
_USUAL = (
    "hidden_size intermediate_size num_hidden_layers num_attention_heads num_key_value_heads vocab_size "
    "max_position_embeddings"
)
KNOWN_FAMILIES = (
    KnownFamily(
        _CONFIG,
        {"model_type": "llama"},
        _USUAL,
        """
        llama-3.3-70b 8192 28672 80 64 8 128256 131072
        llama-3.1-8b,llama3.1 4096 14336 32 32 8 128256 131072
        llama-3.1-70b 8192 28672 80 64 8 128256 131072
        llama-3.1-405b 16384 53248 126 128 8 128256 131072
        """,
    ),
)
