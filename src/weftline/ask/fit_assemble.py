"""A FitAnswer and the facts around it -> the FitPlan: intervals, prompts, baselines, memory per card, the command.

In: a task, its problem, an answer. Out: a FitPlan whose bound is `proved` where the checker re-computes it. Simplified:
the interval of a mixed machine is that of its devices, weighed by their time.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from time import monotonic

import msgspec

from weftline import __version__
from weftline.ask.fit_build import FIT_PARTS, FitTask, build_fit_problem
from weftline.ask.fit_launch import fit_launches, launch_notes
from weftline.ask.fit_request import FitRequest
from weftline.certify.bound_fit import fit_bound
from weftline.certify.problem import Refusal
from weftline.cost.llm import (
    Interval,
    LlmCalibration,
    LlmDevice,
    buffers_are_exact,
    calibrate,
    constants_for,
    embedding_bytes,
    host_buffer,
    number_family,
    prefill_time,
    read_measurement,
)
from weftline.cost.llm.prefill import OFFLOAD_BATCH, copy_time
from weftline.fleet.fit import FitCost, cost_segments
from weftline.plans.fit import (
    FitBound,
    FitHolding,
    FitHost,
    FitModel,
    FitMove,
    FitPlan,
    FitProvenance,
    FitTerms,
)
from weftline.problem.fit import FitAnswer, FitProblem, FitSegment, fit_hash

__all__ = ["assemble_fit", "prompt_ns"]

PARTS_PER_MILLION = 1_000_000
ENOUGH_LIKE_ONE = 1.01
"""Plans that are faster than one card by less are not worth a split."""


def assemble_fit(
    request: FitRequest, task: FitTask, problem: FitProblem, answer: FitAnswer, *, solver: str, begun: float
) -> FitPlan:
    """The whole answer."""
    cost = cost_segments(problem, answer.segments)
    calibration = _calibration(request, task, answer)
    rate = Interval.rate(_decode_interval(task, problem, answer.segments, cost, calibration), problem.streams)
    prompt = task.settings.timed_at
    first = calibration.prefill_interval(prompt_ns(task, problem, answer.segments, prompt), *_prefill_ppm(task))
    factor = rate.value / problem.tokens_per_second(cost.value_ns)
    launch = fit_launches(task, problem, answer.segments)
    bound = answer.bound_ns
    proof = "proved" if _is_proved(problem, answer) else "claimed" if bound else "none"
    baselines = {
        name: None if value is None else factor * problem.tokens_per_second(value) for name, value in answer.baselines
    }
    free = None if answer.free_ns is None else factor * problem.tokens_per_second(answer.free_ns)
    return FitPlan(
        value_ns=cost.value_ns,
        bound_ns=bound,
        gap=answer.gap if bound else 1.0,
        proof=proof,  # type: ignore[arg-type]
        bound_by="relaxation" if bound else "",
        tokens_per_second=rate,
        measured_factor=factor if calibration.decode_measured else 1.0,
        bound_tokens_per_second=factor * problem.tokens_per_second(bound) if bound else 0.0,
        prefill_tokens_per_second=Interval.rate(first, prompt),
        first_token_ns=round(first.value),
        baselines=baselines,
        free_tokens_per_second=free,
        advice=_advice(task, problem, answer, baselines, rate.value),
        model=_model(task),
        terms=_terms(task),
        devices=_holdings(task, problem, answer.segments, cost),
        moved=_moves(problem, answer.segments),
        host=_host(task, problem, cost),
        command=tuple(line.shell() for line in launch),
        launch=launch,
        notes=tuple(
            dict.fromkeys((*task.model.notes, *task.machine.notes, *_notes(task), *launch_notes(task, answer.segments)))
        ),
        solver=solver,
        seconds=round(monotonic() - begun, 3),
        stopped_by="done",
        segments=answer.segments,
        bounds=(FitBound("relaxation", bound, "proved" if proof == "proved" else "claimed", answer.witness),)
        if bound
        else (),
        provenance=FitProvenance(__version__, fit_hash(problem), request.argv),
        problem=problem,
    )


def _is_proved(problem: FitProblem, answer: FitAnswer) -> bool:
    """Whether the checker re-computes the bound; a witness that it refuses leaves a claim, with a warning."""
    if not answer.bound_ns or answer.witness is None:
        return False
    try:
        return fit_bound(msgspec.to_builtins(problem), answer.witness) >= answer.bound_ns
    except (Refusal, KeyError, IndexError, TypeError, ValueError) as error:
        warnings.warn(f"the bound is only claimed: {error!s:.200}", RuntimeWarning, stacklevel=2)
        return False


def _device_of(task: FitTask, name: str) -> LlmDevice:
    return next(device for device in task.machine.devices if device.id == name)


def _decode_interval(
    task: FitTask, problem: FitProblem, segments: Sequence[FitSegment], cost: FitCost, calibration: LlmCalibration
) -> Interval:
    """Shares of the measured range, weighed by the time that each class of devices takes."""
    family = number_family(task.model)
    total = max(1, sum(cost.unit_ns))
    low = high = 0
    for segment, time in zip(segments, cost.unit_ns, strict=True):
        constants = constants_for(
            _device_of(task, problem.devices[segment.devices[0]].id).cost_class, family, task.settings.engine
        )
        low += constants.low_ppm * time // total
        high += constants.high_ppm * time // total
    return calibration.decode_interval(cost.value_ns, max(1, low), max(1, high))


def _prefill_ppm(task: FitTask) -> tuple[int, int]:
    family = number_family(task.model)
    known = [
        constants_for(device.cost_class, family, task.settings.engine)
        for device in task.machine.cards or task.machine.devices
    ]
    return min(one.prefill_low_ppm for one in known), max(one.prefill_high_ppm for one in known)


def prompt_ns(task: FitTask, problem: FitProblem, segments: Sequence[FitSegment], prompt: int) -> int:
    """A prompt over all layers; a group computes and reads as many times faster as it has cards."""
    devices, layers = [], []
    for number, segment in enumerate(segments):
        one, width = _device_of(task, problem.devices[segment.devices[0]].id), len(segment.devices)
        devices.append(msgspec.structs.replace(one, flops=one.flops * width, bandwidth=one.bandwidth * width))
        layers += [number] * (min(segment.last, problem.blocks) - segment.first)
    return prefill_time(task.model, task.settings, devices, layers, prompt) + _copied(task, problem, segments, prompt)


def _copied(task: FitTask, problem: FitProblem, segments: Sequence[FitSegment], prompt: int) -> int:
    """Parts on the host whose layer is a card's: llama.cpp copies them to the card for every micro-batch that is not
    small."""
    host, size = problem.host_unit, task.settings.micro_batch
    if host is None or min(prompt, size) < OFFLOAD_BATCH:
        return 0
    found = 0
    for segment in segments:
        card = _device_of(task, problem.devices[segment.devices[0]].id)
        moved = sum(problem.units[host].bytes[problem.rows[row]][part] for row, part in segment.moved)
        found += copy_time(card, moved) if moved else 0
    return found * -(-prompt // size)


def _calibration(request: FitRequest, task: FitTask, answer: FitAnswer) -> LlmCalibration:
    """Factors by which the user's own measurement of this plan differs from the estimate at the same depth."""
    if not request.measured:
        return LlmCalibration()
    measured = read_measurement(request.measured)
    depth = measured.decode_depth if measured.decode_depth >= 0 else task.settings.timed_at
    settings = msgspec.structs.replace(
        task.settings, live=max(1, min(depth, task.settings.context)), concurrency=1, context=task.settings.context
    )
    alone = msgspec.structs.replace(task, settings=settings)
    problem = build_fit_problem(alone)
    decode = cost_segments(problem, answer.segments).value_ns
    prompt = measured.prefill_tokens or task.settings.timed_at
    prefill = prompt_ns(alone, problem, answer.segments, prompt) / prompt
    return calibrate(measured, decode, prefill)


