"""How much of what is claimed is proved: plans of other sections again, with proofs, and the checker's time for each.

In: the questions of the sections paper, fiddle, unequal and placement (`QUESTIONS`: other kinds are added there). Out:
one row per question: the best bound of all, the best that is proved, its witness in bytes, and how long plain Python
took to check it. Simplified: one search each, all with the same time limit; proofs get the default time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from statistics import median
from time import perf_counter, process_time

import msgspec

from benchmarks.instances import FIDDLE, data_folder, on_preset
from benchmarks.measure import first_line, say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.sections import fiddle, placement, unequal
from benchmarks.sections.paper import SHARED, paper_instances, shared_graph
from benchmarks.stats import busy_words, grouped, is_closed, kept
from weftline.ask import make_plan
from weftline.certify import bound_of
from weftline.certify.check import PlanProblem
from weftline.certify.run import verify_bytes
from weftline.cluster.model import preset_names
from weftline.errors import InfeasibleError, WeftlineError
from weftline.plans.plan import plan_to_json
from weftline.problem import Problem, load_problem
from weftline.units import format_bytes

__all__ = ["QUESTIONS", "SECTION", "Question"]

Question = tuple[Row, float, Callable[[], Problem]]
"""What tells it from others (kind, instance, stages), the time limit of its search, and how its problem is made."""
GOAL_SHARE = 0.8
"""Of all best bounds, open instances too, that are proved at their claimed value."""
MOST_CHECK_SECONDS = 10.0
MOST_BYTES = {"equal devices": 100_000, "known optima": 100_000, "own limits": 100_000, "unequal devices": 100_000}
OF_CLOSED = {"equal devices": 0.99, "known optima": 1.0, "unequal devices": 0.9, "latency": 0.95}
"""Kind -> the share of closed instances that must be proved."""
SIZES: dict[str, Row] = {
    "tiny": {
        "kinds": ["equal devices"], "only": ["light bvlc_alexnet"], "stages": [2], "time_limit": 1.0,
    },
    "quick": {
        "kinds": ["equal devices", "unequal devices", "latency"],
        "only": ["bert", "unet", "light squeezenet", "op_bert_l-3", "resnet50 on laptop", "gpt2 on edge"],
        "stages": [2, 16],
        "time_limit": 6.0,
    },
    "full": {
        "kinds": ["equal devices", "known optima", "own limits", "unequal devices", "latency"],
        "only": None,
        "stages": [2, 4, 8, 16, 32, 64],
        "time_limit": 15.0,
    },
}  # fmt: skip


def _equal(settings: Row) -> Iterator[Question]:
    for stages in settings["stages"]:
        for name, (_, make) in paper_instances().items():
            key = {"kind": "equal devices", "instance": name, "stages": stages}
            yield key, settings["time_limit"], partial(make, stages)


def _known(settings: Row) -> Iterator[Question]:
    folder = data_folder() / "fiddle" / "throughput"
    for name in SHARED if folder.is_dir() else ():
        for stages in fiddle.STAGES:
            key = {"kind": "known optima", "instance": name, "stages": stages}
            path = folder / f"{name}_inference.json"
            yield key, settings["time_limit"], partial(shared_graph, path, stages)


def _own(settings: Row) -> Iterator[Question]:
    folder = data_folder() / "fiddle" / "throughput"
    for name in FIDDLE if folder.is_dir() else ():
        key = {"kind": "own limits", "instance": name, "stages": 0}
        yield key, settings["time_limit"], partial(_file, str(folder / f"{name}.json"))


def _file(path: str) -> Problem:
    return load_problem(path, rules={"objective": "throughput"})[0]


def _unequal(settings: Row) -> Iterator[Question]:
    for model, (name, size) in unequal.MODELS.items():
        for cluster in preset_names():
            key = {"kind": "unequal devices", "instance": f"{model} on {cluster}", "stages": 0}
            yield key, settings["time_limit"], partial(on_preset, name, cluster, "throughput", size)


def _latency(settings: Row) -> Iterator[Question]:
    for question in placement.questions(placement.every_model(placement.SIZES["full"])):
        key = {"kind": "latency", "instance": question.instance, "stages": 0}
        yield key, settings["time_limit"], question.make


QUESTIONS: dict[str, Callable[[Row], Iterator[Question]]] = {
    "equal devices": _equal,
    "known optima": _known,
    "own limits": _own,
    "unequal devices": _unequal,
    "latency": _latency,
}
"""Kind -> its questions."""


def measure(settings: Row, collect: Collector) -> None:
    """All rows, kind by kind."""
    for kind in settings["kinds"]:
        for key, limit, make in QUESTIONS[kind](settings):
            if settings["only"] is None or key["instance"] in settings["only"]:
                say(f"proofs: {kind}, {key['instance']}, {key['stages']}")
                collect.measure(key, partial(_row, make, limit))


def _row(make: Callable[[], Problem], limit: float) -> Row:
    """One plan with proofs, and what the checker says of its best proved bound."""
    row: Row = {"value_ns": None, "note": "", "time_limit": limit, "seconds": 0.0}
    try:
        problem = make()
    except InfeasibleError as error:
        return {**row, "note": first_line(error)}
    row |= {"ops": len(problem.graph.ops), "devices": len(problem.devices)}
    begun = perf_counter()
    try:
        plan = make_plan(problem, time_limit=limit)
    except WeftlineError as error:
        return {**row, "note": first_line(error), "seconds": round(perf_counter() - begun, 3)}
    row |= {
        "seconds": round(perf_counter() - begun, 3),
        "search_seconds": plan.seconds,
        "value_ns": plan.value_ns,
        "bound_ns": plan.bound_ns,
        "bound_by": plan.bound_by,
        "proof": plan.proof,
        "problem": plan.provenance.problem_sha256[:16],
        "proved_ns": 0,
    }
    proved = [bound for bound in plan.bounds if bound.proof == "proved"]
    if proved:
        best = max(proved, key=lambda bound: bound.value_ns)
        witness = json.loads(msgspec.json.encode(best.witness))
        form = PlanProblem(msgspec.to_builtins(plan.problem))
        begun = process_time()
        assert bound_of(form, witness) >= best.value_ns
        row |= {"check_seconds": round(process_time() - begun, 4), "proved_ns": best.value_ns, "proved_by": best.by}
        row |= {"witness": witness["kind"], "witness_bytes": len(json.dumps(witness))}
    row["verified"] = getattr(verify_bytes(plan_to_json(plan)), "proved_bound_ns", None) == row["proved_ns"]
    return row


def _is_proved(row: Row) -> bool:
    """The best bound of all is proved."""
    return bool(row["proof"] == "proved")


def _lines(run: Run) -> list[Row]:
    """By kind, and by k where there are several."""
    found = []
    for kind, rows in grouped(run.rows, "kind").items():
        by_stages = grouped(rows, "stages")
        if len(by_stages) > 1:
            found += [_line(f"{kind}, k = {stages}", each) for stages, each in by_stages.items()]
        found.append(_line(f"**{kind}**" if len(by_stages) > 1 else kind, rows))
    return found


def _kinds(run: Run) -> list[Row]:
    return [_line(kind, rows) for kind, rows in grouped(run.rows, "kind").items()]


def _line(name: str, rows: list[Row]) -> Row:
    solved = kept(rows)
    closed = [row for row in solved if is_closed(row)]
    bounded = [row for row in solved if row["proved_ns"]]
    seconds = [row["check_seconds"] for row in bounded]
    largest = max((row["witness_bytes"] for row in bounded), default=None)
    return {
        "name": name,
        "count": len(rows),
        "solved": len(solved),
        "closed": len(closed),
        "proved": sum(map(_is_proved, closed)),
        "all proved": sum(map(_is_proved, solved)),
        "bytes": largest,
        "median": median(seconds) if seconds else None,
        "worst": max(seconds, default=None),
        "behind": max((1 - row["proved_ns"] / row["bound_ns"] for row in solved if row["bound_ns"]), default=None),
    }


TABLE: tuple[Column[Row], ...] = (
    *fields("instances=count | solved | closed | of these proved=proved | all best bounds proved=all proved"),
    Column("largest witness", "bytes", format_bytes),
    *fields("check, median s=median:.2f | check, max s=worst:.2f"),
    Column("proved bound below the best one, at most", "behind", ".2%"),
)


def _verdict(run: Run) -> Iterator[str]:
    solved = kept(run.rows)
    share = sum(map(_is_proved, solved)) / len(solved) if solved else 0.0
    word = "reached" if share >= GOAL_SHARE else "missed"
    yield f"Of all {len(solved)} best bounds **{share:.1%}** are proved at their value (goal {GOAL_SHARE:.0%}: {word})."


def _losses(run: Run) -> Iterator[str]:
    for line in _kinds(run):
        goal = OF_CLOSED.get(line["name"])
        if goal is not None and line["closed"] and line["proved"] < goal * line["closed"]:
            yield f"**Goal missed for {line['name']}:** {line['proved']} of {line['closed']} closed ones are proved."
    yield from verdict(
        "Closed, and not proved", [_name(r) for r in kept(run.rows) if is_closed(r) and not _is_proved(r)]
    )
    slow = [
        f"{_name(r)} ({r['check_seconds']:.1f} s)" for r in run.rows if r.get("check_seconds", 0) > MOST_CHECK_SECONDS
    ]
    yield from verdict("More than 10 s to check", slow)
    large = [_name(r) for r in run.rows if r.get("witness_bytes", 0) > MOST_BYTES.get(r["kind"], 1_000_000)]
    yield from verdict("Witness too large", large)
    yield from verdict("Refused by the checker as a program", [_name(r) for r in kept(run.rows) if not r["verified"]])
    yield from verdict("No plan", [f"{_name(r)}: {r['note']}" for r in run.rows if r["value_ns"] is None], most=3)


def _name(row: Row) -> str:
    return f"{row['instance']}, k = {row['stages']}" if row["stages"] else str(row["instance"])


SECTION = Section(
    name="proofs",
    title="From claimed to proved",
    chapter="throughput",
    asked="Plans of other sections again, at most {time_limit:g} s, and then proofs for at most 10 s (the default): "
    "which of the best bounds does the checker re-compute, from how small a witness, how fast in plain Python?",
    sizes=SIZES,
    measure=measure,
    screen=(
        Table((Column("question", "name"), *TABLE), _kinds),
        lambda run: [" ".join([*_verdict(run), *busy_words(run)])],
    ),
    losses=_losses,
    blocks=(
        lambda run: [" ".join([*_verdict(run), *busy_words(run)])],
        "*Closed*: value and best bound agree to 0.01 %. *Proved*: the best bound of all, claimed or not, is one "
        "which the checker re-computed. *Check* is CPU time of the checker for the witness of the best proved bound, "
        "in plain Python; the whole file has gone to the checker as a process of its own, too. [How](../proofs.md).",
        Table((Column("question", "name"), *TABLE), _lines),
        Table(
            (
                *fields(
                    "kind | instance | k=stages | ops | value=value_ns:time | best bound=bound_ns:time | by=bound_by"
                ),
                *fields("proof | proved=proved_ns:time | witness | bytes=witness_bytes | check s=check_seconds:.3f"),
                Column("search s", "search_seconds", ".1f"),
                Column("whole call s", "seconds", ".1f"),
            ),
            lambda run: kept(run.rows),
            "## All rows",
        ),
    ),
    warm=True,
)
