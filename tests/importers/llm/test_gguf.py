"""GGUF headers: what our own writer writes is read back; what is wrong with a file is said."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from msgspec.structs import replace

from weftline.errors import InputError
from weftline.importers.llm import LanguageModel, known_models, read_language_model, requantised
from weftline.importers.llm.gguf_model import GGUF_ARCHITECTURES, part_of
from weftline.testing import gguf_header, write_gguf_header

NAMES = list({model.architecture: model.name for model in known_models()}.values())
"""One model of each architecture."""


def key(name: str, kind: int, data: bytes) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I", kind) + data


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value)) + value.encode()


def tensor(name: str, shape: tuple[int, ...], kind: int = 0, offset: int = 0) -> bytes:
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def file_of(
    keys: list[bytes], tensors: list[bytes], *, version: int = 3, counts: tuple[int, int] | None = None
) -> bytes:
    numbers = counts or (len(tensors), len(keys))
    return b"GGUF" + struct.pack("<IQQ", version, *numbers) + b"".join(keys) + b"".join(tensors) + bytes(64)


ARCHITECTURE = key("general.architecture", 8, text("llama"))


def written(model: LanguageModel, path: Path) -> LanguageModel:
    write_gguf_header(path, model, full_size=False, words=False)
    return read_language_model(path)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_written_is_read_back(name: str, tmp_path: Path) -> None:
    """Tests that layers and tensors of every architecture come through a GGUF header unchanged."""
    model = requantised(read_language_model(name), "q4_k_m")
    found = written(model, tmp_path / "model.gguf")
    assert found.exact_bytes
    assert found.architecture.removesuffix("_moe") == GGUF_ARCHITECTURES.get(model.architecture, model.architecture)
    assert (found.embedding, found.output, found.tied) == (model.embedding, model.output, model.tied)
    assert (found.hidden, found.vocabulary, found.context) == (model.hidden, model.vocabulary, model.context)
    assert found.layers == model.layers
    assert found.mtp in ((), model.mtp)


@pytest.mark.parametrize("name", NAMES)
def test_parts_follow_from_names(name: str) -> None:
    """Tests that the part of every tensor is the one that its name in GGUF files says."""
    model = read_language_model(name)
    assert all(part_of(tensor.name) is tensor.part for tensor in model.tensors)


def test_a_sparse_file_is_as_long_as_the_real_one(tmp_path: Path) -> None:
    """Tests that a header with a hole has the length of the model and needs no note."""
    model = read_language_model("llama-3.1-8b", "q4_k_m")
    write_gguf_header(tmp_path / "model.gguf", model)
    head, data = gguf_header(model)
    assert (tmp_path / "model.gguf").stat().st_size == len(head) + data
    assert read_language_model(tmp_path / "model.gguf").notes == ()
    assert written(model, tmp_path / "cut.gguf").notes


def test_a_recipe_may_be_asked_of_a_file(tmp_path: Path) -> None:
    """Tests that a quantisation given beside a file re-types its tensors, and says that bytes are no longer read."""
    model = read_language_model("llama-3.1-8b", "f16")
    write_gguf_header(tmp_path / "model.gguf", model, full_size=False, words=False)
    found = read_language_model(tmp_path / "model.gguf", "q4_k_m")
    assert not found.exact_bytes
    assert found.layers == requantised(model, "q4_k_m").layers


def test_a_split_file_is_read_whole(tmp_path: Path) -> None:
    """Tests that any part of a split file leads to all, and that a missing one is named."""
    table, norm = tensor("token_embd.weight", (32, 8)), tensor("output_norm.weight", (32,), offset=1024)
    block = tensor("blk.0.ffn_down.weight", (32, 32))

    def part(number: int, keys: list[bytes], tensors: list[bytes]) -> None:
        split = [key("split.no", 2, struct.pack("<H", number)), key("split.count", 2, struct.pack("<H", 2))]
        (tmp_path / f"m-0000{number + 1}-of-00002.gguf").write_bytes(file_of(split + keys, tensors))

    counts = [key(f"llama.{name}", 4, struct.pack("<I", 1)) for name in ("block_count", "embedding_length")]
    part(0, [ARCHITECTURE, *counts], [table, norm])
    with pytest.raises(InputError, match=r"m-00002-of-00002\.gguf"):
        read_language_model(tmp_path / "m-00001-of-00002.gguf")
    part(1, [], [block])
    both = [read_language_model(tmp_path / f"m-0000{i}-of-00002.gguf") for i in (1, 2)]
    assert len(both[0].tensors) == 3
    assert replace(both[0], name="", source="", notes=()) == replace(both[1], name="", source="", notes=())


HUGE = struct.pack("<IQ", 0, 2**40)
WRONG = {
    "cut off": (b"GGUF\x03", "ends within"),
    "magic": (b"GGUX" + bytes(60), "does not begin with GGUF"),
    "version": (file_of([], [], version=1), "version 1"),
    "other order": (file_of([], [], version=3 << 24), "big-endian"),
    "many tensors": (file_of([], [], counts=(2**60, 0)), "tensors, more than"),
    "more keys than bytes": (file_of([], [], counts=(0, 1000)), "ends within"),
    "long array": (file_of([key("a", 9, HUGE)], []), "elements of 'a'"),
    "array of arrays": (file_of([key("a", 9, struct.pack("<IQ", 9, 3))], []), "array of arrays"),
    "long text": (file_of([key("a", 8, struct.pack("<Q", 2**63))], []), "ends within"),
    "twice": (file_of([ARCHITECTURE, ARCHITECTURE], []), "there twice"),
    "alignment": (file_of([key("general.alignment", 4, struct.pack("<I", 12))], []), "power of two"),
    "type": (file_of([ARCHITECTURE], [tensor("t", (32,), 36)]), "unknown type 36"),
    "dimensions": (file_of([ARCHITECTURE], [tensor("t", (1, 1, 1, 1, 1))]), "5 dimensions"),
    "shape": (file_of([ARCHITECTURE], [tensor("t", (2**40, 2**40))]), "impossible shape"),
    "row": (file_of([ARCHITECTURE], [tensor("t", (33,), 2)]), "no multiple of the 32"),
    "offset": (file_of([ARCHITECTURE], [tensor("t", (32,), offset=7)]), "begins at 7"),
    "long name": (file_of([ARCHITECTURE], [tensor("t" * 64, (32,))]), "64 letters"),
    "no architecture": (file_of([], [tensor("t", (32,))]), "general.architecture"),
    "no layers": (file_of([ARCHITECTURE], [tensor("t", (32,))]), "llama.block_count is missing"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_is_said(name: str, tmp_path: Path) -> None:
    """Tests that each kind of damage is an error that names it."""
    data, message = WRONG[name]
    (tmp_path / "bad.gguf").write_bytes(data)
    if name == "magic":
        message = "no JSON"
    with pytest.raises(InputError, match=message):
        read_language_model(tmp_path / "bad.gguf")
