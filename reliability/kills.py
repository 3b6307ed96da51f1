"""kill -9 while files are written, several processes at one cache, folders that are read-only or full.

In: how many rounds. Out: rows of counts; every torn or lost file is a failure. A round is a process that writes plans,
schedules, profiles and rows of a sweep over and over and is killed after a moment that fixed dice choose.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from random import Random
from time import monotonic, sleep

import msgspec

from reliability.kills_shared import full_disk, read_only, shared_kernels, shared_profiles, shared_sweep
from reliability.results_file import Results, Row
from weftline.ask import make_plan
from weftline.ask.scheduling import make_schedule
from weftline.errors import InputError
from weftline.grid.grid import SweepFolder
from weftline.grid.job import Row as SweepRow
from weftline.plans import Plan, load_plan
from weftline.plans.schedule import Schedule, load_schedule
from weftline.schedule.make_blocks import make_shape
from weftline.testing import random_problem

__all__ = ["kill_rounds", "kills"]

MOST_LEFT = 3
"""Temporary files that killed writers may leave in all, however many are killed: one for each file they write."""


def kills(results: Results, *, rounds: int, until: float | None = None) -> bool:
    """All of it."""
    parts: dict[str, Callable[[Path], Row]] = {
        "kill -9": lambda folder: kill_rounds(folder, rounds),
        "profile cache, 4 processes": shared_profiles,
        "sweep folder, 4 processes": shared_sweep,
        "kernel cache, 4 processes": shared_kernels,
        "read-only folder": read_only,
        "full disk": full_disk,
    }
    for name, measure in parts.items():
        if name in results.rows:
            continue
        if until is not None and monotonic() > until:
            return False
        with tempfile.TemporaryDirectory(prefix="weftline-kills-") as folder:
            results.add(name, measure(Path(folder)))
        print(f"kills: {name}: {results.rows[name]}", file=sys.stderr, flush=True)
    return True


@cache
def _answers() -> tuple[Plan, Schedule]:
    problem = random_problem(3, "latency", max_ops=7, limits=False)
    schedule = make_schedule(make_shape("vshape", 2), 3, solver="1f1b", work_limit=10)
    return make_plan(problem, solver="greedy", work_limit=20), schedule


def _plan(number: int) -> Plan:
    """The number stands at the beginning, in the middle and, many times, at the end of the file."""
    plan = _answers()[0]
    about = msgspec.structs.replace(plan.provenance, argv=(str(number),) * (20_000 + number % 7 * 5_000))
    return msgspec.structs.replace(plan, solver=str(number), stopped_by=str(number), provenance=about)


def _write_for_ever(folder: Path, first: int) -> None:
    schedule, number = _answers()[1], first
    with SweepFolder(folder / "sweep") as sweep:
        while True:
            _plan(number).save(folder / "plan.json")
            msgspec.structs.replace(schedule, name=str(number), solver=str(number)).save(folder / "sched.json")
            sweep.add(_row(number), b'{"plan": %d}\n' % number)
            number += 1


def _row(number: int) -> SweepRow:
    texts: dict[str, object] = dict.fromkeys(("model", "solver", "model_sha256", "cluster_sha256"), "x")
    none = dict.fromkeys(("cluster", "stages", "gap_limit", "time_limit", "work_limit"))
    about: dict[str, object] = {"key": f"k{number}", "objective": "latency", "seed": 0, **texts, **none}
    return msgspec.convert(about, SweepRow)


def kill_rounds(folder: Path, rounds: int) -> Row:
    """So many writers, each killed; after each of them everything is whole, and nothing that was finished is lost."""
    dice, torn, lost, written, finished = Random(9), 0, 0, 0, 0
    _plan(0).save(folder / "plan.json")
    msgspec.structs.replace(_answers()[1], name="0", solver="0").save(folder / "sched.json")
    for _ in range(rounds):  # each goes on where the one before was killed, as a sweep that is started again
        child = _fork(partial(_write_for_ever, folder, 1 + finished))
        sleep(0.02 + dice.random() * 0.1)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        torn += not _is_whole(folder)
        with SweepFolder(folder / "sweep") as sweep:
            lost += len(sweep.rows) < finished
            written += len(sweep.rows) > finished
            finished = len(sweep.rows)
    left = len(list(folder.rglob(".*.tmp")))
    row = {"rounds": rounds, "torn": torn, "lost": lost, "rounds that wrote": written, "rows": finished, "left": left}
    return {**row, "failed": torn + lost + (left > MOST_LEFT)}


def _is_whole(folder: Path) -> bool:
    try:
        plan, schedule = load_plan(folder / "plan.json"), load_schedule(folder / "sched.json")
    except InputError:
        return False
    same = {plan.solver, plan.stopped_by, *plan.provenance.argv}
    return len(same) == 1 and schedule.name == schedule.solver


def _fork(work: Callable[[], None]) -> int:
    """A process that has everything loaded already."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(3)
    return child
