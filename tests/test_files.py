"""Tests of reading files up to a limit, and of writing them whole or not at all."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from weftline.errors import InputError
from weftline.files import read_limited, write_atomically


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    """Tests that while a file is written over and over, a reader always finds one whole version."""
    path = tmp_path / "file"
    versions = [bytes([n]) * 3_000_000 for n in range(4)]
    write_atomically(path, versions[0])
    writer = threading.Thread(target=lambda: [write_atomically(path, data) for data in versions * 5])
    writer.start()
    seen = []
    while writer.is_alive():
        seen.append(path.read_bytes())
    writer.join()
    assert all(data in versions for data in seen)
    assert list(tmp_path.iterdir()) == [path]


def test_a_failed_write_keeps_the_old_file(tmp_path: Path) -> None:
    """Tests that an interrupt in the middle leaves what was there, and nothing beside it."""
    path = tmp_path / "file"
    write_atomically(path, b"old")

    def chunks():
        yield b"new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, chunks())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_nowhere_to_write(tmp_path: Path) -> None:
    """Tests that a missing folder is an input error that names the file."""
    with pytest.raises(InputError, match=r"no-folder.*cannot be written"):
        write_atomically(tmp_path / "no-folder" / "file", b"")


def test_reading_up_to_a_limit(tmp_path: Path) -> None:
    """Tests that a file of the limit's size is read, and that a larger one is an input error that names it."""
    path = tmp_path / "file"
    path.write_bytes(b"12345")
    assert read_limited(path, 5) == b"12345"
    with pytest.raises(InputError, match=r"file: larger than 4 bytes"):
        read_limited(str(path), 4)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """Tests that pipes, devices, folders and paths that are none are input errors, and that nobody waits for them."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, Path("/dev/zero"), tmp_path):
        with pytest.raises(InputError, match=f"{path}: is not a regular file"):
            read_limited(path, 10)
    for path in (tmp_path / "none", Path("a\0b")):
        with pytest.raises(InputError, match="cannot be read"):
            read_limited(path, 10)
