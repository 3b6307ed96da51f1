"""What this installation has and lacks: packages, extras, compiled kernels, cores, memory."""

from __future__ import annotations

import os
import platform
import re
import shutil
import tempfile
from importlib.metadata import PackageNotFoundError, requires, version
from typing import NamedTuple

from weftline import __version__
from weftline.ask.compiling import Prepared
from weftline.plugins import broken_plugins

__all__ = ["Finding", "checkup"]

_FOR = {
    "torch": "to run schedules, plans on several machines, and to train learned solvers",
    "openvino": "to read live OpenVINO models, and to run and measure plans by its HETERO",
    "ray": "for `sweep --engine ray`",
    "ui": "for the page in the browser",
    "png": "for pictures of plans and schedules as PNG files",
    "models": "for the benchmark of real models from packages",
    "docs": "to build the docs site",
    "dev": "for tests and checks of weftline itself",
}
"""What each extra is good for."""
_BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


class Finding(NamedTuple):
    """One thing looked at."""

    what: str
    ok: bool
    needed: bool
    detail: str


def checkup(prepared: Prepared | None = None) -> list[Finding]:
    """Look at everything; `prepared` says what was compiled ahead."""
    findings = [
        Finding("weftline", True, True, f"{__version__} on Python {platform.python_version()}, {platform.platform()}")
    ]
    wanted = _requirements()
    findings += [_package(name, "reinstall weftline: pip install --force-reinstall weftline") for name in wanted[""]]
    if not wanted[""]:
        told = "runs from its sources, so nobody knows what it needs: pip install -e ."
        findings.append(Finding("installation", False, False, told))
    findings += [_extra(name, packages) for name, packages in wanted.items() if name]
    findings += [_kernels(prepared), _machine(), _rights(), _browser()]
    broken = broken_plugins()
    return findings + [Finding("plugin", False, True, f"{name}: {reason}") for name, reason in broken.items()]


def _requirements() -> dict[str, list[str]]:
    """Extra (empty for the base install) -> packages, as the installed weftline names them."""
    found: dict[str, list[str]] = {"": []}
    try:
        lines = requires("weftline") or []
    except PackageNotFoundError:  # run from its sources, without an installation
        lines = []
    for line in lines:
        name, extra = re.match(r"[A-Za-z0-9._-]+", line), re.search(r"extra\s*==\s*[\'\"]([\w-]+)", line)
        if name:
            found.setdefault(extra[1] if extra else "", []).append(name[0])
    return found


def _package(name: str, remedy: str) -> Finding:
    found = _version(name)
    return Finding(name, bool(found), True, found or remedy)


def _extra(extra: str, packages: list[str]) -> Finding:
    """All packages of an extra; what is missing, what for, and how to get it."""
    purpose = _FOR.get(extra, "")
    found = {name: _version(name) for name in packages}
    missing = [name for name, there in found.items() if not there]
    if not missing:
        return Finding(extra, True, False, ", ".join(f"{name} {there}" for name, there in found.items()))
    told = f"without {', '.join(missing)}" if len(missing) < len(packages) else "not installed"
    return Finding(extra, False, False, f"{told}; {purpose}: pip install 'weftline[{extra}]'".replace("; :", ":"))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _rights() -> Finding:
    """Nothing here needs an administrator; what a container may have taken away is named."""
    lacks = []
    if not hasattr(os, "sched_setaffinity"):
        lacks.append("processes cannot be bound to cores on this system: measured times spread more")
    if os.name == "posix" and not os.access(tempfile.gettempdir(), os.W_OK):
        lacks.append(f"{tempfile.gettempdir()} cannot be written: set TMPDIR")
    who = "as administrator; that is not needed" if hasattr(os, "geteuid") and os.geteuid() == 0 else "as a plain user"
    return Finding(
        "rights", not lacks, False, "; ".join(lacks) or f"{who}, cores can be bound, temporary files written"
    )


def _browser() -> Finding:
    path = next(filter(None, map(shutil.which, _BROWSERS)), None)
    remedy = "only tests of pages need a browser: install chromium, or `playwright install chromium`"
    return Finding("chromium", path is not None, False, path or remedy)


def _kernels(prepared: Prepared | None) -> Finding:
    """Simulate one tiny problem with the kernels and with the reference."""
    import numpy as np

    from weftline.cost import devices_of_file, expand_file_costs
    from weftline.problem import Problem, Rules
    from weftline.simulate import default_order, simulate_latency
    from weftline.simulate.reference import reference_latency
    from weftline.zoo import regal_costs, synthetic

    graph = synthetic("erdos_renyi", ops=12, seed=1)
    costs = regal_costs(graph, 3)
    problem = Problem(graph, devices_of_file(costs), expand_file_costs(costs), Rules())
    placement = (np.arange(len(graph.ops)) % 3).astype(np.int32)
    fast = simulate_latency(problem, placement).value
    slow = reference_latency(problem, placement.tolist(), default_order(problem).tolist()).value
    told = "compiled and right" if fast == slow else f"wrong: {fast} is not {slow}"
    return Finding("kernels", fast == slow, True, told + ("" if prepared is None else f"; {_told(prepared)}"))


def _told(prepared: Prepared) -> str:
    """What was compiled ahead, and where it is."""
    if not prepared.compiled:
        return "all questions: nothing was left to compile"
    kept = f"kept in {prepared.folder}" if prepared.folder else "kept nowhere: set NUMBA_CACHE_DIR"
    return f"all questions: {prepared.compiled} compiled in {prepared.seconds:.0f} s, {kept}"


def _machine() -> Finding:
    import psutil

    memory = psutil.virtual_memory()
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return Finding(
        "machine", True, True, f"{cores} cores, {memory.available / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free"
    )
