"""The fuzzer itself: a slice of its inputs in every reader, and what it must notice."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from random import Random

import pytest
from reliability.fuzz_batch import input_of, outcome
from reliability.fuzz_mutate import FORMS, MOST, mutate
from reliability.fuzz_readers import READERS, Reader
from reliability.fuzz_seeds import seeds

from reliability import fuzz, fuzz_batch
from weftline.errors import InputError

SLICE = 80
"""Inputs per reader and unit of its weight; `make fuzz` reads 200,000 in all."""


@pytest.mark.parametrize("name", READERS)
def test_a_slice(name: str, tmp_path: Path) -> None:
    """Tests that seeds are read, and that mutations of them give nothing but the errors that are documented."""
    reader = READERS[name]
    path = tmp_path / reader.file
    kinds = []
    for number in range(SLICE * reader.weight):
        path.write_bytes(input_of(reader, number))
        kinds.append(outcome(reader, path))
    bad = [(number, kind) for number, kind in enumerate(kinds) if kind[0] not in ("accepted", "refused")]
    assert not bad
    assert kinds[0][0] == "accepted"
    assert ("refused", "") in kinds


@pytest.mark.parametrize("form", FORMS)
def test_mutations_repeat_and_differ(form: str) -> None:
    """Tests that the same dice give the same bytes, that most inputs differ, and that none grows without end."""
    valid = {"npz": "npz", "safetensors": "policy", "lines": "rows", "protobuf": "onnx"}.get(form, "blocks")
    files = seeds(valid)
    made = [mutate(files[0], form, files, Random(number)) for number in range(60)]
    assert made == [mutate(files[0], form, files, Random(number)) for number in range(60)]
    assert len(set(made)) > 40
    assert max(map(len, made)) <= MOST


def _reader(read: object) -> Reader:
    return Reader("test", "x", "quantities", "text", read)  # type: ignore[arg-type]


def test_what_is_a_failure(tmp_path: Path) -> None:
    """Tests that other exceptions, hidden memory errors and endless messages are seen."""

    def hidden(path: Path) -> None:
        try:
            raise MemoryError
        except MemoryError as error:
            raise InputError("too large") from error

    def endless(path: Path) -> None:
        raise OverlongError

    class OverlongError(InputError):
        def __init__(self) -> None:
            Exception.__init__(self, "a" * 30_000)

    def other(path: Path) -> None:
        raise KeyError("x")

    def refused(path: Path) -> None:
        raise InputError("no")

    found = [outcome(_reader(read), tmp_path)[0] for read in (hidden, endless, other, refused, len)]
    assert found == ["MemoryError", "endless message", "KeyError", "refused", "TypeError"]


def test_batches_that_die(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests that an input that hangs or crashes is a failure of its number, and that the ones after it are read."""

    def read(path: Path) -> None:
        number = int(os.pread(at, 12, 0))
        if number == 9:
            os.kill(os.getpid(), signal.SIGKILL)
        if number == 11:
            time.sleep(60)

    monkeypatch.setitem(READERS, "dying", _reader(read))
    monkeypatch.setattr(fuzz_batch, "SECONDS", 1)
    at = -1

    def run(command: list[str], **options: object) -> object:
        """The batch in a fork, so that it knows the reader of this test."""
        nonlocal at
        reader, first, count, folder = command[3], int(command[4]), int(command[5]), Path(command[6])
        out = folder / "out"
        (folder / "at").write_bytes(b"%12d" % -1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                at = os.open(folder / "at", os.O_RDONLY)
                out.write_text(json.dumps(fuzz_batch.main(reader, first, count, folder)))
                code = 0
            finally:
                os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        text = out.read_text() if out.exists() else ""
        return type("Done", (), {"returncode": code, "stdout": text, "stderr": ""})

    monkeypatch.setattr(subprocess, "run", run)
    row = fuzz.read_inputs("dying", 8, 6)
    assert [failure[:2] for failure in row["failures"]] == [[9, "died with -9"], [11, "over 10 s"]]
    assert (row["inputs"], row["failed"], row["lost"], row["accepted"]) == (6, 2, 2, 2)
