"""`sweep_plans`: many plans in parallel, into a folder that keeps what is finished.

In: what is wanted, a folder, an engine. Out: a `PlanSweep` with a row for each question, in the order of the lists. A
sweep that was killed or interrupted goes on where it was when it is started again. Simplified: questions know nothing
of each other; for numbers of stages that hand plans and bounds on, there is `plan.sweep_stages`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import msgspec

from weftline.errors import UsageError
from weftline.execute.sweep_folder import SweepFolder
from weftline.execute.sweep_job import Row, answer
from weftline.execute.sweep_local import Answer, answer_locally, cores
from weftline.execute.sweep_questions import Question, Wanted, questions_of
from weftline.interrupts import Interruption

__all__ = ["ENGINES", "PlanSweep", "sweep_plans"]

ENGINES = ("local", "ray")
MOST_JOBS = 1024


@dataclass(frozen=True, eq=False)
class PlanSweep:
    """What is known about all questions."""

    folder: Path
    rows: tuple[Row, ...]
    """Of the finished questions, in the order of the lists."""
    asked: int
    """Questions in all."""
    repeated: int
    """Of them finished by an earlier sweep."""
    interrupted: bool

    def to_json(self) -> bytes:
        """One object."""
        about = {
            "folder": str(self.folder),
            "asked": self.asked,
            "finished": len(self.rows),
            "from_before": self.repeated,
            "without_plan": sum(row.error is not None for row in self.rows),
            "interrupted": self.interrupted,
            "rows": self.rows,
        }
        return msgspec.json.encode(about) + b"\n"


def sweep_plans(
    wanted: Wanted,
    folder: Path | str,
    *,
    jobs: int | None = None,
    engine: str = "local",
    address: str | None = None,
    on_row: Callable[[Row, int, int], None] | None = None,
) -> PlanSweep:
    """Answer what the folder does not answer yet. Ctrl-C keeps what is finished; `on_row` hears row, done, asked."""
    jobs = cores() if jobs is None else jobs
    if engine not in ENGINES:
        raise UsageError(f"an engine is {' or '.join(ENGINES)}, not {engine[:40]!r}")
    if not 1 <= jobs <= MOST_JOBS:
        raise UsageError(f"there can be 1 to {MOST_JOBS} jobs, not {jobs}")
    if address is not None and engine != "ray":
        raise UsageError("an address is for the engine ray")
    with SweepFolder(folder) as results:
        questions = questions_of(wanted, results.models)
        left = [question for question in questions if not results.is_finished(question.key)]
        finished = len(questions) - len(left)
        before = finished
        with Interruption() as stop, closing(_answers(left, jobs, engine, address)) as answers:
            for row, plan in answers:
                results.add(row, plan)
                finished += 1
                if on_row is not None:
                    on_row(row, finished, len(questions))
        rows = tuple(results.rows[question.key] for question in questions if question.key in results.rows)
    return PlanSweep(Path(folder), rows, len(questions), before, stop.ended)


def _answers(
    questions: Sequence[Question], jobs: int, engine: str, address: str | None
) -> Generator[Answer, None, None]:
    """What is wrong already needs no worker."""
    yield from (answer(question) for question in questions if question.wrong)
    asked = [question for question in questions if not question.wrong]
    if not asked:
        return
    if engine == "ray":
        from weftline.execute.sweep_ray import answer_by_ray

        yield from answer_by_ray(asked, jobs=jobs, address=address)
    else:
        yield from answer_locally(asked, jobs=jobs)
