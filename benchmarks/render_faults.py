"""The page on runs that are ended from outside."""

from __future__ import annotations

from benchmarks.planned import Row
from benchmarks.table import table

__all__ = ["fault_sections"]

TEXT = (
    "A pipeline of two workers, by `weftline run`. After a random delay of at most 1.5 s the victims get `kill -9` "
    "(the last row: Ctrl-C to all). *clear*: rounds whose exit code is not 0, without a traceback and, where a worker "
    "alone was killed, with a message that names its device and the signal. *seconds*: until the command and all "
    "workers were gone, median and longest. Left at the end: processes, shared memory and semaphores with a name, and "
    "folders after the next run."
)


def fault_sections(run: Row) -> list[str]:
    """One table and its sum."""
    rows = run["rows"]
    lines = [
        (
            row["victims"],
            str(row["rounds"]),
            str(row["clear"]),
            f"{row['middle']:.2f}, {row['longest']:.2f}",
            str(row["alive"]),
            str(row["named"]),
            str(row["folders"]),
        )
        for row in rows
    ]
    names = ("victims", "rounds", "clear", "seconds", "processes left", "shared memory left", "folders left")
    total = sum(row["rounds"] for row in rows)
    late = sum(row["late"] for row in rows)
    return [TEXT, table(names, lines), f"{total} rounds, {late} of them not over after 30 s."]
