"""Run the measuring processes: start them, wait for one answer within the time left, and leave nothing behind.

Processes are spawned (not forked), are told how many BLAS threads they may use before they load numpy, and are killed
and joined on every way out. Answers are JSON, not pickles.

Measure this machine: cores -> a Cluster of CPU devices with rates, memory and links, all with source `measured`.

A device is one physical core (or an even share of the cores) that this process may use; each is measured alone, so what
cores take from each other is not seen. With many devices one is measured for all, and one pair for all pairs that lie
in one socket or in two. `fp16` is set equal to `fp32`; `launch` is the time of a tiny numpy operation.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import combinations, groupby, permutations
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import NamedTuple

import msgspec

from weftline.cluster.detect_worker import HEADER, Channel, Effort, call, echo, rate
from weftline.cluster.model import Cluster, Device, Link, Rate
from weftline.cluster.rules import MAX_DEVICES, check_cluster
from weftline.errors import InputError, LimitReached, WeftlineError

__all__ = ["LinkTimes", "detect", "measure_link", "measure_rate", "stopwatch", "worker_cluster"]

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
        with _threads_of_children(threads):
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


@contextmanager
def _threads_of_children(count: int) -> Iterator[None]:
    """Libraries read these variables when they are loaded: a child cannot set them late, so it inherits them."""
    before = {name: os.environ.get(name) for name in _THREAD_VARIABLES}
    os.environ.update(dict.fromkeys(_THREAD_VARIABLES, str(count)))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def _round(value: int, digits: int = 3) -> int:
    """Digits beyond the third are noise of the measurement."""
    step: int = 10 ** max(0, len(str(value)) - digits)
    return max(1, round(value / step) * step)


MEASURE_ALL = 4
"""Up to this many devices every device and every pair is measured."""
KEEP_FREE = 0.05
"""Share of the memory that plans leave alone, beside what is in use now."""

OnEvent = Callable[[str], None]
Core = tuple[int, ...]


class _Place(NamedTuple):
    """Where a device runs: its logical cores, how many physical cores they are, and their socket."""

    cores: tuple[int, ...]
    threads: int
    socket: str


def detect(
    devices: int | None = None, *, quick: bool = False, time_limit: float = 60.0, on_event: OnEvent | None = None
) -> Cluster:
    """Measure this machine in a few seconds.

    `devices` splits the cores evenly into that many devices (default: one for each physical core); `quick` measures
    tiny sizes, for trying things out; `time_limit` in seconds raises `LimitReached`; `on_event` is told what is done.
    """

    places = _split(_physical_cores(), devices)
    ids = [f"cpu{i}" for i in range(len(places))]
    tell = on_event or (lambda text: None)
    remaining = stopwatch(time_limit)
    few = len(places) <= MEASURE_ALL

    rates: list[Rate] = []
    for id, place in list(zip(ids, places, strict=True))[: None if few else 1]:
        rates.append(measure_rate(place.cores, place.threads, quick, remaining, partial(tell, f"measuring {id}")))
    rates += rates[:1] * (len(places) - len(rates))

    measured: dict[tuple[object, ...], LinkTimes] = {}
    links: list[Link] = []
    for a, b in combinations(range(len(places)), 2):
        key = (a, b) if few else (places[a].socket == places[b].socket,)
        if key not in measured:
            event = partial(tell, f"measuring the link between {ids[a]} and {ids[b]}")
            measured[key] = measure_link(places[a].cores, places[b].cores, quick, remaining, event)
        times = measured[key]
        for source, target in ((ids[a], ids[b]), (ids[b], ids[a])):
            links.append(Link(source, target, times.bandwidth, times.latency, origin="measured"))
    made = _devices(ids, places, rates)
    return check_cluster(Cluster(name=_name(len(places), few), devices=made, links=tuple(links)))


def _name(count: int, few: bool) -> str:
    text = f"this machine, {count} CPU device{'s' if count > 1 else ''}"
    return text if few else f"{text}; cpu0 and one pair for each kind of pair measured, the others taken as equal"


def _devices(ids: Sequence[str], places: Sequence[_Place], rates: Sequence[Rate]) -> tuple[Device, ...]:
    total, available = _memory()
    mebibyte = 2**20
    memory = max(total // len(ids) // mebibyte, 2)
    in_use = -(-(total - available) // len(ids) // mebibyte)
    reserve = min(in_use + int(memory * KEEP_FREE), memory - 1)
    return tuple(
        Device(
            id=id,
            kind="cpu",
            memory=memory * mebibyte,
            reserve=reserve * mebibyte,
            rate=rate,
            runtime=f"ort:CPUExecutionProvider:{','.join(map(str, place.cores))}",
            memory_source="measured",
        )
        for id, place, rate in zip(ids, places, rates, strict=True)
    )


def _memory() -> tuple[int, int]:
    """Bytes of this machine (or of its container, if that is less), and how many of them are free."""
    import psutil

    memory = psutil.virtual_memory()
    total, available = int(memory.total), int(memory.available)
    limit, used = (_read(f"/sys/fs/cgroup/memory.{name}") for name in ("max", "current"))
    if limit.isdigit() and used.isdigit() and 0 < int(limit) < total:
        total = int(limit)
        available = min(available, max(total - int(used), 0))
    return total, available


def _physical_cores() -> list[Core]:
    """The logical cores that this process may use, those of one physical core together."""
    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1)
    siblings: dict[str, list[int]] = {}
    for core in sorted(allowed):
        siblings.setdefault(_topology(core, "thread_siblings_list") or str(core), []).append(core)
    # Neighbours in the list share a socket, so that a device made of several cores lies in one where it can.
    return sorted((tuple(cores) for cores in siblings.values()), key=lambda cores: (_socket(cores[0]), cores))


def _split(cores: Sequence[Core], devices: int | None) -> list[_Place]:
    count = min(len(cores), MAX_DEVICES) if devices is None else devices
    if not 1 <= count <= min(len(cores), MAX_DEVICES):
        raise InputError(
            f"cannot make {count} devices of {len(cores)} physical cores",
            where="devices",
            hint=f"ask for 1 to {min(len(cores), MAX_DEVICES)}",
        )
    share_of = [position * count // len(cores) for position in range(len(cores))]
    places = []
    for _, share in groupby(zip(share_of, cores, strict=True), key=lambda item: item[0]):
        members = [core for _, core in share]
        logical = tuple(sorted(number for core in members for number in core))
        places.append(_Place(logical, len(members), _socket(members[0][0])))
    return places


def _socket(core: int) -> str:
    return _topology(core, "physical_package_id").rjust(8)


def _topology(core: int, name: str) -> str:
    return _read(f"/sys/devices/system/cpu/cpu{core}/topology/{name}")


def _read(path: str) -> str:
    """A line that the kernel offers; empty on other systems."""
    try:
        return Path(path).read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


GUESSED_RATE = Rate(fp32=50 * 10**9, bandwidth=10 * 10**9, launch=2_000, source="guess")


def worker_cluster(speeds: Sequence[float]) -> Cluster:
    """Workers of this machine as devices w0, w1, ...: one core each, perhaps slowed down, run by ONNX Runtime.

    To try unequal devices without owning any. Rates and links are guesses until `weftline profile` measures them.
    """
    devices = tuple(
        Device(f"w{number}", "cpu", None, rate=GUESSED_RATE, runtime="ort:CPUExecutionProvider", speed=speed)
        for number, speed in enumerate(speeds)
    )
    links = tuple(
        Link(a.id, b.id, bandwidth=5 * 10**9, latency=30_000, origin="guess") for a, b in permutations(devices, 2)
    )
    return check_cluster(Cluster(name=f"{len(devices)} workers of this machine", devices=devices, links=links))
