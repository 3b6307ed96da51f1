"""The answers of `weftline plan` for a reader: one plan, a sweep over numbers of stages, the list of solvers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weftline.cli.output import console, print_json, show

if TYPE_CHECKING:
    from weftline.ask import Sweep
    from weftline.plans import Plan

__all__ = ["list_solvers", "show_plan", "show_sweep"]


def show_plan(answer: Plan, output: Path | None) -> None:
    """Comparison, devices, stages, guarantee."""
    from weftline.report import comparison_table, device_table

    graph = answer.problem.graph
    show(f"{graph.name}: {len(graph.ops)} ops, {answer.objective}", "")
    show(comparison_table(answer), "", device_table(answer), "")
    _conclude(answer, output)


def show_sweep(answer: Sweep, output: Path | None) -> None:
    """Every number of stages, the curve, what follows; then the best plan beside the baselines, and its stages."""
    from weftline.report import comparison_table, sweep_curve, sweep_table, sweep_words

    graph = answer.plan.problem.graph
    show(f"{graph.name}: {len(graph.ops)} ops, {answer.plan.objective}", "")
    show(sweep_table(answer), "", *sweep_curve(answer, ascii_only=console().options.ascii_only), "")
    show(*sweep_words(answer), "", comparison_table(answer.plan), "")
    _conclude(answer.plan, output)


def _conclude(answer: Plan, output: Path | None) -> None:
    from weftline.plans.summary import better_baseline, guarantee, measured_words, scattered_hosts
    from weftline.report import stage_table

    if answer.stages:
        show(stage_table(answer), "")
    if answer.stopped_by == "interrupted":
        show("Interrupted: this is the best plan so far. What was not compared yet is missing above.")
    if sentence := measured_words(answer):
        show(sentence, "")
    show(guarantee(answer))
    if sentence := scattered_hosts(answer):
        show(sentence)
    if sentence := better_baseline(answer):
        show(sentence)
    show(f"written to {output}" if output else "not written; -o plan.json keeps it")


def list_solvers(objective: str, as_json: bool) -> None:
    """Names and descriptions of an objective's family."""
    from weftline.ask.planning import solvers_for

    entries = {name: entry.description for name, entry in solvers_for(objective).items()}
    if as_json:
        print_json({"objective": objective, "solvers": entries})
        return
    for name, description in entries.items():
        show(f"{name:<16} {description}")
