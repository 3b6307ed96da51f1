"""Files that other people published, and that tests read where they are present.

WEFTLINE_DATA names their folder; `../shared/data`, seen from the repository, unless told. Without it a test is skipped,
and says so; in CI (the variable CI is set) it fails.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("WEFTLINE_DATA") or Path(__file__).resolve().parents[1] / "../shared/data")


def published(folder: str, pattern: str = "*.json") -> list[Path]:
    """Files of a folder of DATA, for `parametrize`; where there is none, the folder, which `present` refuses."""
    return sorted((DATA / folder).glob(pattern)) or [DATA / folder]


def present(path: Path | str) -> Path:
    """A file of DATA, by its path or its name there; a skip where it is absent, a failure in CI."""
    found = DATA / path
    if not found.is_file():
        why = f"{found} is absent; WEFTLINE_DATA names the folder of published instances"
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    return found
