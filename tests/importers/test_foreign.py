"""Files and folders of other kinds given as a model: each is named, with the one thing to do."""

from __future__ import annotations

import gzip
import io
import pickle
import struct
import tarfile
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.errors import InputError
from weftline.importers import importers, read_file
from weftline.importers.foreign import foreign_file
from weftline.importers.registry import MAX_FILE_BYTES

LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"
SAFE = b'{"__metadata__":{"format":"pt"},"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'
CONFIG = b'{\n  "_name_or_path": "bert",\n  "architectures": ["BertModel"],\n  "model_type": "bert"\n}'
PAGE = b"\n<!DOCTYPE html>\n<html lang='en'><head><title>model.onnx at main</title></head></html>"
DENIED = b'<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>'
OLD_TORCH = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03."
FROZEN = b"\n\x2e\n\x05input\x12\x0bPlaceholder*\x0b\n\x05dtype\x12\x020\x01"
SAVED = b"\x08\x01\x12\xa0\x04\n\x8a\x01\x12\x05serve\n" + bytes(range(256))


def _zip(*names: str) -> bytes:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name in names:
            archive.writestr(name, "{}")
    return data.getvalue()


def _tar() -> bytes:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("model.onnx"))
    return data.getvalue()


def _padded() -> bytes:
    """The first entry of a TorchScript or torch.export file: a tensor, padded."""
    name = b"archive/data/0"
    return b"PK\x03\x04" + bytes(22) + struct.pack("<HH", len(name), 26) + name + b"FB\x16\0" + b"Z" * 22 + bytes(64)


KINDS = {
    "torch zip": (_zip("archive/data.pkl", "archive/version"), "PyTorch", "wl.from_torch"),
    "torch script": (_padded(), "PyTorch", "torch.onnx.export"),
    "old torch": (OLD_TORCH, "PyTorch", "torch.onnx.export"),
    "pickle": (pickle.dumps({"a": 1}), "pickle", "torch.onnx.export"),
    "safetensors": (
        len(SAFE).to_bytes(8, "little") + SAFE + bytes(4),
        "safetensors.*without a graph",
        "weftline fit FOLDER",
    ),
    "gguf": (b"GGUF\x03\0\0\0" + bytes(40), "GGUF.*without a graph", "weftline fit FILE"),
    "tflite": (b"\x1c\0\0\0TFL3" + bytes(40), "TensorFlow Lite", "tf2onnx.convert --tflite"),
    "ort": (b"\x18\0\0\0ORTM" + bytes(40), r"\.ort", "ONNX file that it was made from"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(40), "HDF5", "model.export"),
    "keras": (_zip("metadata.json", "config.json", "model.weights.h5"), "Keras", "model.export"),
    "saved model": (SAVED, "SavedModel", "--saved-model"),
    "frozen graph": (FROZEN, "TensorFlow graph", "--graphdef"),
    "config": (CONFIG, "configuration of a Hugging Face", "weftline fit FILE"),
    "git-lfs": (LFS, "git-lfs", "git lfs pull"),
    "git-annex": (b"/annex/objects/SHA256E-s1--ab.onnx\n", "git-annex", "git annex get"),
    "page": (PAGE, "web page", "download"),
    "denied": (DENIED, "web page", "download"),
    "arrays": (_zip("x.npy"), "numpy", "--inputs"),
    "zip": (_zip("model.onnx"), "zip archive", "unpack"),
    "gzip": (gzip.compress(b"model"), "gzip archive", "unpack"),
    "tar": (_tar(), "tar archive", "unpack"),
    "xz": (b"\xfd7zXZ\0\0\4", "xz archive", "unpack"),
    "empty": (b"", "the file is empty", "again"),
}


@pytest.mark.parametrize("suffix", [".onnx", ".bin", ""])
@pytest.mark.parametrize("kind", KINDS)
def test_by_content(kind: str, suffix: str, tmp_path: Path) -> None:
    """Tests that what stands in a file decides, whatever it is called."""
    data, what, hint = KINDS[kind]
    path = tmp_path / f"model{suffix}"
    path.write_bytes(data)
    with pytest.raises(InputError, match=what) as caught:
        read_file(path)
    assert hint in caught.value.hint
    assert caught.value.where == str(path)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("a.pth", "PyTorch"),
        ("a.TFLITE", "Lite"),
        ("a.h5", "HDF5"),
        ("a.ort", "ort"),
        ("a.onnx_data", "weights of an ONNX"),
    ],
)
def test_by_name_where_the_content_says_nothing(name: str, what: str, tmp_path: Path) -> None:
    """Tests a file of which only the name is known."""
    (tmp_path / name).write_bytes(b"\x01\x02\x03\x04 nothing known")
    with pytest.raises(InputError, match=what):
        read_file(tmp_path / name)


def test_weights_beside_an_ir(tmp_path: Path) -> None:
    """Tests that who gives the .bin is told the .xml."""
    (tmp_path / "model.xml").write_text("<net/>")
    (tmp_path / "model.bin").write_bytes(bytes(range(64)))
    with pytest.raises(InputError, match=r"weights of an OpenVINO model.*model\.xml"):
        read_file(tmp_path / "model.bin")


@pytest.mark.parametrize(
    ("names", "what"),
    [
        (["saved_model.pb", "keras_metadata.pb"], "SavedModel.*--saved-model"),
        (
            ["config.json", "model.safetensors", "tokenizer.json"],
            "folder of a Hugging Face.*weftline fit FOLDER.*optimum-cli export onnx",
        ),
        (["model_index.json"], "folder of a Hugging Face"),
        (["config.json", "openvino_model.xml"], r"a folder, not a file.*openvino_model\.xml"),
        (["config.json", "onnx/model.onnx"], r"a folder, not a file.*onnx/model\.onnx"),
        ([], "a folder, not a file"),
    ],
)
def test_folders(names: list[str], what: str, tmp_path: Path) -> None:
    """Tests that a folder goes by the names in it."""
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=what):
        read_file(tmp_path)


def test_large_weights_are_not_only_too_large(tmp_path: Path) -> None:
    """Tests that a file of weights above the limit is still named."""
    path = tmp_path / "large.gguf"
    with path.open("wb") as file:
        file.write(b"GGUF\x03\0\0\0")
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(InputError, match="GGUF"):
        read_file(path)


def test_what_is_read_is_listed_in_order(tmp_path: Path) -> None:
    """Tests that formats that people have come first, and those of research after them, each once."""
    (tmp_path / "a").write_bytes(b"nothing known")
    with pytest.raises(InputError, match="not known") as caught:
        read_file(tmp_path / "a")
    places = [caught.value.hint.index(f"{name}: ") for name in ("onnx", "openvino", "weftline", "msr-fiddle", "regal")]
    assert places == sorted(places)
    assert all(caught.value.hint.count(f"{one.description}") == 1 for one in importers().values())


@given(st.binary(max_size=400), st.sampled_from([data[:60] for data, _, _ in KINDS.values()]))
def test_any_bytes(data: bytes, begin: bytes) -> None:
    """Tests that no content makes it fail."""
    for head in (data, begin + data, begin[: len(data)]):
        found = foreign_file(Path("model"), head)
        assert found is None or (found.what and found.hint)
