"""The results -> docs/benchmarks.md. Every number comes from the JSON; the same JSON gives the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from benchmarks.render_execution import execution_sections
from benchmarks.render_faults import fault_sections
from benchmarks.render_fusion import fusion_sections
from benchmarks.render_heads import heads_sections
from benchmarks.render_learned import learned_sections, policy_sections
from benchmarks.render_measured import measured_sections
from benchmarks.render_paper import paper_sections
from benchmarks.render_placement import placement_sections
from benchmarks.render_placement_scale import placement_scale_sections
from benchmarks.render_quality import quality_sections
from benchmarks.render_references import reference_sections
from benchmarks.render_regal import regal_sections
from benchmarks.render_scale import scale_sections
from benchmarks.render_schedules import schedule_sections
from benchmarks.render_speed import speed_sections
from benchmarks.render_steps import steps_sections
from benchmarks.render_tessel_eval import tessel_eval_sections
from benchmarks.render_unequal import unequal_sections
from benchmarks.results_file import BestKnown
from benchmarks.table import table
from weftline.units import format_bytes

__all__ = ["render"]

Run = dict[str, Any]
TITLES: dict[str, tuple[str, Callable[[Run, BestKnown], list[str]]]] = {
    "paper": ("Pipelines on equal devices: the paper's experiment", lambda run, _: paper_sections(run)),
    "fiddle": ("Pipelines with known optima", lambda run, _: reference_sections(run)),
    "regal": ("Pipelines of random graphs", regal_sections),
    "unequal": ("Pipelines on unequal devices", lambda run, _: unequal_sections(run)),
    "scale": ("Pipelines of large graphs", scale_sections),
    "placement": ("Placement for latency", placement_sections),
    "heads": ("Placement of encoder-decoders, one op per head", lambda run, _: heads_sections(run)),
    "fusion": ("Placement with and without fusion-aware coarsening", lambda run, _: fusion_sections(run)),
    "placement-scale": ("Placement of large graphs", placement_scale_sections),
    "learned": ("Learned placement", lambda run, _: learned_sections(run)),
    "policy": ("One policy for unseen graphs and clusters", lambda run, _: policy_sections(run)),
    "measured": ("Measured rewards: placements run for real", lambda run, _: measured_sections(run)),
    "schedules": ("Schedules for many micro-batches", lambda run, _: schedule_sections(run)),
    "tessel": ("Tessel's evaluation, simulated", lambda run, _: tessel_eval_sections(run)),
    "steps": ("Schedules, trained for real", lambda run, _: steps_sections(run)),
    "execution": ("Plans, run for real", lambda run, _: execution_sections(run)),
    "faults": ("Runs that are ended from outside", lambda run, _: fault_sections(run)),
    "quality": ("Quality", lambda run, _: quality_sections(run)),
    "speed": ("Speed", lambda run, _: speed_sections(run["speed"])),
}
QUICK = "A subset with less time, at another commit than the whole run above if the stamps differ."


def render(sections: dict[str, dict[str, Run]], best: BestKnown) -> str:
    """The whole page."""
    parts = [_head(sections)]
    for name, (title, write) in TITLES.items():
        runs = sections.get(name, {})
        if runs:
            parts.append(f"## {title}")
        for size in ("full", "quick"):
            if size in runs:
                parts += ["### Quick subset", QUICK] if size == "quick" and "full" in runs else []
                parts += [_stamp(runs[size]), *write(runs[size], best)]
    return "\n\n".join(parts) + "\n"


def _head(sections: dict[str, dict[str, Run]]) -> str:
    note = (
        "Written by `make bench`; do not edit. `python -m benchmarks --render` makes this page again from its results. "
        "Sections are measured one by one, and each says at which commit (`+` = with changes that were not committed). "
        "`make bench` takes a subset of the long ones; their last whole run stays here."
    )
    return f"# Benchmarks\n\n{note}\n\n{_runs(sections)}\n\n{_machines(sections)}"


def _every(sections: dict[str, dict[str, Run]]) -> Iterator[tuple[str, Run]]:
    for name in TITLES:
        for size, run in sections.get(name, {}).items():
            yield name if size == "full" else f"{name}, quick subset", run["stamp"]


def _runs(sections: dict[str, dict[str, Run]]) -> str:
    lines = [
        (
            name,
            stamp["commit"] or "-",
            stamp["date"],
            f"`{stamp['command']}`",
            f"{stamp['seconds']:.0f}",
            f"{stamp['environment']['load_before']}",
        )
        for name, stamp in _every(sections)
    ]
    return table(("section", "commit", "date", "command", "seconds", "load average before"), lines)


def _machines(sections: dict[str, dict[str, Run]]) -> str:
    seen: dict[str, list[str]] = {}
    for name, stamp in _every(sections):
        machine = stamp["environment"]
        versions = ", ".join(f"{package} {number}" for package, number in machine["versions"].items())
        text = (
            f"{machine['cpu']}, {machine['cores']} cores, {format_bytes(machine['memory_bytes'])}, "
            f"{machine['system']}; {versions}"
        )
        seen.setdefault(text, []).append(name)
    if len(seen) == 1:
        return f"Machine and versions: {next(iter(seen))}."
    return table(("machine and versions", "sections"), [(text, ", ".join(names)) for text, names in seen.items()])


def _stamp(run: Run) -> str:
    stamp = run["stamp"]
    tiny = " **A tiny run: its numbers only show that the harness works.**" if stamp["size"] == "tiny" else ""
    return f"*Measured at commit {stamp['commit'] or '(none)'}, {stamp['date']}.*{tiny}"
