"""Make a plan ready to run on this machine: split the model, start the workers, warm them up.

In: a plan, its ONNX file, inputs, what stands for its devices. Out: a `StartedPlan` with the engine, for as long as the
`with` lasts. The files of segments are read again, node by node, so that a mistake of splitting shows (`misplaced`).
They lie in a `run_folder`, which no crash leaves behind for long. Simplified: constants may stand anywhere, they are no
ops of a plan.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from weftline.errors import InputError, WeftlineError
from weftline.files import run_folder
from weftline.graph.ir import MODEL_INPUT
from weftline.run.compare import Precision, as_numbers, output_difference, precision_of
from weftline.run.devices import OrtDevice, SegmentRefused, ort_devices
from weftline.run.feeds import MADE_STYLES, Feed, as_planned, make_feeds
from weftline.run.local.engine import Engine, Seat, WorkerFailed
from weftline.run.local.lanes import LanePass
from weftline.run.local.layout import WorkerLayout, lay_out
from weftline.run.planned import placements_of, used_devices
from weftline.run.split.manifest import Manifest, ModelSegment
from weftline.run.split.segments import lanes_of_plan
from weftline.run.split.split import split_lanes

if TYPE_CHECKING:
    from weftline.plans import FleetPlan, Plan
    from weftline.problem import Problem

__all__ = ["Asked", "Feeds", "StartedPlan", "misplaced", "start_plan", "whole_model", "why_unsplit_fails"]


def misplaced(plan: Plan | FleetPlan, problem: Problem, manifest: Manifest, folder: Path) -> tuple[str, ...]:
    """Ops that are listed or stored on another device than the plan's, or nowhere."""
    from weftline.importers.onnx.scope import load_model

    wrong = []
    names = [op.name for op in problem.graph.ops]
    maker = {tensor.name: names[tensor.producer] for tensor in problem.graph.tensors if tensor.producer >= 0}
    stored: dict[str, set[str]] = {}
    for lane, placement in enumerate(placements_of(plan)):
        segments = [segment for segment in manifest.segments if segment.lane == lane]
        listed = {op: segment.device for segment in segments for op in segment.ops}
        wrong += [
            f"op {op[:80]!r} is on {listed.get(op, 'no device')!r}, planned on {device!r}"
            for op, device in placement.items()
            if listed.get(op) != device
        ]
        for segment in segments:
            if segment.file not in stored:
                nodes = load_model(folder / segment.file).graph.node
                stored[segment.file] = {maker[name] for node in nodes for name in node.output if name in maker}
            wrong += [
                f"op {op[:80]!r} is in the file of {segment.device!r}"
                for op in stored[segment.file]
                if placement.get(op) != segment.device
            ]
    return tuple(wrong)


def whole_model(split: Manifest, file: str, device: str) -> Manifest:
    """The manifest of a model in one segment: its own file."""
    wires = split.of_lane(0)
    inputs = [replace(wire, targets=(0,), output=False) for wire in wires if wire.source == MODEL_INPUT]
    made = [replace(wire, source=0, targets=()) for wire in wires if wire.output and wire.source != MODEL_INPUT]
    ops = tuple(op for segment in split.segments if segment.lane == 0 for op in segment.ops)
    names = tuple(wire.name for wire in inputs), tuple(wire.name for wire in made)
    return Manifest(
        format="weftline-stages",
        version=1,
        model=split.model,
        model_sha256=split.model_sha256,
        inputs=names[0],
        outputs=names[1],
        segments=(ModelSegment(0, device, file, ops, *names),),
        tensors=(*inputs, *made),
    )


LEAST_WARM_UP = 6
LEAST_COMPARED = 2
"""Requests of each lane of a fleet."""

Feeds = list[Feed]


@dataclass(frozen=True)
class Asked:
    """What a run is told beside its plan."""

    model: Path
    inputs: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None
    runtimes: Mapping[str, str]
    """Device id -> `ort:...`, before what the cluster said."""
    seed: int
    timeout: float
    """So many seconds without any sign of life are a hang."""
    tell: Callable[[str], None]
    plain: bool = False
    """Without ONNX Runtime's optimisations, on one thread: then cutting changes no kernel."""


@dataclass(frozen=True)
class StartedPlan:
    """Workers that are ready."""

    engine: Engine
    layout: WorkerLayout
    manifest: Manifest
    seats: dict[str, Seat]
    feeds: Feeds
    warm_up: LanePass
    wrong: tuple[str, ...]
    """What does not stand where the plan says, in words."""
    precision: Precision
    """Of the model's arithmetic: how far outputs may be from those of the unsplit model."""

    def worst(self, found: LanePass, expected: Feeds) -> float:
        """The largest difference of outputs that were kept to those that are expected."""
        dtype = {wire.name: wire.dtype for wire in self.manifest.tensors}
        worst = 0.0
        for request, outputs in found.kept.items():
            wanted = expected[request % len(expected)]
            for name, value in outputs.items():
                ours, theirs = as_numbers(value, dtype[name]), as_numbers(wanted[name], dtype[name])
                worst = max(worst, output_difference(ours, theirs, self.precision))
        return worst


