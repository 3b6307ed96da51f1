"""What a worker does: reads hostile files, plans, compares, writes reports and exports.

In: a task as JSON. Out: lines for the server. Every error becomes one sentence, in which the server's own paths are
replaced by the labels that the user knows.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from threading import Event as Flag
from threading import Lock, Thread
from typing import IO, Any

import msgspec

from weftline.errors import InputError, WeftlineError
from weftline.interrupts import Interruption, uninterrupted
from weftline.ui.task import CheckTask, ChoicesTask, CompareTask, FileTask, ModelFile, PlanTask, Row, Said, Task

__all__ = ["do_task"]

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
    from weftline.ask.request import ClusterText, PlanRequest, read_shapes
    from weftline.plans.plan import save_plan
    from weftline.ui.answers import plan_answer

    request = PlanRequest(
        model=_model(task.model),
        model_name=Path(task.model.label).stem or "model",
        cluster=None if task.cluster is None else ClusterText(task.cluster, "cluster", task.cluster_name),
        objective=task.objective,
        stages=task.stages,
        shapes=read_shapes(task.shapes),
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
    from weftline.ui.answers import export_archive

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
    from weftline.ui.answers import comparison

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
    from weftline.ui.answers import choices

    return choices()


_WORKS: dict[type, Callable[[Any, Teller], dict[str, Any]]] = {
    PlanTask: _plan,
    FileTask: _file,
    CompareTask: _compare,
    CheckTask: _check,
    ChoicesTask: _choices,
}
