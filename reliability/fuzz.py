"""Fuzzing of every reader: batches in processes with limits, until all inputs are read.

In: how many inputs. Out: a row per reader: inputs, accepted, refused, failures, slowest input, peak of memory. A batch
that dies gives the input it died of as a failure, and the rest of it is read by another process.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from time import monotonic

from reliability.fuzz_readers import READERS
from reliability.results_file import ROOT, Results, Row

__all__ = ["fuzz", "read_inputs"]

BATCH = 2000
KEPT = 20
"""Failures that a row keeps."""


def fuzz(results: Results, *, inputs: int, until: float | None = None, only: str | None = None) -> bool:
    """Read so many inputs over all readers -> whether all of them are read; `until` is a reading of `monotonic`."""
    whole = sum(reader.weight for reader in READERS.values())
    for reader in READERS.values():
        if only not in (None, reader.name):
            continue
        wanted = -(-inputs * reader.weight // whole)
        row = results.rows.get(reader.name) or _empty()
        while row["inputs"] < wanted:
            if until is not None and monotonic() > until:
                return False
            row = _together(row, read_inputs(reader.name, row["inputs"], min(BATCH, wanted - row["inputs"])))
            results.add(reader.name, row)
            print(f"fuzz: {reader.name}: {row['inputs']} of {wanted}, {row['failed']} failures", file=sys.stderr)
    return True


def read_inputs(name: str, first: int, count: int) -> Row:
    """The inputs first .. first + count of a reader."""
    row, last = _empty(), first + count
    while first < last:
        with tempfile.TemporaryDirectory(prefix="weftline-fuzz-") as folder:
            command = [sys.executable, "-m", "reliability.fuzz_batch", name, str(first), str(last - first), folder]
            try:
                done = subprocess.run(
                    command, cwd=ROOT, capture_output=True, encoding="utf-8", check=False, timeout=3600
                )
                code, text, said = done.returncode, done.stdout, done.stderr
            except subprocess.TimeoutExpired:
                code, text, said = -signal.SIGALRM, "", ""
            at = Path(folder) / "at"
            number = int(at.read_text() or first) if at.is_file() else first
        if code == 0:
            found = json.loads(text)
            counts = found["counts"]
            row = _together(
                row,
                {
                    "inputs": last - first,
                    **counts,
                    "failed": last - first - sum(counts.values()),
                    "failures": found["failures"],
                    "slowest": found["slowest"],
                    "peak": found["peak"],
                },
            )
            break
        kind = "over 10 s" if code == -signal.SIGALRM else f"died with {code}"
        if number == first and not at.name:
            raise RuntimeError(said[-2000:])
        died = {**_empty(), "inputs": number + 1 - first, "failed": 1, "failures": [[number, kind, said[-300:]]]}
        died["lost"] = number - first  # read by the process that died, and not counted by kind
        row = _together(row, died)
        first = number + 1
    return row


def _empty() -> Row:
    zero = {"inputs": 0, "accepted": 0, "refused": 0, "failed": 0, "lost": 0, "slowest": 0.0, "peak": 0}
    return {**zero, "failures": []}


def _together(a: Row, b: Row) -> Row:
    summed = {key: a[key] + b.get(key, 0) for key in ("inputs", "accepted", "refused", "failed", "lost")}
    most = {key: max(a[key], b.get(key, 0)) for key in ("slowest", "peak")}
    return {**summed, **most, "failures": (a["failures"] + b["failures"])[:KEPT]}
