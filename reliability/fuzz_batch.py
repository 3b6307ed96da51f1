"""`python -m reliability.fuzz_batch READER FIRST COUNT FOLDER`: inputs of one reader, in a process with limits.

In: numbers of inputs; the number decides the input. Out: one JSON object on stdout; `FOLDER/at` holds the number of the
input that is being read, for a parent that finds the process dead. An input that takes longer than the limit kills the
process (SIGALRM), and the address space ends above the limit of memory.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import traceback
from pathlib import Path
from random import Random
from time import perf_counter

from reliability.fuzz_mutate import mutate
from reliability.fuzz_readers import READERS, Reader
from reliability.fuzz_seeds import seeds

__all__ = ["input_of", "main", "outcome"]

SECONDS = 10
MOST_BYTES = 2**30
"""More than this above what the process needs to begin with is a failure."""
SLACK = 2**30
"""Address space beyond that, so that a request for more is seen as such."""


def input_of(reader: Reader, number: int) -> bytes:
    """The input of a number: first the seeds as they are, then mutations of them."""
    valid = seeds(reader.seeds)
    if number < len(valid):
        return valid[number]
    dice = Random(f"{reader.name} {number}")
    return mutate(dice.choice(valid), reader.form, valid, dice)


def outcome(reader: Reader, path: Path) -> tuple[str, str]:
    """(accepted, refused or the kind of a defect; where it happened)."""
    try:
        reader.read(path)
    except reader.may_raise as error:
        if _is_memory(error):
            return "MemoryError", str(error)[:300]
        if not isinstance(error.args[0] if error.args else "", str) or len(str(error)) > 20_000:
            return "endless message", str(error)[:300]
        return "refused", ""
    except Exception as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        return type(error).__name__, f"{Path(last.filename).name}:{last.lineno} {str(error)[:200]}"
    return "accepted", ""


def _is_memory(error: BaseException | None) -> bool:
    """An `InputError` that was made of a `MemoryError`: the reader asked for too much."""
    while error is not None:
        if isinstance(error, MemoryError):
            return True
        error = error.__cause__ or error.__context__
    return False


def main(name: str, first: int, count: int, folder: Path) -> dict[str, object]:
    """Read the inputs -> counts, failures, the slowest and the peak of memory."""
    reader = READERS[name]
    path = folder / reader.file
    counts = {"accepted": 0, "refused": 0}
    failures: list[list[object]] = []
    at = os.open(folder / "at", os.O_WRONLY | os.O_CREAT)
    for number in range(len(seeds(reader.seeds))):  # everything that loads late is loaded now
        path.write_bytes(input_of(reader, number))
        outcome(reader, path)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    before = _status("VmSize")
    resource.setrlimit(resource.RLIMIT_AS, (before + MOST_BYTES + SLACK,) * 2)
    slowest, slowest_number = 0.0, first
    for number in range(first, first + count):
        path.write_bytes(input_of(reader, number))
        os.pwrite(at, f"{number:12d}".encode(), 0)
        begun = perf_counter()
        signal.alarm(SECONDS)
        kind, where = outcome(reader, path)
        signal.alarm(0)
        seconds = perf_counter() - begun
        if seconds > slowest:
            slowest, slowest_number = seconds, number
        if kind in counts:
            counts[kind] += 1
        else:
            failures.append([number, kind, where])
    peak = _status("VmPeak") - before
    if peak > MOST_BYTES:
        failures.append([first, "over 1 GiB", f"in one of {count} inputs: {peak >> 20} MiB"])
    ended = {"slowest": slowest, "slowest_number": slowest_number, "peak": max(0, peak)}
    return {"counts": counts, "failures": failures, **ended}


def _status(field: str) -> int:
    """Bytes, of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4]))))
