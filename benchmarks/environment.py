"""The machine, the versions and the commit: what a number is worth nothing without."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import psutil

import weftline

__all__ = ["commit", "environment"]

PACKAGES = ("numpy", "numba", "onnx", "onnxruntime", "ortools", "rustworkx", "msgspec")


def environment() -> dict[str, Any]:
    """For the top of the page."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.machine()}",
        "load_before": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
        "versions": {
            "weftline": weftline.__version__,
            "python": platform.python_version(),
            **{name: _version(name) for name in PACKAGES},
        },
    }


def commit() -> str:
    """The commit that is measured, with a `+` if files differ from it; empty outside a repository."""
    root = Path(__file__).resolve().parents[1]
    try:
        name = _git(root, "rev-parse", "--short=10", "HEAD").strip()
        changed = _git(root, "status", "--porcelain", "--", "src", "benchmarks/*.py").strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
    return f"{name}+" if changed else name


def _git(root: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=root, check=True, capture_output=True, text=True).stdout


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"
