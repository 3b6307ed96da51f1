"""What the page for language models shows of an answer.

In: a `CardsTask`. Out: plain values: sentences, rows of cards with their bytes, simpler plans, commands, notes.
Simplified: models are those that are known by name; files are for the command line.
"""

from __future__ import annotations

from typing import Any

from weftline.errors import UsageError
from weftline.ui.task import CardsTask

__all__ = ["fit_cards"]


def fit_cards(task: CardsTask) -> dict[str, Any]:
    """The answer, ready to be drawn."""
    from weftline.ask.fit import answer_fit
    from weftline.ask.fit_request import FitRequest
    from weftline.importers.llm import is_known_model
    from weftline.plans.fit_words import fit_answers, fit_summary, layers_words, moved_words, rate_words

    if not is_known_model(task.model):
        raise UsageError(f"no model {task.model[:60]!r} is known by name; for a file: weftline fit FILE --gpu ...")
    plan = answer_fit(
        FitRequest(
            model=task.model,
            gpus=task.gpus,
            cpus=task.cpus,
            ram=task.ram,
            links=task.links,
            context=task.context,
            quantisation=task.quantisation,
            concurrency=task.concurrency,
            engine=task.engine,
            want=task.want or None,
        )
    )
    rows = [
        {
            "id": one.id,
            "name": one.name,
            "layers": layers_words(one),
            "parts": [one.weights_bytes, one.kv_bytes, one.compute_bytes],
            "limit": one.limit_bytes,
        }
        for one in plan.devices
    ]
    others = [[name, None if rate is None else rate_words(rate)] for name, rate in plan.baselines.items()]
    return {
        "rate": rate_words(plan.rate),
        "proof": plan.proof,
        "advice": plan.advice,
        "lines": [line for line in fit_summary(plan) if line != plan.advice] + fit_answers(plan),
        "cards": rows,
        "moved": [moved_words(move) for move in plan.moved],
        "others": others,
        "commands": [*plan.command, *(line for one in plan.asked.get("servers", ()) for line in one["command"])],
        "notes": list(plan.notes),
    }
