"""Arrays between processes of one machine: memory that both map, and two pipes of tokens; and what they cost.

In: descriptors that the parent made and handed to both. Out: `SharedBlock` (the memory) and `Line` (the tokens): a
token says that a slot of a tensor is filled, or free again. Nothing has a name, so nothing can leak; a peer that dies
closes its pipes, which is an end of file here. Memory can grow: whoever writes into it adds room at the end, and the
others map that when they are told where it lies. `measure_channel` measures between two processes, which run this
module. Simplified: one machine; whoever holds the descriptors is trusted; the clock is one for all cores, which it is
on Linux; the reader copies the array once, as an op would read it.
"""

from __future__ import annotations

import mmap
import os
import select
import sys
import tempfile
import time
import weakref
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError, WeftlineError
from weftline.units import format_bytes
from weftline.worker.child import die_with
from weftline.worker.parent import Child, ChildGone, ChildSilent

__all__ = [
    "SLOT_FILLED",
    "SLOT_FREE",
    "ChannelTimes",
    "Line",
    "PeerGone",
    "SharedBlock",
    "main",
    "make_memory",
    "measure_channel",
    "one_way_times",
    "require_memory",
]

SLOT_FILLED, SLOT_FREE = 0, 1
TOKEN = "I"
TOKEN_BYTES = array(TOKEN).itemsize
AT_ONCE = 1024
"""Tokens in one write, 4096 bytes: Linux moves that many whole or not at all."""


class PeerGone(WeftlineError):
    """The process at the other end of a line is gone."""


def make_memory(size: int) -> int:
    """A descriptor of so many bytes without a name."""
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("weftline", os.MFD_CLOEXEC)
    else:
        with tempfile.TemporaryFile() as file:
            descriptor = os.dup(file.fileno())
    os.ftruncate(descriptor, max(size, 1))
    return descriptor


class SharedBlock:
    """Memory behind a descriptor, mapped; the descriptor can be closed."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = os.dup(descriptor)
        weakref.finalize(self, os.close, self._descriptor)
        self._bytes = np.frombuffer(mmap.mmap(self._descriptor, os.fstat(descriptor).st_size), np.uint8)

    @property
    def address(self) -> int:
        """Where this process sees the memory."""
        return int(self._bytes.ctypes.data)

    def array(self, offset: int, shape: Sequence[int], dtype: np.dtype[Any]) -> NDArray[Any]:
        """A tensor in the memory itself."""
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        return self._bytes[offset : offset + size].view(dtype).reshape(shape)

    def grow(self, size: int) -> int:
        """Add room for so many bytes at the end -> where it begins; no more than the machine has memory."""
        begin = -(-os.fstat(self._descriptor).st_size // mmap.ALLOCATIONGRANULARITY) * mmap.ALLOCATIONGRANULARITY
        if begin + size > memory_of_machine():
            raise WeftlineError(f"{size} bytes more are needed than this machine has memory for")
        os.ftruncate(self._descriptor, begin + size)
        return begin

    def window(self, offset: int, size: int) -> NDArray[np.uint8]:
        """Bytes that may lie in room that was added."""
        if offset + size <= self._bytes.size:
            return self._bytes[offset : offset + size]
        if offset % mmap.ALLOCATIONGRANULARITY or offset + size > os.fstat(self._descriptor).st_size:
            raise WeftlineError("what a process says of its memory does not fit")
        return np.frombuffer(mmap.mmap(self._descriptor, size, offset=offset), np.uint8)


def memory_of_machine() -> int:
    """Bytes."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def require_memory(sizes: Mapping[str, int]) -> None:
    """`InputError` where tensors (name -> bytes that are held of it) need more than this machine has."""
    if sum(sizes.values()) > memory_of_machine():
        name = max(sizes, key=lambda word: sizes[word])
        raise InputError(
            f"tensors between devices need {format_bytes(sum(sizes.values()))}, more than this machine has memory for",
            where=f"tensor {name[:80]!r}, {format_bytes(sizes[name])} of it",
            hint="keep the ops that make and read it on one device: [limits] together in the cluster file",
        )


