"""What the engine that a plan is for needs: whole layers, no CPUs, one pipeline.

In: the target of a request, and what else it asks. Out: the values that the target implies where nobody said others.
Simplified: what only the plan shows (a stage with two inputs, a head elsewhere) is still refused by `export`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from weftline.arguments import shown
from weftline.errors import UsageError

if TYPE_CHECKING:
    from weftline.ask.request import PlanRequest

__all__ = ["PLAN_TARGETS", "target_terms"]

PLAN_TARGETS = ("vllm", "megatron", "llamacpp", "accelerate")
NO_CPUS = ("vllm", "megatron")


def target_terms(request: PlanRequest) -> dict[str, Any]:
    """Fields of the request that its target changes; `UsageError` for words that are not known."""
    if request.keep not in ("", "layers"):
        raise UsageError(f"what can be kept whole are layers, not {shown(request.keep)}")
    if request.reward not in ("simulated", "measured"):
        raise UsageError(f"a reward is simulated or measured, not {shown(request.reward)}")
    if not request.target:
        return {}
    if request.target not in PLAN_TARGETS:
        raise UsageError(f"no target {shown(request.target)} of plans (there are: {', '.join(PLAN_TARGETS)})")
    implied: dict[str, Any] = {"keep": "layers"}
    if request.target == "accelerate":
        return implied
    if request.objective == "latency":
        raise UsageError(f"{request.target} runs layers in a row: leave --objective latency out")
    implied["objective"] = "throughput"
    if request.target in NO_CPUS and "cpus" not in request.without:
        implied["without"] = (*request.without, "cpus")
    whole_cluster = (request.copies, request.max_depth, request.latency_limit, request.stages)
    if all(value is None for value in whole_cluster):
        implied["copies"] = 1
    return implied
