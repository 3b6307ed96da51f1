"""llama.cpp, run for real: where its programs are, servers of devices on loopback, what it says of a model.

In: WEFTLINE_LLAMACPP, a folder that `tools/fetch_llamacpp.py` of a clone unpacked, or the bin folder of a build with
GGML_RPC=ON; without it, the folder that the script fills by default. Out: processes that end with the block that
started them, and what they print. Simplified: everything is on loopback.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import NamedTuple

from weftline.errors import ExecutionMismatch, InputError

__all__ = [
    "DeviceMemory",
    "LlamaCppPrograms",
    "assigned_devices",
    "find_llamacpp",
    "free_ports",
    "generated",
    "memory_of",
    "rpc_servers",
    "started_server",
]

DEFAULT_FOLDER = Path.home() / ".cache" / "weftline" / "llamacpp"
SYSTEM_LIBRARIES = Path("usr/lib/x86_64-linux-gnu")
PROGRAM_FOLDERS = ("", "bin", "usr/bin", "usr/libexec/x86_64-linux-gnu/llama/bin")
LONGEST_SECONDS = 60.0
MOST_LOG_BYTES = 1 << 24
_ASSIGNED = re.compile(r"layer\s+(\d+) assigned to device (\S+?),")
_PRINTED = re.compile(r"(\S+) (\d+) (\d+) (\d+) *")


class DeviceMemory(NamedTuple):
    """MiB of one device, as llama-fit-params prints them."""

    model: int
    context: int
    compute: int


class LlamaCppPrograms(NamedTuple):
    """A folder with llama.cpp."""

    folder: Path

    def words(self, name: str) -> list[str]:
        """How a program is started: by the C library of its own folder, where there is one."""
        program = next(filter(Path.is_file, (self.folder / place / name for place in PROGRAM_FOLDERS)), None)
        if program is None:
            raise InputError(f"{self.folder} has no {name}", hint="build llama.cpp with GGML_RPC=ON")
        loader = self.folder / SYSTEM_LIBRARIES / "ld-linux-x86-64.so.2"
        if not loader.exists():
            return [str(program)]
        libraries = f"{self.folder / SYSTEM_LIBRARIES}:{self.folder / SYSTEM_LIBRARIES / 'llama'}"
        return [str(loader), "--library-path", libraries, str(program)]


def find_llamacpp() -> LlamaCppPrograms:
    """Where it is; `InputError` where it is not."""
    folder = Path(os.environ.get("WEFTLINE_LLAMACPP") or DEFAULT_FOLDER)
    if not any((folder / place / "llama-server").is_file() for place in PROGRAM_FOLDERS):
        hint = "run tools/fetch_llamacpp.py of a clone, or let WEFTLINE_LLAMACPP name a folder that has it"
        raise InputError(f"llama.cpp is not in {folder}", hint=hint)
    return LlamaCppPrograms(folder)


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
def rpc_servers(
    programs: LlamaCppPrograms, count: int, threads: int = 1, cores: Sequence[int] = ()
) -> Iterator[list[str]]:
    """Devices that are processes of this machine, as host:port; with `cores`, each runs on one core."""
    ports, started = free_ports(count), []
    try:
        for port in ports:
            words = [*programs.words("ggml-rpc-server"), "-H", "127.0.0.1", "-p", str(port), "-t", str(threads)]
            started.append(subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        for server, core in zip(started, cores, strict=False):
            os.sched_setaffinity(server.pid, {core})
        _wait_for(ports, started)
        yield [f"127.0.0.1:{port}" for port in ports]
    finally:
        _end(started)


def _wait_for(ports: Sequence[int], started: Sequence[subprocess.Popen[bytes]]) -> None:
    last = time.monotonic() + LONGEST_SECONDS
    while not all(map(_listens, ports)):
        if time.monotonic() > last or any(one.poll() is not None for one in started):
            raise ExecutionMismatch(f"nobody listens to the ports {ports}")
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
def started_server(programs: LlamaCppPrograms, words: Sequence[str], port: int, *, fit: bool = False) -> Iterator[Path]:
    """llama-server with these words, from when it answers; its log, which is complete by then.

    `fit`: it may change what it was not told."""
    with TemporaryFile(buffering=0) as log:
        command = [*programs.words("llama-server"), *words, "--port", str(port), "-v", "--no-ui", "--no-warmup"]
        command += ["--fit", "on" if fit else "off"]
        server = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            last = time.monotonic() + LONGEST_SECONDS
            while b"server: listening on" not in (text := os.pread(log.fileno(), MOST_LOG_BYTES, 0)):
                if server.poll() is not None or time.monotonic() > last:
                    raise ExecutionMismatch(f"llama-server does not start: {text[-2000:].decode(errors='replace')}")
                time.sleep(0.02)
            yield Path(f"/proc/{os.getpid()}/fd/{log.fileno()}")
        finally:
            _end([server])


def generated(port: int, tokens: int) -> tuple[int, float]:
    """Tokens that a server makes when it is asked for so many, and how many a second by its own clock."""
    question = json.dumps({"prompt": "a", "n_predict": tokens, "ignore_eos": True, "cache_prompt": False}).encode()
    head = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", question, head)
    with urllib.request.urlopen(request, timeout=10 * LONGEST_SECONDS) as answer:
        said = json.loads(answer.read())
    return int(said["tokens_predicted"]), float(said["timings"]["predicted_per_second"])


def assigned_devices(log: Path) -> list[str]:
    """Of each layer, the output layer last, from the log of a server."""
    found = dict(_ASSIGNED.findall(log.read_text(errors="replace")))
    return [found[str(layer)] for layer in range(len(found))]


def memory_of(programs: LlamaCppPrograms, words: Sequence[str]) -> dict[str, DeviceMemory]:
    """What llama-fit-params says of each device, without a look at any weight."""
    command = [*programs.words("llama-fit-params"), *words, "--fit-print", "on"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=10 * LONGEST_SECONDS, check=False)
    rows = [_PRINTED.fullmatch(line) for line in done.stdout.splitlines()]
    found = {row[1]: DeviceMemory(*map(int, row.groups()[1:])) for row in rows if row}
    if not found:
        raise ExecutionMismatch(f"llama-fit-params says nothing: {done.stderr[-2000:]}")
    return found
