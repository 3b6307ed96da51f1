"""Tests of reading files up to a limit, and of writing them whole or not at all."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weftline.errors import InputError
from weftline.files import (
    RUN_PREFIX,
    other_kind,
    protected,
    read_limited,
    remove_forgotten,
    run_folder,
    unchanged,
    write_atomically,
)


def test_a_reader_never_sees_half_a_file(tmp_path: Path) -> None:
    """Tests that while a file is written over and over, a reader always finds one whole version."""
    path = tmp_path / "file"
    versions = [bytes([n]) * 3_000_000 for n in range(4)]
    write_atomically(path, versions[0])

    def write() -> None:
        for data in versions * 5:
            write_atomically(path, data)

    writer = threading.Thread(target=write)
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

    def chunks() -> Iterator[bytes]:
        yield b"new"
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_atomically(path, chunks())
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_killed_writer_leaves_no_more_than_one_file(tmp_path: Path) -> None:
    """Tests that what killed writers leave is taken over by the next one, and that a writer who waits has his own."""
    path = tmp_path / "file"
    for _ in range(5):
        child = os.fork()
        if child == 0:  # dies in the middle of a write, as by kill -9
            write_atomically(path, (bytes(3) if part == 0 else os._exit(9) for part in range(2)))
        os.waitpid(child, 0)
        assert [entry.name for entry in tmp_path.iterdir()] == [".file.0.tmp"]

    def chunks() -> Iterator[bytes]:
        yield b"outer"
        write_atomically(path, b"inner")
        assert path.read_bytes() == b"inner"

    write_atomically(path, chunks())
    assert path.read_bytes() == b"outer"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("kind", ["symlink", "hard link", "pipe", "folder"])
def test_what_lies_in_the_way_is_not_touched(kind: str, tmp_path: Path) -> None:
    """Tests that a temporary file that somebody else put there is neither followed nor overwritten."""
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    other.write_bytes(b"precious")
    place = folder / ".file.0.tmp"
    if kind == "symlink":
        place.symlink_to(other)
    elif kind == "hard link":
        place.hardlink_to(other)
    elif kind == "pipe":
        os.mkfifo(place)
    else:
        place.mkdir()
    write_atomically(folder / "file", b"new")
    assert (folder / "file").read_bytes() == b"new"
    assert other.read_bytes() == b"precious"
    assert sorted(entry.name for entry in folder.iterdir()) == [".file.0.tmp", "file"]


def test_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    """Tests that no room in the middle of a write is an input error, and that nothing is lost or left."""
    path = tmp_path / "file"
    write_atomically(path, b"old")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
            write_atomically(path, b"new" * 1000)
        except InputError as error:
            code = 0 if "cannot be written: File too large" in str(error) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_nowhere_to_write(tmp_path: Path) -> None:
    """Tests that a missing folder is an input error that names the file."""
    with pytest.raises(InputError, match=r"no-folder.*cannot be written"):
        write_atomically(tmp_path / "no-folder" / "file", b"")


def test_only_regular_files_are_replaced(tmp_path: Path) -> None:
    """Tests that folders and sockets stay what they are, and that nothing is left beside them."""
    folder, socket_file = tmp_path / "folder", tmp_path / "socket"
    folder.mkdir()
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(socket_file))
        for path, words in ((folder, "is a folder"), (socket_file, "not a regular file")):
            with pytest.raises(InputError, match=words):
                write_atomically(path, b"new")
        assert socket_file.is_socket()
    assert sorted(tmp_path.iterdir()) == [folder, socket_file]


def test_pipes_are_written_to(tmp_path: Path) -> None:
    """Tests that whoever reads a pipe gets the bytes, and that the pipe stays."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got: list[bytes] = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    reader.start()
    write_atomically(pipe, [b"ne", b"w"])
    reader.join()
    assert got == [b"new"]
    assert pipe.is_fifo()


