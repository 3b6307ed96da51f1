"""What a worker does: reads hostile files, plans, schedules, compares, writes reports and exports.

In: a task as JSON. Out: lines for the server: answers, comparisons and choices as the page shows them, small objects
whatever the size of the model. Every error becomes one sentence, in which the server's own paths are replaced by the
labels that the user knows.
"""

from __future__ import annotations

import shutil
import zipfile
from collections import Counter
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import msgspec

from weftline.errors import InputError, UsageError, WeftlineError
from weftline.interrupts import Interruption, uninterrupted
from weftline.plans import Plan, diff_plans
from weftline.plans.advice import advise
from weftline.plans.summary import better_baseline, guarantee, guess_words, scattered_hosts
from weftline.ui.cards import fit_cards
from weftline.ui.offers import choices, named_cluster
from weftline.ui.task import (
    CardsTask,
    CheckTask,
    ChoicesTask,
    CompareTask,
    FileTask,
    ModelFile,
    NamedTask,
    PlanTask,
    Said,
    ScheduleTask,
    Task,
    Teller,
)
from weftline.units import format_name

if TYPE_CHECKING:
    from weftline.plans.schedule import Schedule

__all__ = ["comparison", "do_task", "export_archive", "plan_answer", "schedule_answer", "schedules_compared"]

MOST_TEXT = 2000
MOST_REASON = 400
"""Letters of a sentence about an export or a change."""
PICTURE_SPANS = 6000
"""Blocks that the page draws of a schedule; its report draws more."""
LOADING = ("loading", "loading the kernels of the search")


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


def _labelled(text: str, task: Task) -> str:
    """Paths of the server mean nothing to the user."""
    model = getattr(task, "model", None)
    if isinstance(model, ModelFile):
        text = text.replace(model.path, model.label)
    for name in ("plan", "output", "first", "second"):
        text = text.replace(str(getattr(task, name, "") or "\0"), "the file")
    return text


def _plan(task: PlanTask, teller: Teller) -> dict[str, Any]:
    teller.begin("reading", "reading the model and the cluster")
    from weftline.ask.answer import answer_one, resolve
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
    said: list[str] = []
    found = resolve(request, say=said.append)
    teller.begin(*LOADING)
    plan = answer_one(found, on_event=teller.hear)
    with uninterrupted():  # what comes now is too late to stop anything, and must not lose it
        save_plan(plan, task.output)
        shown = plan_answer(plan)
        return {**shown, "warnings": [*said, *shown["warnings"]], "exports": _exports(plan, found.file, task)}


def _exports(answer: Plan | Schedule, model: Path | None, task: Task) -> list[list[str]]:
    """Name, description and why not, of every target for such an answer."""
    from weftline.export import ExportOptions, plan_exporters, schedule_exporters, why_not

    known = plan_exporters() if isinstance(answer, Plan) else schedule_exporters()
    reasons = {name: why_not(target, answer, ExportOptions(model)) for name, target in known.items()}
    return [[name, known[name].description, _labelled(why, task)[:MOST_REASON]] for name, why in reasons.items()]


def _schedule(task: ScheduleTask, teller: Teller) -> dict[str, Any]:
    teller.begin("reading", "reading the plan" if task.plan else "making the blocks")
    from weftline.ask.micro_batches import answer_schedule, resolve_blocks
    from weftline.ask.request import ScheduleRequest, read_memory
    from weftline.files import write_atomically
    from weftline.report.html.pack import PageBudget
    from weftline.report.html.schedule import schedule_data
    from weftline.schedule.make_blocks import make_shape

    request = ScheduleRequest(
        blocks=make_shape(task.shape, task.devices, train=task.train) if task.shape else None,
        plan=Path(task.plan) if task.plan else None,
        micro_batches=task.micro_batches,
        memory=read_memory(task.memory, bool(task.plan), "memory ") if task.memory else None,
        train=task.train,
        split_backward=task.split_backward,
        recompute=task.recompute,
        objective=task.objective,
        solver=task.solver,
        gap=task.gap,
        time_limit=task.seconds,
        seed=task.seed,
        argv=task.argv,
    )
    blocks = resolve_blocks(request)
    teller.begin(*LOADING)
    found = answer_schedule(blocks, on_event=teller.hear)
    with uninterrupted():
        found.save(task.output)
        data = schedule_data(found, PageBudget(characters=200_000, spans=PICTURE_SPANS, steps=2000))
        picture = {key: data[key] for key in ("unit", "devices", "timeline")}
        write_atomically(Path(task.output).with_name("picture.json"), msgspec.json.encode(picture))
        return {**schedule_answer(found), "exports": _exports(found, None, task)}


