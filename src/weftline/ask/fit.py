"""`answer_fit`: a request about a language model on cards -> reading, costs, search, checker, command, FitPlan.

In: a FitRequest. Out: a FitPlan. Simplified: one server; further questions (what is wanted, the largest context, the
best quantisation) are asked by `fit_more.py` with the same means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

import msgspec

from weftline.ask.fit_assemble import assemble_fit, prompt_ns
from weftline.ask.fit_build import FitTask, build_fit_problem
from weftline.ask.fit_devices import FitMachine, fit_machine
from weftline.ask.fit_more import answer_want, best_quantisation, largest_context, what_would_fit
from weftline.ask.fit_request import BEST_QUANTISATION, LARGEST, FitRequest
from weftline.ask.fit_servers import Solved, best_servers, depth_front, front_answer, servers_answer
from weftline.cost.llm import CostClass, LlmEngine, LlmSettings
from weftline.errors import InfeasibleError, UsageError
from weftline.fleet.fit import cost_segments, fit_violations, solve_fit, split_segments
from weftline.importers.llm import LanguageModel, find_quantisation, read_language_model
from weftline.plans.fit import FitPlan
from weftline.problem.fit import FitAnswer, FitObjective, FitProblem, FitRules, HostRows
from weftline.units import format_time

__all__ = ["answer_fit", "fit_task"]

DEFAULT_SECONDS = 2.5
"""Of a search."""
DEFAULT_MICRO_BATCH = 512
SHORT_SECONDS, FREE_SECONDS = 0.2, 0.5
"""Of a search without the rules of the engine."""
MIXED_FORMATS = {"gguf": ("llamacpp",), "packed": ("vllm", "sglang")}
"""Quantisations that only some engines read well."""


class _TooLate(InfeasibleError):
    """All fits, but the first token comes late."""


def answer_fit(request: FitRequest) -> FitPlan:
    """The plan of least time per token (many requests: of most tokens per second) that the engine can run."""
    begun = monotonic()
    machine = fit_machine(request)
    found: list[FitPlan] = []
    refused: list[str] = []
    engines = _engines(request)
    for engine in engines:
        try:
            found.append(_answer_for(request, machine, engine, begun))
        except (InfeasibleError, UsageError) as error:
            if len(engines) == 1:
                raise
            refused.append(f"{engine.value}: {str(error).splitlines()[0]}")
    if not found:
        raise InfeasibleError("no engine runs it on these devices", conflicts=tuple(refused))
    best = max(found, key=lambda plan: plan.rate)
    return msgspec.structs.replace(best, notes=(*best.notes, *refused)) if refused else best


def _answer_for(request: FitRequest, machine: FitMachine, engine: LlmEngine, begun: float) -> FitPlan:
    """With one engine; what is left open (context, quantisation) is settled first."""

    def make(asked: FitRequest, model: LanguageModel) -> FitTask:
        return fit_task(asked, model, machine, engine)

    served, asked = engine is not LlmEngine.LLAMACPP, dict[str, Any]()
    if request.quantisation == BEST_QUANTISATION:
        model = best_quantisation(request, make, packed=served)
        asked["quantisation"] = model.quantisation
        asked["quantisation_words"] = f"{model.quantisation} has the most bits of all that fit"
    else:
        model = read_language_model(str(request.model), request.quantisation)
    if request.context == LARGEST:
        request = replace(request, context=largest_context(request, model, make))
        asked["largest_context"] = request.context
        asked["largest_context_words"] = f"{request.context:,} tokens are the largest context that fits"
    task = make(request, model)
    try:
        plan = _answer(request, task, begun)
    except _TooLate:
        raise
    except InfeasibleError as error:
        if request.splits:
            raise
        raise what_would_fit(request, task, make) from error
    if request.concurrency > 1 and not request.splits:
        asked |= _beside(request, task, plan)
    if request.want is not None:
        asked |= answer_want(plan, task, float(request.want))
    return msgspec.structs.replace(plan, asked=asked) if asked else plan


def fit_task(request: FitRequest, model: LanguageModel, machine: FitMachine, engine: LlmEngine) -> FitTask:
    """What an engine is asked to run."""
    context = int(request.context)
    live = context // 2 if request.live is None else int(request.live)
    keys, values = request.kv_types
    settings = LlmSettings(
        context=context,
        live=max(1, live),
        concurrency=request.concurrency,
        kv_type_k=keys,
        kv_type_v=values,
        micro_batch=request.micro_batch or DEFAULT_MICRO_BATCH,
        engine=engine,
    ).check()
    if engine is LlmEngine.LLAMACPP:
        return FitTask(model, machine, settings)
    if any(device.cost_class is CostClass.APPLE for device in machine.cards):
        raise UsageError(f"{engine.value} does not run on Apple's GPUs; plan for llama.cpp: --for llamacpp")
    if not machine.cards:
        raise UsageError(f"{engine.value} runs on GPUs here; say --gpu, or plan for a CPU with --for llamacpp")
    if machine.host is not None:
        note = f"{engine.value} runs no layers on the host: its memory is left out (--for llamacpp uses it)"
        machine = msgspec.structs.replace(machine, notes=(*machine.notes, note))
    permille = min(device.memory_bytes * 1000 // device.card_bytes for device in machine.cards)
    default = 920 if engine is LlmEngine.VLLM else 880
    settings = msgspec.structs.replace(settings, memory_permille=min(default, permille))
    return FitTask(model, machine, settings, request.tensor_parallel)


def _engines(request: FitRequest) -> list[LlmEngine]:
    """Those that are asked; with `any` those that read such weights."""
    if request.engine != "any":
        return [LlmEngine(request.engine)]
    known: tuple[str, ...] = ("llamacpp", "vllm", "sglang")
    if str(request.model).endswith(".gguf"):
        known = MIXED_FORMATS["gguf"]
    elif request.quantisation not in ("", BEST_QUANTISATION):
        known = MIXED_FORMATS.get(find_quantisation(request.quantisation).format, known)
    return [LlmEngine(name) for name in known]


def _answer(request: FitRequest, task: FitTask, begun: float) -> FitPlan:
    problem = build_fit_problem(task)
    limit = DEFAULT_SECONDS if request.time_limit is None else float(request.time_limit)
    if request.splits:
        answer = _given_split(request, problem, limit)
        return assemble_fit(request, task, problem, answer, solver="given split", begun=begun)
    found = _depths(task, limit)
    best, problem, answer = _best_of(found, None if request.first_token is None else float(request.first_token))
    answer = msgspec.structs.replace(answer, free_ns=_without_rules(problem, answer))
    return assemble_fit(request, best, problem, answer, solver="fit", begun=begun)


def _given_split(request: FitRequest, problem: FitProblem, seconds: float) -> FitAnswer:
    """The split of the request, beside the best plan's bound and the simple splits."""
    segments = split_segments(problem, request.splits)
    if wrong := fit_violations(problem, segments):
        raise InfeasibleError(f"the split {','.join(map(str, request.splits))} does not fit", conflicts=wrong)
    cost = cost_segments(problem, segments)
    best = solve_fit(problem, seconds=seconds)
    return msgspec.structs.replace(
        best, segments=segments, value_ns=cost.value_ns, uses=cost.uses, pipelined=cost.pipelined
    )


