"""Tests that machine code on disk never outlives the sources it was made from."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numba
import numpy as np
import pytest

from weftline.graph.arrays import Ints
from weftline.simulate.kernels import jit
from weftline.simulate.kernels.jit import kernel, part, uncounted_part

KERNEL = "from weftline.simulate.kernels.jit import kernel\n"
CALLER = f"{KERNEL}from weftline.callee import inner\n@kernel\ndef outer():\n    return inner()\n"


def _callee(number: int) -> str:
    return f"{KERNEL}@kernel\ndef inner():\n    return {number}\n"


def _outer(folder: Path, cache: str = "cache") -> str:
    code = "from weftline.caller import outer; print(outer())"
    run = subprocess.run(
        [sys.executable, "-B", "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": cache and str(folder / cache)},
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


@pytest.mark.slow
def test_machine_code_of_the_package_is_read(tmp_path: Path) -> None:
    """Tests that whoever keeps machine code elsewhere still uses what lies in the package, and copies nothing."""
    room = tmp_path / "weftline"
    kernels = room / "simulate" / "kernels"
    kernels.mkdir(parents=True)
    shutil.copy(jit.__file__, kernels / "jit.py")
    for folder in (room, room / "simulate", kernels):
        (folder / "__init__.py").write_text("")
    (room / "callee.py").write_text(_callee(1))
    (room / "caller.py").write_text(CALLER)
    assert _outer(tmp_path, cache="") == "1"
    assert list((room / "__pycache__").rglob("*outer*.nbi"))
    assert _outer(tmp_path) == "1"
    assert not list((tmp_path / "cache").rglob("*.nbc"))
    (room / "callee.py").write_text(_callee(22))
    assert _outer(tmp_path) == "22"
    assert list((tmp_path / "cache").rglob("*outer*.nbc"))


def test_nowhere_to_keep_machine_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the folder for temporary files is used, that it belongs to nobody else, and that it is said once."""
    real = numba.njit

    def refusing(*function: Any, **options: Any) -> Any:
        if options.get("cache") and not numba.config.CACHE_DIR:
            raise RuntimeError("cannot cache function: no locator available")
        return real(*function, **options)

    def doubled(number: int) -> int:
        return 2 * number

    monkeypatch.setattr(numba, "njit", refusing)
    monkeypatch.setattr(numba.config, "CACHE_DIR", "")
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    for function in (jit._temporary_folder, jit._warn_once):
        function.cache_clear()
    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR") as said:
        assert [kernel(doubled)(21), kernel(doubled)(4)] == [42, 8]
    assert len(said) == 1
    (folder,) = tmp_path.iterdir()
    assert list(folder.rglob("*doubled*.nbc"))
    assert numba.config.CACHE_DIR == ""
    folder.chmod(0o777)
    jit._temporary_folder.cache_clear()
    with pytest.warns(RuntimeWarning, match="in every process"):
        assert kernel(doubled)(5) == 10
    for function in (jit._temporary_folder, jit._warn_once):
        function.cache_clear()


def test_kernels_rest_on_tuples_of_arrays_too() -> None:
    """Tests that files are followed from which kernels take named tuples, whose fields may change places."""
    source = Path(jit.__file__).parents[2]
    assert source / "problem" / "blocks.py" in jit._uses(source / "schedule" / "list" / "kernel.py")
    assert source / "pipeline" / "reduce.py" in jit._uses(source / "pipeline" / "anneal" / "kernel.py")


@part
def _copied_sum(numbers: Ints) -> int:
    return int(numbers.copy().sum())


@uncounted_part
def _borrowed_sum(pair: tuple[Ints, Ints]) -> int:
    return _copied_sum(pair[0]) + _copied_sum(pair[1])


@kernel
def _sum_of(pair: tuple[Ints, Ints], times: int) -> int:
    total = 0
    for _ in range(times):
        total += _borrowed_sum(pair)
    return total


def test_uncounted_parts_borrow() -> None:
    """Tests that arrays live as long as their owner says, also where a part that counts is called in between."""
    first, second = np.arange(5), np.arange(7)
    before = sys.getrefcount(first)
    assert _sum_of((first, second), 100) == 100 * (10 + 21)
    assert sys.getrefcount(first) == before