def _model(model: ModelFile) -> Path:
    """The file; one of the zoo is written first."""
    path = Path(model.path)
    if model.zoo and not path.exists():
        from weftline.zoo import build, save

        save(build(model.zoo, size=model.size, weights=model.weights), path)
    return path


def _file(task: FileTask, teller: Teller) -> dict[str, Any]:
    from weftline.files import write_atomically
    from weftline.report.html import report_html
    from weftline.report.trace import schedule_trace, trace_json

    answer, output = _load(task.plan), Path(task.output)
    if task.what == "report":
        write_atomically(output, report_html(answer))
    elif task.what == "trace":
        write_atomically(output, trace_json(answer) if isinstance(answer, Plan) else schedule_trace(answer))
    else:
        export_archive(answer, task.target, None if task.model is None else _model(task.model), output)
    return {"bytes": output.stat().st_size}


def _load(path: str) -> Plan | Schedule:
    from weftline.plans import load_plan
    from weftline.plans.schedule import load_schedule

    return load_schedule(path) if Path(path).name == "sched.json" else load_plan(path)


def _compare(task: CompareTask, teller: Teller) -> dict[str, Any]:
    first, second = _load(task.first), _load(task.second)
    if isinstance(first, Plan) and isinstance(second, Plan):
        return comparison(first, second)
    if isinstance(first, Plan) or isinstance(second, Plan):
        raise UsageError("a plan and a schedule are not compared")
    return schedules_compared(first, second)


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


def _cards(task: CardsTask, teller: Teller) -> dict[str, Any]:
    try:
        return fit_cards(task)
    except WeftlineError as error:
        return {"error": str(error)[:MOST_TEXT]}


def _named_devices(task: NamedTask, teller: Teller) -> dict[str, Any]:
    try:
        return named_cluster(task)
    except WeftlineError as error:
        return {"error": str(error)[:MOST_TEXT]}


_WORKS: dict[type, Callable[[Any, Teller], dict[str, Any]]] = {
    PlanTask: _plan,
    ScheduleTask: _schedule,
    FileTask: _file,
    CompareTask: _compare,
    CheckTask: _check,
    ChoicesTask: _choices,
    NamedTask: _named_devices,
    CardsTask: _cards,
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
        "subject": _subject(plan),
        "value_ns": plan.value_ns,
        "bound_ns": plan.bound_ns,
        "gap": plan.gap,
        "proof": plan.proof,
        "bound_by": plan.bound_by,
        "seconds": plan.seconds,
        "stopped_by": plan.stopped_by,
        "advice": advise(plan),
        "guessed": guess_words(plan.problem.graph),
        "guarantee": guarantee(plan),
        "warnings": [sentence for sentence in (better_baseline(plan), scattered_hosts(plan)) if sentence],
        "baselines": sorted(plan.baselines.items(), key=lambda item: (item[1] is None, item[1] or 0)),
        "devices": [
            [name, ops[name], use.load_ns, use.memory_bytes, use.memory_limit]
            for name, use in list(plan.devices.items())[:MOST_SHOWN]
        ],
        "stages": [[s.device, s.ops, s.compute_ns, s.in_ns, s.out_ns, s.load_ns] for s in plan.stages[:MOST_SHOWN]],
    }


def _subject(answer: Plan | Schedule) -> str:
    """What an answer is about: those of one subject can be compared, others cannot."""
    if isinstance(answer, Plan):
        about = msgspec.json.encode((answer.objective, msgspec.structs.replace(answer.problem.graph, name="")))
    else:
        kinds = [block.kind for block in answer.blocks.blocks]
        passes = "training" if "B" in kinds else "inference"
        about = f"{answer.name}, {passes}, {answer.objective}, {'plan' in answer.provenance.inputs}".encode()
    return sha256(about).hexdigest()[:16]


