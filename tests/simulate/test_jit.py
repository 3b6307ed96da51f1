"""Tests that machine code on disk never outlives the sources it was made from."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

from weftline.simulate.kernels import jit

KERNEL = "from weftline.simulate.kernels.jit import kernel\n"
CALLER = f"{KERNEL}from weftline.callee import inner\n@kernel\ndef outer():\n    return inner()\n"


def _callee(number: int) -> str:
    return f"{KERNEL}@kernel\ndef inner():\n    return {number}\n"


def _outer(folder: Path) -> str:
    code = "from weftline.caller import outer; print(outer())"
    run = subprocess.run(
        [sys.executable, "-B", "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": str(folder / "cache")},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


def test_kernel_is_compiled_anew_when_one_it_calls_changes(tmp_path: Path) -> None:
    """Tests a kernel whose callee, in another file, is edited between two processes."""
    room = tmp_path / "weftline"
    kernels = room / "simulate" / "kernels"
    kernels.mkdir(parents=True)
    shutil.copy(jit.__file__, kernels / "jit.py")
    for folder in (room, room / "simulate", kernels):
        (folder / "__init__.py").write_text("")
    (room / "caller.py").write_text(CALLER)
    (room / "callee.py").write_text(_callee(1))
    assert _outer(tmp_path) == "1"
    assert list((tmp_path / "cache").rglob("*outer*.nbi"))
    (room / "callee.py").write_text(_callee(22))
    assert _outer(tmp_path) == "22"
