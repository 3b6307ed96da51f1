"""The registry of importers, detection by content, the one way to read a file, and the costs that a file may bring:
devices by class, times per op and class, transfer times per pair of classes.

Our own JSON graph (`weftline-graph`) is read here; its op costs are flops and bytes, so it needs a cluster.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError, no_such_file, unreadable
from weftline.files import other_kind, unchanged
from weftline.graph import Graph, graph_from_json
from weftline.importers.foreign import foreign_file, foreign_folder
from weftline.plugins import registered

__all__ = [
    "DeviceClass",
    "FileCosts",
    "ImportOptions",
    "Imported",
    "Importer",
    "detect",
    "file_sha256",
    "importers",
    "read_file",
]


@dataclass(frozen=True)
class DeviceClass:
    """`count` devices that are all alike."""

    id: str
    """Device id; with several devices of the class their number is appended: acc0, acc1 ..."""
    kind: str
    """What it is: accelerator, cpu ..."""
    count: int = 1
    memory: int | None = None
    """Bytes one device holds, None = no limit."""
    host: bool = False
    """Tensors rest in its memory: it pays for no transfer of a pipeline and its ops need not be contiguous."""


@dataclass(frozen=True, eq=False)
class FileCosts:
    """What a cost file says about devices. C = number of classes."""

    classes: tuple[DeviceClass, ...]
    time: NDArray[np.int64]
    """(ops, C) nanoseconds, -1 = cannot run there."""
    transfer: NDArray[np.int64]
    """(rows, C, C) nanoseconds from a device of one class to ANOTHER device of the other (or same) class."""
    transfer_row: NDArray[np.int32]
    """Tensor -> row of `transfer`."""
    together: tuple[tuple[int, ...], ...] = ()
    """Sets of ops that must share a device."""
    transfers: Literal["per-tensor", "per-edge"] = "per-tensor"
    memory: Literal["static", "dynamic"] = "static"
    source: str = ""
    """Where the numbers come from, in a few words."""


MAX_FILE_BYTES = 4 * 2**30
HEAD_BYTES = 4096
_HINTS = {
    "a weftline plan": "try: weftline explain, report, run, export or verify",
    "a weftline schedule": "try: weftline explain, report, run, export or verify",
    "a cluster file": "try: weftline plan MODEL --cluster FILE",
    "a file of costs": "try: weftline plan MODEL --cluster FILE --costs FILE",
}
_OTHERS = (
    "Language models (Hugging Face, GGUF) go to weftline fit as they are; other models of PyTorch are exported to ONNX "
    "first: torch.onnx.export, optimum-cli export onnx"
)


@dataclass(frozen=True)
class ImportOptions:
    """What the user can say about a file that the file leaves open."""

    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Input name -> full shape, for inputs with symbolic dimensions."""
    dims: Mapping[str, int] = field(default_factory=dict)
    """Name of a symbolic dimension -> its size, wherever it stands."""


@dataclass(frozen=True)
class Imported:
    """One file, read."""

    graph: Graph
    format: str
    sha256: str
    costs: FileCosts | None = None


@dataclass(frozen=True)
class Importer:
    """One format."""

    name: str
    description: str
    accepts: Callable[[Path, bytes], bool]
    """Does this file, of which the first bytes are given, look like the format? Must be quick and never raise."""
    read: Callable[[Path, ImportOptions], tuple[Graph, FileCosts | None]]
    dims: bool = False
    """Do dimensions have names in this format, so that `ImportOptions.dims` says something?"""


def _accepts_json(path: Path, head: bytes) -> bool:
    return head.lstrip()[:1] == b"{" and b'"weftline-graph"' in head


def _read_json(path: Path, options: ImportOptions) -> tuple[Graph, FileCosts | None]:
    return graph_from_json(path.read_bytes()), None


_JSON = Importer("weftline", "our own JSON graph", _accepts_json, _read_json)
_BUILT_IN = ("openvino.ir", "onnx.model")


@cache
def importers() -> dict[str, Importer]:
    """All importers by name: ours, then those that other packages offer under the entry point `weftline.importers`."""
    found = [_JSON]
    found += [one for module in _BUILT_IN for one in import_module(f"weftline.importers.{module}").IMPORTERS]
    return registered("weftline.importers", found)


