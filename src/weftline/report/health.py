"""What this installation has and lacks: packages, extras, compiled kernels, cores, memory."""

from __future__ import annotations

import os
import platform
import shutil
from importlib.metadata import PackageNotFoundError, version
from typing import NamedTuple

from weftline import __version__
from weftline.plugins import broken_plugins

__all__ = ["Finding", "checkup"]

_NEEDED = (
    "numpy",
    "onnx",
    "onnxruntime",
    "ortools",
    "numba",
    "rustworkx",
    "msgspec",
    "typer",
    "rich",
    "jinja2",
    "psutil",
    "xlrd",
)
_EXTRAS = {
    "torch": "torch",
    "safetensors": "torch",
    "openvino": "openvino",
    "ray": "ray",
    "starlette": "ui",
    "uvicorn": "ui",
}


class Finding(NamedTuple):
    """One thing looked at."""

    what: str
    ok: bool
    needed: bool
    detail: str


def checkup() -> list[Finding]:
    """Look at everything."""
    findings = [
        Finding("weftline", True, True, f"{__version__} on Python {platform.python_version()}, {platform.platform()}")
    ]
    findings += [_package(name, True, "reinstall weftline") for name in _NEEDED]
    findings += [_package(name, False, f"pip install 'weftline[{extra}]'") for name, extra in _EXTRAS.items()]
    findings += [_kernels(), _machine()]
    broken = broken_plugins()
    findings += [Finding("plugin", False, True, f"{name}: {reason}") for name, reason in broken.items()]
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    findings.append(
        Finding("chromium", chromium is not None, False, chromium or "only the tests of the report need it")
    )
    return findings


def _package(name: str, needed: bool, remedy: str) -> Finding:
    try:
        return Finding(name, True, needed, version(name))
    except PackageNotFoundError:
        return Finding(name, False, needed, remedy)


def _kernels() -> Finding:
    """Simulate one tiny problem with the kernels and with the reference."""
    from weftline.simulate import default_order, simulate_latency
    from weftline.simulate.reference import reference_latency
    from weftline.testing import make_placement, random_problem
    from weftline.testing.generate import SeededChooser

    problem = random_problem(1, "latency", limits=False)
    placement = make_placement(SeededChooser(1), problem)
    fast = simulate_latency(problem, placement).value
    slow = reference_latency(problem, placement.tolist(), default_order(problem).tolist()).value
    return Finding(
        "kernels", fast == slow, True, "compiled and right" if fast == slow else f"wrong: {fast} is not {slow}"
    )


def _machine() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding(
        "machine", True, True, f"{cores} cores, {memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free"
    )
