"""What a worker does: reads hostile files, plans, compares, writes reports and exports.

In: a task as JSON. Out: lines for the server: plans, comparisons and choices as the page shows them, small objects
whatever the size of the model. Every error becomes one sentence, in which the server's own paths are replaced by the
labels that the user knows.
"""

from __future__ import annotations

import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag
from threading import Lock, Thread
from typing import IO, Any

import msgspec

from weftline.errors import InputError, UsageError, WeftlineError
from weftline.interrupts import Interruption, uninterrupted
from weftline.plans import Plan, diff_plans
from weftline.plans.summary import better_baseline, guarantee, scattered_hosts
from weftline.ui.task import CheckTask, ChoicesTask, CompareTask, FileTask, ModelFile, PlanTask, Row, Said, Task
from weftline.units import format_name

__all__ = ["choices", "comparison", "do_task", "export_archive", "plan_answer"]

MOST_TEXT = 2000
BEAT_SECONDS = 0.1
"""Seconds between two lines of progress."""
MOST_ROWS = 200
"""In one line; a search that finds more within a beat is told in its last ones."""


def do_task(data: bytes, answers: IO[bytes]) -> None:
    """Do it, and say how it went."""
    teller = Teller(answers)
    try:
        with Interruption(insist=True) as stop:
            task = msgspec.json.decode(data, type=Task)
            said = Said(answer=_WORKS[type(task)](task, teller))
        if stop.ended:
            said = Said(error="stopped before there was a plan", kind="Stopped")
    except WeftlineError as error:
        said = Said(error=_labelled(str(error), task)[:MOST_TEXT], kind=type(error).__name__)
    except Exception as error:  # a defect; the page says so, and the server goes on
        said = Said(error=f"{type(error).__name__}: {error}"[:MOST_TEXT], kind="Defect")
    teller.end(said)


class Teller:
    """Writes lines; progress at most once in a beat."""

    def __init__(self, answers: IO[bytes]) -> None:
        self._answers, self._lock, self._over = answers, Lock(), Flag()
        self._rows: list[Row] = []
        self._note = ""
        self._last: tuple[int | None, int | None] = (None, None)
        Thread(target=self._beats, daemon=True).start()

    def hear(self, event: Any) -> None:
        """An event of the search, from any thread."""
        with self._lock:
            if event.solver and (event.value, event.bound) != self._last:
                self._last = (event.value, event.bound)
                self._rows = [*self._rows[-MOST_ROWS:], (round(event.seconds, 4), event.value, event.bound)]
            if event.message:
                self._note = event.message[:200]

    def end(self, said: Said) -> None:
        """The last line."""
        self._over.set()
        self._flush()
        self._say(said)

    def _beats(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            rows, note, self._rows, self._note = tuple(self._rows), self._note, [], ""
        if rows or note:
            self._say(Said(rows=rows, note=note))

    def _say(self, said: Said) -> None:
        with self._lock:
            self._answers.write(msgspec.json.encode(said) + b"\n")
            self._answers.flush()


def _labelled(text: str, task: Task) -> str:
    """Paths of the server mean nothing to the user."""
    model = getattr(task, "model", None)
    if isinstance(model, ModelFile):
        text = text.replace(model.path, model.label)
    for name in ("plan", "output", "first", "second"):
        text = text.replace(str(getattr(task, name, "") or "\0"), "the plan")
    return text


def _plan(task: PlanTask, teller: Teller) -> dict[str, Any]:
    from weftline.ask.answer import answer
    from weftline.ask.request import ClusterText, PlanRequest, read_dims, read_shapes
    from weftline.plans.plan import save_plan

    request = PlanRequest(
        model=_model(task.model),
        model_name=Path(task.model.label).stem or "model",
        cluster=None if task.cluster is None else ClusterText(task.cluster, "cluster", task.cluster_name),
        objective=task.objective,
        stages=task.stages,
        shapes=read_shapes(task.shapes),
        dims=read_dims(task.dims),
        solver=task.solver,
        gap=task.gap,
        time_limit=task.seconds,
        seed=task.seed,
        argv=task.argv,
    )
    plan = answer(request, on_event=teller.hear)
    with uninterrupted():  # what comes now is too late to stop anything, and must not lose it
        save_plan(plan, task.output)
        return plan_answer(plan)


def _model(model: ModelFile) -> Path:
    """The file; one of the zoo is written first."""
    path = Path(model.path)
    if model.zoo and not path.exists():
        from weftline.zoo import build, save

        save(build(model.zoo, size=model.size, weights=model.weights), path)
    return path


def _file(task: FileTask, teller: Teller) -> dict[str, Any]:
    from weftline.files import write_atomically
    from weftline.plans import load_plan

    plan, output = load_plan(task.plan), Path(task.output)
    if task.what == "report":
        from weftline.report.html import report_html

        write_atomically(output, report_html(plan))
    elif task.what == "trace":
        from weftline.report import trace_json

        write_atomically(output, trace_json(plan))
    else:
        export_archive(plan, task.target, None if task.model is None else _model(task.model), output)
    return {"bytes": output.stat().st_size}


def _compare(task: CompareTask, teller: Teller) -> dict[str, Any]:
    from weftline.plans import load_plan

    return comparison(load_plan(task.first), load_plan(task.second))


def _check(task: CheckTask, teller: Teller) -> dict[str, Any]:
    from weftline.cluster import warnings
    from weftline.cluster.toml import parse_cluster

    try:
        cluster = parse_cluster(task.text, "")
    except InputError as error:
        return {"error": str(error)[:MOST_TEXT]}
    return {
        "name": cluster.name,
        "devices": [[device.id, device.kind] for device in cluster.devices[:64]],
        "count": len(cluster.devices),
        "warnings": [str(warning)[:300] for warning in list(warnings(cluster))[:10]],
    }


def _choices(task: ChoicesTask, teller: Teller) -> dict[str, Any]:

    return choices()


_WORKS: dict[type, Callable[[Any, Teller], dict[str, Any]]] = {
    PlanTask: _plan,
    FileTask: _file,
    CompareTask: _compare,
    CheckTask: _check,
    ChoicesTask: _choices,
}


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
