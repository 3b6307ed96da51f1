"""What the doctor finds, and what it says about what is missing."""

from __future__ import annotations

import os
import shutil
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import pytest

from weftline.ask import compiling
from weftline.report import health

DECLARED = [
    "numpy>=1.26",
    "msgspec>=0.18",
    'torch==2.13.0; extra == "torch"',
    'safetensors>=0.4; extra == "torch"',
    "ray>=2.30; extra == 'ray'",
    'mystery; extra == "new-one"',
]


def _versions(monkeypatch: pytest.MonkeyPatch, missing: set[str]) -> None:
    """Pretend that some packages are not there."""

    def known(name: str) -> str:
        if name in missing:
            raise PackageNotFoundError(name)
        return "1.2.3"

    monkeypatch.setattr(health, "version", known)
    monkeypatch.setattr(health, "requires", lambda name: DECLARED)


def test_requirements_by_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that extras and their packages come from what the installation declares."""
    _versions(monkeypatch, set())
    assert health._requirements() == {
        "": ["numpy", "msgspec"],
        "torch": ["torch", "safetensors"],
        "ray": ["ray"],
        "new-one": ["mystery"],
    }

    def nothing(name: str) -> list[str]:
        raise PackageNotFoundError(name)

    monkeypatch.setattr(health, "requires", nothing)
    assert health._requirements() == {"": []}
    assert "pip install -e ." in next(f.detail for f in health.checkup() if f.what == "installation")


def test_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that an absent extra is told with its purpose and the command, and is not needed; a base package is."""
    _versions(monkeypatch, {"msgspec", "safetensors", "ray", "mystery"})
    found = {finding.what: finding for finding in health.checkup()}
    assert (found["msgspec"].ok, found["msgspec"].needed) == (False, True)
    assert "pip install --force-reinstall weftline" in found["msgspec"].detail
    assert (found["torch"].ok, found["torch"].needed) == (False, False)
    assert found["torch"].detail.startswith("without safetensors; to run schedules")
    assert found["torch"].detail.endswith(": pip install 'weftline[torch]'")
    assert found["ray"].detail == "not installed; for `sweep --engine ray`: pip install 'weftline[ray]'"
    assert found["new-one"].detail == "not installed: pip install 'weftline[new-one]'"
    assert found["kernels"].ok


def test_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that what is there is told with its version."""
    _versions(monkeypatch, set())
    found = {finding.what: finding for finding in health.checkup()}
    assert found["torch"].detail == "torch 1.2.3, safetensors 1.2.3"
    assert all(finding.ok for finding in found.values() if finding.needed)


def test_browser_and_rights(monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    """Tests that a missing browser and a folder that cannot be written are said with a remedy."""
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert "playwright install chromium" in health._browser().detail
    monkeypatch.setattr(shutil, "which", lambda name: "/usr/bin/chromium" if name == "chromium" else None)
    assert health._browser().ok
    assert health._rights().ok
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert "set TMPDIR" in health._rights().detail


def test_this_installation_declares_its_extras() -> None:
    """Tests that the extras of this installation have purposes, so that no new one is silent."""
    assert version("weftline")
    assert set(health._requirements()) - {""} <= set(health._FOR)


def test_doctor_compiles_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that every question is prepared, and that it is said what was compiled and where it is kept."""
    asked: list[str] = []
    for name, module in compiling.PREPARES.items():
        monkeypatch.setattr(import_module(module), "prepare", lambda name=name: asked.append(name))
    found = compiling.prepare_all()
    assert asked == list(compiling.PREPARES)
    assert found.compiled == 0

    def told(prepared: compiling.Prepared) -> str:
        return next(f.detail for f in health.checkup(prepared) if f.what == "kernels")

    assert "nothing was left to compile" in told(found)
    assert "; all questions: 12 compiled in 34 s, kept in /a/folder" in told(compiling.Prepared(12, 34.2, "/a/folder"))
    assert "NUMBA_CACHE_DIR" in told(compiling.Prepared(12, 34.2, ""))
