"""Where the browser is."""

from __future__ import annotations

import os
import shutil

import pytest

__all__ = ["chromium"]

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
MISSING = "no Chromium on the path: install it (apt-get install chromium); pages are tested in a real browser"


def chromium() -> str:
    """Its file; where it is missing, CI fails and others skip."""
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
    return found