class Line:
    """This process's end of the pipes between it and a peer."""

    def __init__(self, reading: int, writing: int) -> None:
        self.reading, self._writing = reading, writing
        os.set_blocking(writing, False)
        self._arrived: Counter[int] = Counter()
        self._post: list[int] = []

    def post(self, wire: int, kind: int) -> None:
        """Say that a slot of a wire is filled or free; it leaves with `flush`."""
        self._post.append(2 * wire + kind)

    def flush(self) -> None:
        """Send what was posted."""
        if not self._post:
            return
        for start in range(0, len(self._post), AT_ONCE):
            self._write(array(TOKEN, self._post[start : start + AT_ONCE]))
        self._post.clear()

    def _write(self, tokens: array[int]) -> None:
        while True:
            try:
                os.write(self._writing, tokens)  # so few bytes are written whole or not at all
                return
            except BlockingIOError:
                self._room()
            except BrokenPipeError:
                raise PeerGone("the peer has left") from None

    def _room(self) -> None:
        """Wait until a write cannot block; what arrives meanwhile is read, so two full pipes do not stop each other."""
        while True:
            readable, writable, _ = select.select([self.reading], [self._writing], [])
            if writable:
                return
            if readable:
                self.pump()

    def wait(self, wire: int, kind: int) -> None:
        """Take one token, wait for it if it is not there yet."""
        token = 2 * wire + kind
        while not self._arrived[token]:
            self.pump()
        self._arrived[token] -= 1

    def take(self, wire: int, kind: int) -> bool:
        """Take one token if it has arrived."""
        token = 2 * wire + kind
        if not self._arrived[token]:
            return False
        self._arrived[token] -= 1
        return True

    def has(self, wire: int, kind: int) -> bool:
        """Has a token arrived that was not taken?"""
        return self._arrived[2 * wire + kind] > 0

    def count(self, wire: int, kind: int) -> int:
        """How many tokens have arrived that were not taken."""
        return self._arrived[2 * wire + kind]

    def pump(self) -> None:
        """Read what has arrived, at least one token."""
        data = os.read(self.reading, AT_ONCE * TOKEN_BYTES)
        if not data or len(data) % TOKEN_BYTES:
            raise PeerGone("the peer has left")
        for token in array(TOKEN, data):
            self._arrived[token] += 1

    def close(self) -> None:
        """Hang up; the peer sees the end of its file."""
        os.close(self.reading)
        os.close(self._writing)


class ChannelTimes(NamedTuple):
    """What moving arrays costs."""

    sizes: tuple[int, ...]
    """Bytes."""
    one_way: tuple[int, ...]
    """Ns for each size, lower quartile (others use the machine, too): from the last byte written until the reader has
    it, beyond what reading takes that finds it in its own cache; so it can be added to computing times."""
    latency: int
    """Ns of the fitted line."""
    bandwidth: int
    """Bytes/s of the fitted line."""


def measure_channel(
    sizes: Iterable[int] = (1024, 2**17, 2**20, 2**24),
    *,
    cores: tuple[Sequence[int], Sequence[int]] | None = None,
    rounds: int = 60,
    timeout: float = 60.0,
) -> ChannelTimes:
    """Measure between two processes, pinned to `cores` (default: the first and the last one that may be used)."""

    asked = tuple(sorted(set(sizes)))
    times = one_way_times(asked, cores or _two_cores(), rounds, timeout)
    latency, bandwidth = fit(asked, times)
    return ChannelTimes(asked, tuple(times), latency, bandwidth)


def fit(sizes: Sequence[int], times: Sequence[int]) -> tuple[int, int]:
    """Latency in ns and bandwidth in bytes/s of the line that is nearest in relative terms; never negative."""
    x, y = np.array(sizes, np.float64), np.maximum(np.array(times, np.float64), 1.0)
    rows = np.stack([1 / y, x / y], axis=1)  # each row divided by its time: small sizes count as much as large ones
    latency, slope = np.linalg.lstsq(rows, np.ones(len(x)), rcond=None)[0].tolist() if len(x) > 1 else (y[0], 0.0)
    if slope <= 0:
        latency, slope = float(np.median(y)), 0.0
    if latency < 0:
        latency, slope = 0.0, float((1 / (x / y)).mean())
    return round(latency), min(round(1e9 / slope), 10**13) if slope > 0 else 10**13


