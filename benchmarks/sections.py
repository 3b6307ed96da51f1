"""The sections of the benchmarks by name: what is measured, in which size, and how long that takes.

A section takes settings and a Collector, which keeps finished rows, and returns what does not fit into rows.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.clock import on_one_core
from benchmarks.execution import execution_settings, measure_execution
from benchmarks.faults import fault_settings, measure_faults
from benchmarks.fusion import fusion_settings, measure_fusion
from benchmarks.heads import heads_settings, measure_heads
from benchmarks.instances import instances
from benchmarks.learned import learned_settings, measure_learned
from benchmarks.measured import measure_measured, measured_settings
from benchmarks.paper import measure_paper, paper_settings
from benchmarks.placement import measure_placement, placement_settings
from benchmarks.placement_scale import measure_placement_scale, placement_scale_settings
from benchmarks.planned import Row
from benchmarks.policy import measure_policy, policy_settings
from benchmarks.quality import measure_quality, share_of_budget
from benchmarks.references import measure_references, reference_settings
from benchmarks.regal import measure_regal, regal_settings
from benchmarks.results_file import Collector
from benchmarks.scale import measure_scale, scale_settings
from benchmarks.schedules import measure_schedules, schedule_settings
from benchmarks.speed import measure_growth, measure_simulator
from benchmarks.speed_of_files import measure_check, measure_files
from benchmarks.steps import measure_steps, steps_settings
from benchmarks.tessel_eval import measure_tessel_eval, tessel_eval_settings
from benchmarks.unequal import measure_unequal, unequal_settings

__all__ = ["SECTIONS", "Section"]

QUALITY_BUDGET = 120.0
"""Seconds that solvers may search in all, for one seed, without `auto` on pipelines."""
AUTO_LIMIT = 6.0
"""Seconds for `auto` on one pipeline: it searches until its gap is closed or its time is over."""
SPEED: dict[str, dict[str, Any]] = {
    "simulator": {"ops": 1000, "batch": 1200, "plain": 20, "reference": 1, "repeats": 20},
    "growth": {"sizes": (1_000, 3_000, 10_000, 30_000, 100_000), "work": 300_000, "repeats": 15},
    "files": {"graph_ops": 100_000, "onnx_nodes": 10_000, "repeats": 10},
    "check": {"sizes": (300, 1_000, 3_000, 10_000), "repeats": 5},
}
TINY_SPEED: dict[str, dict[str, Any]] = {
    "simulator": {"ops": 100, "batch": 200, "plain": 5, "reference": 1, "repeats": 3},
    "growth": {"sizes": (200, 400, 800), "work": 4_000, "repeats": 3},
    "files": {"graph_ops": 1_000, "onnx_nodes": 200, "repeats": 1},
    "check": {"sizes": (50, 100), "repeats": 1},
}


@dataclass(frozen=True)
class Section:
    """One part of the page."""

    name: str
    settings: Callable[[str, argparse.Namespace], Row]
    """(size, what was asked) -> what a run depends on, fit for JSON."""
    measure: Callable[[Row, Collector], Row | None]
    long: bool = False
    """Too long for every day: a run of everything takes the quick subset, and an older full run stays on the page."""


def _quality_settings(size: str, asked: argparse.Namespace) -> Row:
    tiny = size == "tiny"
    limit = asked.time_limit or (0.2 if tiny else share_of_budget(instances(), QUALITY_BUDGET))
    auto = asked.time_limit or (0.5 if tiny else AUTO_LIMIT)
    return {"tiny": tiny, "seeds": asked.seeds, "time_limit": limit, "auto_limit": auto}


def _quality(settings: Row, collect: Collector) -> None:
    chosen = instances(quick=settings["tiny"])
    collect.rows = measure_quality(
        chosen,
        seeds=settings["seeds"],
        time_limit=settings["time_limit"],
        auto_limit=settings["auto_limit"],
    )


def _speed(settings: Row, collect: Collector) -> Row:
    parts = {"simulator": measure_simulator, "growth": measure_growth, "files": measure_files, "check": measure_check}
    found: Row = {}
    with on_one_core() as pinned:
        for name, measure in parts.items():
            print(f"speed: {name}", file=sys.stderr, flush=True)
            found[name] = measure(**settings[name])  # type: ignore[operator]
    return {"speed": {"pinned": pinned, **found}}


SECTIONS = {
    section.name: section
    for section in (
        Section("paper", lambda size, asked: paper_settings(size, asked.time_limit), measure_paper, long=True),
        Section("fiddle", lambda size, asked: reference_settings(size, asked.time_limit), measure_references),
        Section(
            "regal",
            lambda size, asked: regal_settings(size, asked.time_limit, asked.graphs),
            measure_regal,
            long=True,
        ),
        Section("unequal", lambda size, asked: unequal_settings(size, asked.time_limit), measure_unequal, long=True),
        Section("scale", lambda size, asked: scale_settings(size, asked.time_limit), measure_scale, long=True),
        Section(
            "placement",
            lambda size, asked: placement_settings(size, asked.time_limit),
            measure_placement,
            long=True,
        ),
        Section("heads", lambda size, asked: heads_settings(size, asked.time_limit), measure_heads, long=True),
        Section("fusion", lambda size, asked: fusion_settings(size, asked.time_limit), measure_fusion, long=True),
        Section(
            "placement-scale",
            lambda size, asked: placement_scale_settings(size, asked.time_limit),
            measure_placement_scale,
            long=True,
        ),
        Section("learned", lambda size, asked: learned_settings(size, asked.time_limit), measure_learned, long=True),
        Section("policy", lambda size, asked: policy_settings(size), measure_policy, long=True),
        Section(
            "measured",
            lambda size, asked: measured_settings(size, asked.time_limit),
            measure_measured,
            long=True,
        ),
        Section(
            "schedules",
            lambda size, asked: schedule_settings(size, asked.time_limit),
            measure_schedules,
            long=True,
        ),
        Section(
            "tessel",
            lambda size, asked: tessel_eval_settings(size, asked.time_limit),
            measure_tessel_eval,
            long=True,
        ),
        Section("steps", lambda size, asked: steps_settings(size, asked.time_limit), measure_steps, long=True),
        Section(
            "execution",
            lambda size, asked: execution_settings(size, asked.time_limit),
            measure_execution,
            long=True,
        ),
        Section("faults", lambda size, asked: fault_settings(size), measure_faults, long=True),
        Section("quality", _quality_settings, _quality),
        Section("speed", lambda size, asked: TINY_SPEED if size == "tiny" else SPEED, _speed),
    )
}
