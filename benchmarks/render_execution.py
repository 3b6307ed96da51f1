"""The page on real runs: predicted against measured, planned against even and against every cut."""

from __future__ import annotations

from statistics import median

from benchmarks.planned import Row
from benchmarks.summary import geometric_mean
from benchmarks.table import table
from weftline.units import format_time

__all__ = ["execution_sections"]

TEXT = (
    "Two worker processes of one machine, one core each (`weftline run`), speeds 1 : 1 (*equal*) and 1 : 0.5 "
    "(*unequal*: the second stretches its computing time). A round: the model is profiled, planned from the profile, "
    "split and run for {seconds:g} s ({requests} requests at least); *error* is measured over predicted, less 1. The "
    "means of {rounds} rounds stand here, with the least and the largest error of them. Columns "
    "after it are of the first round: *drift* is the error of whole-model replicas, which have no cut: by how much the "
    "machine was slower in the run than in its profile; *one process* has both cores and, with unequal workers, "
    "their mean speed; *replicas* are whole models on both workers. Outputs differ "
    "from the unsplit model by at most {difference:.1e} (relative)."
)
CUTS = (
    "Unequal workers: every cut between two kernels in topological order was run, both ways round. Then the plan and "
    "the best of them several times in turns; *ratio* is the plan's period over that of the best cut, by these runs. "
    "The cut that was best of many is lucky by some noise, which the runs in turns take away."
)


def execution_sections(run: Row) -> list[str]:
    """Two tables and what they say."""
    rows = [
        {"model": row["model"], "speeds": row["speeds"], **plan}
        for row in run["rows"]
        if row["part"] == "runs"
        for plan in row["plans"]
    ]
    ran = [row for row in rows if not row["note"]]
    settings = {name: run["settings"][name] for name in ("requests", "rounds", "seconds")}
    worst = max((row["difference"] for row in ran), default=0.0)
    found = [TEXT.format(**settings, difference=worst), _runs(rows), *_reading(ran)]
    cuts = [row for row in run["rows"] if row["part"] == "cuts"]
    if cuts:
        found += [CUTS, _cuts(cuts)]
    return found


def _error(row: Row) -> float:
    return float(row["measured_ns"] / row["predicted_ns"] - 1)


def _spread(row: Row) -> str:
    errors = [pair[0] / pair[1] - 1 for pair in row["rounds"] if pair]
    failed = len(row["rounds"]) - len(errors)
    return f"{min(errors):+.0%} to {max(errors):+.0%}" + (f", {failed} failed" if failed else "")


def _runs(rows: list[Row]) -> str:
    lines = []
    for row in rows:
        head = (row["model"], row["speeds"], row["objective"], row["solver"])
        if row["note"]:
            lines.append((*head, row["note"], *["-"] * 5))
            continue
        others = {name.split(",")[0].split()[-1]: row["first_ns"] / ns for name, ns in row["baselines"].items()}
        lines.append(
            (
                *head,
                format_time(row["measured_ns"]),
                format_time(row["predicted_ns"]),
                f"{_error(row):+.1%} ({_spread(row)})",
                _drift(row),
                *(f"{others[name]:.2f}" if name in others else "-" for name in ("process", "replicas")),
            )
        )
    names = ("model", "workers", "objective", "solver", "measured", "predicted", "error", "drift")
    return table((*names, "of one process", "of replicas"), lines)


def _drift(row: Row) -> str:
    """Replicas measured over predicted, less 1."""
    measured = next((ns for name, ns in row["baselines"].items() if "replicas" in name), None)
    predicted = row["predicted_replicas_ns"]
    return f"{measured / predicted - 1:+.1%}" if measured and predicted else "-"


def _reading(rows: list[Row]) -> list[str]:
    said = []
    for kind in dict.fromkeys((row["objective"], row["speeds"]) for row in rows):
        own = [row for row in rows if (row["objective"], row["speeds"]) == kind and row["solver"] == "auto"]
        errors = [abs(_error(row)) for row in own]
        if errors:
            far = [f"{row['model']} {_error(row):+.1%}" for row in own if abs(_error(row)) > 0.15]
            outliers = f" Beyond 15 %: {', '.join(far)}." if far else ""
            words = f"{kind[0]}, {kind[1]} workers: median error {median(errors):.1%}"
            said.append(f"{words}, worst of {len(own)} models {max(errors):.1%}.{outliers}")
    for kind in ("equal", "unequal"):
        ratios = []
        for row in rows:
            if row["solver"] == "auto" and (row["objective"], row["speeds"]) == ("throughput", kind):
                same = (row["model"], kind, "even-split")
                other = next((r for r in rows if (r["model"], r["speeds"], r["solver"]) == same), None)
                pairs = zip(other["rounds"], row["rounds"], strict=True) if other else ()
                both = [one[0] / two[0] for one, two in pairs if one and two]
                ratios += [median(both)] if both else []
        if ratios:
            words = f"Planned pipelines on {kind} workers are {geometric_mean(ratios):.2f} times as fast as even splits"
            said.append(f"{words} (geometric mean, measured, {len(ratios)} models; least {min(ratios):.2f}).")
    return said


def _cuts(rows: list[Row]) -> str:
    lines = [
        (
            row["model"],
            str(row["count"]),
            format_time(row["planned_ns"]),
            format_time(row["best_ns"]),
            f"{row['planned_ns'] / row['best_ns']:.3f}",
            format_time(row["least_ns"]),
        )
        for row in rows
    ]
    return table(("model", "cuts", "the plan", "the best cut", "ratio", "least of all runs"), lines)
