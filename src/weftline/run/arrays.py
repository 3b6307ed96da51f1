"""Inputs of a model from a file: .npz, arrays by name, never pickled objects.

In: a path. Out: name -> array. Sizes are read from the archive before anything is unpacked.
"""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from weftline.errors import InputError

__all__ = ["read_arrays"]

MOST_ARRAYS, MOST_BYTES = 1_000, 4 * 2**30
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_arrays(path: Path | str) -> dict[str, NDArray[Any]]:
    """Read an .npz file; every failure is an `InputError` that names it."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise InputError("is not a regular file", where=str(path))
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_ARRAYS or sum(entry.file_size for entry in entries) > MOST_BYTES:
                raise InputError(f"more than {MOST_ARRAYS} arrays or {MOST_BYTES >> 30} GiB", where=str(path))
            return {entry.filename.removesuffix(".npy"): _array(archive, entry) for entry in entries}
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
    except Exception as error:  # zipfile, the decompressors and numpy have many of their own
        why = str(error)[:200] or type(error).__name__
        raise InputError(f"is not an .npz file of plain arrays: {why}", where=str(path)) from error


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, once its header says no more than the archive holds."""
    with archive.open(entry) as file:
        version = npy.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"{entry.filename[:80]!r} has version {version} of the format")
        shape, _, dtype = _HEADERS[version](file)
        if file.tell() + math.prod(shape) * dtype.itemsize > entry.file_size and not dtype.hasobject:
            raise ValueError(f"{entry.filename[:80]!r} is shorter than its shape says")
    with archive.open(entry) as file:
        found = npy.read_array(file, allow_pickle=False)
    return np.asarray(found)
