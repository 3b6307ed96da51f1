"""The engines of a sweep: worker processes of this machine, or tasks of Ray.

In: questions. Out: answers, as they come; the same function makes them, so under a work limit the plans are the same
bytes. Local workers hold one end of a pipe and leave when the other end is closed: by the end of the sweep, by Ctrl-C,
or by the death of this process, however it dies. If a worker dies, the questions that were being worked on are tried
once more, each alone; one that kills its worker again becomes a row. Ray is a cluster that runs already, or this
machine alone. Simplified: libraries are asked for one thread, a solver that starts threads of its own keeps them; with
Ray, model files must be at the same path on all machines, and Ray itself decides where a task runs.
"""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection
from typing import Any

from weftline.errors import MissingExtra, WeftlineError
from weftline.grid.job import Row, answer, failed
from weftline.grid.questions import GridQuestion
from weftline.worker.parent import environment_of_children

__all__ = ["Answer", "answer_by_ray", "answer_locally", "cores"]

Answer = tuple[Row, bytes]
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def answer_locally(questions: Sequence[GridQuestion], *, jobs: int) -> Generator[Answer, None, None]:
    """Answer all questions in any order; closing the iterator ends the workers."""
    waiting = deque(questions)
    with environment_of_children(_ONE_THREAD):
        while waiting:
            for suspect in (yield from _work(waiting, jobs)):
                if (yield from _work(deque([suspect]), 1)):
                    text = "the process that worked on it died; it may need more memory than there is"
                    yield failed(suspect, "WorkerDied", text, 1), b""


def _work(waiting: deque[GridQuestion], jobs: int) -> Generator[Answer, None, list[GridQuestion]]:
    """Until nothing waits, or a worker dies -> the questions that were being worked on then."""
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(jobs, len(waiting)), context, initializer=_begin, initargs=(theirs,))
    running: dict[Future[Answer], GridQuestion] = {}
    lost: list[GridQuestion] = []
    try:
        while (waiting or running) and not lost:
            while waiting and len(running) < jobs:
                future = pool.submit(answer, waiting[0])
                running[future] = waiting.popleft()
            done, _ = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                question = running.pop(future)
                if isinstance(future.exception(), BrokenProcessPool):
                    lost.append(question)
                else:
                    yield future.result()
        if not lost:
            pool.shutdown()
    except BrokenProcessPool:  # from submit: the question is still among those that wait
        pass
    finally:
        ours.close()
        pool.shutdown(cancel_futures=True)
        theirs.close()
    return lost + list(running.values())


def _begin(line: Connection) -> None:
    """In a worker: Ctrl-C is for the parent, and there is no life after it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_watch, args=(line,), daemon=True).start()


def _watch(line: Connection) -> None:
    try:
        line.recv_bytes()
    finally:
        os._exit(1)


START_ATTEMPTS = 3
TASKS_PER_CORE = 4
"""Tasks given to Ray for each core, so that a large sweep does not stand in its queue whole."""


def answer_by_ray(
    questions: Sequence[GridQuestion], *, jobs: int, address: str | None
) -> Generator[Answer, None, None]:
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


def _answers(ray: Any, questions: Sequence[GridQuestion]) -> Generator[Answer, None, None]:
    task = ray.remote(num_cpus=1, max_retries=0)(answer)
    most = TASKS_PER_CORE * max(1, int(ray.cluster_resources().get("CPU", 1)))
    left = iter(questions)
    running: dict[Any, GridQuestion] = {}
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


def _result(ray: Any, reference: Any, question: GridQuestion) -> Answer:
    try:
        row, plan = ray.get(reference)
    except ray.exceptions.RayError as error:
        return failed(question, type(error).__name__, str(error), 1), b""
    return row, plan
