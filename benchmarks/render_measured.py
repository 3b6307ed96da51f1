"""The page on measured rewards: what each method found, the finds against each other, plans run for real."""

from __future__ import annotations

import math
from statistics import median

import numpy as np

from benchmarks.measured import DUELS, METHODS
from benchmarks.planned import Row
from benchmarks.table import table

__all__ = ["duel_interval", "measured_sections"]

TEXT = (
    "Real runs by OpenVINO's HETERO on two devices of one machine: the CPU's plugin with all cores, and once more with "
    "one thread. {budget} measurements for each method and seed, each in turns with the unsplit model on all cores "
    "(*ratio*: median over {rounds} rounds; above 1 is slower). `tight`: neither device may hold more than 3/5 of "
    "the weights, so a placement is a split; `free`: no limit. Models: {models}. `random` draws 2 to 6 pieces, cuts "
    "and devices uniformly; `HEFT-started` and `policy-started` are the same search with other proposals. The policy "
    "has min-cut, cPEFT and greedy beside it, so a lead is not the network's alone."
)
DUEL = (
    "What they found, measured again in turns, {duel} pairs of runs for each seed. *ratio* below 1: the first is "
    "faster; the interval is a bootstrap over seeds and pairs (95 %). An interval that holds 1 decides nothing."
)
HETERO = (
    "Plans of the simulator in the case `tight`, run beside the unsplit model; *difference* is the largest of an "
    "output, relative. The costs of these two devices are guesses, so predicted times are, too; ratios compare better."
)
DRAWS = 2000


def measured_sections(run: Row) -> list[str]:
    """Three tables and what they say."""
    settings, rows = run["settings"], run["rows"]
    shown = ", ".join(
        name + "".join(f" ({key} {value})" for key, value in parameters.items())
        for name, parameters in settings["models"].items()
    )
    found = [TEXT.format(budget=settings["budget"], rounds=settings["rounds"], models=shown)]
    found.append(_searches([row for row in rows if row["part"] == "search"]))
    duels = [row for row in rows if row["part"] == "duel"]
    if duels:
        found += [DUEL.format(duel=settings["duel"]), _duels(duels), _reading(duels)]
    hetero = [row for row in rows if row["part"] == "hetero"]
    if hetero:
        found += [HETERO, _hetero(hetero)]
    return found


def duel_interval(rows: list[list[float]], seed: int = 0) -> tuple[float, float, float]:
    """Ratios of each seed's rounds -> geometric mean of the medians; its bootstrap interval over seeds and rounds."""
    dice = np.random.default_rng(seed)
    logs = [np.log(np.array(ratios)) for ratios in rows if ratios]
    if not logs:
        return math.nan, math.nan, math.nan
    centre = float(np.mean([np.median(each) for each in logs]))
    draws = []
    for _ in range(DRAWS):
        chosen = [logs[int(which)] for which in dice.integers(len(logs), size=len(logs))]
        draws.append(np.mean([np.median(dice.choice(each, len(each))) for each in chosen]))
    low, high = np.quantile(draws, (0.025, 0.975)).tolist()
    return math.exp(centre), math.exp(low), math.exp(high)


def _cases(rows: list[Row]) -> list[tuple[str, str]]:
    return list(dict.fromkeys((row["model"], row["case"]) for row in rows))


def _searches(rows: list[Row]) -> str:
    lines = []
    for model, case in _cases(rows):
        for method in METHODS:
            own = [r for r in rows if (r["model"], r["case"], r["method"]) == (model, case, method)]
            ran = [row for row in own if row["ratio"] is not None]
            lines.append(
                (
                    f"{model}, {case}",
                    method,
                    ", ".join(f"{row['ratio']:.3f}" for row in ran) or "-",
                    f"{median(row['first'] for row in ran):g}" if ran else "-",
                    ", ".join(str(row["parts"]) for row in ran) or "-",
                    f"{sum(row['failures'] for row in own)} of {sum(row['count'] for row in own)}",
                    f"{median(row['seconds'] for row in own):.0f}" if own else "-",
                )
            )
    names = ("model", "method", "best ratio, seed by seed", "measurements until within 2 %")
    return table((*names, "sub-models", "failures", "seconds"), lines)


def _duels(rows: list[Row]) -> str:
    lines = []
    for model, case in _cases(rows):
        for one, other in DUELS:
            own = [r for r in rows if (r["model"], r["case"], r["method"], r["other"]) == (model, case, one, other)]
            if own:
                ratio, low, high = duel_interval([row["ratios"] for row in own])
                same = sum(row["same"] for row in own)
                cells = (f"{ratio:.3f}", f"{low:.3f} to {high:.3f}", f"{same} of {len(own)}")
                lines.append((f"{model}, {case}", f"{one} / {other}", *cells, _verdict(low, high)))
    return table(("model", "pair", "ratio", "95 % interval", "the same placement", "so"), lines)


def _verdict(low: float, high: float) -> str:
    if high < 1:
        return "first is faster"
    return "second is faster" if low > 1 else "undecided"


def _reading(rows: list[Row]) -> str:
    said = []
    for one, other in DUELS:
        verdicts = [
            _verdict(*duel_interval([row["ratios"] for row in rows if _is(row, case, one, other)])[1:])
            for case in _cases(rows)
            if any(_is(row, case, one, other) for row in rows)
        ]
        counts = ", ".join(f"{verdicts.count(word)} {word}" for word in dict.fromkeys(verdicts))
        said.append(f"{one} against {other}: {counts}.")
    return " ".join(said)


def _is(row: Row, case: tuple[str, str], one: str, other: str) -> bool:
    return ((row["model"], row["case"]), row["method"], row["other"]) == (case, one, other)


def _hetero(rows: list[Row]) -> str:
    lines = [
        (row["model"], row["method"], row["note"], "-", "-", "-", "-", "-")
        if row["note"]
        else (
            row["model"],
            row["method"],
            " + ".join(str(count) for count in row["ops"].values()),
            str(row["parts"]),
            f"{row['difference']:.1e}",
            f"{row['measured'] * 1e3:.1f} / {row['predicted'] * 1e3:.1f}",
            f"{row['measured_ratio']:.3f}",
            "-" if row["predicted_ratio"] is None else f"{row['predicted_ratio']:.3f}",
        )
        for row in rows
    ]
    names = ("model", "solver", "ops on each device", "sub-models", "difference", "measured / predicted, ms")
    return table((*names, "measured ratio", "predicted ratio"), lines)
