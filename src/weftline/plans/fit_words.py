"""What a FitPlan says to people: bars of memory, the sentence about the bound, what the engine's rules cost.

In: a FitPlan. Out: lines of text. Simplified: one row for each device that is used.
"""

from __future__ import annotations

from weftline.plans.fit import FitHolding, FitMove, FitPlan
from weftline.units import format_bytes, format_time

__all__ = [
    "bound_sentence",
    "fit_answers",
    "fit_summary",
    "layers_words",
    "memory_bar",
    "moved_words",
    "rate_words",
    "rules_sentence",
    "short_device_name",
]

BAR_CELLS = 24
LEAST_RULES_COST = 0.001
ENGINE_NAMES = {"llamacpp": "llama.cpp", "vllm": "vLLM", "sglang": "SGLang", "any": "any engine"}
_FAMILY_WORDS = frozenset({"NVIDIA", "GeForce", "Radeon"})
_PART_WORDS = {"ffn": "feed-forward", "shared": "shared experts", "output": "output layer"}


def rate_words(rate: float) -> str:
    """Tokens per second at three digits."""
    return f"{rate:.3g}" if rate < 100 else f"{rate:,.0f}"


def _engine(plan: FitPlan) -> str:
    """Its name; that of a file may be any text."""
    return ENGINE_NAMES.get(plan.terms.engine, plan.terms.engine)


def fit_summary(plan: FitPlan) -> list[str]:
    """What matters, without tables."""
    found = plan.tokens_per_second
    terms, model = plan.terms, plan.model
    requests = "" if terms.concurrency == 1 else f", {terms.concurrency} requests at once"
    lines = [plan.advice] if plan.advice else []
    lines.append(
        f"{f'{model.name} {model.quantisation}'.strip()}: {format_bytes(model.bytes)} of weights, "
        f"context {terms.context:,}{requests}, {_engine(plan)}"
    )
    lines.append(
        f"{rate_words(found.value)} tokens per second (measured ones lie between {rate_words(found.low)} and "
        f"{rate_words(found.high)}) with {terms.live:,} tokens in the cache; a prompt of as many takes "
        f"{format_time(plan.first_token_ns)}"
    )
    lines.append(bound_sentence(plan))
    if sentence := rules_sentence(plan):
        lines.append(sentence)
    return lines


def fit_answers(plan: FitPlan) -> list[str]:
    """Sentences about what was asked besides: a wanted rate, a largest context, the best quantisation."""
    return [str(answer) for key, answer in plan.asked.items() if key.endswith("_words")]


def bound_sentence(plan: FitPlan) -> str:
    """How far the best plan could be."""
    if plan.proof == "none" or plan.bound_ns <= 0:
        return "nothing is known about how much faster another plan could be"
    whose = f"no plan that {_engine(plan)} can run"
    if plan.value_ns <= plan.bound_ns:
        return f"{whose} is faster, by these costs ({plan.proof})"
    more = plan.value_ns / plan.bound_ns - 1
    return f"{whose} is more than {max(more, 1e-4):.2%} faster, by these costs ({plan.proof})"


def rules_sentence(plan: FitPlan) -> str:
    """What the rules of the engine cost; empty where that is nothing, or not known."""
    free, here = plan.free_tokens_per_second, plan.rate
    if free is None or not here:
        return ""
    if free <= here * (1 + LEAST_RULES_COST):
        return f"the rules of {_engine(plan)} cost nothing here"
    return (
        f"the rules of {_engine(plan)} cost {1 - here / free:.1%}: with any part of any layer on "
        f"any card or the host, and groups of any size, {rate_words(free)} tokens per second would be possible"
    )


def layers_words(holding: FitHolding) -> str:
    """`0..39 and output`, `none`."""
    words = f"{holding.layers[0]}..{holding.layers[1] - 1}" if holding.layers else ""
    if holding.output:
        words = f"{words} and output" if words else "output"
    return words or "none"


def short_device_name(holding: FitHolding) -> str:
    """`RTX 3060 12GB`: the name without words that distinguish no card from another."""
    return " ".join(word for word in holding.name.split() if word not in _FAMILY_WORDS) or holding.name


def moved_words(move: FitMove) -> str:
    """`experts of layers 0..11 (gpu0) lie in the memory of the host`."""
    runs: list[list[int]] = []
    for layer in move.layers:
        if runs and runs[-1][1] == layer - 1:
            runs[-1][1] = layer
        else:
            runs.append([layer, layer])
    words = ", ".join(str(first) if first == last else f"{first}..{last}" for first, last in runs)
    whose = "" if move.part == "output" else f" of layers {words}"
    return f"{_PART_WORDS.get(move.part, move.part)}{whose} ({move.device}) in the memory of the host"


def memory_bar(holding: FitHolding, *, ascii_only: bool = False) -> str:
    """Weights, cache and buffers as a share of what the device has; the rest is free."""
    signs = "#=-." if ascii_only else "█▓▒░"
    limit = max(1, holding.limit_bytes)
    used, cells = 0, ""
    for sign, size in zip(signs, (holding.weights_bytes, holding.kv_bytes, holding.compute_bytes), strict=False):
        used += size
        upto = min(BAR_CELLS, round(used * BAR_CELLS / limit))
        cells += sign * (upto - len(cells))
    return cells + signs[3] * (BAR_CELLS - len(cells))
