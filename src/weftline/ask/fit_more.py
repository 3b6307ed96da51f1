"""Further questions about a language model on cards: the largest context, the best quantisation, a wanted rate.

In: a request, its model and machine. Out: a context or a quantisation for which there is a plan; sentences and numbers
about a wanted rate; what to try where nothing fits. Simplified: whether something fits is asked with a short search;
single cards are compared as they are sold, without a host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec

from weftline.ask.fit_build import FitTask, build_fit_problem
from weftline.ask.fit_devices import FitMachine
from weftline.ask.fit_request import FitRequest
from weftline.cluster import Accelerator, accelerators
from weftline.cost.llm import LlmEngine, llm_device
from weftline.errors import InfeasibleError, InputError
from weftline.fleet.fit import cost_segments, fit_violations, solve_fit, split_segments
from weftline.importers.llm import LanguageModel, quantisations, read_language_model
from weftline.plans.fit import FitPlan

__all__ = ["answer_want", "best_quantisation", "largest_context", "what_would_fit"]

CONTEXT_STEP, LONGEST_ASKED = 256, 2**20
SHORT_SECONDS = 0.4
"""Of a search that only asks whether something fits."""
LEFT_OUT = ("f32", "f16", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl", "mxfp4", "nvfp4")
"""Quantisations that are never the best of those that fit: others have as good weights in fewer bits."""
MOST_NAMED = 3
"""Cards that are named."""
MakeTask = Callable[[FitRequest, LanguageModel], FitTask]


def largest_context(request: FitRequest, model: LanguageModel, make: MakeTask) -> int:
    """The most tokens of one request for which there is a plan, in steps of 256; `InfeasibleError` for none."""
    most = (model.context or LONGEST_ASKED) // CONTEXT_STEP
    if not _fits(make(replace(request, context=CONTEXT_STEP), model)):
        raise InfeasibleError(_missing(make(replace(request, context=CONTEXT_STEP), model)), proved=False)
    low, high = 1, most + 1
    while high - low > 1:
        middle = (low + high) // 2
        if _fits(make(replace(request, context=middle * CONTEXT_STEP), model)):
            low = middle
        else:
            high = middle
    return low * CONTEXT_STEP


def best_quantisation(request: FitRequest, make: MakeTask, *, packed: bool) -> LanguageModel:
    """The model with the most bits for which there is a plan: GGUF's recipes, or those of folders (`packed`)."""
    smallest: LanguageModel | None = None
    for name in _names(packed=packed):
        model = read_language_model(str(request.model), name)
        if _fits(make(request, model)):
            return model
        smallest = model
    assert smallest is not None
    raise InfeasibleError(f"no quantisation fits: {_missing(make(request, smallest))}")


def _names(*, packed: bool) -> Iterator[str]:
    """From many bits to few; the smallest recipes, which need an importance matrix, come last."""
    wanted = ("plain", "packed" if packed else "gguf")
    known = [one for one in quantisations() if one.format in wanted and one.name not in LEFT_OUT]
    yield from (one.name for one in sorted(known, key=lambda one: -one.bits))


def _fits(task: FitTask) -> bool:
    problem = build_fit_problem(task)
    least = min(sum(sum(unit.bytes[kind]) * unit.size for kind in problem.rows) for unit in problem.units)
    if least > sum(device.limit_bytes for device in problem.devices):
        return False
    try:
        solve_fit(problem, seconds=SHORT_SECONDS, baselines=False)
    except InfeasibleError:
        return False
    return True


def _missing(task: FitTask) -> str:
    """How much is missing, in words."""
    problem = build_fit_problem(task)
    least = min(sum(sum(unit.bytes[kind]) * unit.size for kind in problem.rows) for unit in problem.units)
    room = sum(device.limit_bytes for device in problem.devices)
    settings = task.settings
    what = f"{f'{task.model.name} {task.model.quantisation}'.strip()} with a context of {settings.context:,}"
    if least > room:
        return (
            f"{what} needs {least / 2**30:.1f} GiB for weights and cache, the devices have {room / 2**30:.1f} GiB: "
            f"{(least - room) / 2**30:.1f} GiB are missing"
        )
    return (
        f"{what} needs {least / 2**30:.1f} GiB for weights and cache and more for buffers, and whole layers find no "
        f"place in {room / 2**30:.1f} GiB"
    )