def _holdings(
    task: FitTask, problem: FitProblem, segments: Sequence[FitSegment], cost: FitCost
) -> tuple[FitHolding, ...]:
    """Every device, in the order of the layers; those without layers come last."""
    home = {device: number for number, segment in enumerate(segments) for device in segment.devices}
    order = sorted(range(len(problem.devices)), key=lambda device: (home.get(device, len(segments)), device))
    return tuple(_holding(task, problem, segments, cost, device, home.get(device)) for device in order)


def _holding(
    task: FitTask, problem: FitProblem, segments: Sequence[FitSegment], cost: FitCost, device: int, home: int | None
) -> FitHolding:
    use, about = cost.uses[device], problem.devices[device]
    segment = None if home is None else segments[home]
    table = _table_bytes(task, problem, segments, home)
    weights = sum(use.part_bytes) - use.part_bytes[FIT_PARTS.index("kv")] + table
    limit = about.limit_bytes
    if about.host:
        weights, limit = weights + embedding_bytes(task.model), limit + embedding_bytes(task.model)
    rows = () if segment is None else (segment.first, min(segment.last, problem.blocks))
    return FitHolding(
        id=about.id,
        name=_device_of(task, about.id).name,
        weights_bytes=weights,
        kv_bytes=use.part_bytes[FIT_PARTS.index("kv")],
        compute_bytes=use.buffer_bytes - table,
        limit_bytes=limit,
        layers=rows if rows and rows[0] < rows[1] else (),
        output=segment is not None and segment.last == len(problem.rows),
        share=1.0 if segment is None else 1 / len(segment.devices),
        step_ns=0 if home is None else cost.unit_ns[home],
    )


