"""Wheel and sdist: built from a clean copy, installed where nothing else is but the dependencies, and tried.

No network: the dependencies of the base install (and no extra) are linked in from the environment that runs the tests.
Machine code of kernels is copied with the times of its sources, so that nothing is compiled again.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from contextlib import suppress
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

import weftline

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "weftline"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheel and the sdist; the wheel is built from the sdist, so the sdist is complete."""
    folder = tmp_path_factory.mktemp("package")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    shutil.copytree(SOURCE, folder / "src" / "weftline", ignore=shutil.ignore_patterns("__pycache__"))
    words = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(folder)]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "dist"


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel."""
    (found,) = built.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def empty(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel and what the base install depends on, and nothing else -> its bin."""
    home = tmp_path_factory.mktemp("venv")
    venv.create(home, symlinks=True)
    (packages,) = home.glob("lib/python*/site-packages")
    for dependency in dependencies():
        link(dependency, packages)
    install = [sys.executable, "-m", "pip", "--python", str(home), "install", "--quiet", "--no-deps", "--no-index"]
    done = subprocess.run([*install, str(wheel)], capture_output=True, encoding="utf-8", env=plain(), check=False)
    assert done.returncode == 0, done.stderr
    keep_machine_code(packages / "weftline")
    return home / "bin"


def dependencies() -> list[Distribution]:
    """Everything that weftline needs without extras, to the end."""
    found: dict[str, Distribution] = {}
    queue = [*requirements((ROOT / "pyproject.toml").read_text("utf-8").partition("dependencies = [")[2].split("]")[0])]
    while queue:
        name = queue.pop()
        if name in found:
            continue
        found[name] = distribution(name)
        for line in found[name].requires or []:
            wanted, _, marker = line.partition(";")
            if "extra ==" not in marker and "python_version <" not in marker and "win32" not in marker.lower():
                queue += [other for other in requirements(wanted) if installed(other)]
    return list(found.values())


def requirements(text: str) -> list[str]:
    """The names in some requirements."""
    return re.findall(r"""(?:^|")\s*([A-Za-z0-9][\w.-]*)""", text, re.MULTILINE)


def installed(name: str) -> bool:
    """Is it here? (A requirement under a marker may not be.)"""
    try:
        distribution(name)
    except ModuleNotFoundError:
        return False
    return True


def link(package: Distribution, target: Path) -> None:
    """Make a package visible in another environment."""
    tops = {file.parts[0] for file in package.files or () if file.parts[0] not in ("..", "__pycache__", "bin")}
    for top in tops:
        source = Path(str(package.locate_file(top)))
        if source.exists() and not (target / top).exists():
            (target / top).symlink_to(source)


def keep_machine_code(package: Path) -> None:
    """The kernels' machine code belongs to sources of the same size and time."""
    for file in SOURCE.rglob("*.py"):
        about = file.stat()
        os.utime(package / file.relative_to(SOURCE), ns=(about.st_atime_ns, about.st_mtime_ns))
    for file in SOURCE.rglob("*.nb[ic]"):
        copy = package / file.relative_to(SOURCE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError):  # another process compiles at this moment
            shutil.copy2(file, copy)


def plain() -> dict[str, str]:
    """The environment without the paths of this one."""
    return {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME")
    }


def run(empty: Path, cwd: Path, *words: str) -> str:
    """The installed command."""
    done = subprocess.run(
        [str(empty / "weftline"), *words], cwd=cwd, env=plain(), capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_wheel_holds_every_file(wheel: Path) -> None:
    """Tests that what stands in src is what is shipped: code, py.typed, presets, weights, templates."""
    with zipfile.ZipFile(wheel) as archive:
        shipped = {name for name in archive.namelist() if ".dist-info/" not in name}
        about = archive.read(f"weftline-{weftline.__version__}.dist-info/METADATA").decode()
    here = {
        f"weftline/{file.relative_to(SOURCE).as_posix()}"
        for file in SOURCE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert shipped == here
    assert "weftline/py.typed" in shipped
    assert {"License-Expression: MIT", f"Version: {weftline.__version__}"} <= set(about.splitlines())


def test_sdist_holds_what_a_build_needs(built: Path) -> None:
    """Tests that the source archive has the project file, the text for readers and the license."""
    (found,) = built.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "src/weftline/__init__.py", "src/weftline/py.typed"} <= names


def test_first_plan(empty: Path, tmp_path: Path) -> None:
    """Tests version, a model, a plan, its check, its explanation and its report, without any extra."""
    assert run(empty, tmp_path, "--version").strip() == weftline.__version__
    run(empty, tmp_path, "zoo", "build", "resnet50", "--size", "small", "-o", "model.onnx")
    words = ("plan", "model.onnx", "--cluster", "laptop", "--time", "2s", "-o", "plan.json", "--json")
    plan = json.loads(run(empty, tmp_path, *words))
    assert 0 < plan["bound_ns"] <= plan["value_ns"]
    assert "holds" in run(empty, tmp_path, "verify", "plan.json")
    assert "What binds" in run(empty, tmp_path, "explain", "plan.json")
    if "report" in run(empty, tmp_path, "--help").split():
        run(empty, tmp_path, "report", "plan.json", "-o", "report.html")
        assert (tmp_path / "report.html").read_text(encoding="utf-8").lstrip().lower().startswith("<!doctype html>")


def test_the_environment_is_its_own(empty: Path, tmp_path: Path) -> None:
    """Tests that the installed copy runs, not the one under test, and that no extra is there."""
    code = "import weftline, importlib.util as u; print(weftline.__file__, u.find_spec('torch'), u.find_spec('pytest'))"
    told = subprocess.run(
        [str(empty / "python"), "-c", code],
        cwd=tmp_path,
        env=plain(),
        capture_output=True,
        encoding="utf-8",
        check=True,
    ).stdout.split()
    assert Path(told[0]).is_relative_to(empty.parent)
    assert told[1:] == ["None", "None"]


def test_doctor_says_what_is_missing(empty: Path, tmp_path: Path) -> None:
    """Tests that a base install is complete, and that every absent extra comes with the command that brings it."""
    answer = json.loads(run(empty, tmp_path, "doctor", "--json"))
    assert answer["ok"]
    absent = {check["what"]: check["detail"] for check in answer["checks"] if not check["ok"]}
    for extra in ("torch", "openvino", "ray"):
        assert f"pip install 'weftline[{extra}]'" in absent[extra]
    assert all(check["detail"] for check in answer["checks"])
