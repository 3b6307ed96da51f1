"""One door for language models: a folder, a config.json, a GGUF file, an index of safetensors, or a name.

In: what the user typed. Out: a `LanguageModel`. Simplified: a name is looked up only where no file of this name is.
"""

from __future__ import annotations

import json
from pathlib import Path

from msgspec.structs import replace

from weftline.errors import InputError, no_such_file
from weftline.files import opened, read_limited
from weftline.importers.foreign import foreign_file
from weftline.importers.llm.build import build_model, requantised
from weftline.importers.llm.catalogue import is_known_model, known_stack, split_name
from weftline.importers.llm.checkpoint import stored_tensors, with_stored_bytes
from weftline.importers.llm.configuration import stack_from_config
from weftline.importers.llm.gguf import read_gguf_header
from weftline.importers.llm.gguf_model import model_from_gguf
from weftline.importers.llm.model import LanguageModel
from weftline.importers.llm.recipes import find_quantisation

__all__ = ["read_language_model"]

_MOST_CONFIG_BYTES = 4 * 2**20


def read_language_model(source: str | Path, quantisation: str = "") -> LanguageModel:
    """The model that `source` names, with the types that its files or the quantisation give to its tensors."""
    name = find_quantisation(quantisation).name if quantisation else ""
    path = Path(source)
    if _is_there(path):
        model = _read(path)
    elif _looks_like_a_file(str(source)) and not is_known_model(str(source)):
        raise no_such_file(path, hint="a model may also be given by its name: weftline fit --models lists them")
    else:
        known, found = split_name(str(source))
        model = build_model(known_stack(known))
        name = name or (find_quantisation(found).name if found else "")
    asked = name and (name != model.quantisation or not model.exact_bytes)
    return requantised(model, name) if asked else model


def _looks_like_a_file(source: str) -> bool:
    ends = (".gguf", ".json", ".safetensors", ".bin", ".onnx", ".pt", ".pth", "/", "\\")
    return source.lower().endswith(ends) or source.startswith(("/", "./", "../", "~")) or source.count("/") > 1


def _read(path: Path) -> LanguageModel:
    if path.is_dir():
        return _read_folder(path)
    with opened(path) as (file, _):
        head = file.read(16)
    if head.startswith(b"GGUF"):
        return model_from_gguf(read_gguf_header(path), name=path.stem, source=str(path))
    if head.startswith(b"GGML") or head[4:8] == b"FUGG":
        raise InputError("is a file of a format before GGUF", where=str(path), hint="convert the model again")
    if path.name.endswith((".safetensors", ".safetensors.index.json")):
        return _read_files(_beside(path), path.parent)
    return _read_config(path)


def _beside(path: Path) -> Path:
    """The configuration that belongs to a file of weights."""
    config = path.with_name("config.json")
    if not config.is_file():
        hint = "give the folder, with its config.json: files of weights do not say how a model is built"
        raise InputError("has no config.json beside it", where=str(path), hint=hint)
    return config


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except (OSError, ValueError):  # a name that is too long, or has a null character
        return False


def _read_folder(path: Path) -> LanguageModel:
    config = path / "config.json"
    if config.is_file():
        return _read_files(config, path)
    files = sorted(path.glob("*.gguf"))[:512]
    whole = [file for file in files if not file.name.startswith("mmproj")]
    first = [file for file in whole if "-of-" not in file.name or "-00001-of-" in file.name]
    if len(first) == 1:
        return _read(first[0])
    if first:
        names = ", ".join(file.name for file in first[:5])
        raise InputError(f"holds {len(first)} models", where=str(path), hint=f"give one of {names}")
    raise InputError("holds neither config.json nor a .gguf file", where=str(path))


def _read_files(config: Path, folder: Path) -> LanguageModel:
    """A configuration, and the files of weights in its folder where they are all there."""
    model = _read_config(config)
    stored = stored_tensors(folder)
    if stored is not None:
        return with_stored_bytes(model, stored)
    if any(folder.glob("*.safetensors*")):
        note = "not all of its safetensors files are there: bytes follow from the configuration"
        return replace(model, notes=(*model.notes, note))
    return model


def _read_config(config: Path) -> LanguageModel:
    text = read_limited(config, _MOST_CONFIG_BYTES)
    try:
        values = json.loads(text)
    except (ValueError, RecursionError) as error:
        other = foreign_file(config, text[:4096])
        if other and "weftline fit" not in other.hint:
            raise InputError(other.what, where=str(config), hint=other.hint) from error
        raise InputError(f"is no JSON: {error}", where=str(config)) from error
    return build_model(stack_from_config(values, name=_folder_name(config), source=str(config)))


def _folder_name(config: Path) -> str:
    """The name of the folder; in the cache of Hugging Face, that of the model."""
    folder = config.absolute().parent
    cached = folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--")
    return folder.parent.parent.name.rpartition("--")[2] if cached else folder.resolve().name
