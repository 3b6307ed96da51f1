"""Build the sdist and two wheels: one for every system, which compiles its kernels, and one with machine code.

In: a folder for the three files, and this clone. Out: `weftline-*.tar.gz`, `weftline-*-py3-none-any.whl`, and the wheel
of this version of Python for Linux on x86-64, with what the first plan of every question needs in `weftline/_kernels`.
Machine code that this clone has for the same sources is taken, the rest is compiled. Simplified: one system.
"""

from __future__ import annotations

import base64
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).parents[1]
SYSTEM = "manylinux_2_17_x86_64"
"""What machine code asks of a system is what numba asks; its wheels have the same tag or a newer one."""
TIME = (1980, 1, 1, 0, 0, 0)
"""Of every file that is added: the same files give the same wheel."""


def main(target: Path) -> None:
    """Everything."""
    target.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="weftline-wheel-") as temporary:
        folder = Path(temporary)
        tree = _tree(folder / "tree")
        _run("-m", "build", "--no-isolation", "--outdir", str(folder / "dist"), str(tree))
        _run("-m", "weftline.ask.compiling", "--store", str(folder / "code"))
        (pure,) = (folder / "dist").glob("*.whl")
        add_files(pure, folder / "code")
        for file in sorted((folder / "dist").iterdir()):
            shutil.copy(file, target / file.name)
            print(target / file.name, f"{file.stat().st_size / 1e6:.1f} MB")


def _tree(folder: Path) -> Path:
    """What a build needs, without what a clone collects."""
    leave = shutil.ignore_patterns("__pycache__", "_kernels", "*.egg-info")
    shutil.copytree(ROOT / "src", folder / "src", ignore=leave)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder / name)
    return folder


def _run(*words: str) -> None:
    """A Python process that sees the sources of this clone, and keeps machine code beside them."""
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["PYTHONPATH"] = str(ROOT / "src")
    done = subprocess.run([sys.executable, *words], env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(words[:2])} failed: {done.stdout[-1000:]}{done.stderr[-3000:]}")


def add_files(wheel: Path, code: Path) -> Path:
    """Another wheel beside the first, for this version of Python and one system, with the files of a folder."""
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    tag = f"{python}-{python}{sys.abiflags}-{SYSTEM}"
    found = wheel.with_name(wheel.name.replace("py3-none-any", tag))
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(found, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as new:
        lines = []
        for name in (info.filename for info in old.infolist()):
            data = old.read(name)
            if name.endswith(".dist-info/WHEEL"):
                text = data.decode().replace("py3-none-any", tag)
                data = text.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false").encode()
            if not name.endswith(".dist-info/RECORD"):
                lines.append(_add(new, name, data))
        files = sorted(path for path in code.rglob("*") if path.is_file())
        lines += [_add(new, f"weftline/{path.relative_to(code).as_posix()}", path.read_bytes()) for path in files]
        record = next(name for name in old.namelist() if name.endswith(".dist-info/RECORD"))
        new.writestr(zipfile.ZipInfo(record, TIME), "".join([*lines, f"{record},,\n"]))
    return found


def _add(archive: zipfile.ZipFile, name: str, data: bytes) -> str:
    """The file's line in the list of files."""
    about = zipfile.ZipInfo(name, TIME)
    about.compress_type, about.external_attr = zipfile.ZIP_DEFLATED, 0o644 << 16
    archive.writestr(about, data)
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
    return f"{name},sha256={digest},{len(data)}\n"


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "dist"))