def _cache_helps(task: FitTask) -> bool:
    """Whether half of the cache is more than what is missing."""
    problem = build_fit_problem(task)
    unit = problem.units[0]
    need = sum(sum(unit.bytes[kind]) for kind in problem.rows) - sum(device.limit_bytes for device in problem.devices)
    return 2 * need < sum(unit.bytes[kind][0] for kind in problem.rows)


def what_would_fit(request: FitRequest, task: FitTask, make: MakeTask) -> InfeasibleError:
    """The error of a model that does not fit: how much is missing, which quantisation or context would fit."""
    hints = []
    packed = task.settings.engine is not LlmEngine.LLAMACPP
    if not request.splits:
        try:
            context = largest_context(request, task.model, make)
            hints.append(f"a context of {context:,} would fit: --context {context}")
        except InfeasibleError:
            pass
        if not str(request.model).endswith(".gguf"):
            try:
                found = best_quantisation(request, make, packed=packed)
                hints.append(f"{found.quantisation} would fit: --quant {found.quantisation}")
            except (InfeasibleError, InputError):
                pass
        if task.machine.host is None and not packed:
            hints.append("layers may lie in the memory of the host, too: --cpu DDR5-5600 --ram 64GB")
        if request.kv_types == ("f16", "f16") and not packed and _cache_helps(task):
            hints.append("a cache of 8 bits takes half: --kv-type q8_0")
    return InfeasibleError(f"does not fit: {_missing(task)}", conflicts=tuple(hints), proved=True)


def answer_want(plan: FitPlan, task: FitTask, wanted: float) -> dict[str, Any]:
    """Is it fast enough? Where it is not: what is proved, and which single card would do."""
    here, bound = plan.rate, plan.bound_tokens_per_second
    answer: dict[str, Any] = {"want": wanted, "enough": here >= wanted}
    if here >= wanted:
        sure = "also at the low end of the interval" if plan.tokens_per_second.low >= wanted else "not at its low end"
        answer["want_words"] = f"yes: {wanted:g} tokens per second are reached, {sure}"
        return answer
    shown = "is proved, by these costs, that no plan reaches it" if plan.proof == "proved" and bound < wanted else ""
    possible = plan.tokens_per_second.high >= wanted
    words = [f"no: {wanted:g} tokens per second are more than {here:.3g}"]
    words += [f"it {shown}"] if shown else [f"no plan was found; the bound is {bound:.3g}"]
    words += ["the interval of the estimate reaches it: measure"] if possible else []
    cards = _single_cards(task, wanted)
    answer["cards"] = cards
    if cards:
        words.append(f"one of these cards alone would do: {', '.join(cards[:MOST_NAMED])}")
    else:
        words.append("no single card of the catalogue would do")
    answer["want_words"] = "; ".join(words)
    return answer


def _single_cards(task: FitTask, wanted: float) -> list[str]:
    """Cards that alone hold the model and are fast enough, the slowest memory first."""
    found = []
    for card in sorted(accelerators(), key=lambda one: (one.bandwidth, one.name)):
        if card.kind != "gpu" or not card.memory_bytes or card.device_class == "laptop":
            continue
        if _alone(task, card) >= wanted:
            found.append(card.name)
    return found


def _alone(task: FitTask, card: Accelerator) -> float:
    """Tokens per second of one card; 0 where the model does not fit."""
    memory = card.usable_bytes(card.memory_bytes)
    if memory < sum(layer.bytes for layer in task.model.layers):
        return 0.0
    machine = FitMachine((llm_device("gpu0", card, memory),), (card,), ())
    width = 1 if task.served else None
    problem = build_fit_problem(msgspec.structs.replace(task, machine=machine, pipeline=0, tensor_parallel=width))
    segments = split_segments(problem, (len(problem.rows),))
    if fit_violations(problem, segments):
        return 0.0
    return problem.tokens_per_second(cost_segments(problem, segments).value_ns)
