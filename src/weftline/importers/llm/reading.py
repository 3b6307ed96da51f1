"""One door for language models: a folder, a config.json, a GGUF file, an index of safetensors, or a name.

In: what the user typed. Out: a `LanguageModel`. Simplified: a name is looked up only where no file of this name is.
"""

from __future__ import annotations

import json
from pathlib import Path

from weftline.errors import InputError, no_such_file
from weftline.files import read_limited
from weftline.importers.llm.build import build_model
from weftline.importers.llm.catalogue import is_known_model, known_stack
from weftline.importers.llm.configuration import stack_from_config
from weftline.importers.llm.model import LanguageModel
from weftline.importers.llm.recipes import find_quantisation

__all__ = ["read_language_model"]

_MOST_CONFIG_BYTES = 4 * 2**20


def read_language_model(source: str | Path, quantisation: str = "") -> LanguageModel:
    """The model that `source` names, with the types that its files or the quantisation give to its tensors."""
    name = find_quantisation(quantisation).name if quantisation else ""
    path = Path(source)
    if not path.exists():
        if is_known_model(str(source)) or not path.suffix or path.parent == Path():
            return build_model(known_stack(str(source)), name)
        raise no_such_file(path)
    config = path / "config.json" if path.is_dir() else path
    text = read_limited(config, _MOST_CONFIG_BYTES)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"is no JSON: {error}", where=str(config)) from error
    stack = stack_from_config(values, name=config.resolve().parent.name, source=str(config))
    return build_model(stack, name)
