"""What a first answer costs: on a fresh clone, from a wheel, and warm, in processes of their own.

In: questions. Out: one row per state and question: seconds, and how many kernels were compiled for it. A fresh clone is
a copy of the package without `__pycache__`; a wheel is built from it and installed into an empty folder; every question
begins from its own copy, and is asked again for the warm state. Simplified: dependencies are installed and warm.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import weftline
from benchmarks.measure import ROOT, say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.stats import grouped

__all__ = ["PREPARES", "SECTION", "package_copy"]

PREPARES = {
    "latency": "weftline.latency.prepare",
    "throughput": "weftline.pipeline",
    "schedule": "weftline.schedule",
}
"""Question -> the module whose `prepare` compiles or loads its kernels."""
CLI = ("-m", "weftline")
PLAN = (*CLI, "plan", "zoo:unet:small", "--cluster", "laptop", "--time", "1s")
QUESTIONS: dict[str, tuple[str, ...]] = {
    "weftline --help": (*CLI, "--help"),
    **{f"prepare, {name}": ("-c", f"from {module} import prepare; prepare()") for name, module in PREPARES.items()},
    "plan, latency": (*PLAN, "--objective", "latency"),
    "plan, throughput": (*PLAN, "--objective", "throughput"),
    "schedule": (*CLI, "schedule", "--shape", "vshape", "--devices", "4", "--memory", "4", "--time", "1s"),
}
"""Name -> words behind `python`."""
CLONE, WHEEL = "fresh clone", "wheel"
LONGEST = 900.0
"""Seconds after which a process is ended."""
SOON = 60.0
"""Seconds after which a first answer is called a loss."""
SIZES: dict[str, Row] = {
    "tiny": {"questions": ["weftline --help"], "states": [CLONE], "repeats": 1},
    "quick": {"questions": ["weftline --help", "schedule"], "states": [CLONE, WHEEL], "repeats": 2},
    "full": {"questions": list(QUESTIONS), "states": [CLONE, WHEEL], "repeats": 3},
}


def measure(settings: Row, collect: Collector) -> None:
    """One row cold and one warm for each state, question and repeat; states take turns."""
    with TemporaryDirectory(prefix="weftline-start-") as temporary:
        folder = Path(temporary)
        sources = {state: _source(state, folder) for state in settings["states"]}
        for question in settings["questions"]:
            for repeat in range(settings["repeats"]):
                for state, source in sources.items():
                    say(f"start: {question}, {state}, {repeat}")
                    place = folder / "place"
                    shutil.copytree(source, place)
                    for name in (state, f"{state}, warm"):
                        key = {"state": name, "question": question, "repeat": repeat}
                        collect.measure(key, partial(_row, QUESTIONS[question], place))
                    shutil.rmtree(place)


def package_copy(target: Path) -> Path:
    """The package as a clone has it: nothing is compiled."""
    package = Path(weftline.__file__).parent
    shutil.copytree(package, target / "weftline", ignore=shutil.ignore_patterns("__pycache__", "*.nbi", "*.nbc"))
    return target


def _source(state: str, folder: Path) -> Path:
    """A folder with the package, from which copies are made."""
    if state == CLONE:
        return package_copy(folder / "clone")
    tree, built, installed = folder / "tree", folder / "built", folder / "installed"
    package_copy(tree / "src")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree / name)
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    quiet = ["--no-deps", "--no-index"]
    _run([*pip, "wheel", *quiet, "--no-build-isolation", "--wheel-dir", str(built), str(tree)])
    (wheel,) = built.glob("*.whl")
    _run([*pip, "install", *quiet, "--no-compile", "--target", str(installed), str(wheel)])
    return installed


def _run(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=LONGEST)


def _row(words: tuple[str, ...], place: Path) -> Row:
    """Ask once; kernels are kept beside the modules of the copy, where they are counted."""
    kept_elsewhere = ("NUMBA_CACHE_DIR", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in kept_elsewhere}
    before, begun, note = _kernels(place), perf_counter(), ""
    try:
        done = subprocess.run(
            [sys.executable, *words],
            env={**environment, "PYTHONPATH": str(place)},
            cwd=place,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        note = f"ended after {LONGEST:.0f} s"
    else:
        if done.returncode:
            note = f"crashed: exit status {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"[:120]
    return {"seconds": round(perf_counter() - begun, 2), "compiled": _kernels(place) - before, "note": note}


def _kernels(place: Path) -> int:
    return sum(1 for _ in place.rglob("*.nbc"))


def _lines(run: Run) -> list[Row]:
    """One line per question, with the rows of all states."""
    rows = grouped(run.rows, "question")
    return [{"question": name, **grouped(each, "state")} for name, each in rows.items()]


def _range(values: list[float], form: str) -> str:
    """From the least to the largest; one number where they print alike."""
    return " to ".join(dict.fromkeys((format(min(values), form), format(max(values), form))))


def _columns(run: Run) -> list[Column[Row]]:
    def seconds(state: str, line: Row) -> str | None:
        rows = line.get(state, [])
        notes = [row["note"] for row in rows if row["note"]]
        return notes[0] if notes else _range([row["seconds"] for row in rows], ".1f") if rows else None

    def compiled(state: str, line: Row) -> str | None:
        return _range([row["compiled"] for row in line[state]], "d") if state in line else None

    found: list[Column[Row]] = [Column("question", "question")]
    for state in grouped(run.rows, "state"):
        found.append(Column(f"{state}, s", partial(seconds, state)))
        if not state.endswith("warm"):
            found.append(Column("kernels compiled", partial(compiled, state)))
    return found


def _counts(run: Run) -> dict[tuple[str, str], list[int]]:
    """Kernels that were compiled, by question and state."""
    found: dict[tuple[str, str], list[int]] = {}
    for row in run.rows:
        found.setdefault((row["question"], row["state"]), []).append(row["compiled"])
    return found


def _losses(run: Run) -> Iterator[str]:
    cold = [row for row in run.rows if row["compiled"] or not row["state"].endswith("warm")]
    slow = [f"{r['question']}, {r['state']} ({r['seconds']:.0f} s)" for r in cold if r["seconds"] > SOON]
    yield from verdict("A first answer takes more than a minute", slow, most=6)
    again = [f"{r['question']}, {r['state']} ({r['compiled']})" for r in cold if r["state"].endswith("warm")]
    yield from verdict("Kernels were compiled a second time", again, most=4)
    for (question, state), counts in _counts(run).items():
        if min(counts) != max(counts):
            yield f"Not always the same kernels are compiled: {question}, {state}, {min(counts)} to {max(counts)}."
    yield from verdict("Failed", [f"{row['question']}: {row['note']}" for row in run.rows if row["note"]], most=3)


SECTION = Section(
    name="start",
    title="The first answer: fresh clone, wheel, warm",
    chapter="tool",
    asked="How long does the first answer take where nothing is compiled yet, and the second one? Whole processes, "
    "wall time, least to largest of {repeats}; each begins from its own copy of the package.",
    sizes=SIZES,
    measure=measure,
    screen=(Table(_columns, _lines),),
    losses=_losses,
    blocks=(
        "A *fresh clone* is the package without any `__pycache__`; a *wheel* is built from it and installed into an"
        " empty folder without compiling its modules. *prepare* compiles all kernels of a question, as an "
        "installation does; *plan* is a small model of the zoo on the preset laptop with a limit of 1 s, which does"
        " not count the compiling; *schedule* is `vshape` on 4 devices. What is compiled may depend on how fast the"
        " machine was: methods that a short time limit never reached are compiled later. Dependencies are installed"
        " and warm.",
        Table(
            (
                *fields("state | question | repeat | seconds:.2f | kernels compiled=compiled"),
                Column("note", lambda row: row["note"] or None),
            )
        ),
    ),
    limits=(),
)
