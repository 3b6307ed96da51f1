"""The speed part of the page."""

from __future__ import annotations

from typing import Any

from benchmarks.table import table
from weftline.units import format_time

__all__ = ["speed_sections"]

KERNEL = "evaluate, latency"
KERNEL_MEMORY = "evaluate, latency with memory peaks"
PLAIN = "plain Python, latency"
REFERENCE = "reference, latency with memory peaks"


def speed_sections(speed: dict[str, Any]) -> list[str]:
    """One part per table."""
    pinned = "pinned to one core" if speed["pinned"] else "not pinned to a core (the system does not allow it)"
    method = (
        f"Processor time of one process, {pinned}; on an idle machine that is wall time. What is compared "
        "takes turns, repeat by repeat; a number is the smallest of the medians of five repeats each. Ratios carry "
        "over to other machines better than the numbers do; other work on the machine makes both worse or noisy."
    )
    return [
        method,
        _simulator(speed["simulator"]),
        _growth(speed["growth"]),
        _files(speed["files"]),
        _check(speed["check"]),
    ]


def _simulator(simulator: dict[str, Any]) -> str:
    rate = {row["what"]: row["per_second"] for row in simulator["rows"]}
    lines = [
        (row["what"], f"{row['per_second']:,.0f}", _microseconds(1 / row["per_second"])) for row in simulator["rows"]
    ]
    goal = simulator["goal_per_second"]
    at_goal = (simulator["ops"], simulator["devices"]) == (1000, 4)
    verdict = ("reached" if rate[KERNEL] >= goal else "missed") if at_goal else "not asked"
    shape = f"{simulator['ops']:,} ops, {simulator['edges']:,} edges, {simulator['devices']} devices"
    text = (
        f"Evaluations per second of random placements, no placement twice, one core ({shape}; layered graph on the "
        f"preset four-unequal). The goal of {goal:,}/s for 1,000 ops was **{verdict}** in this run "
        f"({rate[KERNEL]:,.0f}/s at {simulator['ops']:,} ops). In the same run, on the same placements: "
        f"**{rate[KERNEL] / rate[PLAIN]:.0f} times** plain Python that is linear in the edges, and "
        f"{rate[KERNEL_MEMORY] / rate[REFERENCE]:,.0f} times the reference simulator, which also finds memory peaks, "
        "was written to be obviously right and takes quadratic time, so this last ratio says little. Annealing and "
        "other incremental searches evaluate moves in other ways; they are not measured here."
    )
    return f"### Simulator\n\n{text}\n\n{table(('what', 'evaluations/s', 'time of one'), lines)}"


def _growth(growth: dict[str, Any]) -> str:
    lines = [
        (f"{row['ops']:,}", f"{row['edges']:,}", _microseconds(row["seconds"]), f"{row['ns_per_op']:.1f}")
        for row in growth["rows"]
    ]
    text = (
        "Time of one latency evaluation over the size of the graph (same family, random placements). The fitted "
        f"exponent is **{growth['exponent_of_n_log_n']:.3f}** against n log n and {growth['exponent_of_n']:.3f} "
        "against n: 1 means that time grows exactly like that. Large graphs leave the caches, which the fit includes."
    )
    return f"### Growth\n\n{text}\n\n{table(('ops', 'edges', 'one evaluation', 'ns per op'), lines)}"


def _files(rows: list[dict[str, Any]]) -> str:
    lines = [
        (row["what"], _time(row["seconds"]), row["against"], _time(row["against_seconds"]), f"{row['ratio']:.2f}")
        for row in rows
    ]
    text = (
        "Time beside the least that anybody would have to do for it, in the same run, after one warm-up each; whole "
        "processes in wall time. First use after installation is slower: Python compiles modules, numba kernels."
    )
    return f"### Files and start\n\n{text}\n\n{table(('what', 'time', 'against', 'its time', 'ratio'), lines)}"


def _check(check: dict[str, Any]) -> str:
    lines = [
        (f"{row['ops']:,}", f"{row['plan_bytes'] / 2**20:.2f} MiB", _time(row["seconds"]), f"{row['us_per_op']:.1f}")
        for row in check["rows"]
    ]
    text = (
        "The independent checker (standard library alone, parsing included, start of the process not) on latency "
        f"plans by HEFT for the same family of graphs. The fitted exponent against n is {check['exponent_of_n']:.3f}."
    )
    return f"### Checker\n\n{text}\n\n{table(('ops', 'plan file', 'time', 'us per op'), lines)}"


def _time(seconds: float) -> str:
    return format_time(round(seconds * 1e9))


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:,.1f} us"
