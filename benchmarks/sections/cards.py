"""Language models on cards by name: is `weftline fit` better than simple splits, how near is it to the best, how soon?

In: models of the catalogue, boxes of cards. Out: one row for each pair: tokens per second of the plan, of what simple
splits and the engine's own default give by the same costs, the bound as the checker re-computes it, seconds.
Simplified: rates are estimates; what they are worth is the section `estimates`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from time import perf_counter
from typing import Any, NamedTuple

import weftline as wl
from benchmarks.measure import say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.stats import geometric_mean
from weftline.certify.check_fit import check_fit_plan
from weftline.errors import InfeasibleError
from weftline.plans.fit import fit_plan_to_json

__all__ = ["SECTION"]

BOXES: dict[str, dict[str, Any]] = {
    "4090 + 3060": {"gpus": ["RTX 4090", "RTX 3060 12GB"]},
    "4090 + 3060 + 64 GB": {"gpus": ["RTX 4090", "RTX 3060 12GB"], "cpus": ["DDR5-5600"], "ram": "64GB"},
    "3 x 3090 + 64 GB": {"gpus": ["3x RTX 3090"], "cpus": ["DDR5-5600"], "ram": "64GB"},
    "M2 Ultra": {"gpus": ["M2 Ultra"]},
    "2 x A100 + 2 x V100": {"gpus": ["2x A100 SXM4 80GB", "2x Tesla V100 SXM2 32GB"]},
}
MODELS = {
    "llama-3.1-8b": "q8_0",
    "mistral-7b-v0.1": "f16",
    "phi-4": "q8_0",
    "gemma-3-27b": "q4_k_m",
    "qwen3-32b": "q6_k",
    "qwen3-30b-a3b": "q8_0",
    "mixtral-8x7b": "q4_k_m",
    "llama-3.3-70b": "q4_k_m",
    "gpt-oss-120b": "mxfp4",
    "qwen3-235b-a22b": "q4_k_m",
}
BASELINES = {"one-card": "one card", "even": "even", "free-memory": "free memory", "llamacpp-fit": "--fit's rule"}
MOST_SECONDS, MOST_GAP = 3.0, 0.01
ROUNDING = 1e-9
SIZES: dict[str, Row] = {
    "tiny": {"boxes": ["4090 + 3060"], "models": ["llama-3.1-8b", "llama-3.3-70b"], "context": 16384},
    "quick": {"boxes": ["4090 + 3060 + 64 GB"], "models": list(MODELS), "context": 16384},
    "full": {"boxes": list(BOXES), "models": list(MODELS), "context": 16384},
}


def measure(settings: Row, collect: Collector) -> None:
    """One row for each box and model."""
    for box in settings["boxes"]:
        for model in settings["models"]:
            say(f"cards: {model}, {box}")
            key = {"box": box, "model": f"{model} {MODELS[model]}"}
            collect.measure(key, partial(_row, model, box, settings["context"]))


def _row(model: str, box: str, context: int) -> Row:
    begun = perf_counter()
    try:
        plan = wl.fit(model, quantisation=MODELS[model], context=context, **BOXES[box])
    except InfeasibleError as error:
        return {"rate": None, "note": str(error).splitlines()[0], "seconds": perf_counter() - begun}
    seconds = perf_counter() - begun
    verdict = check_fit_plan(json.loads(fit_plan_to_json(plan)))
    return {
        "rate": plan.rate,
        "low": plan.tokens_per_second.low,
        "high": plan.tokens_per_second.high,
        "proved_gap": 1 - verdict.proved_bound_ns / verdict.value_ns,
        "layers": ", ".join(_held(plan)),
        "seconds": seconds,
        **{name: plan.baselines.get(name) for name in BASELINES},
    }


def _held(plan: Any) -> Iterator[str]:
    """Rows of each device, and what lies on the host."""
    for device in plan.devices:
        count = (device.layers[1] - device.layers[0] if device.layers else 0) + device.output
        if count:
            yield f"{device.id} {count}"
    for move in plan.moved:
        yield f"{move.part} of {len(move.layers)} on the host"


def _planned(run: Run) -> list[Row]:
    return [row for row in run.rows if row.get("rate")]


class _Box(NamedTuple):
    """Rows of one box."""

    name: str
    rows: list[Row]

    def gain(self, baseline: str) -> str:
        """How much faster plans are than a simple split, where it fits."""
        ratios = [row["rate"] / row[baseline] for row in self.rows if row[baseline]]
        missing = len(self.rows) - len(ratios)
        words = f"{geometric_mean(ratios):.2f}" if ratios else "-"
        return f"{words} ({missing} do not fit)" if missing else words


def _boxes(run: Run) -> list[_Box]:
    names = dict.fromkeys(row["box"] for row in run.rows)
    return [_Box(name, [row for row in _planned(run) if row["box"] == name]) for name in names]


def _sum(run: Run) -> Iterator[str]:
    rows = _planned(run)
    if not rows:
        return
    proved = sum(row["proved_gap"] <= MOST_GAP for row in rows)
    worst, slowest = max(row["proved_gap"] for row in rows), max(row["seconds"] for row in rows)
    left = len(run.rows) - len(rows)
    yield (
        f"{len(rows)} plans, {proved} of them proved to be within 1 % of the best (largest gap {worst:.2%}), the "
        f"longest in {slowest:.1f} s; {left} pairs fit in no way."
    )


def _losses(run: Run) -> list[str]:
    rows = _planned(run)

    def named(chosen: list[Row]) -> list[str]:
        return [f"{row['model']} on {row['box']}" for row in chosen]

    beaten = [row for row in rows if any((row[one] or 0) > row["rate"] * (1 + ROUNDING) for one in BASELINES)]
    return [
        *verdict("A simple split is better", named(beaten)),
        *verdict("Not proved within 1 %", named([row for row in rows if row["proved_gap"] > MOST_GAP])),
        *verdict("Longer than 3 s", named([row for row in run.rows if row["seconds"] > MOST_SECONDS])),
    ]


def _rate(name: str, row: Row) -> str:
    value = row.get(name)
    return "-" if not value else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


GAINS: tuple[Column[_Box], ...] = (
    Column("box", lambda box: box.name),
    Column("plans", lambda box: len(box.rows)),
    *(
        Column(f"times as fast as {title}", partial(lambda name, box: box.gain(name), name))
        for name, title in BASELINES.items()
    ),
)
COLUMNS: tuple[Column[Row], ...] = (
    *fields("box | model"),
    Column(
        "tokens/s (85 % of measurements)",
        lambda row: f"{_rate('rate', row)} ({_rate('low', row)} to {_rate('high', row)})",
    ),
    *(Column(title, partial(_rate, name)) for name, title in BASELINES.items()),
    Column("proved gap", "proved_gap", ".2%"),
    Column("rows of each device", "layers"),
    *fields("s=seconds:.2f"),
)
LEFT: tuple[Column[Row], ...] = fields("box | model | why not=note")

SECTION = Section(
    name="cards",
    title="Language models on cards by name",
    chapter="cards",
    asked="Plan language models for boxes of cards with a context of {context} tokens, for llama.cpp: how "
    "much is gained over simple splits by the same costs (geometric means), and how far can the best plan be?",
    sizes=SIZES,
    measure=measure,
    screen=(Table(GAINS, _boxes), _sum),
    losses=_losses,
    blocks=(
        Table(COLUMNS, _planned),
        Table(LEFT, lambda run: [row for row in run.rows if not row.get("rate")], "What fits in no way:"),
    ),
    long=False,
)
