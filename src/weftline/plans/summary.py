"""A plan in a few lines of text: what to do, the value, how far it can be from the best, what it is compared with."""

from __future__ import annotations

from weftline.errors import InputError
from weftline.graph import Graph
from weftline.graph.describe import model_words
from weftline.plans.advice import advise, copies_words
from weftline.plans.bound_words import explain_bound, told_bound
from weftline.plans.plan import Plan
from weftline.units import format_name, format_time

__all__ = ["better_baseline", "bound_line", "gap_words", "guarantee", "guess_words", "measured_words", "proof_words"]
__all__ += ["scattered_hosts", "summary"]

_UNITS = {"latency": "latency", "throughput": "period"}


def guess_words(graph: Graph) -> str:
    """A sentence if costs of some ops rest on sizes that nobody knows, else nothing."""
    if not graph.guessed:
        return ""
    count, first = len(graph.guessed), graph.guessed[0]
    have, their = ("ops have", "their") if count > 1 else ("op has", "its")
    named = f"{', first' if count > 1 else ':'} {format_name(first.name)!r} ({format_name(first.kind)})"
    return (
        f"{count} {have} dimensions that could not be computed{named}: {their} costs are a guess; "
        "give --dim NAME=N or --shape, or measure with profile"
    )


def proof_words(plan: Plan) -> str:
    """How the best bound is known."""
    return plan.proof + (" for these guessed costs" if plan.guessed and plan.proof != "none" else "")


def guarantee(plan: Plan) -> str:
    """The sentence a manager understands."""
    if plan.value_ns == 0:
        return "This plan takes no time at all, so none is better."
    if plan.bound_ns == 0:
        return "Nothing is known about how far this plan is from the best possible one."
    kind, by = _of_its_kind(plan), told_bound(plan.bound_by, explain_bound(plan.bound_by))
    if plan.value_ns == plan.bound_ns:
        sentence = f"This plan is the best possible{kind}"
    else:
        sentence = f"No {kind.strip() or 'plan'} can be more than {gap_words(1 - plan.bound_ns / plan.value_ns)} faster"
    if plan.proof == "proved":
        return f"{sentence}: {proof_words(plan)} ({by})."
    sentence += f": {proof_words(plan)} by weftline's own search, not checked independently ({by})"
    if plan.proved_bound_ns:
        sentence += (
            f"; proved is that none can be more than {gap_words(1 - plan.proved_bound_ns / plan.value_ns)} faster"
        )
    return sentence + "."


def gap_words(gap: float) -> str:
    """A gap that is not 0 as per cent; one that is tiny is not shown as none."""
    return f"{max(gap, 0.0001):.2%}"


def _of_its_kind(plan: Plan) -> str:
    """Bounds of a pipeline do not hold for replicas of the whole model."""
    return " pipeline" if plan.objective == "throughput" else ""


def better_baseline(plan: Plan) -> str:
    """A sentence if a baseline beats the plan, else nothing."""
    if plan.wins:
        return ""
    value, name = min((value, name) for name, value in plan.baselines.items() if value is not None)
    if name == "replicas" and (words := copies_words(plan)):
        return f"Whole copies would give more, an input every {format_time(value)} ({words}): see --copies auto."
    simulated = " by estimated times (this one was chosen by measurement)" if plan.measured else ""
    return f"A simple plan is better than this one{simulated}: {name}, {format_time(value)}."


def measured_words(plan: Plan) -> str:
    """What was measured, and what the value is then; nothing for a plan that was only simulated."""
    found = plan.measured
    if not found:
        return ""
    failed = f", {found.failures} of them failed" if found.failures else ""
    other = (
        ""
        if plan.problem.rules.runtime == "sequential"
        else " The plan lets devices work at the same time; OpenVINO's HETERO runs its parts one after another."
    )
    return (
        f"Measured on {found.backend}: {found.count} placements{failed}. This plan is the best of them: "
        f"{found.seconds * 1e3:.2f} ms, {found.ratio:.3f} of {found.reference} alone (median of {found.rounds} rounds, "
        f"spread {found.spread:.1%}). Its value and bound above and below are the simulator's.{other}"
    )


def scattered_hosts(plan: Plan) -> str:
    """A sentence if a host device holds ops that are not contiguous (which only host devices may), else nothing."""
    graph = plan.problem.graph
    place = [plan.placement.get(op.name) for op in graph.ops]
    if None in place or not all(-1 <= t.producer < len(place) for t in graph.tensors):
        raise InputError("the placement does not fit the graph", hint="weftline verify says more")
    if any(not 0 <= op < len(place) for tensor in graph.tensors for op in tensor.consumers):
        raise InputError("a tensor has a reader that does not exist", hint="weftline verify says more")
    made = [tensor for tensor in graph.tensors if tensor.producer >= 0 and not graph.ops[tensor.producer].backward]
    forward = sorted(made, key=lambda tensor: tensor.producer)
    found = []
    for host in (device.id for device in plan.problem.devices if device.host):
        returns, left = False, [False] * len(place)  # left: some path has come from the host and is outside now
        for tensor in forward:
            for reader in (op for op in tensor.consumers if not graph.ops[op].backward):
                outside = left[tensor.producer]
                returns |= outside and place[reader] == host
                left[reader] |= place[reader] != host and (outside or place[tensor.producer] == host)
        found += [host] if returns else []
    return f"Not contiguous: the ops on {', '.join(found)}, as host devices may hold them." if found else ""


def bound_line(plan: Plan) -> str:
    """How far the plan can be from the best possible one."""
    return f"bound {format_time(plan.bound_ns)}, gap {plan.gap:.2%}. {guarantee(plan)}"


def summary(plan: Plan) -> str:
    """Value, guarantee, baselines, devices."""
    graph = plan.problem.graph
    answer = f"{_UNITS[plan.objective]} {format_time(plan.value_ns)}"
    lines = [
        *filter(None, (guess_words(graph), advise(plan))),
        f"{format_name(graph.name)}: {len(graph.ops)} ops on {len(plan.devices)} devices, {answer}",
        *filter(None, (model_words(graph),)),
        bound_line(plan),
        f"solver {plan.solver}, stopped by {plan.stopped_by}"
        + ("" if plan.seconds is None else f" after {plan.seconds:.1f} s"),
    ]
    if sentence := measured_words(plan):
        lines.append(sentence)
    for name, value in plan.baselines.items():
        lines.append(
            f"  {name:<14} "
            + ("breaks a limit" if value is None else f"{format_time(value):>10}  {_versus(plan, value)}")
        )
    lines += [sentence for sentence in (better_baseline(plan), scattered_hosts(plan)) if sentence]
    return "\n".join(lines)


def _versus(plan: Plan, value: int) -> str:
    if plan.value_ns == 0 or value == 0:
        return ""
    ratio = value / plan.value_ns
    if value == plan.value_ns:
        return "the same"
    return f"the plan is {ratio:.2f}x as fast" if ratio >= 1 else f"it is {1 / ratio:.2f}x as fast as the plan"