def test_links_stay(tmp_path: Path) -> None:
    """Tests that behind a symbolic link the file it leads to is made, and then replaced."""
    link, file = tmp_path / "link", tmp_path / "folder" / "file"
    file.parent.mkdir()
    link.symlink_to(file)
    for data in (b"one", b"two"):
        write_atomically(link, data)
        assert file.read_bytes() == data
        assert link.is_symlink()


def test_what_is_read_is_not_written_over(tmp_path: Path) -> None:
    """Tests a file under its name, a symbolic link and a hard link; afterwards it may be written again."""
    file, link, twin = tmp_path / "file", tmp_path / "link", tmp_path / "twin"
    file.write_bytes(b"old")
    link.symlink_to(file)
    twin.hardlink_to(file)
    with protected([file, tmp_path / "nothing"]):
        for path in (file, link, twin):
            with pytest.raises(InputError, match="is also what is read"):
                write_atomically(path, b"new")
    assert file.read_bytes() == b"old"
    write_atomically(file, b"new")
    assert file.read_bytes() == b"new"


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
        with pytest.raises(InputError, match=r"no such file|cannot be read"):
            read_limited(path, 10)


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b'{"format":"weftline-plan","version":1', "a weftline plan"),
        (b'{"format":"weftline-schedule","version":1', "a weftline schedule"),
        (b'\n{"version": 1, "format" : "weftline-costs"}', "a file of costs"),
        (b'{"format":"weftline-graph"', "a model as weftline JSON"),
        (b'# two boards\n[[ device ]]\nid = "a"\n', "a cluster file"),
        (b'\xef\xbb\xbf[[device]]\nnote = \'{"format": "weftline-plan"}\'\n', "a cluster file"),
        (b'<?xml version="1.0"?><net name="x"><layers>', "an OpenVINO model"),
        (b"\x08\x08\x12\x07pytorch", "an ONNX model"),
    ],
)
def test_the_kind_of_a_file(data: bytes, kind: str) -> None:
    """Tests that a file of another kind is named, and one of the wanted kind never said to be another."""
    for wanted in ("a weftline plan", "a cluster file", "a file of costs"):
        assert other_kind(data, wanted) == ("" if kind == wanted else f"this is {kind}, not {wanted}")
    models = ("an ONNX model", "an OpenVINO model", "a model as weftline JSON")
    assert other_kind(data, "a model") == ("" if kind in models else f"this is {kind}, not a model")


@pytest.mark.parametrize(
    "data",
    [b"", b"hello", b"<?xml?><project/>", b"GIF\0\n[device]\n", b"\n" * 2**20 + b"x", b" " * 2**20, b'{"a": "<net "}'],
)
def test_nothing_is_said_about_other_files(data: bytes) -> None:
    """Tests that what is like nothing we know is not called by a name; long runs of blanks take no time."""
    assert other_kind(data, "a weftline plan") == ""


def test_folders_of_the_dead_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a folder that someone holds stays, and that one whose owner is gone is removed by the next run."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    dead = tmp_path / f"{RUN_PREFIX}dead"
    (dead / "deep").mkdir(parents=True)
    (dead / "lock").touch(0o600)
    (dead / "weights.bin").write_bytes(b"x")
    (dead / "link").symlink_to(tmp_path)
    (tmp_path / f"{RUN_PREFIX}link").symlink_to(tmp_path)
    with run_folder() as mine:
        assert not dead.exists()
        (mine / "file").touch()
        remove_forgotten(tmp_path)
        assert (mine / "file").exists()
    assert not mine.exists()
    assert tmp_path.exists()


def test_folders_of_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests a user's own folders of such names, without a lock or with a file called so; an empty new one goes."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    mine = [tmp_path / f"{start}mine" for start in (RUN_PREFIX, f".{RUN_PREFIX}", f"{RUN_PREFIX}2")]
    for folder in mine:
        folder.mkdir()
        (folder / "plan.json").write_bytes(b"precious")
    (mine[2] / "lock").write_bytes(b"a word")
    empty = tmp_path / f".{RUN_PREFIX}empty"
    empty.mkdir()
    for folder in (mine[1], empty):
        os.utime(folder, (0, 0))
    before = sorted(path for folder in mine for path in folder.iterdir())
    with run_folder():
        assert sorted(path for folder in mine for path in folder.iterdir()) == before
    assert not empty.exists()