def _two_cores() -> tuple[tuple[int, ...], tuple[int, ...]]:
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    return (allowed[0],), (allowed[-1],)


CHANNEL_WARM_UP = 5


class ChannelAsk(msgspec.Struct, frozen=True):
    """What is measured."""

    sizes: tuple[int, ...]
    cores: tuple[tuple[int, ...], tuple[int, ...]]
    rounds: int


def one_way_times(
    sizes: Sequence[int], cores: tuple[Sequence[int], Sequence[int]], rounds: int, timeout: float
) -> list[int]:
    """Ns for each size, by two processes of their own."""
    ask = ChannelAsk(tuple(sizes), (tuple(cores[0]), tuple(cores[1])), rounds)
    with Child("weftline.run.local.channel", str(os.getpid())) as child:
        try:
            child.write(msgspec.json.encode(ask), last=True)
            return child.receive(list[int], time.monotonic() + timeout)
        except ChildSilent:
            raise WeftlineError(f"measuring the channel took more than {timeout:.0f} s") from None
        except ChildGone as error:
            said = child.printed(1) or ["no answer"]
            raise WeftlineError(f"the channel cannot be measured: {said[0][:200]}") from error


def main() -> None:
    """Fork: the child sends, this process receives and answers."""
    die_with(int(sys.argv[1]))
    ask = msgspec.json.decode(sys.stdin.buffer.read(), type=ChannelAsk)
    memory = make_memory(2 * max(ask.sizes, default=1))
    clock = make_memory(2 * 8)
    there, back = os.pipe(), os.pipe()
    child = os.fork()
    pin(ask.cores[1 if child else 0])
    if not child:
        os.close(there[0])
        os.close(back[1])
        _send(ask, SharedBlock(memory), SharedBlock(clock), Line(back[0], there[1]))
        os._exit(0)
    os.close(there[1])
    os.close(back[0])
    found = _receive(ask, SharedBlock(memory), SharedBlock(clock), Line(there[0], back[1]))
    os.waitpid(child, 0)
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")


def pin(cores: Sequence[int]) -> None:
    """Keep this process on these cores, where the system can."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def _send(ask: ChannelAsk, memory: SharedBlock, clock: SharedBlock, line: Line) -> None:
    sent = clock.array(0, (2,), np.dtype(np.int64))
    for size in ask.sizes:
        for number in range(ask.rounds + CHANNEL_WARM_UP):
            slot = memory.array(number % 2 * size, (size,), np.dtype(np.uint8))
            slot[:] = number % 251
            sent[0] = time.monotonic_ns()
            line.post(0, SLOT_FILLED)
            line.flush()
            line.wait(0, SLOT_FREE)


def _receive(ask: ChannelAsk, memory: SharedBlock, clock: SharedBlock, line: Line) -> list[int]:
    sent = clock.array(0, (2,), np.dtype(np.int64))
    found = []
    for size in ask.sizes:
        own, taken = np.zeros(size, np.uint8), []
        for number in range(ask.rounds + CHANNEL_WARM_UP):
            slot = memory.array(number % 2 * size, (size,), np.dtype(np.uint8))
            line.wait(0, SLOT_FILLED)
            begin = time.monotonic_ns()
            own[:] = slot
            first = time.monotonic_ns()
            own[:] = slot
            again = time.monotonic_ns() - first
            taken.append(begin - int(sent[0]) + max(first - begin - again, 0))
            if size and own[-1] != number % 251:
                raise WeftlineError("what arrived is not what was sent")
            line.post(0, SLOT_FREE)
            line.flush()
        found.append(sorted(taken[CHANNEL_WARM_UP:])[ask.rounds // 4])
    return found


if __name__ == "__main__":
    main()
