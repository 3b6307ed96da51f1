"""The spine: how many files of the package does a usual command enter? For before and after a move.

`python tests/spine.py [--list] [SRC_DIR]`; SRC_DIR is the folder that holds the package, `src` unless told.

Counted are the distinct files under SRC_DIR/weftline in which at least one function is entered, in the command's
process or in one that it starts. Code of modules and classes does not count, nor do comprehensions; a function that is
called while its module is imported does. Compiled kernels (numba) are not seen. So every file that is entered counts,
also for one line of a helper: the number is above what a reader opens by hand, and says something only beside another.
The kernels of schedules are warmed up by the clock, so the last walk enters some three files more or fewer on a machine
that is busy; the others repeat.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "weftline"
TRAINED = f"{ROOT / 'examples' / 'train_transformer.py'}:transformer"
FOLDER, HOUSE = "SPINE_FOLDER", "SPINE_HOUSE"

HOOK = f"""
import os, sys, threading
folder, house = os.environ["{FOLDER}"], os.environ["{HOUSE}"] + os.sep
known = {{}}
nameless = ("<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>")

def note(frame, event, _):
    code = frame.f_code
    if event != "call" or id(code) in known:
        return
    known[id(code)] = code  # kept, so that no other gets its id; equal code may stand in two files
    is_function = code.co_flags & 1 and code.co_name not in nameless
    if is_function and code.co_filename.startswith(house):
        with open(os.path.join(folder, str(os.getpid())), "a") as file:  # at once: a process may be killed
            file.write(code.co_filename[len(house):] + "\\n")

threading.setprofile(note)
sys.setprofile(note)
"""
"""A `sitecustomize`, which every Python process imports at its start. Flag 1 is CO_OPTIMIZED: functions have it."""

PREPARE = (
    "zoo build bert --size small -o model.onnx",
    "plan model.onnx --cluster two-gpus --objective throughput --copies 1 --work 1000 -o pipeline.json",
)
WALKS = {
    "plan": ("plan model.onnx --cluster laptop --solver heft --work 1000 -o plan.json",),
    "run": ("run plan.json --model model.onnx",),
    "run on 3 devices": (
        "run pipeline.json --model model.onnx"
        " --runtime gpu0=ort:CPUExecutionProvider --runtime gpu1=ort:CPUExecutionProvider",
    ),
    "schedule and train": (
        "schedule --plan pipeline.json --train --micro-batches 4 --work 200 -o train.json",
        "run train.json --engine torch --model {trained}",
    ),
}
"""Name -> what is typed after `weftline`. The plan of the first is for one device, the fastest for a small model."""


def call(words: str, work: Path, environment: dict[str, str]) -> None:
    """One command, as a user calls it; one that fails ends the script."""
    command = [sys.executable, "-m", PACKAGE, *(word.format(trained=TRAINED) for word in words.split())]
    done = subprocess.run(command, cwd=work, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{PACKAGE} {words}: exit {done.returncode}\n{done.stderr[-2000:]}")


def walk(commands: tuple[str, ...], source: Path, work: Path) -> set[str]:
    """Files that the commands enter, relative to the package."""
    with TemporaryDirectory() as hook, TemporaryDirectory() as folder:
        Path(hook, "sitecustomize.py").write_text(HOOK, encoding="utf-8")
        added = {"PYTHONPATH": os.pathsep.join((hook, str(source))), FOLDER: folder, HOUSE: str(source / PACKAGE)}
        for words in commands:
            call(words, work, {**os.environ, **added})
        return {line for file in Path(folder).iterdir() for line in file.read_text(encoding="utf-8").splitlines()}


def by_room(files: set[str]) -> dict[str, list[str]]:
    """First folder -> its files; what lies outside all folders is a room by itself."""
    rooms: dict[str, list[str]] = defaultdict(list)
    for file in sorted(files):
        room, _, rest = file.partition(os.sep)
        rooms[room if rest else "."].append(rest or room)
    return dict(sorted(rooms.items()))


def main() -> None:
    """Take the walks and print their numbers."""
    parser = argparse.ArgumentParser(description="How many files of the package does a usual command enter?")
    parser.add_argument("source", nargs="?", type=Path, default=ROOT / "src", help="the folder that holds the package")
    parser.add_argument("--list", action="store_true", help="name the files, too")
    asked = parser.parse_args()
    source: Path = asked.source.resolve()
    with TemporaryDirectory() as work:
        for words in PREPARE:
            call(words, Path(work), {**os.environ, "PYTHONPATH": str(source)})
        for name, commands in WALKS.items():
            files = walk(commands, source, Path(work))
            rooms = by_room(files)
            sys.stdout.write(f"{name:<20}{len(files):>4} files in {len(rooms):>2} rooms\n")
            if asked.list:
                sys.stdout.writelines(
                    f"    {room} ({len(names)}): {' '.join(names)}\n" for room, names in rooms.items()
                )


if __name__ == "__main__":
    main()
