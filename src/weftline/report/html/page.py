"""The words and tables of a plan's page, ready for the template.

In: a Plan, the data of its pictures, perhaps a run and what would help. Out: plain values; texts are escaped later.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weftline.graph.describe import model_words
from weftline.plans import Plan
from weftline.plans.advice import advise
from weftline.plans.bound_words import explain_bound
from weftline.plans.summary import (
    better_baseline,
    guarantee,
    guess_words,
    measured_words,
    proof_words,
    scattered_hosts,
)
from weftline.report.html.pack import short_name
from weftline.report.html.run import RunRow, RunTable
from weftline.report.html.sensitivity import Help
from weftline.report.tables import stage_rows
from weftline.units import format_bytes, format_time

__all__ = ["bound_title", "bound_words", "contents", "input_rows", "key", "plan_page", "run_rows"]

LONGEST_BAR = 3.0
"""Bars of the comparison end at so many times the plan."""
STOPS = {
    "optimal": "the bound is reached",
    "gap": "close enough to the bound",
    "time": "stopped at the time limit",
    "work": "stopped at the work limit",
    "measurements": "all measurements were made",
    "interrupted": "interrupted",
    "settled": "nothing became better for a while",
    "done": "nothing more to try",
}
BASELINE_WORDS = {
    "single-device": "the whole model on the one device that is best for it",
    "replicas": "whole copies of the model, one on each device, as many as there may be stages; no pipeline",
    "even-split": "the ops in their order, cut into parts of equally many ops",
    "round-robin": "op after op to the next device",
    "greedy": "every op on the device that runs it fastest, whatever has to be sent",
    "heft": "a well-known list scheduler: the most urgent op first, on the device where it ends first",
}
"""What simple plans are, for the pointer."""
PIPELINE_WORDS = BASELINE_WORDS | {
    "even-split": "the ops in their order, cut into stages of equally many ops",
    "greedy": "the ops in their order, each stage filled up to the least compute with which all ops find a place",
}
"""The same for pipelines."""


def plan_page(plan: Plan, data: dict[str, Any], run: RunTable | None, helps: Sequence[Help]) -> dict[str, Any]:
    """Everything the template asks for."""
    latency = plan.objective == "latency"
    noun = "latency" if latency else "period"
    graph = plan.problem.graph
    has = {
        "timeline": latency,
        "memory": latency,
        "stages": not latency,
        "graph": True,
        "progress": len(data["progress"]) > 1,
    }
    page: dict[str, Any] = {
        "kind": f"{plan.objective} plan",
        "title": short_name(graph.name) or "model",
        "subtitle": f"{len(graph.ops):,} ops on {len(plan.devices)} device{'s' if len(plan.devices) > 1 else ''}",
        "model": short_name(model_words(graph), 400),
        "advice": short_name(advise(plan), 400),
        "value": format_time(plan.value_ns),
        "value_word": "for one input" if latency else "per input, once the pipeline is full",
        "value_noun": noun,
        "sentence": short_name(guarantee(plan), 400),
        "chips": _chips(plan),
        "gauge": _share(plan.bound_ns, plan.value_ns) if plan.value_ns else None,
        "bound": format_time(plan.bound_ns),
        "bound_words": bound_words(format_time(plan.bound_ns), proof_words(plan), plan.bound_by),
        "bound_title": bound_title(plan.proof, explain_bound(plan.bound_by)),
        "gap": f"{plan.gap:.2%}",
        "warnings": _warnings(plan),
        "facts": _facts(plan),
        "comparison": _comparison(plan),
        "comparison_words": "The plan beside simple answers to the same question, all costed by the same simulator.",
        "run": run_rows(run),
        "has": has,
        "timeline_title": "Timeline",
        "timeline_words": "What each device computes, receives and sends, for one input.",
        "timeline_keys": [
            key("compute", "computes"),
            key("receive", "receives"),
            key("send", "sends"),
            key("idle", "idle"),
            key("line chain", "chain that decides the latency"),
        ],
        "stages_words": _stages_words(plan, data) if not latency else "",
        "stage_table": _stage_table(plan),
        "memory_words": "Weights, live activations and workspace. The dashed line is the limit, where it is near. "
        "The picture follows the timeline above.",
        "graph_title": "Tensors sent between devices" if latency else "Tensors sent between stages",
        "graph_words": "Arrows are all tensors that go one way, with their size for one input. Choose one to see them.",
        "device_table": _device_table(plan),
        "device_ops": True,
        "load_word": "computes" if latency else "load",
        "progress_words": _progress_words(plan),
        "helps": _help_rows(plan, helps),
        "helps_words": _helps_words(helps),
        "inputs": input_rows(plan, plan.problem.cost_source),
    }
    return page | {"contents": contents(page)}


def bound_words(bound: str, proof: str, by: str) -> str:
    """Proved and claimed have different words."""
    if proof == "none":
        return "nothing is known about what is possible"
    who = f"{proof} by {short_name(by, 80)}"
    return f"no plan can be below {bound} ({who})" if proof.startswith("proved") else f"lower bound {bound} ({who})"


def bound_title(proof: str, words: str) -> str:
    """What is shown when the pointer rests on a bound: what it means, and what its method looks at."""
    means = {
        "proved": "proved: a checker that uses no solver computes this bound again from the file",
        "claimed": "claimed: weftline's own search says so, and nobody has checked it independently",
    }.get(proof, "")
    return "; ".join(filter(None, (means, f"it is {words}" if words else "")))


def key(tone: str, text: str) -> dict[str, str]:
    """One entry of a legend."""
    return {"tone": tone, "text": text}


def contents(page: dict[str, Any]) -> list[dict[str, str]]:
    """The sections that the page has, in order."""
    has = page["has"]
    sections = [
        ("how-good", "How good is it?", bool(page["comparison"])),
        ("run-section", "Measured", page["run"] is not None),
        ("timeline-section", page["timeline_title"], has["timeline"]),
        ("stages-section", "Stages", has["stages"]),
        ("memory-section", "Memory", has["memory"]),
        ("graph-section", "Tensors sent", has["graph"]),
        ("devices", "Devices", bool(page["device_table"])),
        ("search-section", "Search", has["progress"]),
        ("helps-section", "What would help?", bool(page["helps"])),
        ("inputs", "Inputs", True),
    ]
    return [{"id": id, "name": name} for id, name, there in sections if there]


def _share(part: float, whole: float) -> float:
    return round(100 * min(1.0, max(0.0, part / whole)), 2) if whole else 0.0


def _chips(plan: Plan) -> list[dict[str, str]]:
    tones = {"proved": "good", "claimed": "", "none": "warn"}
    words = {"proved": "bound proved", "claimed": "bound claimed", "none": "no bound"}
    title = bound_title(plan.proof, explain_bound(plan.bound_by))
    chips = [{"tone": "warn" if plan.guessed else tones[plan.proof], "text": words[plan.proof], "title": title}]
    if plan.guessed:
        chips[0]["text"] = f"bound {proof_words(plan)}" if plan.proof != "none" else "no bound"
    if plan.value_ns == plan.bound_ns:
        claim = ", by that claim" if plan.proof == "claimed" else ""
        tone = "" if plan.proof == "claimed" else "good"
        chips.append({"tone": tone, "text": f"best possible{' pipeline' if plan.stages else ''}{claim}"})
    chips.append({"tone": "", "text": STOPS.get(plan.stopped_by, short_name(plan.stopped_by, 40))})
    return chips


def _warnings(plan: Plan) -> list[str]:
    found = [guess_words(plan.problem.graph), better_baseline(plan), scattered_hosts(plan), measured_words(plan)]
    if plan.stopped_by == "interrupted":
        found.append("The search was interrupted: this is the best plan so far, and some baselines may be missing.")
    return [short_name(sentence, 600) for sentence in found if sentence]


def _facts(plan: Plan) -> list[tuple[str, str]]:
    used = len(set(plan.placement.values()))
    facts = [("devices used", f"{used} of {len(plan.devices)}")]
    single = plan.baselines.get("single-device")
    if single and plan.value_ns:
        facts.append(("against one device", f"{single / plan.value_ns:.2f}x as fast"))
    if plan.objective == "throughput" and plan.value_ns:
        facts.append(("inputs per second", f"{1e9 / plan.value_ns:,.4g}"))
    facts.append(("solver", short_name(plan.solver, 40)))
    if plan.seconds is not None:
        facts.append(("searched for", f"{plan.seconds:.1f} s"))
    return facts


def _comparison(plan: Plan) -> list[dict[str, Any]]:
    rows = [("this plan", plan.value_ns, "plan")]
    for name, value in sorted(plan.baselines.items(), key=lambda item: (item[1] is None, item[1] or 0)):
        tone = "better" if value is not None and value < plan.value_ns else "other"
        rows.append((short_name(name, 60), -1 if value is None else value, tone))
    rows.append((f"lower bound ({proof_words(plan)})", plan.bound_ns, "lower"))
    most = min(max(value for _, value, _ in rows), LONGEST_BAR * plan.value_ns) or 1
    title = bound_title(plan.proof, explain_bound(plan.bound_by))
    words = BASELINE_WORDS if plan.objective == "latency" else PIPELINE_WORDS
    return [
        {
            "name": name,
            "tone": tone,
            "title": title if tone == "lower" else words.get(name, ""),
            "share": _share(value, most),
            "sort": value if value >= 0 else 2**62,
            "value": "breaks a limit" if value < 0 else format_time(value),
            "ratio": "" if value < 0 or not plan.value_ns else f"{value / plan.value_ns:.2f}x",
            "longer": value > most,
        }
        for name, value, tone in rows
    ]


def _stages_words(plan: Plan, data: dict[str, Any]) -> str:
    worst = max(plan.stages, key=lambda stage: stage.load_ns, default=None)
    if worst is None:
        return ""
    number = plan.stages.index(worst)
    how = "the longest of its three parts counts" if data["overlapped"] else "its three parts add up"
    slowest = f"Stage {number} on {worst.device} is the slowest and sets the period."
    return f"What each stage costs for one input; {how}. {slowest}"


def _stage_table(plan: Plan) -> tuple[tuple[str, ...], list[list[dict[str, Any]]]]:
    header, rows = stage_rows(plan)
    found = []
    for stage, row in zip(plan.stages, rows, strict=True):
        sorts = ["", "", stage.ops, stage.compute_ns, stage.in_ns, stage.out_ns, stage.load_ns]
        found.append([{"text": short_name(text, 120), "sort": sort} for text, sort in zip(row, sorts, strict=True)])
    return header, found


def _device_table(plan: Plan) -> list[dict[str, Any]]:
    ops = dict.fromkeys(plan.devices, 0)
    for device in plan.placement.values():
        ops[device] += 1
    return [
        {
            "name": device,
            "ops": ops[device],
            "load": format_time(use.load_ns),
            "load_sort": use.load_ns,
            "busy": _share(use.load_ns, plan.value_ns),
            "memory": format_bytes(use.memory_bytes),
            "memory_sort": use.memory_bytes,
            "full": _share(use.memory_bytes, use.memory_limit or 0),
            "limit": "none" if use.memory_limit is None else format_bytes(use.memory_limit),
        }
        for device, use in plan.devices.items()
    ]


def _progress_words(plan: Plan) -> str:
    why = STOPS.get(plan.stopped_by, plan.stopped_by)
    return f"The best plan so far and the lower bound, while solver {plan.solver} searched. It ended because: {why}."


def _help_rows(plan: Plan, helps: Sequence[Help]) -> list[dict[str, Any]]:
    rows = []
    for found in helps:
        gain = (plan.value_ns - found.value_ns) / plan.value_ns
        rows.append(
            {
                "name": found.name,
                "note": short_name(found.note, 160),
                "share": _share(found.value_ns, plan.value_ns),
                "tone": "good" if gain > 0.0005 else "plan",
                "value": format_time(found.value_ns),
                "sort": found.value_ns,
                "gain": f"{gain:.1%}" if gain > 0.0005 else "none",
                "gain_sort": gain,
                "bound": format_time(found.bound_ns) if found.bound_ns else "",
                "seconds": f"{found.seconds:.1f} s",
            }
        )
    return rows


def _helps_words(helps: Sequence[Help]) -> str:
    total = sum(found.seconds for found in helps)
    return (
        f"One thing better at a time, solved again, {total:.0f} s in all. Each value is the simulator's, of the best "
        "plan found in that time; a longer search may find more. A gain in the first row comes from more time alone."
    )


def run_rows(run: RunTable | None) -> dict[str, Any] | None:
    """The table of a run: the whole, its devices, what it is compared with."""
    if run is None:
        return None
    rows = [(run.whole, "plan", True)]
    rows += [(row, "other", False) for row in run.devices]
    rows += [(row, "better" if row.measured_ns < run.whole.measured_ns else "other", False) for row in run.baselines]
    most = min(max(row.measured_ns for row, _, _ in rows), round(LONGEST_BAR * run.whole.measured_ns)) or 1
    return {
        "engine": run.engine,
        "words": " ".join(run.words),
        "rows": [_run_row(row, tone, main, most) for row, tone, main in rows],
    }


def _run_row(row: RunRow, tone: str, main: bool, most: int) -> dict[str, Any]:
    return {
        "name": row.name,
        "note": row.note,
        "tone": tone,
        "main": main,
        "share": _share(row.measured_ns, most),
        "sort": row.measured_ns,
        "measured": format_time(row.measured_ns),
        "predicted": "" if row.predicted_ns is None else format_time(row.predicted_ns),
        "ratio": "" if row.ratio is None else f"{row.ratio:.2f}",
    }


def input_rows(answer: Any, costs: str = "") -> list[tuple[str, str, bool]]:
    """Where it comes from: (name, value, is code)."""
    source = answer.provenance
    rows = [
        ("weftline", short_name(source.version, 60), False),
        ("call", short_name(" ".join(source.argv), 800) or "from Python", True),
        ("solver", f"{short_name(answer.solver, 60)}, seed {source.seed}", False),
        ("ended because", STOPS.get(answer.stopped_by, short_name(answer.stopped_by, 60)), False),
        ("asked gap", f"{source.gap:.2%}", False),
    ]
    if source.time_limit is not None:
        rows.append(("time limit", f"{source.time_limit:g} s", False))
    if source.work_limit is not None:
        rows.append(("work limit", f"{source.work_limit:,}", False))
    if costs:
        rows.append(("costs", short_name(costs, 400), False))
    rows += [(f"{short_name(role, 40)} sha256", short_name(digest, 80), True) for role, digest in source.inputs.items()]
    question = getattr(source, "problem_sha256", "") or getattr(source, "blocks_sha256", "")
    rows.append(("question sha256", short_name(question, 80), True))
    return rows
