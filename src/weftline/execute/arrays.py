"""Inputs of a model from a file: .npz, arrays by name, never pickled objects.

In: a path. Out: name -> array. Sizes are read from the archive before anything is unpacked.
"""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError

__all__ = ["read_arrays"]

MOST_ARRAYS, MOST_BYTES = 1_000, 4 * 2**30


def read_arrays(path: Path | str) -> dict[str, NDArray[Any]]:
    """Read an .npz file; every failure is an `InputError` that names it."""
    path = Path(path)
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
        if len(entries) > MOST_ARRAYS or sum(entry.file_size for entry in entries) > MOST_BYTES:
            raise InputError(f"more than {MOST_ARRAYS} arrays or {MOST_BYTES >> 30} GiB", where=str(path))
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except (zipfile.BadZipFile, ValueError, EOFError, KeyError) as error:
        raise InputError(f"is not an .npz file of plain arrays: {error}", where=str(path)) from error