def _table_bytes(task: FitTask, problem: FitProblem, segments: Sequence[FitSegment], home: int | None) -> int:
    """The input embedding, which engines of ranks hold on the first one: the problem counts it among the buffers."""
    if not task.served or home != 0:
        return 0
    tied = task.model.tied and segments[0].last == len(problem.rows)
    return 0 if tied else embedding_bytes(task.model, len(segments[0].devices))


def _moves(problem: FitProblem, segments: Sequence[FitSegment]) -> tuple[FitMove, ...]:
    found: dict[tuple[str, str], list[int]] = {}
    for segment in segments:
        for row, part in segment.moved:
            key = (problem.parts[part], problem.devices[segment.devices[0]].id)
            found.setdefault(key, []).append(row)
    return tuple(FitMove(part, device, tuple(sorted(rows))) for (part, device), rows in found.items())


def _host(task: FitTask, problem: FitProblem, cost: FitCost) -> FitHost:
    """What lies in the memory of the host, also where nobody said how large it is."""
    own = next((use for use in cost.uses if problem.devices[use.device].host), None)
    table = 0 if task.served else embedding_bytes(task.model)
    if own is None:
        cards = sum(bool(use.bytes) for use in cost.uses)
        return FitHost(table, 0, host_buffer(task.model, task.settings, cards, pipelined=cost.pipelined))
    cache = own.part_bytes[FIT_PARTS.index("kv")]
    return FitHost(sum(own.part_bytes) - cache + table, cache, own.buffer_bytes)


def _model(task: FitTask) -> FitModel:
    model = task.model
    size = sum(tensor.bytes for tensor in model.tensors)
    return FitModel(
        name=model.name,
        architecture=model.architecture,
        source=model.source,
        quantisation=model.quantisation,
        layers=len(model.layers),
        parameters=model.parameters,
        bytes=size,
        exact_bytes=model.exact_bytes,
        context=model.context,
    )


def _terms(task: FitTask) -> FitTerms:
    settings = task.settings
    return FitTerms(
        engine=settings.engine.value,
        context=settings.context,
        live=settings.timed_at,
        concurrency=settings.concurrency,
        kv_type_k=settings.kv_type_k,
        kv_type_v=settings.kv_type_v,
        micro_batch=settings.micro_batch,
        memory_permille=settings.memory_permille,
    )


def _notes(task: FitTask) -> list[str]:
    """What limits the answer."""
    notes = []
    model, settings = task.model, task.settings
    if model.context and settings.context > model.context:
        notes.append(f"{model.name} was made for {model.context:,} tokens; a context of {settings.context:,} is longer")
    if not buffers_are_exact(model, settings):
        more = "" if task.served else "; llama-fit-params --fit-print on says what they are"
        notes.append(f"buffers are estimates for this model and engine{more}")
    if not model.exact_bytes:
        notes.append("bytes follow from shapes and the recipe; give the file for exact ones")
    return notes


def _advice(
    task: FitTask,
    problem: FitProblem,
    answer: FitAnswer,
    baselines: dict[str, float | None],
    rate: float,
) -> str:
    """What to do first: leave cards out that do not help."""
    used = {device for segment in answer.segments for device in segment.devices}
    cards = [number for number, device in enumerate(problem.devices) if not device.host]
    spare = [problem.devices[number].id for number in cards if number not in used]
    on_cards = [number for number in used if number in cards]
    if task.settings.concurrency > 1:
        return ""
    if len(on_cards) == 1 and spare and len(used) == 1:
        name = _device_of(task, problem.devices[on_cards[0]].id).name
        return (
            f"Do not split: the model fits on {problem.devices[on_cards[0]].id} ({name}) alone, and more cards make "
            "one request no faster; the others are free for another copy."
        )
    alone = max((value for name, value in baselines.items() if value and "one card" in name), default=0.0)
    if len(on_cards) > 1 and alone * ENOUGH_LIKE_ONE >= rate:
        return "One card alone is as fast within 1 %: leave the others out."
    return ""