@contextmanager
def start_plan(plan: Plan | FleetPlan, problem: Problem, asked: Asked) -> Iterator[StartedPlan]:
    """Workers for a plan, until the end of the `with`.

    If a segment fails, it is tried without any shapes in the segments, for some that were computed may be wrong; but
    first it is seen whether the unsplit model runs with these inputs. If not, other random ones are tried.
    """
    with ExitStack() as stack:
        yield _first_that_runs(plan, problem, asked, stack)


class _SegmentsFailed(Exception):
    """Workers were there, but could not load or run their segments."""

    def __init__(self, error: WeftlineError, manifest: Manifest, feeds: Feeds) -> None:
        super().__init__(str(error))
        self.error, self.manifest, self.feeds = error, manifest, feeds


def _first_that_runs(plan: Plan | FleetPlan, problem: Problem, asked: Asked, stack: ExitStack) -> StartedPlan:
    styles = MADE_STYLES if asked.inputs is None else MADE_STYLES[:1]
    why = ""
    for style in styles:
        try:
            return stack.enter_context(_started(plan, problem, asked, style, shapes=True))
        except _SegmentsFailed as failed:
            asked.tell("a segment failed; trying the unsplit model")
            why = why_unsplit_fails(failed.manifest, asked.model, failed.feeds, asked.timeout)
            if why:
                continue
            asked.tell("trying segments without shapes")
            try:
                return stack.enter_context(_started(plan, problem, asked, style, shapes=False))
            except _SegmentsFailed:
                raise failed.error from None
    which = "random inputs" if asked.inputs is None else "the given inputs"
    hint = "give inputs that it takes: --inputs FILE.npz" if asked.inputs is None else "see what the model takes"
    raise InputError(f"ONNX Runtime itself cannot run the unsplit model with {which}: {why}", hint=hint)


def why_unsplit_fails(manifest: Manifest, model: Path, feeds: Feeds, timeout: float) -> str:
    """Empty if one session runs the whole model with all of these."""
    cores = tuple(sorted(os.sched_getaffinity(0))) if hasattr(os, "sched_getaffinity") else (0,)
    seat = Seat(OrtDevice("ort:CPUExecutionProvider", "CPUExecutionProvider", {}, cores, len(cores), True))
    path = model.parent.resolve() / model.name
    layout = lay_out(whole_model(manifest, path.name, "unsplit"), str(path.parent), pipelined=False, as_planned=False)
    try:
        with Engine([(layout, {"unsplit": seat})], timeout=timeout) as engine:
            engine.run([len(feeds)], feeds)
    except (SegmentRefused, WorkerFailed) as error:
        return str(error).removeprefix("device 'unsplit': ")
    return ""


@contextmanager
def _started(
    plan: Plan | FleetPlan, problem: Problem, asked: Asked, style: str, *, shapes: bool
) -> Iterator[StartedPlan]:
    used = used_devices(plan, problem)
    mine = {id: runtime for id, runtime in asked.runtimes.items() if id in {device.id for device in used}}
    speed = {device.id: device.speed for device in used}
    places = ort_devices(used, mine)
    if asked.plain:
        places = {id: replace(place, plain=True, threads=1) for id, place in places.items()}
    seats = {id: Seat(place, speed[id]) for id, place in places.items()}
    with run_folder() as folder:
        asked.tell("splitting the model")
        ids = [device.id for device in problem.devices]
        lanes, rates = lanes_of_plan(plan)
        manifest = split_lanes(
            asked.model, problem.graph, lanes, ids, folder, rates=rates, in_place=True, shapes=shapes
        )
        feeds = make_feeds(manifest, asked.inputs, asked.seed, style)
        pipelined = plan.objective == "throughput"
        layout = lay_out(manifest, str(folder), pipelined=pipelined, as_planned=as_planned(manifest, feeds))
        wrong = misplaced(plan, problem, manifest, folder)
        asked.tell("starting the workers")
        with ExitStack() as stack:
            try:
                engine = stack.enter_context(Engine([(layout, seats)], timeout=asked.timeout))
                shutil.rmtree(folder, ignore_errors=True)  # the sessions hold what they need
                each = max(LEAST_WARM_UP, layout.most_slots, len(feeds))
                turns = [number % manifest.lanes for number in range(each * manifest.lanes)]
                asked.tell(f"warming up: {len(turns)} requests")
                kept = frozenset(range(min(max(each, LEAST_COMPARED * manifest.lanes), len(turns))))
                first = engine.run([len(turns)], feeds, keep=[kept], turns=[turns])[0]
            except (SegmentRefused, WorkerFailed) as error:
                raise _SegmentsFailed(error, manifest, feeds) from error
            yield StartedPlan(engine, layout, manifest, seats, feeds, first, wrong, precision_of(problem.graph))
