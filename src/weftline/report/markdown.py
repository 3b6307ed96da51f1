"""A plan as a Markdown page."""

from __future__ import annotations

import re

from weftline.plan import Plan
from weftline.plan.summary import guarantee, measured_words
from weftline.report.rows import Rows, comparison_rows, device_rows, stage_rows
from weftline.units import format_time

__all__ = ["plan_markdown"]


def plan_markdown(plan: Plan) -> str:
    """Value, guarantee, comparison, devices, stages, provenance."""
    what = "Latency" if plan.objective == "latency" else "Period"
    parts = [
        f"# {_text(plan.problem.graph.name)}: {plan.objective} plan",
        f"{what} **{format_time(plan.value_ns)}**, lower bound {format_time(plan.bound_ns)}, gap {plan.gap:.2%}. "
        + " ".join(_text(sentence) for sentence in (guarantee(plan), measured_words(plan)) if sentence),
        "## Comparison\n\n" + _table(*comparison_rows(plan)),
        "## Devices\n\n" + _table(*device_rows(plan)),
    ]
    if plan.stages:
        parts.append("## Stages\n\n" + _table(*stage_rows(plan)))
    source = plan.provenance
    parts.append(
        f"Solver {_text(plan.solver)}, stopped by {_text(plan.stopped_by)}, seed {source.seed}; "
        f"weftline {_text(source.version)}; costs: {_text(plan.problem.cost_source)}; "
        f"problem sha256 `{source.problem_sha256[:64].translate({96: None, 10: None})}`."
    )
    return "\n\n".join(parts) + "\n"


def _table(header: tuple[str, ...], rows: Rows) -> str:
    lines = [header, tuple("---" for _ in header), *rows]
    return "\n".join("| " + " | ".join(_text(cell) for cell in line) + " |" for line in lines)


def _text(name: str) -> str:
    """Names come from files: nothing in them may be Markdown or HTML."""
    return re.sub(r"([\\`*_{}\[\]<>#|&])", r"\\\1", name.replace("\n", " ")).replace("\\_", "_")