def _without_rules(problem: FitProblem, answer: FitAnswer) -> int | None:
    """What a step would take if groups could be of any size, and any rows and parts could lie on the host."""
    hosts = problem.host_unit is not None and problem.objective is FitObjective.SUM
    moves = tuple(part for part in problem.parts if part != "kv") if hosts else ()
    rules = FitRules(
        host_rows=HostRows.ANY if hosts else HostRows.NONE, moves=moves, exact_units=problem.rules.exact_units
    )
    if len(problem.units) == 1 or rules == msgspec.structs.replace(problem.rules, engine=rules.engine):
        return answer.value_ns
    free = msgspec.structs.replace(problem, rules=rules)
    found = solve_fit(free, seconds=FREE_SECONDS, baselines=False)
    return min(found.value_ns, answer.value_ns)


def _depths(task: FitTask, seconds: float) -> list[Solved]:
    """The best plan; with many requests for each number of groups in a row, which is a question of its own."""
    depths = range(1, min(len(task.machine.cards), task.settings.concurrency) + 1) if task.served else range(1)
    if len(depths) <= 1:
        problem = build_fit_problem(task)
        return [(task, problem, solve_fit(problem, seconds=seconds))]
    found: list[Solved] = []
    refused: list[InfeasibleError] = []
    for depth in depths:
        asked = msgspec.structs.replace(task, pipeline=depth)
        problem = build_fit_problem(asked)
        try:
            found.append((asked, problem, solve_fit(problem, seconds=seconds / len(depths))))
        except InfeasibleError as error:
            refused.append(error)
    if not found:
        raise refused[0]
    return found


def _best_of(found: Sequence[Solved], first_token: float | None) -> Solved:
    """The plan that gives most, of those whose first token comes in time."""
    prompts = [prompt_ns(task, problem, answer.segments, task.settings.timed_at) for task, problem, answer in found]
    in_time = [
        one for one, time in zip(found, prompts, strict=True) if first_token is None or time <= first_token * 1e9
    ]
    if not in_time:
        asked = format_time(round((first_token or 0.0) * 1e9))
        why = f"the first token takes {format_time(min(prompts))} at least, and {asked} are asked"
        raise _TooLate(f"no plan that was found gives the first token in time: {why}", proved=False)
    best, problem, answer = min(in_time, key=lambda one: one[2].value_ns)
    if len(found) > 1:  # the file holds one question, so its checker cannot rule the others out
        bound = min(one.bound_ns for _, _, one in found)
        answer = msgspec.structs.replace(answer, bound_ns=bound, witness=None)
    return best, problem, answer


def _beside(request: FitRequest, task: FitTask, plan: FitPlan) -> dict[str, Any]:
    """With many requests: the front over groups in a row, and several servers where they give more."""
    answer: dict[str, Any] = {}
    front = depth_front(_depths(task, SHORT_SECONDS)) if task.served else ()
    if len(front) > 1:
        answer |= front_answer(front)
    if request.first_token is None and len(task.machine.cards) > 1 and not request.measured:
        found = best_servers(task, lambda asked: _best_of(_depths(asked, SHORT_SECONDS), None), plan.rate)
        answer |= servers_answer(found)
    return answer
