"""llama.cpp, run for real: where its programs are, servers of devices on loopback, what it says of a model.

WEFTLINE_LLAMACPP names a folder that `tools/fetch_llamacpp.py` unpacked, or the bin folder of a build with GGML_RPC=ON;
without it, the folder that the script fills by default. Where the programs are missing, CI fails and others skip.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

import pytest

__all__ = ["DeviceMemory", "assigned_devices", "free_ports", "llamacpp", "memory_of", "rpc_servers", "started_server"]

DEFAULT_FOLDER = Path.home() / ".cache" / "weftline" / "llamacpp"
MISSING = "llama.cpp is not in {}: run tools/fetch_llamacpp.py, or let WEFTLINE_LLAMACPP name a folder that has it"
LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
PLACES = ("", "bin", "usr/bin", "usr/libexec/x86_64-linux-gnu/llama/bin")
SECONDS = 60.0
ASSIGNED = re.compile(r"layer\s+(\d+) assigned to device (\S+?),")
PRINTED = re.compile(r"(\S+) (\d+) (\d+) (\d+) *")


class DeviceMemory(NamedTuple):
    """MiB of one device, as llama-fit-params prints them."""

    model: int
    context: int
    compute: int


class Programs(NamedTuple):
    """A folder with llama.cpp."""

    folder: Path

    def words(self, name: str) -> list[str]:
        """How a program is started: by the C library of its own folder, where there is one."""
        program = next(filter(Path.is_file, (self.folder / place / name for place in PLACES)), None)
        if program is None:
            pytest.fail(f"{self.folder} has no {name}")
        loader = self.folder / LIBRARIES / "ld-linux-x86-64.so.2"
        if not loader.exists():
            return [str(program)]
        libraries = f"{self.folder / LIBRARIES}:{self.folder / LIBRARIES / 'llama'}"
        return [str(loader), "--library-path", libraries, str(program)]


def llamacpp() -> Programs:
    """Where it is; where it is missing, CI fails and others skip."""
    folder = Path(os.environ.get("WEFTLINE_LLAMACPP") or DEFAULT_FOLDER)
    if not any((folder / place / "llama-server").is_file() for place in PLACES):
        if os.environ.get("CI"):
            pytest.fail(MISSING.format(folder))
        pytest.skip(MISSING.format(folder))
    return Programs(folder)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listened to a moment ago."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports: list[int] = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def _listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def rpc_servers(programs: Programs, count: int, threads: int = 1) -> Iterator[list[str]]:
    """Devices that are processes of this machine, as host:port."""
    ports, started = free_ports(count), []
    try:
        for port in ports:
            words = [*programs.words("ggml-rpc-server"), "-H", "127.0.0.1", "-p", str(port), "-t", str(threads)]
            started.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        _wait_for(ports, started)
        yield [f"127.0.0.1:{port}" for port in ports]
    finally:
        _end(started)


def _wait_for(ports: Sequence[int], started: Sequence[subprocess.Popen[bytes]]) -> None:
    last = time.monotonic() + SECONDS
    while not all(map(_listens, ports)):
        ended = [one.args for one in started if one.poll() is not None]
        assert not ended, f"{ended} ended"
        assert time.monotonic() < last, f"nobody listens to {ports}"
        time.sleep(0.02)


def _end(started: Sequence[subprocess.Popen[bytes]]) -> None:
    for one in started:
        one.send_signal(signal.SIGTERM)
    for one in started:
        try:
            one.wait(5)
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()


@contextmanager
def started_server(programs: Programs, words: Sequence[str], port: int) -> Iterator[Path]:
    """llama-server with these words, from when it answers; its log, which is complete by then."""
    with TemporaryFile() as log:
        command = [*programs.words("llama-server"), *words, "--port", str(port), "-v", "--no-ui", "--no-warmup"]
        server = subprocess.Popen([*command, "--fit", "off"], stdout=log, stderr=subprocess.STDOUT)
        try:
            last = time.monotonic() + SECONDS
            while b"server: listening on" not in (text := _read(log)):
                assert server.poll() is None, text[-2000:].decode(errors="replace")
                assert time.monotonic() < last, text[-2000:].decode(errors="replace")
                time.sleep(0.02)
            yield Path(f"/proc/{os.getpid()}/fd/{log.fileno()}")
        finally:
            _end([server])


def _read(log: object) -> bytes:
    return os.pread(log.fileno(), 1 << 24, 0)  # type: ignore[attr-defined]


def assigned_devices(log: Path) -> list[str]:
    """Of each layer, the output layer last, from the log of a server."""
    found = dict(ASSIGNED.findall(log.read_text(errors="replace")))
    return [found[str(layer)] for layer in range(len(found))]


def memory_of(programs: Programs, words: Sequence[str]) -> dict[str, DeviceMemory]:
    """What llama-fit-params says of each device, without a look at any weight."""
    command = [*programs.words("llama-fit-params"), *words, "--fit-print", "on"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10 * SECONDS, check=False)
    rows = [PRINTED.fullmatch(line) for line in done.stdout.splitlines()]
    found = {row[1]: DeviceMemory(*map(int, row.groups()[1:])) for row in rows if row}
    assert found, done.stderr[-3000:]
    return found
