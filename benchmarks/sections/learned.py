"""Learned solvers beside heuristics, annealing and exact search on the three models of the HSDAG paper; the ablation.

In: models, presets, seeds, seconds. Out: one row per method, and one per left-out part and seed. Every method gets the
same time on the same simulator. `hsdag` is asked three times: as published, as ours, and ours without the annealing
behind it, since otherwise nobody could say what the network found. The ablation trains without one part at a time,
without annealing, with several seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import mean, stdev
from time import process_time

import numpy as np

from benchmarks.instances import on_preset
from benchmarks.measure import CLOSE, run_solver, say
from benchmarks.render import table
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields
from weftline.ask.questions import lower_bounds
from weftline.latency import solvers
from weftline.latency.policy.settings import load_torch
from weftline.latency.prepare import prepare
from weftline.search import Search
from weftline.units import format_time

__all__ = ["ABLATION", "METHODS", "SECTION"]

METHODS: dict[str, tuple[str, dict[str, str]]] = {
    "CPU only": ("single-device", {}),
    "best single device": ("single-device", {}),
    "HEFT": ("heft", {}),
    "cPEFT": ("cpeft", {}),
    "64 random cPEFT": ("cpeft-64", {}),
    "placeto-greedy": ("placeto-greedy", {}),
    "anneal": ("anneal", {}),
    "auto": ("auto", {}),
    "hsdag, paper": ("hsdag", {"preset": "paper"}),
    "hsdag, no polish": ("hsdag", {"polish": "off"}),
    "hsdag": ("hsdag", {}),
    "placeto": ("placeto", {}),
    "rnn": ("rnn", {}),
    "policy": ("policy", {}),
    "policy+polish": ("policy+polish", {}),
}
HIDDEN = ("CPU only", "HEFT", "cPEFT", "64 random cPEFT", "rnn", "placeto", "policy", "policy+polish")
"""Not on the screen."""
ABLATION: dict[str, dict[str, str]] = {
    "all parts": {"levels": "1"},
    "without structure": {"levels": "1", "features": "-degree,-fractal"},
    "without output shape": {"levels": "1", "features": "-shape"},
    "without position": {"levels": "1", "features": "-position"},
    "without grouping": {"levels": "0"},
    "the paper's features only": {"levels": "1", "features": "paper"},
}
SIZES: dict[str, Row] = {
    "tiny": {"models": ["unet"], "size": "small", "presets": ["laptop"], "seeds": 1, "limit": 2.0, "ablation": 1.0},
    "quick": {"models": ["inception-v3"], "size": "full", "presets": ["laptop"], "seeds": 2}
    | {"limit": 10.0, "ablation": 5.0},
    "full": {"models": ["inception-v3", "resnet50", "bert"], "size": "full", "presets": ["laptop", "four-unequal"]}
    | {"seeds": 5, "limit": 60.0, "ablation": 10.0},
}


def measure(settings: Row, collect: Collector) -> None:
    """The comparison, then the ablation on the first cluster."""
    prepare()
    load_torch()
    for preset in settings["presets"]:
        for model in settings["models"]:
            for method, asked in METHODS.items():
                key = {"part": "comparison", "preset": preset, "model": model, "method": method, "seed": 0}
                _measure(collect, key, settings, asked, settings["limit"])
    for model in settings["models"]:
        for method, options in ABLATION.items():
            for seed in range(settings["seeds"]):
                key = {"part": "ablation", "preset": settings["presets"][0], "model": model, "method": method}
                trained = "hsdag", {**options, "polish": "off"}
                _measure(collect, {**key, "seed": seed}, settings, trained, settings["ablation"])


def _measure(collect: Collector, key: Row, settings: Row, asked: tuple[str, dict[str, str]], limit: float) -> None:
    say(f"learned: {key['model']} on {key['preset']}, {key['method']}, seed {key['seed']}")
    collect.measure(key, partial(_row, key, settings["size"], asked, limit))


def _row(key: Row, size: str, asked: tuple[str, dict[str, str]], limit: float) -> Row:
    problem = on_preset(key["model"], key["preset"], "latency", size)
    name, options = asked
    bound = lower_bounds(problem)[0]
    search = Search(problem, time_limit=limit, gap=CLOSE, seed=key["seed"], options=options, solver=name)
    search.offer_bound(bound)
    cpu = process_time()
    if key["method"] == "CPU only":
        hosts = [d for d, device in enumerate(problem.devices) if device.kind == "cpu"]
        if hosts:
            search.offer(np.full(len(problem.graph.ops), hosts[0], np.int32))
        note = "" if hosts else "the cluster has no CPU"
    else:
        note = run_solver(solvers()[name], search)
    value = None if search.best is None else search.best.value
    at_least = None if search.bound is None else search.bound.value
    return {
        "value_ns": value,
        "bound_ns": at_least,
        "cpu": round(process_time() - cpu, 2),
        "seconds": round(search.seconds, 3),
        "offered": search.offered,
        "note": note,
    }


PAPER = {"inception-v3": 17.9, "resnet50": 52.1, "bert": 58.2}
"""Per cent faster than the CPU alone, as the paper measured it."""
ALONE = "best single device"


def _values(run: Run) -> dict[tuple[str, str, str], int]:
    """Preset, model, method -> value."""
    rows = run.of(part="comparison")
    return {(r["preset"], r["model"], r["method"]): r["value_ns"] for r in rows if r["value_ns"]}


def _columns(run: Run) -> list[tuple[str, str]]:
    return [(preset, model) for preset in run.settings["presets"] for model in run.settings["models"]]


def _comparison(run: Run) -> Iterator[str]:
    models = run.settings["models"]
    for preset in run.settings["presets"]:
        rows = {(row["model"], row["method"]): row for row in run.of(part="comparison", preset=preset)}
        lines = []
        for method in METHODS:
            cells: list[str] = []
            for model in models:
                row = rows.get((model, method))
                least = min((r["value_ns"] for (m, _), r in rows.items() if m == model and r["value_ns"]), default=1)
                if row is None or row["value_ns"] is None:
                    cells += ["-", "-", "-"]
                else:
                    above = row["value_ns"] / least - 1
                    cells += [format_time(row["value_ns"]), f"{above:.2%}", f"{row['cpu']:.1f}"]
            lines.append((method, *cells))
        yield f"**{preset}**"
        yield table(("method", *(part for model in models for part in (model, "above", "CPU s"))), lines)


def _screen_columns(run: Run) -> list[Column[str]]:
    """Above the best of its column, by model and cluster."""
    values = _values(run)

    def above(preset: str, model: str, method: str) -> float | None:
        mine = [value for (p, m, _), value in values.items() if (p, m) == (preset, model)]
        value = values.get((preset, model, method))
        return None if value is None else value / min(mine) - 1

    return [Column("method", str), *(Column(f"{m}, {p}", partial(above, p, m), ".2%") for p, m in _columns(run))]


def _gains(run: Run) -> list[Row]:
    """Per cent faster than the CPU alone."""
    values, found = _values(run), []
    for model in run.settings["models"]:
        for preset in run.settings["presets"]:
            alone = values.get((preset, model, "CPU only"))
            line: Row = {"model": model, "cluster": preset, "paper": PAPER.get(model)}
            for method in (ALONE, "hsdag, paper", "hsdag", "auto"):
                value = values.get((preset, model, method))
                line[method] = 1 - value / alone if alone and value else None
            found.append(line)
    return found


def _ablation(run: Run) -> list[Column[str]]:
    def cell(model: str, method: str) -> str | None:
        rows = run.of(part="ablation", model=model, method=method)
        found = [row["value_ns"] / 1e6 for row in rows if row["value_ns"]]
        spread = stdev(found) if len(found) > 1 else 0.0
        return f"{mean(found):.3f} +- {spread:.3f} ms" if found else None

    return [Column("hsdag", str), *(Column(model, partial(cell, model)) for model in run.settings["models"])]


def _losses(run: Run) -> Iterator[str]:
    """What learning on one problem does not bring."""
    values, columns = _values(run), _columns(run)

    def count(one: str, other: str, sign: int) -> int:
        pairs = [(values.get((*where, one)), values.get((*where, other))) for where in columns]
        return sum(((a > b) - (a < b)) == sign for a, b in pairs if a and b)

    trained = ("hsdag, paper", "rnn", "placeto", "hsdag, no polish")
    better = ", ".join(f"`{method}` {count(method, ALONE, -1)}" for method in trained)
    yield f"Better than the best single device, out of {len(columns)} columns: {better}."
    behind = count("hsdag, no polish", "placeto-greedy", 1)
    yield f"`hsdag, no polish` is worse than `placeto-greedy`, which takes no training, in {behind} of {len(columns)}."
    worse = count("auto", "anneal", 1)
    if worse:
        yield f"`auto` is worse than `anneal` in {worse} of {len(columns)}."


SECTION = Section(
    name="learned",
    title="Learned placement",
    chapter="latency",
    asked="What do networks that are trained for one problem find in {limit:g} s, beside heuristics, annealing and "
    "exact search? Figures are per cent above the best value of the column.",
    sizes=SIZES,
    measure=measure,
    screen=(Table(_screen_columns, lambda run: [method for method in METHODS if method not in HIDDEN]),),
    losses=_losses,
    blocks=(
        "Latency on the one simulator, parallel runtime, seed 0. *above* is to the best value in the table's column. "
        "`hsdag, no polish` is what the network finds; `hsdag` goes on with annealing, so compare it with `anneal`, "
        "which has the same time and no network.",
        _comparison,
        Table(
            (
                *fields("model | cluster"),
                Column("paper", "paper", lambda value: f"{value} %"),
                *(Column(name, name, ".1%") for name in (ALONE, "hsdag, paper", "hsdag", "auto")),
            ),
            _gains,
            "Per cent faster than the CPU alone, beside the paper's (Duan et al., measured on a CPU and a discrete GPU "
            "with OpenVINO, where sub-graphs run one after another). Ours are simulated from datasheets of other "
            "devices, so the numbers cannot be compared, at most their order:",
        ),
        Table(
            _ablation,
            lambda run: ABLATION if run.of(part="ablation") else (),
            "Ablation: `hsdag` trained without one part at a time, {ablation:g} s each, no annealing; mean and "
            "standard deviation of the latency over {seeds} seeds. A difference smaller than the deviations says "
            "nothing.",
        ),
    ),
    limits=("limit", "ablation"),
)