def test_a_lock_goes_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a removal that is cut short leaves the lock, so that the next one goes on."""
    dead = tmp_path / f"{RUN_PREFIX}dead"
    (dead / "deep").mkdir(parents=True)
    (dead / "lock").touch(0o600)
    whole = shutil.rmtree

    def interrupted(path: Path, *, ignore_errors: bool) -> None:
        whole(path, ignore_errors=ignore_errors)
        raise KeyboardInterrupt

    monkeypatch.setattr(shutil, "rmtree", interrupted)
    with pytest.raises(KeyboardInterrupt):
        remove_forgotten(tmp_path)
    assert [path.name for path in dead.iterdir()] == ["lock"]
    monkeypatch.setattr(shutil, "rmtree", whole)
    remove_forgotten(tmp_path)
    assert not dead.exists()


def _swapping(monkeypatch: pytest.MonkeyPatch, swap: Callable[[], None]) -> None:
    """Something happens to the folder after it was looked at, and before the new file takes its place."""
    before = os.fsync

    def late(descriptor: int) -> None:
        before(descriptor)
        swap()

    monkeypatch.setattr(os, "fsync", late)


def test_a_folder_that_is_swapped_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a folder that becomes a link to another while a file is written in it changes nothing there."""
    folder, moved, victim = tmp_path / "folder", tmp_path / "moved", tmp_path / "victim"
    folder.mkdir()
    victim.mkdir()
    (victim / "file").write_bytes(b"precious")
    (victim / ".file.0.tmp").write_bytes(b"what an attacker prepared")

    def swap() -> None:
        folder.rename(moved)
        folder.symlink_to(victim)

    _swapping(monkeypatch, swap)
    write_atomically(folder / "file", b"new")
    assert (moved / "file").read_bytes() == b"new"
    assert {path.name: path.read_bytes() for path in victim.iterdir()} == {
        "file": b"precious",
        ".file.0.tmp": b"what an attacker prepared",
    }
    assert list(moved.iterdir()) == [moved / "file"]


@pytest.mark.parametrize("kind", ["pipe", "link", "input"])
def test_a_target_that_is_swapped_meanwhile(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that what is not a regular file any more, or has become what is read, is not replaced; nothing is left."""
    path, other = tmp_path / "file", tmp_path / "other"
    other.write_bytes(b"precious")

    def swap() -> None:
        if kind == "pipe":
            os.mkfifo(path)
        elif kind == "link":
            path.symlink_to(other)
        else:
            path.hardlink_to(other)

    _swapping(monkeypatch, swap)
    with protected([other]), pytest.raises(InputError, match=r"file: is (not a regular file any more|also what is)"):
        write_atomically(path, b"new")
    assert other.read_bytes() == b"precious"
    assert not [entry for entry in tmp_path.iterdir() if entry.name.endswith(".tmp")]


@pytest.mark.parametrize("kind", ["written", "replaced", "link"])
def test_what_changes_while_it_is_read(kind: str, tmp_path: Path) -> None:
    """Tests that a file that is another one by the time it was read is an error, though its size is the same."""
    path, other, link = tmp_path / "file", tmp_path / "other", tmp_path / "link"
    path.write_bytes(b"old")
    other.write_bytes(b"new")
    link.symlink_to(path)
    with unchanged(link):
        assert link.read_bytes() == b"old"

    def change() -> None:
        if kind == "written":
            path.write_bytes(b"new")
        elif kind == "replaced":
            other.replace(path)
        else:
            link.unlink()
            link.symlink_to(other)

    with pytest.raises(InputError, match="link: has changed while it was read"), unchanged(link):
        change()
