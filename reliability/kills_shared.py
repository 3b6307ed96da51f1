"""Several processes at one folder, and folders that cannot be written: a clear error, and nothing is lost.

In: an empty folder. Out: a row of counts. Processes begin at the same moment and do the same work; a full disk is a
limit on the size of files, a read-only folder one that the process's user may not write.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import sleep

from reliability.results_file import ROOT, Row
from weftline.errors import InputError, UsageError
from weftline.files import write_atomically

__all__ = ["full_disk", "read_only", "shared_kernels", "shared_profiles", "shared_sweep"]

PROCESSES = 4
WRITES = 40
NOBODY = 65534


def shared_profiles(folder: Path) -> Row:
    """Each writes the same profile again and again, and reads it back between."""
    from reliability.fuzz_texts import PROFILE
    from weftline.cost import load_profile
    from weftline.cost.profile_file import profile_from_json, save_profile

    profile = profile_from_json(json.dumps(PROFILE).encode())
    path = folder / "profiles" / "key.json"
    path.parent.mkdir()
    save_profile(profile, path)

    def work() -> int:
        wrong = 0
        for _ in range(WRITES):
            save_profile(profile, path)
            wrong += load_profile(path) != profile
        return wrong

    wrong = sum(_together(work))
    left = len(list(path.parent.iterdir())) - 1
    return {"processes": PROCESSES, "writes": PROCESSES * WRITES, "wrong": wrong, "left": left, "failed": wrong + left}


def shared_sweep(folder: Path) -> Row:
    """One of them gets the folder, the others are told why not."""
    from weftline.grid.grid import SweepFolder

    def work() -> int:
        try:
            with SweepFolder(folder / "sweep"):
                while len(list(folder.glob("refused-*"))) < PROCESSES - 1:
                    sleep(0.01)  # until the others have tried
                return 0
        except UsageError:
            (folder / f"refused-{os.getpid()}").touch()
            return 1

    answers = sorted(_together(work))
    failed = int(answers != [0] + [1] * (PROCESSES - 1))
    return {"processes": PROCESSES, "inside": answers.count(0), "refused": answers.count(1), "failed": failed}


def shared_kernels(folder: Path) -> Row:
    """Each compiles into one empty cache at once, and simulates the same problem."""
    code = (
        "import numpy\n"
        "from weftline.testing import random_problem\n"
        "from weftline.simulate import simulate_throughput\n"
        "p = random_problem(5, 'throughput', limits=False)\n"
        "print(simulate_throughput(p, numpy.zeros(len(p.graph.ops), numpy.int32)).load.tolist())\n"
    )
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": path}
    running = [
        subprocess.Popen([sys.executable, "-c", code], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for _ in range(PROCESSES)
    ]
    answers = [process.communicate()[0] for process in running]
    answers.append(subprocess.run(running[0].args, env=environment, capture_output=True, check=False).stdout)
    failed = int(len(set(answers)) > 1 or not answers[0])
    return {"processes": PROCESSES + 1, "different answers": len(set(answers)), "failed": failed}


def read_only(folder: Path) -> Row:
    """The old file stays, the error says why, and reading still works."""
    path = folder / "plan.json"
    write_atomically(path, b"old")
    folder.chmod(0o555)

    def work() -> int:
        if os.geteuid() == 0:
            os.setuid(NOBODY)
        return _refused(path, b"new")

    try:
        answers = _together(work, 1)
    finally:
        folder.chmod(0o755)
    return _untouched(folder, path, answers)


def full_disk(folder: Path) -> Row:
    """No room in the middle of the file."""
    path = folder / "plan.json"
    write_atomically(path, b"old")

    def work() -> int:
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        return _refused(path, b"new" * 100_000)

    return _untouched(folder, path, _together(work, 1))


def _refused(path: Path, data: bytes) -> int:
    """0 if the error is the right one."""
    try:
        write_atomically(path, data)
    except InputError as error:
        return 0 if "cannot be written" in str(error) and str(path) in str(error) else 2
    return 1


def _untouched(folder: Path, path: Path, answers: list[int]) -> Row:
    kept = path.read_bytes() == b"old"
    left = len(list(folder.iterdir())) - 1
    return {
        "told why": answers.count(0),
        "kept": int(kept),
        "left": left,
        "failed": int(any(answers)) + (not kept) + left,
    }


def _together(work: Callable[[], int], count: int = PROCESSES) -> list[int]:
    """What each of several processes returns (below 100); 100 if it died."""
    begin = os.pipe()
    children = []
    for _ in range(count):
        child = os.fork()
        if child == 0:
            code = 100
            try:
                os.close(begin[1])
                os.read(begin[0], 1)  # the end of the pipe: all of them begin now
                code = min(99, work())
            finally:
                os._exit(code)
        children.append(child)
    os.close(begin[0])
    os.close(begin[1])
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
