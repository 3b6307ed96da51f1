"""The engine `local` of a sweep: worker processes of this machine, one question at a time each.

In: questions. Out: answers, as they come. Workers hold one end of a pipe and leave when the other end is closed: by the
end of the sweep, by Ctrl-C, or by the death of this process, however it dies. If a worker dies, the questions that were
being worked on are tried once more, each alone; one that kills its worker again becomes a row. Simplified: libraries
are asked for one thread; a solver that starts threads of its own keeps them.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import Connection

from weftline.grid.job import Row, answer, failed
from weftline.grid.questions import Question
from weftline.worker.parent import environment_of_children

__all__ = ["Answer", "answer_locally", "cores"]

Answer = tuple[Row, bytes]
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1")


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def answer_locally(questions: Sequence[Question], *, jobs: int) -> Generator[Answer, None, None]:
    """Answer all questions in any order; closing the iterator ends the workers."""
    waiting = deque(questions)
    with environment_of_children(_ONE_THREAD):
        while waiting:
            for suspect in (yield from _work(waiting, jobs)):
                if (yield from _work(deque([suspect]), 1)):
                    text = "the process that worked on it died; it may need more memory than there is"
                    yield failed(suspect, "WorkerDied", text, 1), b""


def _work(waiting: deque[Question], jobs: int) -> Generator[Answer, None, list[Question]]:
    """Until nothing waits, or a worker dies -> the questions that were being worked on then."""
    context = multiprocessing.get_context("spawn")
    theirs, ours = context.Pipe(duplex=False)
    pool = ProcessPoolExecutor(min(jobs, len(waiting)), context, initializer=_begin, initargs=(theirs,))
    running: dict[Future[Answer], Question] = {}
    lost: list[Question] = []
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
