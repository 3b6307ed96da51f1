"""The two processes between which `measure_channel` measures: run as `python -m weftline.run.local.channel_meter`.

In: sizes, cores and rounds, as JSON on standard input. Out: one list of JSON, ns for each size. Simplified: the clock
is one for all cores, which it is on Linux; the reader copies the array once, as an op would read it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence

import msgspec
import numpy as np

from weftline.errors import WeftlineError
from weftline.run.local.channel import SLOT_FILLED, SLOT_FREE, Line, SharedBlock, make_memory

__all__ = ["main", "one_way_times"]

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
    command = [sys.executable, "-P", "-m", "weftline.run.local.channel_meter"]
    try:
        done = subprocess.run(command, input=msgspec.json.encode(ask), capture_output=True, timeout=timeout, check=True)
        return msgspec.json.decode(done.stdout, type=list[int])
    except subprocess.TimeoutExpired:
        raise WeftlineError(f"measuring the channel took more than {timeout:.0f} s") from None
    except (subprocess.CalledProcessError, msgspec.DecodeError) as error:
        said = getattr(error, "stderr", b"").decode(errors="replace").strip().splitlines()[-1:]
        raise WeftlineError(f"the channel cannot be measured: {(said or ['no answer'])[0][:200]}") from error


def main() -> None:
    """Fork: the child sends, this process receives and answers."""
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
    sys.stdout.buffer.write(msgspec.json.encode(found))


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
