"""`sweep_plans`: many plans in parallel, into a folder that keeps what is finished.

In: what is wanted, a folder, an engine. Out: a `PlanSweep` with a row for each question, in the order of the lists. The
folder has results.jsonl, plans/KEY.json, and a lock, so that one sweep at a time works in it. A plan is written before
its row, and a row in one write with fsync, so a row that is there has its plan; a last line that is not whole is
dropped. A sweep that was killed or interrupted goes on where it was when it is started again. Simplified: if a key has
several rows, the last one counts; questions know nothing of each other; for numbers of stages that hand plans and
bounds on, there is `plan.sweep_stages`.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from weftline.ask.request import GridRequest
from weftline.errors import InputError, UsageError
from weftline.files import Replacement
from weftline.grid.compare import compared_solvers
from weftline.grid.engines import Answer, answer_locally, cores
from weftline.grid.job import Row, answer
from weftline.grid.questions import GridQuestion, questions_of
from weftline.interrupts import Interruption

__all__ = ["ENGINES", "PlanSweep", "SweepFolder", "sweep_plans"]

MOST_BYTES = 2**30
DEFECT_CODE = 1
"""Exit code of what should not happen, and is tried again."""


_FIRST_WORDS = b'{"key":"'
"""With which every row begins."""
_KEY = re.compile(r"[0-9A-Za-z_-]{1,64}")


def _open_own(path: Path, flags: int) -> int:
    """A regular file with one name in the folder itself: no link to what is somebody's."""
    wrong = InputError("is a link or no regular file", where=str(path), hint="take a new folder")
    if path.is_symlink():
        raise wrong
    descriptor = os.open(path, flags | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0), 0o644)
    about = os.fstat(descriptor)
    if not stat.S_ISREG(about.st_mode) or about.st_nlink > 1:
        os.close(descriptor)
        raise wrong
    return descriptor


def _check_own_folder(folder: Path) -> None:
    """A folder in the folder itself, without links: files are written there, and not to what is somebody's."""
    if not folder.is_symlink() and not folder.exists():
        return
    names = [] if folder.is_symlink() else [entry.name for entry in os.scandir(folder) if entry.is_symlink()]
    if names or folder.is_symlink() or not folder.is_dir():
        where = folder / names[0] if names else folder
        raise InputError("is a link or no folder", where=str(where), hint="take a new folder")


class SweepFolder:
    """Used as a context: the lock is held inside."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path)
        self.models, self._plans, self._results = self.path / "models", self.path / "plans", self.path / "results.jsonl"
        self.rows: dict[str, Row] = {}
        self._lock = self._file = -1

    def __enter__(self) -> SweepFolder:
        try:
            self._plans.mkdir(parents=True, exist_ok=True)
            for folder in (self._plans, self.models):
                _check_own_folder(folder)
            self._lock = _open_own(self.path / ".lock", os.O_RDWR | os.O_CREAT)
            self._hold()
            self._file = _open_own(self._results, os.O_RDWR | os.O_CREAT | os.O_APPEND)
            self.rows = self._read()
        except OSError as error:
            self._close()
            raise InputError(f"cannot be used: {error.strerror or error}", where=str(self.path)) from error
        except BaseException:
            self._close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def is_finished(self, key: str) -> bool:
        """Whether a question needs no more work: it has a plan, or an error that would come again."""
        row = self.rows.get(key)
        return row is not None and (row.error is None or row.error.exit_code != DEFECT_CODE)

    def add(self, row: Row, plan: bytes) -> None:
        """Keep an answer."""
        if plan:
            self._write(self._plans / f"{row.key}.json", plan)
        line = msgspec.json.encode(row) + b"\n"
        before = os.fstat(self._file).st_size
        try:
            if os.write(self._file, line) != len(line):
                os.ftruncate(self._file, before)
                raise InputError("cannot be written: no room left", where=str(self._results))
            os.fsync(self._file)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror or error}", where=str(self._results)) from error
        self.rows[row.key] = row

    def _write(self, path: Path, plan: bytes) -> None:
        """As `write_atomically`, but nothing is written behind a link."""
        try:
            with Replacement(path) as new:
                new.file.write(plan)
        except OSError as error:
            raise InputError(f"cannot be written: {error.strerror or error}", where=str(path)) from error

    def _hold(self) -> None:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(self._lock, msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(f"another sweep works in {self.path}; wait for it, or take another folder") from error

    def _read(self) -> dict[str, Row]:
        data = self._content()
        whole = data.rfind(b"\n") + 1
        rows = {}
        for number, line in enumerate(data[:whole].splitlines(), 1):
            try:
                row = msgspec.json.decode(line, type=Row)
            except (ValueError, RecursionError) as error:
                where = f"{self._results}: line {number}"
                raise InputError(f"is not a row: {str(error)[:200]}", where=where, hint="take a new folder") from error
            if row.error is not None or self._has_plan(row.key):
                rows[row.key] = row
        rest = data[whole:]
        if rest:  # a killed sweep left a part of a line
            if not (rest.startswith(_FIRST_WORDS) or _FIRST_WORDS.startswith(rest.rstrip(b"\0"))):
                raise InputError("its last line is not a row", where=str(self._results), hint="take a new folder")
            os.ftruncate(self._file, whole)
        return rows

    def _content(self) -> bytes:
        """Of the file that is open, whatever has its name by now."""
        if os.fstat(self._file).st_size > MOST_BYTES:
            raise InputError(f"larger than {MOST_BYTES >> 20} MiB", where=str(self._results))
        with os.fdopen(os.dup(self._file), "rb") as file:
            file.seek(0)
            return file.read()

    def _has_plan(self, key: str) -> bool:
        path = self._plans / f"{key}.json"
        return bool(_KEY.fullmatch(key)) and path.is_file() and not path.is_symlink()

    def _close(self) -> None:
        for file in (self._file, self._lock):
            if file >= 0:
                os.close(file)
        self._file = self._lock = -1


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
            "ratios": compared_solvers(self.rows),
        }
        return msgspec.json.encode(about) + b"\n"


def sweep_plans(
    wanted: GridRequest,
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
    questions: Sequence[GridQuestion], jobs: int, engine: str, address: str | None
) -> Generator[Answer, None, None]:
    """What is wrong already needs no worker."""
    yield from (answer(question) for question in questions if question.wrong)
    asked = [question for question in questions if not question.wrong]
    if not asked:
        return
    if engine == "ray":
        from weftline.grid.engines import answer_by_ray

        yield from answer_by_ray(asked, jobs=jobs, address=address)
    else:
        yield from answer_locally(asked, jobs=jobs)
