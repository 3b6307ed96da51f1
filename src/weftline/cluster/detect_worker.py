"""What the measuring processes do: time arithmetic, copies and messages on the cores they are bound to.

Nothing heavy is imported here: a process binds itself to its cores first and loads numpy afterwards.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory
from multiprocessing.synchronize import Semaphore
from statistics import median
from typing import NamedTuple

import msgspec

__all__ = ["HEADER_BYTES", "Channel", "Effort", "call", "echo", "rate"]

HEADER_BYTES = 64
"""Bytes before the two slots of the shared memory; the first 8 hold the size of the message, 0 = the end."""
TINY_BYTES = 64
"""Bytes of the message that latency is measured with."""


class Effort(NamedTuple):
    """How much to do for one rate."""

    size: int
    """Rows and columns of the matrices."""
    copied_bytes: int
    seconds: float
    """Time for each kind of measurement."""


class Channel(NamedTuple):
    """What two processes that exchange messages share; `size` is the largest message, `ping` and `pong` signal."""

    memory_name: str
    size: int
    ping: Semaphore
    pong: Semaphore
    time_limit: float


def rate(answer: Connection, cores: tuple[int, ...], threads: int, effort: Effort) -> None:
    """FLOP/s of a float32 matrix product, bytes/s read and written by copies, ns of a tiny operation."""
    _bind(cores)
    import numpy as np

    size, copied_bytes, seconds = effort
    left = np.full((size, size), 0.5, np.float32)
    right, product = left.copy(), left.copy()
    multiply = _median_ns(lambda: np.matmul(left, right, out=product), seconds)

    # One thread does not fill the memory bus of several cores, and numpy copies with one: copy as many blocks at once.
    share = copied_bytes // threads
    blocks = [(np.ones(share, np.uint8), np.zeros(share, np.uint8)) for _ in range(threads)]
    with ThreadPoolExecutor(threads) as pool:
        copy = _median_ns(lambda: list(pool.map(lambda block: np.copyto(block[1], block[0]), blocks)), seconds)

    one = np.ones(1, np.float32)
    result, repeats = one.copy(), 200

    def launch() -> None:
        for _ in range(repeats):
            np.add(one, one, out=result)

    measured = {
        "fp32": 2 * size**3 * 10**9 // multiply,
        "bandwidth": 2 * share * threads * 10**9 // copy,
        "launch": max(1, _median_ns(launch, seconds / 4) // repeats),
    }
    answer.send_bytes(msgspec.json.encode(measured))


def call(answer: Connection, cores: tuple[int, ...], channel: Channel, seconds: float) -> None:
    """Send messages to `echo` and take them back. One way is half a round: a copy in, a signal, a copy out."""
    _bind(cores)
    size = channel.size
    message = memoryview(bytearray(b"w") * size)
    with _opened(channel) as buffer:

        def exchange(count: int) -> None:
            buffer[:8] = count.to_bytes(8, "little")
            buffer[HEADER_BYTES : HEADER_BYTES + count] = message[:count]
            channel.ping.release()
            _take(channel.pong, channel.time_limit)
            message[:count] = buffer[HEADER_BYTES + size : HEADER_BYTES + size + count]

        exchange(TINY_BYTES)  # returns when the other process is there
        latency = max(1, _median_ns(lambda: exchange(TINY_BYTES), seconds / 2) // 2)
        one_way = _median_ns(lambda: exchange(size), seconds) // 2
        buffer[:8] = bytes(8)
        channel.ping.release()
    measured = {"bandwidth": size * 10**9 // max(1, one_way - latency), "latency": latency}
    answer.send_bytes(msgspec.json.encode(measured))


def echo(answer: Connection, cores: tuple[int, ...], channel: Channel) -> None:
    """Send every message back until an empty one comes."""
    answer.close()
    _bind(cores)
    size = channel.size
    message = memoryview(bytearray(size))
    with _opened(channel) as buffer:
        while True:
            _take(channel.ping, channel.time_limit)
            count = int.from_bytes(buffer[:8], "little")
            if count == 0:
                return
            message[:count] = buffer[HEADER_BYTES : HEADER_BYTES + count]
            buffer[HEADER_BYTES + size : HEADER_BYTES + size + count] = message[:count]
            channel.pong.release()


@contextmanager
def _opened(channel: Channel) -> Iterator[memoryview]:
    memory = SharedMemory(name=channel.memory_name)
    try:
        if memory.buf is not None:  # None only after close()
            yield memory.buf
    finally:
        memory.close()


def _bind(cores: tuple[int, ...]) -> None:
    # Ctrl-C reaches the whole process group; the parent ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


def _take(semaphore: Semaphore, time_limit: float) -> None:
    # With a limit, so that no process waits for ever for one that was killed.
    if not semaphore.acquire(timeout=time_limit):
        raise TimeoutError("the other process did not answer")


def _median_ns(action: Callable[[], object], seconds: float, least: int = 5, most: int = 2000) -> int:
    """The median time of an action, repeated for so many seconds."""
    action()
    times: list[int] = []
    end = time.perf_counter_ns() + int(seconds * 10**9)
    while len(times) < least or (len(times) < most and time.perf_counter_ns() < end):
        start = time.perf_counter_ns()
        action()
        times.append(time.perf_counter_ns() - start)
    return max(1, int(median(times)))
