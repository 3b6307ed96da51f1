"""The measuring processes: what they do, and how they are run.

They time arithmetic, copies and messages on the cores they are bound to. They are spawned (not forked), told how many
BLAS threads they may use before they load numpy, wait for one answer within the time left, and are killed and joined on
every way out. Answers are JSON, not pickles. Nothing heavy is imported at the top: a process binds itself to its cores
first and loads numpy afterwards.
"""

from __future__ import annotations

import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.shared_memory import SharedMemory
from multiprocessing.synchronize import Semaphore
from statistics import median
from typing import NamedTuple

import msgspec

from weftline.cluster.model import Rate
from weftline.errors import LimitReached, WeftlineError
from weftline.worker.parent import environment_of_children

__all__ = ["LinkTimes", "measure_link", "measure_rate", "stopwatch"]

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


_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
)


class LinkTimes(NamedTuple):
    """What was measured between two devices, the same both ways."""

    bandwidth: int
    """Bytes/s."""
    latency: int
    """Nanoseconds."""


def stopwatch(time_limit: float) -> Callable[[], float]:
    """A function that says how many seconds are left, never less than 0."""
    end = time.monotonic() + time_limit
    return lambda: max(0.0, end - time.monotonic())


def measure_rate(
    cores: Sequence[int], threads: int, quick: bool, remaining: Callable[[], float], event: Callable[[], None]
) -> Rate:
    """The rate of some cores together, in a process of its own that is bound to them."""
    effort = Effort(128, 2**20, 0.01) if quick else Effort(1024, 2**27, 0.4)
    answer = _ask([(rate, (tuple(cores), threads, effort))], threads, remaining, event)
    return Rate(
        fp32=_round(answer["fp32"]),
        bandwidth=_round(answer["bandwidth"]),
        launch=_round(answer["launch"]),
        source="measured",
    )


def measure_link(
    cores: Sequence[int],
    other_cores: Sequence[int],
    quick: bool,
    remaining: Callable[[], float],
    event: Callable[[], None],
) -> LinkTimes:
    """Latency and bandwidth between two processes that send each other blocks of shared memory."""
    size, seconds = (2**16, 0.01) if quick else (2**22, 0.4)
    context = get_context("spawn")
    ping, pong = context.Semaphore(0), context.Semaphore(0)
    memory = _shared_memory(HEADER_BYTES + 2 * size)
    try:
        channel = Channel(memory.name, size, ping, pong, remaining())
        jobs: list[_Job] = [(call, (tuple(cores), channel, seconds)), (echo, (tuple(other_cores), channel))]
        answer = _ask(jobs, 1, remaining, event)
    finally:
        memory.close()
        memory.unlink()
    return LinkTimes(bandwidth=_round(answer["bandwidth"]), latency=_round(answer["latency"]))


def _shared_memory(size: int) -> SharedMemory:
    name = f"weftline-{os.getpid()}-{secrets.token_hex(4)}"
    try:
        return SharedMemory(name=name, create=True, size=size)
    except OSError as error:
        raise WeftlineError(f"cannot make {size} bytes of shared memory: {error}") from error


_Job = tuple[Callable[..., None], tuple[object, ...]]


def _ask(
    jobs: Sequence[_Job], threads: int, remaining: Callable[[], float], event: Callable[[], None]
) -> dict[str, int]:
    """Start one process for each job and return what the first of them answers."""
    context = get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    processes: list[SpawnProcess] = []
    try:
        with environment_of_children(dict.fromkeys(_THREAD_VARIABLES, str(threads))):
            for function, arguments in jobs:
                process = context.Process(target=function, args=(sender, *arguments), daemon=True)
                processes.append(process)
                process.start()
        sender.close()
        event()
        return msgspec.json.decode(_answer(receiver, processes, remaining), type=dict[str, int])
    finally:
        sender.close()
        receiver.close()
        for process in processes:
            _end(process)


def _answer(receiver: Connection, processes: Sequence[SpawnProcess], remaining: Callable[[], float]) -> bytes:
    running = list(processes)
    while True:
        ready = wait([receiver, *(process.sentinel for process in running)], timeout=remaining())
        if receiver in ready:
            try:
                return receiver.recv_bytes()
            except EOFError:
                ready = [process.sentinel for process in running]
        if not ready:
            raise LimitReached("the time limit was over before this machine was measured. Try a larger time_limit")
        for process in [process for process in running if process.sentinel in ready]:
            process.join(timeout=1.0)
            if process.exitcode != 0 or process is processes[0]:
                raise WeftlineError(
                    f"a measuring process ended early (exit code {process.exitcode}). In a script, call detect() "
                    "below `if __name__ == '__main__':`, because new processes import the script"
                )
            running.remove(process)


def _end(process: SpawnProcess) -> None:
    if process.pid is None:  # never started
        return
    process.join(timeout=0.2)
    if process.is_alive():
        process.kill()
        process.join()
    process.close()


def _round(value: int, digits: int = 3) -> int:
    """Digits beyond the third are noise of the measurement."""
    step: int = 10 ** max(0, len(str(value)) - digits)
    return max(1, round(value / step) * step)
