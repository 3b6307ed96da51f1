"""Tests that machine code on disk never outlives the sources it was made from."""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import llvmlite
import numba
import numpy as np
import pytest

from weftline.graph.arrays import Ints
from weftline.simulate.kernels import jit, processor, stored
from weftline.simulate.kernels.jit import kernel, part, uncounted_part
from weftline.simulate.kernels.processor import (
    BASELINE_CPU,
    BASELINE_ENVIRONMENT,
    BASELINE_FEATURES,
    fits_baseline,
    this_processor,
)

KERNEL = "from weftline.simulate.kernels.jit import kernel\n"
CALLER = f"{KERNEL}from weftline.callee import inner\n@kernel\ndef outer():\n    return inner()\n"


def _callee(number: int) -> str:
    return f"{KERNEL}@kernel\ndef inner():\n    return {number}\n"


OUTER = "from weftline.caller import outer; print(outer())"
STORE = f"""{OUTER}
from pathlib import Path
from weftline.simulate.kernels import jit, processor, stored
stored.store(jit.made(), Path(stored.__file__).parents[2])
"""


def _package(folder: Path) -> Path:
    """A package with nothing but a kernel that calls another one in another file."""
    room = folder / "weftline"
    kernels = room / "simulate" / "kernels"
    kernels.mkdir(parents=True)
    for module in (jit, processor, stored):
        shutil.copy(str(module.__file__), kernels)
    for each in (room, room / "simulate", kernels):
        (each / "__init__.py").write_text("")
    (room / "caller.py").write_text(CALLER)
    (room / "callee.py").write_text(_callee(1))
    return room


def _outer(folder: Path, cache: str = "cache", code: str = OUTER, **environment: str) -> str:
    known = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
    paths = {"PYTHONPATH": str(folder), "NUMBA_CACHE_DIR": cache and str(folder / cache)}
    run = subprocess.run(
        [sys.executable, "-B", "-c", code],
        cwd=folder,
        env={**known, **paths, **environment},
        capture_output=True,
        text=True,
        check=True,
    )
    return run.stdout.strip()


def test_kernel_is_compiled_anew_when_one_it_calls_changes(tmp_path: Path) -> None:
    """Tests a kernel whose callee, in another file, is edited between two processes."""
    room = _package(tmp_path)
    assert _outer(tmp_path) == "1"
    assert list((tmp_path / "cache").rglob("*outer*.nbi"))
    (room / "callee.py").write_text(_callee(22))
    assert _outer(tmp_path) == "22"


@pytest.mark.slow
def test_machine_code_of_the_package_is_read(tmp_path: Path) -> None:
    """Tests that whoever keeps machine code elsewhere still uses what lies in the package, and copies nothing."""
    room = _package(tmp_path)
    assert _outer(tmp_path, cache="") == "1"
    assert list((room / "__pycache__").rglob("*outer*.nbi"))
    assert _outer(tmp_path) == "1"
    assert not list((tmp_path / "cache").rglob("*.nbc"))
    (room / "callee.py").write_text(_callee(22))
    assert _outer(tmp_path) == "22"
    assert list((tmp_path / "cache").rglob("*outer*.nbc"))


@pytest.mark.slow
def test_shipped_machine_code(tmp_path: Path) -> None:
    """Tests that machine code for the baseline is used where it fits, and else everything is compiled."""
    if not fits_baseline(this_processor()):
        pytest.skip("this processor cannot run machine code for the baseline")
    room = _package(tmp_path)
    _outer(tmp_path, "elsewhere", STORE, **BASELINE_ENVIRONMENT)
    shipped = room / "_kernels"
    assert len(list(shipped.rglob("*.nbc"))) == 2
    kept = shutil.copytree(shipped, tmp_path / "kept")

    def compiled(cache: str, expected: str = "1", **environment: str) -> int:
        assert _outer(tmp_path, cache, **environment) == expected
        assert sorted(p.name for p in shipped.rglob("*")) == sorted(p.name for p in kept.rglob("*"))
        return len(list((tmp_path / cache).rglob("*.nbc")))

    assert compiled("fits") == 0
    assert compiled("old processor", NUMBA_CPU_NAME="generic") == 2
    (room / "callee.py").write_text(_callee(22))
    assert compiled("other sources", "22") == 2
    (room / "callee.py").write_text(_callee(1))
    index = next(shipped.glob("*outer*.nbi"))
    index.write_bytes(index.read_bytes().replace(numba.__version__.encode(), b"0" * len(numba.__version__)))
    assert compiled("other numba") == 1


def test_what_fits_the_baseline() -> None:
    """Tests that all of its features must be there, whatever the processor is called."""
    all_of_them = ",".join(f"+{name}" for name in sorted(BASELINE_FEATURES))
    system = "x86_64-unknown-linux-gnu"
    assert fits_baseline((system, "haswell", f"{all_of_them},-avx512f"))
    assert fits_baseline((system, BASELINE_CPU, ""))
    assert not fits_baseline((system, "generic", ""))
    assert not fits_baseline((system, "haswell", all_of_them.replace("+avx2", "-avx2")))
    assert not fits_baseline(("aarch64-unknown-linux-gnu", "neoverse-n1", "+neon,+lse"))


def test_stamps_hold_what_machine_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that settings of the compiler and its version count, and that how machine code is stored does not."""
    file = Path(jit.__file__).with_name("sorting.py")
    assert stored._SETTINGS in stored._uses(file)
    assert stored._SETTINGS.is_file()
    assert Path(stored.__file__) not in stored._uses(stored._SETTINGS)
    before = stored.source_stamp(file)
    monkeypatch.setattr(llvmlite, "__version__", "0.0")
    stored.source_stamp.cache_clear()
    assert stored.source_stamp(file) != before
    stored.source_stamp.cache_clear()


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
    for function in (stored._temporary_folder, stored._warn_once):
        function.cache_clear()
    with pytest.warns(RuntimeWarning, match="NUMBA_CACHE_DIR") as said:
        assert [kernel(doubled)(21), kernel(doubled)(4)] == [42, 8]
    assert len(said) == 1
    (folder,) = tmp_path.iterdir()
    assert list(folder.rglob("*doubled*.nbc"))
    assert numba.config.CACHE_DIR == ""
    folder.chmod(0o777)
    stored._temporary_folder.cache_clear()
    unkept = kernel(doubled)
    with pytest.warns(RuntimeWarning, match="in every process"):
        assert unkept(5) == 10
    assert stored.kept_in([unkept]) == ""
    assert not list(Path(__file__).parent.rglob("*doubled*.nb?"))
    for function in (stored._temporary_folder, stored._warn_once):
        function.cache_clear()


def test_kernels_rest_on_tuples_of_arrays_too() -> None:
    """Tests that files are followed from which kernels take named tuples, whose fields may change places."""
    source = Path(jit.__file__).parents[2]
    assert source / "problem" / "blocks.py" in stored._uses(source / "schedule" / "list" / "kernel.py")
    assert source / "pipeline" / "reduce.py" in stored._uses(source / "pipeline" / "anneal" / "kernel.py")


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