def detect(path: Path) -> Importer:
    """The importer that recognises the file's content."""
    return _detect(path, _head(path))


def read_file(path: Path | str, options: ImportOptions | None = None) -> Imported:
    """Read a model file of any known format. Every failure is an `InputError` that names the file."""
    path = Path(path)
    head, options = _head(path), options or ImportOptions()
    try:
        importer = _detect(path, head)
        if options.dims and not importer.dims:
            what = (
                f"a size is given for {next(iter(options.dims))!r}, but {importer.name} files have no named dimensions"
            )
            raise InputError(what, hint="leave --dim out; an open input takes --shape")
        with unchanged(path):
            graph, costs = importer.read(path, options)
            digest = file_sha256(path)
    except InputError as error:
        if error.where == str(path):
            raise
        raise error.at(str(path)) from error
    except (OSError, RecursionError, MemoryError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error or type(error).__name__}", where=str(path)) from error
    return Imported(graph=graph, format=importer.name, sha256=digest, costs=costs)


def _detect(path: Path, head: bytes) -> Importer:
    for importer in importers().values():
        if _accepts(importer, path, head):
            return importer
    if other := other_kind(head, "a model"):
        raise InputError(other, hint=next((hint for kind, hint in _HINTS.items() if kind in other), ""))
    if path.suffix == ".toml":
        raise InputError("this looks like a cluster file, not a model", hint=_HINTS["a cluster file"])
    if foreign := foreign_file(path, head):
        raise InputError(foreign.what, hint=foreign.hint)
    raise InputError("the format is not known", hint=f"weftline reads {_known_formats()}. {_OTHERS}")


def _accepts(importer: Importer, path: Path, head: bytes) -> bool:
    """One of another package that fails says nothing about files that are none of its own."""
    try:
        return importer.accepts(path, head)
    except Exception as error:
        what = f"importer {importer.name!r} fails at {path.name[:80]!r}, left out: {type(error).__name__}: {error}"
        warnings.warn(what[:500], RuntimeWarning, stacklevel=2)
        return False


def _known_formats() -> str:
    """What people have first, what research has last."""
    found = importers()
    names = dict.fromkeys(("onnx", "openvino", "weftline", *found))
    return "; ".join(f"{name}: {found[name].description}" for name in names)


def _head(path: Path) -> bytes:
    try:
        if path.is_dir():
            folder = foreign_folder(path)
            raise InputError(folder.what, where=str(path), hint=folder.hint)
        if not path.is_file():
            if path.exists():
                raise InputError("not a file", where=str(path))
            raise no_such_file(path, hint=_elsewhere(path))
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
        _check_size(path, head)
    except OSError as error:
        raise unreadable(path, error) from error
    return head


def _elsewhere(path: Path) -> str:
    """What a name may be that is no file: of a language model, of the zoo, or of Hugging Face."""
    from weftline.importers.llm import is_known_model

    if is_known_model(str(path)):
        return f'a language model on your cards: weftline fit {path} --gpu "RTX 4090"'
    if not path.suffix and len(path.parts) == 1:
        return f"for a model of the zoo write zoo:{path}; `weftline zoo` lists them"
    if len(path.parts) == 2 and not path.is_absolute() and not path.parent.exists():
        return f"a model of Hugging Face is exported to ONNX first: optimum-cli export onnx --model {path} OUT"
    return ""


def _check_size(path: Path, head: bytes) -> None:
    if not head:
        raise InputError("the file is empty", where=str(path), hint="copy, download or export it again")
    size = path.stat().st_size
    if size <= MAX_FILE_BYTES:
        return
    if foreign := foreign_file(path, head):  # files of weights are large, and it is not their size that is wrong
        raise InputError(foreign.what, where=str(path), hint=foreign.hint)
    raise InputError(
        f"{size} bytes is more than the limit of 4 GiB",
        where=str(path),
        hint="keep weights as external data: planning does not need them",
    )


def file_sha256(path: Path) -> str:
    """Of the whole file, as it stands in a plan."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
