"""A segment -> an ONNX Runtime session.

In: a folder, its manifest, the number of a segment; options and providers are the caller's. Out: the session. ONNX
Runtime refuses weights outside of the model's folder, and onnx those with a hard link there; so where weights were left
beside the original model, it is told that folder. It maps the files: no copy, however large they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weftline.errors import InputError
from weftline.execute.manifest import Manifest

__all__ = ["open_session", "tell_weights_folder"]

WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"


def open_session(folder: Path, manifest: Manifest, number: int, options: Any, providers: Sequence[Any]) -> Any:
    """The session of one segment; `options` are onnxruntime's SessionOptions."""
    import onnxruntime

    tell_weights_folder(manifest, options)
    path = folder / manifest.segments[number].file
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=list(providers))
    except Exception as error:  # onnxruntime has a type for each of its codes
        raise InputError(f"ONNX Runtime cannot load it: {str(error)[:500]}", where=str(path)) from error


def tell_weights_folder(manifest: Manifest, options: Any) -> None:
    """Say in the options of a session where the weights are, if not beside its segment."""
    if manifest.weights_folder:
        options.add_session_config_entry(WEIGHTS_FOLDER, manifest.weights_folder)
