"""The pages on learned placement: the comparison, the ablation, and the policy on graphs that it has never seen."""

from __future__ import annotations

from statistics import mean, stdev

from benchmarks.learned import ABLATION, METHODS
from benchmarks.planned import Row
from benchmarks.policy import policy_summary
from benchmarks.table import table
from weftline.units import format_time

__all__ = ["learned_sections", "policy_sections"]

PAPER = {"inception-v3": 17.9, "resnet50": 52.1, "bert": 58.2}
"""Per cent faster than the CPU alone, as the paper measured it."""
TEXT = (
    "Latency on the one simulator, parallel runtime, seed 0, {limit:g} s for each method. *above* is to the best value "
    "in the table's column. `hsdag, no polish` is what the network finds; `hsdag` goes on with annealing, so "
    "compare it with `anneal`, which has the same time and no network."
)
DIFFERENT = (
    "Per cent faster than the CPU alone, beside the paper's (Duan et al., measured on a CPU and a discrete GPU with "
    "OpenVINO, where sub-graphs run one after another). Ours are simulated from datasheets of other devices, so the "
    "numbers cannot be compared, at most their order:"
)
ABLATED = (
    "Ablation: `hsdag` trained without one part at a time, {limit:g} s each, no annealing; mean and standard deviation "
    "of the latency over {seeds} seeds. A difference smaller than the deviations says nothing."
)


def learned_sections(run: Row) -> list[str]:
    """Tables, model by model."""
    settings = run["settings"]
    rows = [row for row in run["rows"] if row["part"] == "comparison"]
    found = [TEXT.format(**settings)]
    for preset in settings["presets"]:
        found += [f"**{preset}**", _comparison([row for row in rows if row["preset"] == preset], settings["models"])]
    found += [DIFFERENT, _gains(rows, settings["models"])]
    ablated = [row for row in run["rows"] if row["part"] == "ablation"]
    if ablated:
        found += [
            ABLATED.format(limit=settings["ablation"], seeds=settings["seeds"]),
            _ablation(ablated, settings["models"]),
        ]
    return found


def _comparison(rows: list[Row], models: list[str]) -> str:
    values = {(row["model"], row["method"]): row for row in rows}
    least = {m: min((r["value_ns"] for r in rows if r["model"] == m and r["value_ns"]), default=1) for m in models}
    lines = []
    for method in METHODS:
        cells: list[str] = []
        for model in models:
            row = values.get((model, method))
            if row is None or row["value_ns"] is None:
                cells += ["-", "-", "-"]
                continue
            above = row["value_ns"] / least[model] - 1
            cells += [format_time(row["value_ns"]), f"{above:.2%}", f"{row['cpu']:.1f}"]
        lines.append((method, *cells))
    heads = [part for model in models for part in (model, "above", "CPU s")]
    return table(("method", *heads), lines)


def _gains(rows: list[Row], models: list[str]) -> str:
    presets = list(dict.fromkeys(row["preset"] for row in rows))
    values = {(row["preset"], row["model"], row["method"]): row["value_ns"] for row in rows}
    lines = []
    for model in models:
        for preset in presets:
            alone = values.get((preset, model, "CPU only"))
            cells = [
                f"{1 - value / alone:.1%}" if alone and (value := values.get((preset, model, method))) else "-"
                for method in ("best single device", "hsdag, paper", "hsdag", "auto")
            ]
            lines.append((model, preset, f"{PAPER[model]} %" if model in PAPER else "-", *cells))
    return table(("model", "cluster", "paper", "best single device", "hsdag, paper", "hsdag", "auto"), lines)


def _ablation(rows: list[Row], models: list[str]) -> str:
    lines = []
    for method in ABLATION:
        cells = []
        for model in models:
            found = [
                row["value_ns"] / 1e6
                for row in rows
                if (row["model"], row["method"]) == (model, method) and row["value_ns"]
            ]
            spread = stdev(found) if len(found) > 1 else 0.0
            cells.append(f"{mean(found):.3f} +- {spread:.3f} ms" if found else "-")
        lines.append((method, *cells))
    return table(("hsdag", *models), lines)


POLICY = (
    "One network, trained on synthetic graphs and drawn clusters, asked about problems that training never saw: the "
    "zoo on presets and drawn clusters, families of graphs that it does not know, and fresh graphs of those that it "
    "does. Ratio to annealing with {steps:,} steps from single devices and HEFT: geometric mean / worst. Both controls "
    "have no network: as many decodes with random biases, and annealing for as long as the policy's best of 64 took. "
    "*Booked again*: the same placement in the order of its late starts. *Looks back*: decodes that see the late "
    "starts and busy links of the plan before; of the 64, and of control 1's, half are such. Steps of annealing are "
    "followed by 8 of them in every row."
)


def policy_sections(run: Row) -> list[str]:
    """Method by method, and how long a decode takes."""
    kinds = ("real", "held-out family", "training family", "all")
    lines = []
    for line in policy_summary(run["rows"]):
        cells = [
            f"{line[k]['mean']:.3f} / {line[k]['worst']:.2f} ({line[k]['count']})" if k in line else "-" for k in kinds
        ]
        lines.append((line["method"], *cells))
    slow = max(run["rows"], key=lambda row: row["policy_seconds"]["one"])
    times = (
        f"One decode, network included, took at most {slow['policy_seconds']['one'] * 1e3:.0f} ms "
        f"({slow['instance']}: {slow['ops']} ops, {slow['devices']} devices)"
    )
    mended = [row["policy_seconds"]["mended"] for row in run["rows"] if "mended" in row["policy_seconds"]]
    times += (
        f", with one look back and the simulation of the plan at most {max(mended) * 1e3:.0f} ms." if mended else "."
    )
    return [POLICY.format(**run["settings"]), table(("method", *kinds), lines), times]
