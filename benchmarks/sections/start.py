"""What a first answer costs, in processes of their own: fresh clone, wheel, warm, another user, no home.

In: questions. Out: one row per state and question: seconds, seconds of CPU, and how many kernels were compiled for it.
A fresh clone is a copy of the package without `__pycache__`; a wheel is built by `tools/make_wheel.py`, with machine
code where this processor allows it, and installed into an empty folder; every question begins from its own copy. Then
the same is asked again (warm), and by another user who may not write there. Simplified: dependencies are installed and
warm; the other user is the same one, with another home and without the right to write there.
"""

from __future__ import annotations

import ctypes
import os
import resource
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
from weftline.ask.compiling import PREPARES

__all__ = ["SECTION", "package_copy"]

CLI = ("-m", "weftline")
PLAN = (*CLI, "plan", "zoo:bert:small", "--cluster", "laptop", "--time", "2s")
QUESTIONS: dict[str, tuple[str, ...]] = {
    "weftline --help": (*CLI, "--help"),
    **{f"prepare, {name}": ("-c", f"from {module} import prepare; prepare()") for name, module in PREPARES.items()},
    "plan, latency": (*PLAN, "--objective", "latency"),
    "plan, throughput": (*PLAN, "--objective", "throughput"),
    "plan, one pipeline": (*PLAN, "--objective", "throughput", "--copies", "1"),
    "schedule": (*CLI, "schedule", "--shape", "vshape", "--devices", "4", "--memory", "4", "--time", "2s"),
    "fit": (*CLI, "fit", "qwen2.5-14b", "--quant", "q6_k", "--gpu", "RTX 3060 12GB", "--gpu", "RTX 3050 8GB"),
}
"""Name -> words behind `python`."""
FIRST = ("plan, latency", "plan, throughput", "plan, one pipeline", "schedule", "fit")
"""First answers of users: asked as often as the section repeats, all else once."""
CLONE, WHEEL = "fresh clone", "wheel"
STATES = {
    CLONE: (CLONE, f"{CLONE}, warm", "another user"),
    WHEEL: (WHEEL, f"{WHEEL}, warm", "no home"),
}
"""What a copy is made of -> the states in which it is asked, one after the other."""
LONGEST = 900.0
"""Seconds after which a process is ended."""
MOST_CPU = {CLONE: 100.0, WHEEL: 20.0}
"""Seconds of CPU after which a first answer is called a loss; those of a wheel for all other states."""
SIZES: dict[str, Row] = {
    "tiny": {"questions": ["weftline --help"], "states": [CLONE], "repeats": 1},
    "quick": {"questions": ["weftline --help", "schedule"], "states": [CLONE, WHEEL], "repeats": 2},
    "full": {"questions": list(QUESTIONS), "states": [CLONE, WHEEL], "repeats": 3},
}


def measure(settings: Row, collect: Collector) -> None:
    """Rows for each copy, question and repeat; copies take turns. What only prepares an answer is asked once."""
    with TemporaryDirectory(prefix="weftline-start-") as temporary:
        folder = Path(temporary)
        folder.chmod(0o755)  # for the other user
        sources = {state: _source(state, folder) for state in settings["states"]}
        for question in settings["questions"]:
            for repeat in range(settings["repeats"] if question in FIRST else 1):
                for state, source in sources.items():
                    keys = [{"state": name, "question": question, "repeat": repeat} for name in STATES[state]]
                    if all(_is_known(key, collect) for key in keys):
                        continue
                    say(f"start: {question}, {state}, {repeat}")
                    work = folder / "work"
                    shutil.copytree(source, work / "place")
                    for key in keys:
                        ask = partial(_row, QUESTIONS[question], work, str(key["state"]))
                        if _is_known(key, collect):  # the next state is what this one leaves
                            ask()
                        collect.measure(key, ask)
                    _allow_writing(work, yes=True)
                    shutil.rmtree(work)


def _is_known(key: Row, collect: Collector) -> bool:
    return any(key.items() <= row.items() for row in collect.rows)


def package_copy(target: Path) -> Path:
    """The package as a clone has it: nothing is compiled."""
    package = Path(weftline.__file__).parent
    compiled = shutil.ignore_patterns("__pycache__", "_kernels", "*.nbi", "*.nbc")
    shutil.copytree(package, target / "weftline", ignore=compiled)
    return target


def _source(state: str, folder: Path) -> Path:
    """A folder with the package, from which copies are made."""
    if state == CLONE:
        return package_copy(folder / "clone")
    built, installed = folder / "built", folder / "installed"
    _run([sys.executable, str(ROOT / "tools" / "make_wheel.py"), str(built)])
    wheel = sorted(built.glob("*.whl"))[0]  # cp311-... stands before py3-none-any
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    _run([*pip, "--no-deps", "--no-index", "--no-compile", "--target", str(installed), str(wheel)])
    return installed


def _run(words: list[str]) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=LONGEST)


