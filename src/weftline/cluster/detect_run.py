"""Run the measuring processes: start them, wait for one answer within the time left, and leave nothing behind.

Processes are spawned (not forked), are told how many BLAS threads they may use before they load numpy, and are killed
and joined on every way out. Answers are JSON, not pickles.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Sequence
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.shared_memory import SharedMemory
from typing import NamedTuple

import msgspec

from weftline.cluster.detect_worker import HEADER, Channel, Effort, call, echo, rate
from weftline.cluster.model import Rate
from weftline.errors import LimitReached, WeftlineError
from weftline.worker.parent import environment_of_children

__all__ = ["LinkTimes", "measure_link", "measure_rate", "stopwatch"]

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
    memory = _shared_memory(HEADER + 2 * size)
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
