"""The page of a language model on cards: how good, which card holds what, the command.

In: a FitPlan. Out: plain values for the template; texts are escaped later. Simplified: no timeline: a step is a sum.
"""

from __future__ import annotations

from typing import Any

from weftline.plans.fit import FitPlan
from weftline.plans.fit_words import ENGINE_NAMES, bound_sentence, fit_answers, fit_summary, moved_words, rate_words
from weftline.report.fit import fit_device_rows
from weftline.report.html.pack import short_name
from weftline.report.html.page import bound_title
from weftline.units import format_bytes, format_time

__all__ = ["fit_page"]

FIT_BASELINES = {
    "one-card": "all layers on one card, as many as fit, the rest on the host",
    "even": "equally many layers on each card",
    "free-memory": "layers in proportion to the memory of the cards: what llama.cpp does by itself",
    "llamacpp-fit": "the rule of llama.cpp's --fit",
}
"""Baseline -> what it is."""


def fit_page(plan: FitPlan) -> dict[str, Any]:
    """Everything that the template asks for, but the picture."""
    header, rows = fit_device_rows(plan)
    terms, model, rate = plan.terms, plan.model, plan.tokens_per_second
    page: dict[str, Any] = {
        "kind": "language model on cards",
        "title": short_name(f"{model.name} {model.quantisation}".strip()) or "model",
        "subtitle": f"{model.layers} layers, {model.parameters / 1e9:.4g} billion parameters, "
        f"{ENGINE_NAMES.get(terms.engine, terms.engine)}",
        "model": f"context {terms.context:,}, {terms.live:,} tokens in the cache, {terms.concurrency} at once",
        "advice": short_name(plan.advice, 400),
        "value": f"{rate_words(rate.value)} tokens/s",
        "value_word": f"measured ones lie between {rate_words(rate.low)} and {rate_words(rate.high)}",
        "value_noun": "tokens per second",
        "sentence": short_name(bound_sentence(plan), 400),
        "chips": _chips(plan),
        "gauge": round(100 * min(1.0, rate.value / plan.bound_tokens_per_second), 2) if plan.bound_ns else None,
        "bound": rate_words(plan.bound_tokens_per_second) if plan.bound_ns else "nothing is known",
        "bound_noun": "upper bound",
        "bound_words": f"no plan gives more than {rate_words(plan.bound_tokens_per_second)} by these costs",
        "bound_title": bound_title(plan.proof, ""),
        "gap": f"{plan.gap:.2%}",
        "warnings": [],
        "facts": _facts(plan),
        "comparison": _comparison(plan),
        "comparison_words": "The plan beside simple ones and the engine's own, by the same costs. Longer is better.",
        "fit": {
            "header": header,
            "rows": [[short_name(cell, 200) for cell in row] for row in rows],
            "lines": [short_name(line, 600) for line in (*map(moved_words, plan.moved), *fit_answers(plan))],
            "commands": [short_name(line, 8000) for line in plan.command],
            "notes": [short_name(note, 600) for note in plan.notes],
        },
        "run": None,
        "has": dict.fromkeys(("timeline", "memory", "stages", "graph", "progress"), False),
        "device_table": [],
        "device_ops": False,
        "load_word": "",
        "helps": [],
        "inputs": _inputs(plan),
    }
    names = (("how-good", "How good is it?"), ("cards", "Cards"), ("start", "Start it"), ("inputs", "Inputs"))
    return page | {"contents": [{"id": id, "name": name} for id, name in names]}


def _chips(plan: FitPlan) -> list[dict[str, str]]:
    tone = {"proved": "good", "claimed": "", "none": "warn"}[plan.proof]
    words = {"proved": "bound proved", "claimed": "bound claimed", "none": "no bound"}[plan.proof]
    chips = [{"tone": tone, "text": words, "title": bound_title(plan.proof, "")}]
    if plan.bound_ns and plan.value_ns <= plan.bound_ns:
        chips.append({"tone": tone, "text": "best possible"})
    return chips


def _facts(plan: FitPlan) -> list[tuple[str, str]]:
    prefill = plan.prefill_tokens_per_second
    facts = [
        ("weights", format_bytes(plan.model.bytes)),
        ("prompt", f"{rate_words(prefill.value)} tokens/s"),
        ("first token", format_time(plan.first_token_ns)),
        ("a step", format_time(plan.value_ns)),
    ]
    return [*facts, ("on the host", format_bytes(plan.host.weights_bytes + plan.host.compute_bytes))]


def _comparison(plan: FitPlan) -> list[dict[str, Any]]:
    rows: list[tuple[str, float | None, str, str]] = [("this plan", plan.rate, "plan", "")]
    for name, rate in sorted(plan.baselines.items(), key=lambda item: -(item[1] or 0.0)):
        tone = "better" if rate is not None and rate > plan.rate * (1 + 1e-6) else "other"
        rows.append((short_name(name, 60), rate, tone, FIT_BASELINES.get(name, "")))
    if plan.bound_ns:
        rows.append((f"no plan gives more ({plan.proof})", plan.bound_tokens_per_second, "lower", ""))
    most = max(rate or 0.0 for _, rate, _, _ in rows) or 1.0
    return [
        {
            "name": name,
            "tone": tone,
            "title": title,
            "share": round(100 * (rate or 0.0) / most, 2),
            "sort": rate or 0.0,
            "value": "does not fit" if rate is None else rate_words(rate),
            "ratio": f"{rate / plan.rate:.2f}x" if rate else "",
            "longer": False,
        }
        for name, rate, tone, title in rows
    ]


def _inputs(plan: FitPlan) -> list[tuple[str, str, bool]]:
    source = plan.provenance
    return [
        ("weftline", short_name(source.version, 60), False),
        ("call", short_name(" ".join(source.argv), 800) or "from Python", True),
        ("model", short_name(plan.model.source, 300), False),
        ("bytes", "read from headers" if plan.model.exact_bytes else "from shapes and the recipe", False),
        ("summary", short_name(fit_summary(plan)[-1], 400), False),
        ("question sha256", short_name(source.problem_sha256, 80), True),
    ]
