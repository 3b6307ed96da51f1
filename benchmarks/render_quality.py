"""The quality part of the page: every solver on every instance."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from benchmarks.instances import FAMILIES
from benchmarks.quality import REPLICAS
from benchmarks.summary import (
    better_than_baselines,
    by_family,
    by_instance,
    geometric_mean,
    lost_to_baselines,
    overruns,
    replica_rows,
    solver_rows,
)
from benchmarks.table import table
from weftline.units import format_time

__all__ = ["quality_sections"]

Row = dict[str, Any]


def quality_sections(run: dict[str, Any]) -> list[str]:
    """Method, one table per family, remarks, all rows."""
    rows = run["rows"]
    return [_method(run), *_families(rows), *_remarks(rows), "### All rows", _ALL_ROWS, *_all_rows(rows)]


def _method(run: dict[str, Any]) -> str:
    absent = [name for name in FAMILIES if name not in {row["family"] for row in run["rows"]}]
    left_out = (
        f" Left out, because the files are not on this machine (WEFTLINE_DATA names their folder): {', '.join(absent)}."
        if absent
        else ""
    )
    return (
        f"Every solver gets every instance with {run['settings']['time_limit']} s (`auto` as a pipeline solver, which "
        f"searches until its time is over or its gap is closed: {run['settings']['auto_limit']} s) and the same first "
        "lower bound; solvers that are marked as baselines have nothing random and run once. The value is what the "
        "simulator says about the plan, never a solver's own objective. A bound is *proved* if the independent "
        "checker re-computes it from its witness, otherwise *claimed*. Ratio = value / best value that any solver "
        "found on the instance in this run: 1 means nobody was better, not that nobody could be; the gap says how much "
        "better may still be possible. Means are over the instances that a solver solved, so compare them only where "
        "the second column agrees. *Optimal* counts values that equal the solver's own lower bound; a large gap may be "
        "the bound's fault. `auto` uses other solvers and has more time for pipelines, so it hardly loses to them by "
        "construction; that it is strictly better is no matter of course. Times in the tables are simulated; only the "
        f"columns in seconds were measured here.{left_out}"
    )


def _families(rows: list[Row]) -> Iterable[str]:
    for family, mine in by_family(rows).items():
        yield f"### {family}\n\n{FAMILIES[family]}"
        yield _summary(mine)
        yield from _against_reference(mine)
        yield from _baselines_win(mine)


def _summary(rows: list[Row]) -> str:
    header = (
        "solver",
        "solved",
        "geo. mean ratio",
        "worst ratio",
        "best or equal",
        "optimal",
        "median gap",
        "median s",
    )
    lines = [
        (
            f"{line['solver']}{' (baseline)' if line['baseline'] else ''}",
            f"{line['solved']}/{line['instances']}",
            _number(line["geometric_mean"]),
            _worst(line),
            str(line["wins"]),
            str(line["optimal"]),
            _percent(line["median_gap"]),
            f"{line['median_seconds']:.3f}",
        )
        for line in solver_rows(rows)
    ]
    return table(header, lines)


def _worst(line: Row) -> str:
    where = f" ({line['worst_instance']})" if line["worst"] and line["worst"] > 1 else ""
    return f"{_number(line['worst'])}{where}"


def _against_reference(rows: list[Row]) -> Iterable[str]:
    lines = []
    for instance, mine in by_instance(rows).items():
        solved = [row for row in mine if row["value_ns"] is not None and row["solver"] != REPLICAS]
        if mine[0]["reference_ns"] and solved:
            best, reference = min(row["value_ns"] for row in solved), mine[0]["reference_ns"]
            finders = dict.fromkeys(row["solver"] for row in solved if row["value_ns"] == best)
            known, here, ratio = format_time(reference), format_time(best), f"{best / reference:.4f}"
            lines.append((instance, known, here, ", ".join(finders), ratio))
    if lines:
        text = (
            "The optimum known for the file (rounded) beside the best plan of this run. Below 1 is possible for the "
            "throughput files: their reference is optimal among contiguous partitions with at most one CPU."
        )
        yield f"{table(('instance', 'known optimum', 'best here', 'by', 'ratio'), lines)}\n\n{text}"


def _baselines_win(rows: list[Row]) -> Iterable[str]:
    lost = lost_to_baselines(rows)
    if lost:
        yield f"**A baseline wins:** {'; '.join(lost)}."
    better, total = better_than_baselines(rows)
    if total:
        yield f"`auto` is strictly better than every baseline on {better} of {total} instances."
    compared = replica_rows(rows)
    if compared:
        yield _replica_text(compared)


def _replica_text(compared: list[Row]) -> str:
    ratios = [line["ratio"] for line in compared if line["ratio"]]
    beaten = [line for line in compared if line["ratio"] and line["ratio"] < 1]
    lines = [
        (
            line["instance"],
            format_time(line["best_ns"]),
            "does not fit" if line["replicas_ns"] is None else format_time(line["replicas_ns"]),
            _number(line["ratio"]),
        )
        for line in compared
    ]
    verdict = (
        f"**Replicas beat the best pipeline on {len(beaten)} of {len(compared)} instances**"
        if beaten
        else (f"Replicas beat the best pipeline on none of {len(compared)} instances")
    )
    mean = (
        f" (geometric mean of replicas / pipeline {geometric_mean(ratios):.3f}, below 1 = replicas are faster)"
        if ratios
        else ""
    )
    text = (
        f"{verdict}{mean}: the whole model on every device that can hold it, rates added up. Replicas answer another "
        "question (nothing is split, each device holds all weights, one input is no faster), so they have no ratio in "
        "the table above."
    )
    return f"{text}\n\n{table(('instance', 'best pipeline', 'replicas', 'replicas / pipeline'), lines)}"


def _remarks(rows: list[Row]) -> Iterable[str]:
    late = overruns(rows)
    if late:
        yield f"**Overran the time limit by more than 2 s** (worst case): {'; '.join(late)}."
    crashed = sorted({f"{row['solver']} on {row['instance']}" for row in rows if row["note"].startswith("crashed")})
    if crashed:
        yield f"**Crashed:** {'; '.join(crashed)}."


_ALL_ROWS = (
    "One row per instance, solver and seed, as measured. *By* names the method of the lower bound; seconds are wall "
    "time of the search alone, without the common first bound."
)


def _all_rows(rows: list[Row]) -> Iterable[str]:
    header = (
        "instance",
        "ops",
        "devices",
        "solver",
        "seed",
        "value",
        "bound",
        "gap",
        "by",
        "proof",
        "s",
        "ratio",
        "stopped by",
    )
    for family, mine in by_family(rows).items():
        yield f"#### {family}: rows\n\n{table(header, (_line(row) for row in mine))}"


def _line(row: Row) -> Sequence[str]:
    return (
        row["instance"],
        str(row["ops"]),
        str(row["devices"]),
        row["solver"],
        str(row["seed"]),
        "none" if row["value_ns"] is None else format_time(row["value_ns"]),
        "-" if row["bound_ns"] is None else format_time(row["bound_ns"]),
        _percent(row["gap"]),
        row["bound_by"] or "-",
        row["proof"],
        "-" if row["seconds"] is None else f"{row['seconds']:.3f}",
        _number(row["ratio"]),
        row["note"] or row["stopped_by"],
    )


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.3f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"
