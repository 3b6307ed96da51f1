"""The questions by objective: their solvers, their bounds, what they compile."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weftline import latency, pipeline
from weftline.bounds import Bound
from weftline.latency import bounds as latency_bounds
from weftline.latency.prepare import prepare as prepare_latency
from weftline.pipeline import bounds as pipeline_bounds
from weftline.problem import Problem
from weftline.search import Solver

__all__ = ["QUESTIONS", "Question", "lower_bounds"]


@dataclass(frozen=True)
class Question:
    """What the path from request to answer needs to know of a room."""

    solvers: Callable[[], dict[str, Solver]]
    """The registry."""
    lower_bounds: Callable[[Problem], tuple[Bound, ...]]
    """Quick bounds with witnesses, the largest first."""
    prepare: Callable[[], None]
    """Compiles or loads the kernels of the room, and no others."""


QUESTIONS = {
    "latency": Question(latency.solvers, latency_bounds.lower_bounds, prepare_latency),
    "throughput": Question(pipeline.solvers, pipeline_bounds.lower_bounds, pipeline.prepare),
}


def lower_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Every quick bound that applies to the problem's objective, the largest first."""
    return QUESTIONS[problem.rules.objective].lower_bounds(problem)