def _row(words: tuple[str, ...], work: Path, state: str) -> Row:
    """Ask once; all that is kept lies in the folder of this question, where kernels are counted."""
    other = state in ("another user", "no home")
    _allow_writing(work / "place", yes=not other)
    before, begun, note = _kernels(work), perf_counter(), ""
    cpu = _cpu_of_children()
    try:
        done = subprocess.run(
            [sys.executable, *words],
            env=_environment(work, state),
            cwd=work / "place",
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
            preexec_fn=_like_others if other else None,
        )
    except subprocess.TimeoutExpired:
        note = f"ended after {LONGEST:.0f} s"
    else:
        if done.returncode:
            note = f"crashed: exit status {done.returncode}: {done.stderr.strip().splitlines()[-1:]}"[:120]
    return {
        "seconds": round(perf_counter() - begun, 2),
        "cpu": round(_cpu_of_children() - cpu, 2),
        "compiled": _kernels(work) - before,
        "note": note,
    }


def _environment(work: Path, state: str) -> dict[str, str]:
    """Of a user whose home is empty, or is not there."""
    elsewhere = ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME", "PYTHONPYCACHEPREFIX", "PYTHONDONTWRITEBYTECODE")
    environment = {name: value for name, value in os.environ.items() if name not in elsewhere}
    home, temporary = work / f"home of {state}", work / f"temporary of {state}"
    for folder in (home, temporary):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    home = work / "none" / "home" if state == "no home" else home
    return {**environment, "PYTHONPATH": str(work / "place"), "HOME": str(home), "TMPDIR": str(temporary)}


def _like_others() -> None:
    """An administrator writes everywhere: in the child that right is given up (PR_CAPBSET_DROP, CAP_DAC_OVERRIDE)."""
    if os.geteuid() == 0:
        ctypes.CDLL(None).prctl(24, 1)


def _allow_writing(folder: Path, *, yes: bool) -> None:
    for each in (folder, *folder.rglob("*")):
        if each.is_dir():
            each.chmod(0o755 if yes else 0o555)


def _cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _kernels(work: Path) -> int:
    return sum("_kernels" not in path.parts for path in work.rglob("*.nbc"))


def _lines(run: Run) -> list[Row]:
    """One line per question, with the rows of all states."""
    rows = grouped(run.rows, "question")
    return [{"question": name, **grouped(each, "state")} for name, each in rows.items()]


def _first_lines(run: Run) -> list[Row]:
    """Those of questions that people ask."""
    return [line for line in _lines(run) if line["question"] in FIRST] or _lines(run)


def _range(values: list[float], form: str) -> str:
    """From the least to the largest; one number where they print alike."""
    return " to ".join(dict.fromkeys((format(min(values), form), format(max(values), form))))


def _columns(run: Run) -> list[Column[Row]]:
    def seconds(state: str, line: Row) -> str | None:
        rows = line.get(state, [])
        notes = [row["note"] for row in rows if row["note"]]
        return notes[0] if notes else _range([row["cpu"] for row in rows], ".1f") if rows else None

    def compiled(state: str, line: Row) -> str | None:
        return _range([row["compiled"] for row in line[state]], "d") if state in line else None

    found: list[Column[Row]] = [Column("question", "question")]
    for state in grouped(run.rows, "state"):
        found.append(Column(f"{state}, CPU s", partial(seconds, state)))
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
    slow = [
        f"{row['question']}, {row['state']} ({row['cpu']:.0f} s)"
        for row in cold
        if row["question"] in FIRST and row["cpu"] > MOST_CPU.get(row["state"], MOST_CPU[WHEEL])
    ]
    yield from verdict("A first answer takes more CPU time than 100 s (clone) or 20 s (all others)", slow, most=6)
    again = [f"{r['question']}, {r['state']} ({r['compiled']})" for r in cold if r["state"].endswith("warm")]
    yield from verdict("Kernels were compiled a second time", again, most=4)
    for (question, state), counts in _counts(run).items():
        if min(counts) != max(counts):
            yield f"Not always the same kernels are compiled: {question}, {state}, {min(counts)} to {max(counts)}."
    yield from verdict("Failed", [f"{row['question']}: {row['note']}" for row in run.rows if row["note"]], most=3)


SECTION = Section(
    name="start",
    title="The first answer: fresh clone, wheel, warm, another user, no home",
    chapter="tool",
    asked="What does the first answer cost where nothing was asked before, and the second one? Whole processes, "
    "seconds of CPU, first answers least to largest of {repeats}; each begins from its own copy of the package.",
    sizes=SIZES,
    measure=measure,
    screen=(Table(_columns, _first_lines),),
    losses=_losses,
    blocks=(
        "A *fresh clone* is the package without any `__pycache__`: so is the wheel for systems that have none of their "
        "own. A *wheel* is that of `make package` for this system, with machine code, installed into an empty folder. "
        "*Another user* may only read the clone in which its owner has asked the same. *No home*: somebody who may "
        "only read the installed wheel, and whose home folder is not there. *prepare* compiles or loads all kernels of "
        "a question, as an installation does; *plan* is small BERT on the preset laptop with a limit of 2 s, which "
        "does not count the compiling; *schedule* is `vshape` on 4 devices; *fit* is a language model on two cards. A "
        "search uses both cores, so its 2 s are up to 4 s of CPU. What is compiled may depend on how fast the "
        "machine was: methods that a short time limit never reached are compiled later. Dependencies are installed and "
        "warm.",
        Table(
            (
                *fields("state | question | repeat | seconds:.2f | cpu:.2f | kernels compiled=compiled"),
                Column("note", lambda row: row["note"] or None),
            )
        ),
    ),
    limits=(),
)
