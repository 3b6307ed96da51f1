"""One question of a sweep, answered in a process of its own: by a local worker or by a task of Ray.

In: a `GridQuestion`. Out: its `Row`, and the bytes of its plan. Whatever goes wrong becomes a row. Simplified: model
files are read where the question says, so other machines need them at the same path; other bytes there are refused.
"""

from __future__ import annotations

from pathlib import Path
from time import monotonic
from typing import Annotated, Literal

import msgspec

from weftline.ask.answer import answer_one
from weftline.ask.request import ClusterText, PlanRequest
from weftline.errors import InputError, MissingExtra, WeftlineError, unreadable
from weftline.grid.questions import GridQuestion, Objective
from weftline.plans import Plan

__all__ = ["Failure", "Row", "answer", "failed"]

MOST_TEXT = 2000


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a question has no plan."""

    kind: str
    """Name of the error: InputError, InfeasibleError, UsageError, LimitReached, WorkerDied ..."""
    text: str
    exit_code: int
    """As of `weftline plan`; 1 for what should not happen, which is tried again by the next sweep."""


class Row(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One line of results.jsonl."""

    key: str
    model: str
    cluster: str | None
    objective: Objective
    stages: int | None
    solver: str
    seed: int
    gap_limit: float | None
    time_limit: float | None
    work_limit: int | None
    model_sha256: str
    cluster_sha256: str
    value_ns: Annotated[int, msgspec.Meta(ge=0)] | None = None
    bound_ns: Annotated[int, msgspec.Meta(ge=0)] | None = None
    gap: float | None = None
    proof: Literal["proved", "claimed", "none"] | None = None
    bound_by: str | None = None
    seconds: float | None = None
    """None under a work limit, so that rows repeat."""
    stopped_by: str | None = None
    plan: str | None = None
    """File of the plan, relative to the folder."""
    error: Failure | None = None
    ops: int | None = None
    """Of the model."""
    took_seconds: float | None = None
    """From reading the model to the plan, under a work limit, too; the only field that differs from run to run then."""


def answer(question: GridQuestion) -> tuple[Row, bytes]:
    """Plan; an error is a row too."""
    from weftline.plans.plan import plan_to_json

    begun = monotonic()
    try:
        plan = _plan(question)
    except WeftlineError as error:
        # What is missing here may be there another time: such a row is tried again.
        again = isinstance(error, MissingExtra) or isinstance(error.__cause__, OSError | MemoryError)
        return failed(question, type(error).__name__, str(error), 1 if again else error.exit_code), b""
    except Exception as error:  # one defect does not end the sweep; it stands in the table
        return failed(question, type(error).__name__, str(error), 1), b""
    about = msgspec.structs.asdict(_about(question))
    row = Row(
        **{
            **about,
            "value_ns": plan.value_ns,
            "bound_ns": plan.bound_ns,
            "gap": plan.gap,
            "proof": plan.proof,
            "bound_by": plan.bound_by,
            "seconds": plan.seconds,
            "stopped_by": plan.stopped_by,
            "plan": f"plans/{question.key}.json",
            "ops": len(plan.problem.graph.ops),
            "took_seconds": round(monotonic() - begun, 3),
        }
    )
    return row, plan_to_json(plan)


def failed(question: GridQuestion, kind: str, text: str, exit_code: int) -> Row:
    """The row of a question without a plan."""
    return msgspec.structs.replace(_about(question), error=Failure(kind, text[:MOST_TEXT], exit_code))


def _plan(question: GridQuestion) -> Plan:
    from weftline.importers.registry import file_sha256

    if question.wrong:
        raise InputError(question.wrong)
    path = Path(question.file)
    try:
        found = file_sha256(path)
    except OSError as error:
        raise unreadable(question.model, error) from error
    if found != question.model_sha256:
        raise WeftlineError(f"{question.model}: has changed since the sweep began, or differs on this machine")
    cluster: ClusterText | None = None
    if question.cluster is not None and question.cluster_text is not None:
        stem = Path(question.cluster).stem
        name = stem if stem.isprintable() and len(stem) <= 64 else "cluster"
        cluster = ClusterText(question.cluster_text, question.cluster, name)
    request = PlanRequest(
        model=path,
        cluster=cluster,
        objective=question.objective,
        stages=question.stages,
        solver=question.solver,
        gap=question.gap,
        time_limit=question.time_limit,
        work_limit=question.work_limit,
        seed=question.seed,
    )
    plan = answer_one(request)
    if plan.provenance.inputs.get("model") != question.model_sha256:
        raise WeftlineError(f"{question.model}: has changed while it was planned")
    return plan


def _about(question: GridQuestion) -> Row:
    return Row(
        key=question.key,
        model=question.model,
        cluster=question.cluster,
        objective=question.objective,
        stages=question.stages,
        solver=question.solver,
        seed=question.seed,
        gap_limit=question.gap,
        time_limit=question.time_limit,
        work_limit=question.work_limit,
        model_sha256=question.model_sha256,
        cluster_sha256=question.cluster_sha256,
    )
