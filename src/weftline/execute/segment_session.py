"""A segment -> an ONNX Runtime session.

In: a folder, its manifest, the number of a segment; options and providers are the caller's. Out: the session, and the
files of weights it takes from elsewhere, mapped and checked again. ONNX Runtime refuses weights outside of the folder
of a model (and onnx those with a hard link there), so they are handed over as memory, of which it copies its own part.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from weftline.errors import InputError
from weftline.execute.manifest import Manifest
from weftline.execute.weights import open_weights

__all__ = ["add_external", "open_session"]


def open_session(folder: Path, manifest: Manifest, number: int, options: Any, providers: Sequence[Any]) -> Any:
    """The session of one segment. `options` (SessionOptions) must be new for every segment."""
    import onnxruntime

    held = add_external(manifest, options)
    path = folder / manifest.segments[number].file
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=list(providers))
    except Exception as error:  # onnxruntime has a type for each of its codes
        raise InputError(f"ONNX Runtime cannot load it: {str(error)[:500]}", where=str(path)) from error
    finally:
        held.clear()


def add_external(manifest: Manifest, options: Any) -> list[mmap.mmap]:
    """Give options the weights that lie elsewhere; keep what is returned until the session is made."""
    held = []
    for external in manifest.external:
        with open_weights(Path(external.folder), external.path) as descriptor:
            size = os.fstat(descriptor).st_size
            held.append(mmap.mmap(descriptor, size, access=mmap.ACCESS_READ))
    if held:
        names = [external.name for external in manifest.external]
        options.add_external_initializers_from_files_in_memory(names, held, [len(data) for data in held])
    return held
