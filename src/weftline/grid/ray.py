"""The engine `ray` of a sweep: plain tasks, on a cluster that runs already or on a Ray of this machine alone.

In: questions. Out: answers, as they come; the same function as that of the engine `local` makes them, so under a work
limit the plans are the same bytes. Simplified: model files must be at the same path on all machines; Ray itself
decides where a task runs, and gives it one thread.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Generator, Sequence
from typing import Any

from weftline.errors import MissingExtra, WeftlineError
from weftline.grid.job import answer, failed
from weftline.grid.local import Answer
from weftline.grid.questions import Question

__all__ = ["answer_by_ray"]

START_ATTEMPTS = 3
TASKS_PER_CORE = 4
"""Tasks given to Ray for each core, so that a large sweep does not stand in its queue whole."""


def answer_by_ray(questions: Sequence[Question], *, jobs: int, address: str | None) -> Generator[Answer, None, None]:
    """Answer all questions in any order; closing the iterator takes back what is not finished."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError as error:
        raise MissingExtra("ray", "ray") from error
    started = not ray.is_initialized()
    if started:
        _start(ray, jobs, address)
    try:
        yield from _answers(ray, questions)
    finally:
        if started:
            ray.shutdown()


def _start(ray: Any, jobs: int, address: str | None) -> None:
    """A busy machine may miss Ray's own limit of 30 s for its start, so that is tried again."""
    for left in reversed(range(START_ATTEMPTS)):
        try:
            ray.init(
                address=address or "local",
                num_cpus=None if address else jobs,
                include_dashboard=None if address else False,
                configure_logging=False,
                logging_level=logging.ERROR,
                log_to_driver=False,
            )
        except Exception as error:  # Ray raises what it likes, Exception itself where a node is slow to start
            ray.shutdown()
            if address or not left:
                where = f"at {address}" if address else "on this machine"
                raise WeftlineError(f"Ray does not start or answer {where}: {str(error)[:300]}") from error
        else:
            return


def _answers(ray: Any, questions: Sequence[Question]) -> Generator[Answer, None, None]:
    task = ray.remote(num_cpus=1, max_retries=0)(answer)
    most = TASKS_PER_CORE * max(1, int(ray.cluster_resources().get("CPU", 1)))
    left = iter(questions)
    running: dict[Any, Question] = {}
    try:
        while True:
            while len(running) < most and (question := next(left, None)) is not None:
                running[task.remote(question)] = question
            if not running:
                return
            done, _ = ray.wait(list(running), num_returns=1)
            for reference in done:
                question = running.pop(reference)
                yield _result(ray, reference, question)
    finally:
        for reference in running:
            ray.cancel(reference, force=True)


def _result(ray: Any, reference: Any, question: Question) -> Answer:
    try:
        row, plan = ray.get(reference)
    except ray.exceptions.RayError as error:
        return failed(question, type(error).__name__, str(error), 1), b""
    return row, plan
