"""`answer_fit`: a request about a language model on cards -> reading, costs, search, checker, command, FitPlan.

In: a FitRequest. Out: a FitPlan. Simplified: one server; further questions (what is wanted, the largest context, the
best quantisation) are asked by `fit_more.py` with the same means.
"""

from __future__ import annotations

from time import monotonic

import msgspec

from weftline.ask.fit_assemble import assemble_fit
from weftline.ask.fit_build import FitTask, build_fit_problem
from weftline.ask.fit_devices import FitMachine, fit_machine
from weftline.ask.fit_request import FitRequest
from weftline.cost.llm import CostClass, LlmEngine, LlmSettings
from weftline.errors import InfeasibleError, UsageError
from weftline.fleet.fit import cost_segments, fit_violations, solve_fit, split_segments
from weftline.importers.llm import LanguageModel, find_quantisation, read_language_model
from weftline.plans.fit import FitPlan
from weftline.problem.fit import FitAnswer

__all__ = ["answer_fit", "fit_task"]

DEFAULT_SECONDS = 2.5
"""Of a search."""
MIXED_FORMATS = {"gguf": ("llamacpp",), "packed": ("vllm", "sglang")}
"""Quantisations that only some engines read well."""


def answer_fit(request: FitRequest) -> FitPlan:
    """The plan of least time per token (many requests: of most tokens per second) that the engine can run."""
    begun = monotonic()
    model = read_language_model(str(request.model), request.quantisation)
    machine = fit_machine(request)
    engines = _engines(request, model)
    found: list[FitPlan] = []
    refused: list[str] = []
    for engine in engines:
        task = fit_task(request, model, machine, engine)
        try:
            found.append(_answer(request, task, begun))
        except (InfeasibleError, UsageError) as error:
            if len(engines) == 1:
                raise
            refused.append(f"{engine.value}: {str(error).splitlines()[0]}")
    if not found:
        raise InfeasibleError(f"no engine runs {model.name} on these devices", conflicts=tuple(refused))
    best = max(found, key=lambda plan: plan.rate)
    return msgspec.structs.replace(best, notes=(*best.notes, *refused)) if refused else best


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


def _engines(request: FitRequest, model: LanguageModel) -> list[LlmEngine]:
    """Those that are asked; with `any` those that read such weights."""
    if request.engine != "any":
        return [LlmEngine(request.engine)]
    form = find_quantisation(model.quantisation).format if model.quantisation else "plain"
    known = MIXED_FORMATS.get(form, ("llamacpp", "vllm", "sglang"))
    return [LlmEngine(name) for name in known]


def _answer(request: FitRequest, task: FitTask, begun: float) -> FitPlan:
    problem = build_fit_problem(task)
    if request.splits:
        segments = split_segments(problem, request.splits)
        if wrong := fit_violations(problem, segments):
            raise InfeasibleError(f"the split {','.join(map(str, request.splits))} does not fit", conflicts=wrong)
        cost = cost_segments(problem, segments)
        answer = FitAnswer(segments, cost.value_ns, 0, None, cost.uses, cost.pipelined)
        return assemble_fit(request, task, problem, answer, solver="given split", begun=begun)
    limit = DEFAULT_SECONDS if request.time_limit is None else float(request.time_limit)
    answer = solve_fit(problem, seconds=limit)
    return assemble_fit(request, task, problem, answer, solver="fit", begun=begun)
