"""Plans, comparisons and choices as the page shows them: small JSON objects, whatever the size of the model."""

from __future__ import annotations

import shutil
import zipfile
from collections import Counter
from pathlib import Path
from typing import Any

from weftline.errors import UsageError
from weftline.plans import Plan, diff_plans
from weftline.plans.summary import better_baseline, guarantee, scattered_hosts
from weftline.units import format_name

__all__ = ["choices", "comparison", "export_archive", "plan_answer"]

MOST_SHOWN = 200
"""Devices, stages or moved ops in one answer."""
_DATE = (1980, 1, 1, 0, 0, 0)
"""Of files in an archive: the same export has the same bytes."""


def plan_answer(plan: Plan) -> dict[str, Any]:
    """What the page shows of a plan without reading it."""
    ops = Counter(plan.placement.values())
    return {
        "name": format_name(plan.problem.graph.name),
        "ops": len(plan.problem.graph.ops),
        "objective": plan.objective,
        "value_ns": plan.value_ns,
        "bound_ns": plan.bound_ns,
        "gap": plan.gap,
        "proof": plan.proof,
        "bound_by": plan.bound_by,
        "seconds": plan.seconds,
        "stopped_by": plan.stopped_by,
        "guarantee": guarantee(plan),
        "warnings": [sentence for sentence in (better_baseline(plan), scattered_hosts(plan)) if sentence],
        "baselines": sorted(plan.baselines.items(), key=lambda item: (item[1] is None, item[1] or 0)),
        "devices": [
            [name, ops[name], use.load_ns, use.memory_bytes, use.memory_limit]
            for name, use in list(plan.devices.items())[:MOST_SHOWN]
        ],
        "stages": [[s.device, s.ops, s.compute_ns, s.in_ns, s.out_ns, s.load_ns] for s in plan.stages[:MOST_SHOWN]],
    }


def comparison(first: Plan, second: Plan) -> dict[str, Any]:
    """The same as `weftline diff`, as numbers."""
    found = diff_plans(first, second)
    return {
        "identical": found.identical,
        "same_problem": found.same_problem,
        "same_objective": first.objective == second.objective,
        "value_ns": found.value_ns,
        "bound_ns": found.bound_ns,
        "gap": (first.gap, second.gap),
        "proof": (first.proof, second.proof),
        "solver": found.solver,
        "load_ns": [[device, *pair] for device, pair in list(found.load_ns.items())[:MOST_SHOWN]],
        "moves": Counter(f"{a} -> {b}" for a, b in found.moved.values()).most_common(MOST_SHOWN),
        "moved": [[format_name(op), *pair] for op, pair in list(found.moved.items())[:MOST_SHOWN]],
        "moved_count": len(found.moved),
        "only": [len(found.only_a), len(found.only_b)],
    }


def export_archive(plan: Plan, target: str, model: Path | None, output: Path) -> None:
    """The files of an export as one archive."""
    from weftline.export import ExportOptions, plan_exporters

    known = plan_exporters()
    if target not in known:
        raise UsageError(f"unknown target {target!r:.40}; there are: {', '.join(known)}")
    folder = output.with_name(f"{output.name}.files")
    try:
        folder.mkdir()
        files = known[target].write(plan, folder, ExportOptions(model))
        part = output.with_name(f"{output.name}.part")
        with zipfile.ZipFile(part, "w") as archive:
            for path in sorted(files):
                stored = zipfile.ZIP_STORED if path.suffix in (".onnx", ".bin") else zipfile.ZIP_DEFLATED
                entry = zipfile.ZipInfo(path.name, _DATE)
                entry.compress_type, entry.external_attr, entry.file_size = stored, 0o644 << 16, path.stat().st_size
                with path.open("rb") as source, archive.open(entry, "w") as sink:
                    shutil.copyfileobj(source, sink, 2**20)
        part.replace(output)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def choices() -> dict[str, Any]:
    """Models, clusters, solvers and targets that this installation offers."""
    from weftline import __version__
    from weftline.ask.planning import solvers_for
    from weftline.cluster import preset_descriptions, preset_text
    from weftline.export import plan_exporters
    from weftline.zoo import architectures

    return {
        "version": __version__,
        "zoo": [[name, entry.description, list(entry.sizes)] for name, entry in architectures().items()],
        "presets": [[name, text, preset_text(name)] for name, text in preset_descriptions().items()],
        "solvers": {
            objective: [[name, solver.description] for name, solver in solvers_for(objective).items()]
            for objective in ("latency", "throughput")
        },
        "exports": [[name, target.description] for name, target in plan_exporters().items()],
    }
