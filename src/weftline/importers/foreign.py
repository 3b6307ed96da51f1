"""Files that are no model of ours: what they are, and the one thing to do.

In: a path and the first bytes of a file, or a folder. Out: a sentence and a hint, or nothing. A file goes by what
stands in it; only if that says nothing, by its name. Simplified: nothing is unpacked or parsed, and of a folder only
names count; so a file that begins like one of another kind is taken for it.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import NamedTuple

__all__ = ["Foreign", "foreign_file", "foreign_folder"]


class Foreign(NamedTuple):
    """Something of another kind."""

    what: str
    """A sentence."""
    hint: str
    """What to do instead."""


_FIT = 'a language model on your cards: weftline fit {} --gpu "RTX 4090"'
_OPTIMUM = "optimum-cli export onnx --model FOLDER OUT, and give OUT/model.onnx"
_TF2ONNX = "export it to ONNX: python -m tf2onnx.convert"
_TORCH = Foreign(
    "this is a PyTorch file, not a graph that can be read safely",
    "load it in Python and call wl.from_torch(module, inputs), or export it to ONNX with torch.onnx.export",
)
_PICKLE = Foreign(
    "this is a Python pickle, which can run any code when it is opened; weftline opens none",
    "if it holds a PyTorch module: wl.from_torch(module, inputs), or export it to ONNX with torch.onnx.export",
)
_SAFETENSORS = Foreign(
    "this is a safetensors file: weights without a graph",
    f"{_FIT.format('FOLDER')}; for a graph of ops, export the model to ONNX: torch.onnx.export, or {_OPTIMUM}",
)
_GGUF = Foreign(
    "this is a GGUF file: weights for llama.cpp without a graph",
    f"{_FIT.format('FILE')}; for a graph of ops, export the model that it was made from to ONNX: {_OPTIMUM}",
)
_TFLITE = Foreign("this is a TensorFlow Lite model", f"{_TF2ONNX} --tflite FILE --output model.onnx")
_ORT = Foreign("this is a model in ONNX Runtime's own format (.ort)", "give the ONNX file that it was made from")
_HDF5 = Foreign(
    "this is an HDF5 file, such as Keras wrote its models to",
    'load it in Keras and export it to ONNX: model.export("model.onnx", format="onnx")',
)
_KERAS = Foreign(
    "this is a Keras model", 'load it in Keras and export it to ONNX: model.export("model.onnx", format="onnx")'
)
_SAVED_MODEL = Foreign("this is a TensorFlow SavedModel", f"{_TF2ONNX} --saved-model FOLDER --output model.onnx")
_FROZEN = Foreign(
    "this is a TensorFlow graph", f"{_TF2ONNX} --graphdef FILE --inputs X:0 --outputs Y:0 --output model.onnx"
)
_CONFIG = Foreign(
    "this is the configuration of a Hugging Face model, not the model",
    f"{_FIT.format('FILE')}; for a graph of ops, export its folder to ONNX: {_OPTIMUM}",
)
_HF_FOLDER = Foreign(
    "this is the folder of a Hugging Face model",
    f"{_FIT.format('FOLDER')}; for a graph of ops, export it to ONNX: {_OPTIMUM}",
)
_LFS = Foreign("this is a pointer of git-lfs, not the file itself", "run: git lfs pull")
_ANNEX = Foreign("this is a pointer of git-annex, not the file itself", "run: git annex get FILE")
_PAGE = Foreign(
    "this is a web page, not a model: a download went wrong", "download the file itself (on GitHub: Download raw file)"
)
_ARRAYS = Foreign(
    "this is an archive of numpy arrays, not a model", "give the model's file; arrays are for run --inputs"
)
_ARCHIVE = "unpack it and give the model's file in it"
_WEIGHTS = "the file of the model holds the graph: give"

_PACKED = (
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"Rar!\x1a\x07", "a rar archive"),
)
_BY_NAME = {
    **dict.fromkeys((".pt", ".pth", ".pt2", ".ckpt"), _TORCH),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), _PICKLE),
    ".safetensors": _SAFETENSORS,
    ".gguf": _GGUF,
    ".tflite": _TFLITE,
    ".ort": _ORT,
    **dict.fromkeys((".h5", ".hdf5"), _HDF5),
    ".keras": _KERAS,
    ".pb": _FROZEN,
}
_PLACE, _NAME_LENGTH = 30, 26
"""In the first header of a zip file: where the name of the entry stands, and its length."""
_TAR_MARK, _MOST_NAMES = 257, 1000
_PADDING = b"FB"
"""Of entries in zip files that PyTorch writes: every tensor begins at a multiple of 64 bytes."""
_CONFIG_WORDS = re.compile(rb'"(model_type|architectures|_class_name|transformers_version|weight_map)"\s*:')
_TF_NODE = re.compile(rb"\x0a[\x80-\xff]?.\x0a.[\w/.:-]+\x12.(Placeholder|Const|VarHandleOp|NoOp)", re.DOTALL)
_PAGE_WORDS = re.compile(rb"<(!doctype\s+html|html|head|body)\b", re.IGNORECASE)


def foreign_file(path: Path, head: bytes) -> Foreign | None:
    """What a file is that no importer takes, by its first bytes, then by its name; None where nobody knows."""
    found = next((kind for look in _LOOKS if (kind := look(head))), None)
    return found or _weights(path) or _BY_NAME.get(path.suffix.lower())


def foreign_folder(path: Path) -> Foreign:
    """What a folder is, by the names in it; `OSError` where it cannot be read."""
    names = sorted(entry.name for entry in islice(path.iterdir(), _MOST_NAMES))
    ours = [name for name in names if name.endswith((".onnx", ".xml"))]
    if "onnx" in names and (path / "onnx" / "model.onnx").is_file():
        ours.append("onnx/model.onnx")
    if ours:
        return Foreign("this is a folder, not a file", f"give the model in it: {path / ours[0]}")
    if {"saved_model.pb", "saved_model.pbtxt"} & set(names):
        return _SAVED_MODEL
    if {"config.json", "model_index.json"} & set(names):
        return _HF_FOLDER
    return Foreign("this is a folder, not a file", "give the model's file")


def _marked(head: bytes) -> Foreign | None:
    """Formats with a mark at a fixed place."""
    if head[4:8] in (b"TFL3", b"ORTM"):
        return _TFLITE if head[4:8] == b"TFL3" else _ORT
    if head.startswith(b"GGUF"):
        return _GGUF
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return _HDF5
    if head[4:9] == b"\0\0\0\0{" and (b'"dtype"' in head or b'"__metadata__"' in head):
        return _SAFETENSORS
    return None


def _pickled(head: bytes) -> Foreign | None:
    if len(head) < 4 or head[0] != 0x80 or not 2 <= head[1] <= 5:
        return None
    magic = b"l\xfc\x9cF\xf9 j\xa8P\x19"  # with it begins what torch.save wrote before it made zip files
    return _TORCH if magic in head[:32] or b"torch" in head else _PICKLE


def _zipped(head: bytes) -> Foreign | None:
    if not head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return None
    length = int.from_bytes(head[_NAME_LENGTH : _NAME_LENGTH + 2], "little")
    name = head[_PLACE : _PLACE + length]
    if name.endswith(b"/data.pkl") or head[_PLACE + length :].startswith(_PADDING):
        return _TORCH
    if name.endswith(b".npy"):
        return _ARRAYS
    if name in (b"metadata.json", b"config.json") and (b"keras" in head or b"model.weights.h5" in head):
        return _KERAS
    return Foreign("this is a zip archive, not a model", _ARCHIVE)


def _archived(head: bytes) -> Foreign | None:
    kind = next((kind for mark, kind in _PACKED if head.startswith(mark)), "")
    if head[_TAR_MARK : _TAR_MARK + 5] == b"ustar":
        kind = "a tar archive"
    return Foreign(f"this is {kind}, not a model", _ARCHIVE) if kind else None


def _written(head: bytes) -> Foreign | None:
    """Texts: pointers, pages, configurations."""
    text = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if text.startswith(b"version https://git-lfs.github.com/spec/"):
        return _LFS
    if text.startswith((b"/annex/objects/", b"../.git/annex/objects/")):
        return _ANNEX
    if text.startswith(b"<") and (_PAGE_WORDS.search(text) or b"<Error>" in text):
        return _PAGE
    return _CONFIG if text.startswith(b"{") and _CONFIG_WORDS.search(text) else None


def _tensorflow(head: bytes) -> Foreign | None:
    if head.startswith(b"\x08\x01\x12") and b"serve" in head:
        return _SAVED_MODEL
    return _FROZEN if _TF_NODE.match(head) else None


def _weights(path: Path) -> Foreign | None:
    """The second file of a model, where the first stands beside it."""
    for suffix, kind in ((".xml", "an OpenVINO model"), (".onnx", "an ONNX model")):
        graph = path.with_suffix(suffix)
        if path.suffix in (".bin", ".data", ".onnx_data") and graph.is_file():
            return Foreign(f"these are the weights of {kind}", f"{_WEIGHTS} {graph}")
    if path.name.endswith((".onnx_data", ".onnx.data")):
        return Foreign("these are the weights of an ONNX model", f"{_WEIGHTS} the .onnx file")
    return None


_LOOKS: tuple[Callable[[bytes], Foreign | None], ...] = (_marked, _zipped, _pickled, _archived, _written, _tensorflow)
