"""What the estimates of language models are worth: parameters, memory, tokens per second, and the choice of a split.

In: published configurations, what llama.cpp printed of its memory, published measurements (shared/data/llm). Out: rows
of four kinds (`what`): counts that are exact or near, errors by class of devices with the device left out of the fit,
and groups of splits of one machine with the one that the costs rank first. Simplified: rows of one host depend on each
other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.llm.choices import LAYERS_NS, Choice, Split, choices
from benchmarks.llm.fitting import ClassFit, interval_of
from benchmarks.llm.printed import printed_devices, printed_models
from benchmarks.llm.rows import MeasuredRow, data_folder, measured_rows
from benchmarks.llm.write import all_fits
from benchmarks.measure import say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from weftline.importers.llm import read_language_model

__all__ = ["SECTION"]

NINETY = 0.9
MOST_MEDIAN = {"decode": 0.12, "prefill": 0.25}
MOST_NINETY, LEAST_COVERED, NEAR = 0.26, 0.85, 0.95
SIZES: dict[str, Row] = {
    "tiny": {"kinds": ["parameters", "memory"]},
    "full": {"kinds": ["parameters", "memory", "rates", "choices"]},
}


def measure(settings: Row, collect: Collector) -> None:
    """All rows; none where the published data is absent."""
    if not data_folder().is_dir():
        say(f"estimates: {data_folder()} is absent")
        return
    for kind in settings["kinds"]:
        say(f"estimates: {kind}")
        for key, row in _KINDS[kind]():
            collect.measure(key, partial(dict, row))


def _parameters() -> Iterator[tuple[Row, Row]]:
    """Published totals, and what the reader counts of the bare configuration."""
    with TemporaryDirectory(prefix="weftline-estimates-") as folder:
        file = Path(folder) / "config.json"
        for path in sorted((data_folder() / "configs").glob("*.json")):
            known = json.loads(path.read_text(encoding="utf-8"))
            if not known.get("published_total_parameters"):
                continue
            file.write_text(json.dumps(known["config"]), encoding="utf-8")
            counted = read_language_model(str(file)).parameters
            yield (
                {"what": "parameters", "model": known["name"]},
                {
                    "counted": counted,
                    "published": known["published_total_parameters"],
                },
            )


def _memory() -> Iterator[tuple[Row, Row]]:
    rows = list(printed_devices(printed_models()))
    for model in dict.fromkeys(row.run[0] for row in rows):
        mine = [row for row in rows if row.run[0] == model]
        yield (
            {"what": "memory", "model": model},
            {
                "lines": len(mine),
                "near": sum(row.is_near for row in mine),
                "farthest_mib": max(row.farthest for row in mine),
            },
        )


def _rates() -> Iterator[tuple[Row, Row]]:
    """Errors of rates by class of devices, family of numbers and grade; each device left out of the fit."""
    for (kind, family), fits in all_fits(measured_rows()).items():
        for what, fit in zip(("decode", "prefill"), fits, strict=True):
            for grade in ("A", "B") if fit else ():
                assert fit
                mine = [(row, ratio) for row, ratio in zip(fit.rows, fit.ratios, strict=True) if row.grade == grade]
                if mine:
                    key = {"what": what, "class": kind.value, "family": family, "grade": grade}
                    yield key, _errors(fit, [row for row, _ in mine], [ratio for _, ratio in mine])


def _errors(fit: ClassFit, rows: Sequence[MeasuredRow], ratios: Sequence[float]) -> Row:
    """`ratios` are measured rates over estimated ones."""
    errors = sorted(abs(1 / ratio - 1) for ratio in ratios)
    return {
        "rows": len(rows),
        "devices": len({row.device.name for row in rows}),
        "held_out": fit.held_out,
        "median": median(errors),
        "ninety": errors[min(len(errors) - 1, int(NINETY * len(errors)))],
        "covered": sum(fit.low <= ratio <= fit.high for ratio in ratios) / len(ratios),
        "covered_held_out": _covered_by_others(fit, rows, ratios),
        "low": fit.low,
        "high": fit.high,
    }


def _covered_by_others(fit: ClassFit, rows: Sequence[MeasuredRow], ratios: Sequence[float]) -> float | None:
    """The share of rows in an interval that was made without their device."""
    if not fit.held_out:
        return None
    inside = 0
    for name in {row.device.name for row in fit.rows}:
        others = {row.id: ratio for row, ratio in zip(fit.rows, fit.ratios, strict=True) if row.device.name != name}
        low, high = interval_of([row for row in fit.rows if row.id in others], others)
        mine = [ratio for row, ratio in zip(rows, ratios, strict=True) if row.device.name == name]
        inside += sum(low <= ratio <= high for ratio in mine)
    return inside / len(rows)


def _choices() -> Iterator[tuple[Row, Row]]:
    for choice in choices():
        key = {"what": "choice", "group": choice.group, "of": choice.what}
        yield key, {"splits": _splits(choice), "chosen": choice.chosen.name, "share": choice.share}


def _splits(choice: Choice) -> list[Row]:
    return [{"name": one.name, "measured": one.measured, "estimated": _estimate(one)} for one in choice.splits]


def _estimate(split: Split) -> float | None:
    known = split.estimated_ns is not None and split.estimated_ns > LAYERS_NS
    return 1e9 / split.estimated_ns if known and split.estimated_ns else None


_KINDS = {"parameters": _parameters, "memory": _memory, "rates": _rates, "choices": _choices}


def _exact(run: Run) -> Iterator[str]:
    parameters, memory = run.of(what="parameters"), run.of(what="memory")
    if parameters:
        exact = sum(row["counted"] == row["published"] for row in parameters)
        yield f"Parameters: {exact} of {len(parameters)} published totals are exact."
    if memory:
        near, lines = (sum(row[name] for row in memory) for name in ("near", "lines"))
        far = max(row["farthest_mib"] for row in memory)
        yield (
            f"Memory: {near} of {lines} lines that llama.cpp printed (weights, cache and buffers apart) are within 1 % "
            f"or 16 MiB; the farthest is {far:.1f} MiB off."
        )


def _chosen(run: Run) -> Iterator[str]:
    rows = run.of(what="choice")
    for words, chosen in (
        ("other splits", [row for row in rows if not row["group"].startswith("cards")]),
        ("other numbers of equal cards", [row for row in rows if row["group"].startswith("cards")]),
    ):
        if chosen:
            good = sum(row["share"] >= NEAR for row in chosen)
            yield f"Choice among {words} of one machine: within 5 % of the best in {good} of {len(chosen)}."


def _errors_in_words(run: Run) -> Iterator[str]:
    """Ranges over classes."""
    for what in MOST_MEDIAN:
        rows = [row for row in _graded(run) if row["what"] == what]
        if rows:
            ends = [
                f"{min(row[name] for row in rows):.0%} to {max(row[name] for row in rows):.0%}"
                for name in ("median", "ninety", "covered")
            ]
            yield (
                f"{what.capitalize()}, {sum(row['rows'] for row in rows)} rows, by class: median error {ends[0]}, "
                f"90 % {ends[1]}; in the printed interval {ends[2]}."
            )


def _graded(run: Run) -> list[Row]:
    return [row for row in run.rows if row["what"] in MOST_MEDIAN and row["grade"] == "A"]


def _named(row: Row) -> str:
    return f"{row['class']} {row['family']}"


def _losses(run: Run) -> list[str]:
    inexact = [row for row in run.of(what="parameters") if row["counted"] != row["published"]]
    found = verdict("Other parameters", [f"{row['model']} {row['counted'] - row['published']:+,}" for row in inexact])
    for what, most in MOST_MEDIAN.items():
        rows = [row for row in _graded(run) if row["what"] == what]
        off = [f"{_named(row)} {row['median']:.0%}" for row in rows if row["median"] > most]
        found += verdict(f"{what.capitalize()}: median above {most:.0%}", off)
        if what == "decode":
            far = [f"{_named(row)} {row['ninety']:.0%}" for row in rows if row["ninety"] > MOST_NINETY]
            found += verdict("Decode: 90 % above 26 %", far)
        thin = [f"{_named(row)} {row['covered']:.0%}" for row in rows if row["covered"] < LEAST_COVERED]
        found += verdict(f"{what.capitalize()}: fewer than 85 % in the interval", thin)
    missed = [row for row in run.of(what="choice") if row["share"] < NEAR]
    groups = dict.fromkeys(row["group"] for row in missed)
    worst = {name: min(row["share"] for row in missed if row["group"] == name) for name in groups}
    return [*found, *verdict("Chosen a slower split", [f"{name} {share:.0%}" for name, share in worst.items()])]


def _percent(name: str, row: Row) -> str:
    return "-" if row.get(name) is None else f"{row[name]:.0%}"


def _split_words(row: Row) -> str:
    parts = []
    for one in row["splits"]:
        estimate = f"{one['estimated']:.2f}" if one["estimated"] else "-"
        parts.append(f"{one['name']}: {one['measured']:.2f} ({estimate})")
    return "; ".join(parts)


CLASSES: tuple[Column[Row], ...] = (
    *fields("what | class | family | rows | devices"),
    Column("median error", partial(_percent, "median")),
    Column("90 %", partial(_percent, "ninety")),
    Column("in the interval", partial(_percent, "covered")),
)
HELD_OUT = Column[Row]("in an interval of the others", partial(_percent, "covered_held_out"))
WHY = (
    "Why splits are missed: `-sm tensor` of llama.cpp is not planned (2x9070XT, glm45air), though it is faster for one "
    "request where cards are equal. The older thread (unsloth-9861) does not say how full the cache was, and "
    "speculative decoding was on, so its rates are above what the memory can read; with a short cache the costs, "
    "too, rank whole layers on the host first in both of the groups that are missed."
)
SECTION = Section(
    name="estimates",
    title="Estimates of language models against what was published",
    chapter="cards",
    asked="Parameters, memory and tokens per second of language models against published numbers; constants of decode "
    "and prefill are fitted without the device that they are compared on (rows of grade A).",
    sizes={**SIZES, "quick": SIZES["full"]},
    measure=measure,
    screen=(lambda run: [" ".join([*_exact(run), *_errors_in_words(run), *_chosen(run)])],),
    losses=_losses,
    blocks=(
        _exact,
        Table(
            (Column("model", "model"), *fields("counted:, | published:,")),
            lambda run: run.of(what="parameters"),
            heading="Parameters",
        ),
        Table(
            fields("model | lines | near | farthest MiB=farthest_mib:.2f"),
            lambda run: run.of(what="memory"),
            heading="Memory",
        ),
        Table(
            (*CLASSES[:1], Column("grade", "grade"), *CLASSES[1:], HELD_OUT),
            lambda run: [row for row in run.rows if row["what"] in MOST_MEDIAN],
            "Shares of measured rates. Grade B was not fitted where there is grade A. The interval is never narrower "
            "than 0.78 to 1.3 of the estimate.",
            heading="Rates",
        ),
        Table(
            (
                *fields("group | of"),
                Column("measured (estimated) tokens/s", _split_words),
                *fields("chosen | of the best=share:.0%"),
            ),
            lambda run: run.of(what="choice"),
            WHY,
            heading="Choices",
        ),
    ),
    long=False,
    empty="The published data is absent: WEFTLINE_DATA names its folder.",
)