def schedule_answer(schedule: Schedule) -> dict[str, Any]:
    """What the page shows of a schedule without reading it."""
    from weftline.plans.schedule_story import schedule_advice, schedule_words

    lanes = schedule.load_blocks().devices
    busy = [sum(action.end - action.start for action in row) for row in schedule.actions]
    rows = zip(lanes, busy, schedule.peak_memory, schedule.memory_limit, strict=True)
    devices = [[format_name(lane.id), work, peak, limit] for lane, work, peak, limit in rows if not lane.link]
    return {
        "name": format_name(schedule.name),
        "objective": schedule.objective,
        "subject": _subject(schedule),
        "micro_batches": schedule.micro_batches,
        "unit": "ns" if "plan" in schedule.provenance.inputs else "",
        "value_ns": schedule.value,
        "bound_ns": schedule.bound,
        "makespan": schedule.makespan,
        "gap": schedule.gap,
        "proof": schedule.proof,
        "bound_by": schedule.bound_by,
        "period": schedule.period,
        "period_bound": schedule.period_bound,
        "repeats": schedule.repetend is not None,
        "seconds": schedule.seconds,
        "stopped_by": schedule.stopped_by,
        "advice": schedule_advice(schedule),
        "words": [sentence[:1].upper() + sentence[1:] for sentence in schedule_words(schedule)],
        "warnings": [],
        "baselines": sorted(schedule.reached.items(), key=lambda item: (item[1] is None, item[1] or 0)),
        "devices": devices[:MOST_SHOWN],
    }


def schedules_compared(first: Schedule, second: Schedule) -> dict[str, Any]:
    """Two schedules side by side: (name, first, second, what kind of number, whether less is better)."""
    a, b = schedule_answer(first), schedule_answer(second)
    _check_subjects(a["subject"] == b["subject"], "One has other blocks, passes or aims than the other")
    same = first.micro_batches == second.micro_batches
    rows: list[list[Any]] = [[first.objective, first.value, second.value, "time", same]]
    if not same:
        rows.append(["micro-batches", first.micro_batches, second.micro_batches, "count", False])
        each = [answer.makespan / answer.micro_batches for answer in (first, second)]
        rows.append(["makespan for each micro-batch", *each, "time", True])
    rows.append(["lower bound", first.bound, second.bound, "time", False])
    rows.append(["period for each micro-batch", first.period, second.period, "time", True])
    rows.append(["latency of a micro-batch", first.latency, second.latency, "time", True])
    known = {name: (work, peak) for name, work, peak, _ in a["devices"]}
    for name, work, peak, _ in b["devices"]:
        if name in known:
            rows.append([f"work of {name}", known[name][0], work, "time", False])
            rows.append([f"memory of {name}", known[name][1], peak, "size", False])
    return {"kind": "schedule", "unit": a["unit"], "gap": (first.gap, second.gap), "rows": rows[:MOST_SHOWN]}


def _check_subjects(same: bool, why: str) -> None:
    if not same:
        raise UsageError(f"{why}, so they are not compared")


def comparison(first: Plan, second: Plan) -> dict[str, Any]:
    """The same as `weftline diff`, as numbers, of plans of one model and one objective."""
    _check_subjects(first.objective == second.objective, "One is a latency, the other a period: different things")
    _check_subjects(_subject(first) == _subject(second), "The models are not the same, or have other shapes")
    found = diff_plans(first, second)
    return {
        "identical": found.identical,
        "same_problem": found.same_problem,
        "problem_changes": [change[:MOST_REASON] for change in found.problem_changes],
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


def export_archive(answer: Plan | Schedule, target: str, model: Path | None, output: Path) -> None:
    """The files of an export as one archive."""
    from weftline.export import ExportOptions, plan_exporters, schedule_exporters

    known = plan_exporters() if isinstance(answer, Plan) else schedule_exporters()
    if target not in known:
        raise UsageError(f"unknown target {target!r:.40}; there are: {', '.join(known)}")
    folder = output.with_name(f"{output.name}.files")
    try:
        folder.mkdir()
        if isinstance(answer, Plan):
            files = known[target].write(answer, folder, ExportOptions(model))
        else:
            files = known[target].write(answer if known[target].file else answer.timetable(), folder)
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
