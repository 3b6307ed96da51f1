"""Mutation testing: are the tests of a room strong enough to notice a wrong sign?

In: rooms, how many mutants of each are drawn by a fixed seed. Out: a row per mutant: killed (a test failed), timed out
(counts as killed), or survived. Each mutant runs the tests of its room until the first failure. Mutants inside kernels
run without the compiler, which would not see them all. Simplified: a sample; survivors are listed, and those that
change nothing that can be observed are named in `EQUIVALENT` with the reason.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from random import Random
from time import monotonic

from reliability.mutants import Mutant, find_mutants
from reliability.mutation_equivalent import EQUIVALENT
from reliability.results_file import ROOT, Results, Row

__all__ = ["ROOMS", "draw", "is_equivalent", "mutation", "score"]

SEED = 20261116
PATIENCE, LEAST_PATIENCE = 4, 60
"""A mutant hangs if its tests need so many times (and seconds) of processor time more than those of the real code."""


COMPILED = ("tests/schedule/test_prepare.py",)
"""Tests of compiling itself: without the compiler they have nothing to look at."""


@dataclass(frozen=True)
class Room:
    """What is mutated, and which tests must notice."""

    name: str
    files: tuple[str, ...]
    """Patterns in the package."""
    tests: tuple[str, ...]
    without: tuple[str, ...] = ()
    """Modules that are left out."""

    def modules(self) -> list[tuple[str, Path]]:
        """Dotted names and files."""
        package = ROOT / "src" / "weftline"
        paths = sorted({path for pattern in self.files for path in package.glob(pattern)})
        names = [".".join(path.relative_to(ROOT / "src").with_suffix("").parts) for path in paths]
        pairs = zip((name.removesuffix(".__init__") for name in names), paths, strict=True)
        return [(name, path) for name, path in pairs if path.stem not in self.without]


ROOMS = (
    Room(
        "simulate",
        ("simulate/*.py", "simulate/kernels/*.py"),
        (
            "tests/simulate/test_latency.py",
            "tests/simulate/test_throughput.py",
            "tests/simulate/test_memory.py",
            "tests/simulate/test_schedule.py",
            "tests/simulate/test_agreement.py",
            "tests/simulate/test_metamorphic.py",
        ),
        without=("jit",),
    ),
    Room(
        "bounds",
        (
            "bounds/*.py",
            "latency/bounds.py",
            "latency/blocks/*.py",
            "latency/sequential/*.py",
            "pipeline/bounds.py",
            "pipeline/convex/*.py",
            "schedule/bounds/*.py",
        ),
        ("tests/bounds", "tests/latency", "tests/pipeline", "tests/schedule"),
    ),
    Room(
        "certify",
        ("certify/*.py",),
        ("tests/certify/test_tampering.py", "tests/certify/test_check_schedule.py", "tests/certify"),
    ),
)


def draw(room: Room, count: int) -> list[tuple[str, Mutant]]:
    """(module, mutant): a sample by a fixed seed; more are drawn by a larger count, the first ones stay."""
    found = []
    for module, path in room.modules():
        found += [(module, mutant) for mutant in find_mutants(path.read_text(encoding="utf-8"))]
    Random(f"{SEED} {room.name}").shuffle(found)
    return found[:count]


def mutation(results: Results, *, count: int, until: float | None = None) -> bool:
    """Try so many mutants per room."""
    for place in range(count):  # in turns, so that an unfinished run has some of every room
        for room in ROOMS:
            sample = draw(room, count)
            if place >= len(sample):
                continue
            module, mutant = sample[place]
            name = f"{module}:{mutant.line} {mutant.function}: {mutant.what} #{mutant.number}"
            if name in results.rows:
                continue
            if until is not None and monotonic() > until:
                return False
            patience = _patience(results, room, module, mutant.kernel)
            found = _try(room, module, mutant.number, mutant.kernel, patience)
            same = {"equivalent": why} if (why := _known(name)) and found["outcome"] == "survived" else {}
            results.add(name, {"room": room.name, "kernel": mutant.kernel, **found, **same})
            print(f"mutation: {results.rows[name]['outcome']}: {name}", file=sys.stderr, flush=True)
    return True


def _patience(results: Results, room: Room, module: str, kernel: bool) -> int:
    """Seconds of processor time, by the tests of the module without any change, which must pass."""
    name = f"{room.name}, {'without' if kernel else 'with'} the compiler"
    if name not in results.baselines:
        found = _try(room, module, -1, kernel, 3600)
        if found["outcome"] != "survived":
            raise RuntimeError(f"the tests of {room.name} fail without any mutant: {found['by']}")
        results.baselines[name] = found["seconds"]
        results.save()
    return max(LEAST_PATIENCE, round(PATIENCE * results.baselines[name]))


def _try(room: Room, module: str, number: int, kernel: bool, patience: int) -> Row:
    environment = {**os.environ, "WEFTLINE_MUTANT": f"{module}:{number}", "PYTHONDONTWRITEBYTECODE": "1"}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "reliability.mutant_plugin", "-p", "no:cacheprovider"]
    if kernel:
        environment["NUMBA_DISABLE_JIT"] = "1"
        command += ["-W", "ignore::RuntimeWarning"]  # numpy warns of sums that wrap around, which kernels mean to do
        command += [f"--deselect={name}" for name in COMPILED]
    before = _processor_time()
    done = subprocess.run(
        [*command, *_tests(room, module)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (patience, patience + 5)),
    )
    seconds = round(_processor_time() - before, 1)
    if done.returncode in (-signal.SIGXCPU, -signal.SIGKILL):
        return {"outcome": "timed out", "by": "", "seconds": seconds}
    failed = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    outcome = "survived" if done.returncode == 0 else "killed"
    return {"outcome": outcome, "by": failed[0][:160] if failed else "", "seconds": seconds}


def _tests(room: Room, module: str) -> list[str]:
    """Those of the module first, then those of its room: most mutants end there."""
    home, own = f"tests/{module.split('.')[1]}", f"test_{module.rpartition('.')[2]}.py"
    mine = [name for name in (f"{home}/{own}", home) if (ROOT / name).exists() and home in room.tests]
    return list(dict.fromkeys([*mine, *room.tests]))


def _processor_time() -> float:
    """Of all children that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _known(name: str) -> str:
    return next((why for start, why in EQUIVALENT.items() if name.startswith(start)), "")


def is_equivalent(name: str, row: Row) -> str:
    """Why a mutant changes nothing that can be observed; empty if it does. What was said of it stays in its row."""
    return str(row.get("equivalent") or _known(name))


def score(rows: dict[str, Row], room: str) -> Row:
    """Counts of a room; equivalent mutants do not count."""
    mine = {name: row for name, row in rows.items() if row["room"] == room}
    survived = [name for name, row in mine.items() if row["outcome"] == "survived"]
    same = [name for name in survived if is_equivalent(name, mine[name])]
    counted = len(mine) - len(same)
    killed = len(mine) - len(survived)
    return {
        "mutants": len(mine),
        "killed": killed,
        "equivalent": len(same),
        "survived": [name for name in survived if name not in same],
        "score": killed / counted if counted else 1.0,
    }
