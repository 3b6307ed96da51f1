"""Wheels and sdist: built from a clean copy, installed where nothing else is but the dependencies, and tried.

No network: the dependencies of the base install (and no extra) are linked in from the environment that runs the tests.
Machine code that the clone has for the same sources goes into the wheel, so that hardly anything is compiled again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest

import weftline
from weftline.simulate.kernels.processor import BASELINE_CPU, fits_baseline, this_processor

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "weftline"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the wheels and the sdist; wheels are built from the sdist, so the sdist is complete."""
    if not fits_baseline(this_processor()):
        pytest.skip(f"the wheel with machine code is built on processors like {BASELINE_CPU}")
    folder = tmp_path_factory.mktemp("package")
    words = [sys.executable, str(ROOT / "tools" / "make_wheel.py"), str(folder)]
    done = subprocess.run(words, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def pure(built: Path) -> Path:
    """The wheel for every system."""
    (found,) = built.glob("*-py3-none-any.whl")
    return found


@pytest.fixture(scope="module")
def wheel(built: Path) -> Path:
    """The wheel with machine code."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    (found,) = built.glob(f"*-{python}-{python}*-manylinux_*_x86_64.whl")
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


def shipped_in(wheel: Path) -> set[str]:
    """Names in a wheel, but for what describes it."""
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_wheel_holds_every_file(pure: Path) -> None:
    """Tests that what stands in src is what is shipped: code, py.typed, presets, weights, templates."""
    shipped = shipped_in(pure)
    with zipfile.ZipFile(pure) as archive:
        about = archive.read(f"weftline-{weftline.__version__}.dist-info/METADATA").decode()
    here = {
        f"weftline/{file.relative_to(SOURCE).as_posix()}"
        for file in SOURCE.rglob("*")
        if file.is_file() and not {"__pycache__", "_kernels"} & set(file.parts)
    }
    assert shipped == here
    assert "weftline/py.typed" in shipped
    assert {"License-Expression: MIT", f"Version: {weftline.__version__}"} <= set(about.splitlines())


def test_wheel_with_machine_code(pure: Path, wheel: Path) -> None:
    """Tests that it holds the same and machine code, says for whom it is, and that its list of files is true."""
    added = shipped_in(wheel) - shipped_in(pure)
    assert shipped_in(pure) <= shipped_in(wheel)
    assert {Path(name).suffix for name in added} == {".nbi", ".nbc"}
    assert all(name.startswith("weftline/_kernels/") for name in added)
    about = f"weftline-{weftline.__version__}.dist-info"
    with zipfile.ZipFile(wheel) as archive:
        assert archive.testzip() is None
        told = archive.read(f"{about}/WHEEL").decode().splitlines()
        rows = [line.split(",") for line in archive.read(f"{about}/RECORD").decode().splitlines()]
        assert {name for name, _, _ in rows} == set(archive.namelist())
        for name, digest, size in rows[:-1]:
            data = archive.read(name)
            found = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            assert (digest, size) == (f"sha256={found}", str(len(data)))
    assert f"Tag: {wheel.stem.partition('-')[2].partition('-')[2]}" in told
    assert "Root-Is-Purelib: false" in told


COUNTING = """
import sys
from weftline.cli import main
from weftline.simulate.kernels.jit import Compilation
with Compilation() as done:
    try:
        main()
    except SystemExit as end:
        assert not end.code, end.code
print(done.count)
"""
FIRST_ANSWERS = {
    "latency": "plan zoo:bert:small --cluster laptop --time 2s",
    "throughput": "plan zoo:bert:small --cluster eight-gpus --objective throughput --time 2s",
    "schedule": "schedule --shape vshape --devices 4 --memory 4 --time 2s",
}


@pytest.mark.parametrize("words", FIRST_ANSWERS.values(), ids=FIRST_ANSWERS)
def test_first_answers_compile_nothing(empty: Path, tmp_path: Path, words: str) -> None:
    """Tests that the machine code in the wheel is all that a first answer needs, and that it is used as it is."""
    command = [str(empty / "python"), "-c", COUNTING, *words.split()]
    done = subprocess.run(command, cwd=tmp_path, env=plain(), capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-1] == "0", done.stderr
    assert "compiling" not in done.stderr
    made = [path for path in empty.parent.rglob("*.nbc") if "_kernels" not in path.parts]
    assert made == []


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
