"""reliability/results/SECTION.json: what was measured, when and by which version; an unfinished run goes on from it.

In and out: rows by name. Simplified: one run per section; a run of another size begins anew.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter
from typing import Any

from weftline.files import write_atomically

__all__ = ["FOLDER", "ROOT", "Results"]

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "reliability" / "results"
Row = dict[str, Any]


class Results:
    """One section's file; saved after every row."""

    def __init__(self, section: str, settings: Row, *, folder: Path = FOLDER, fresh: bool = False) -> None:
        self.path = folder / f"{section}.json"
        stored = read(self.path)
        same = stored.get("settings") == json.loads(json.dumps(settings)) and not stored.get("complete") and not fresh
        self.rows: dict[str, Row] = stored.get("rows", {}) if same else {}
        self.seconds: float = stored.get("seconds", 0.0) if same else 0.0
        self.baselines: dict[str, float] = stored.get("baselines", {}) if same else {}
        """Mutation: seconds that the tests take without any change."""
        earlier = stored.get("commits") or [stored.get("environment", {}).get("commit", "unknown")] if same else []
        self.commits: list[str] = list(dict.fromkeys([*earlier, environment()["commit"]]))
        """A run in pieces may see several."""
        self.settings, self._begun, self.complete = settings, perf_counter(), False

    def add(self, name: str, row: Row) -> None:
        """Keep a row."""
        self.rows[name] = row
        self.save()

    def finish(self) -> None:
        """Nothing is left to measure."""
        self.complete = True
        self.save()

    def save(self) -> None:
        """Write the file."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        about = {
            "settings": self.settings,
            "complete": self.complete,
            "commits": self.commits,
            "environment": environment(),
        }
        seconds = round(self.seconds + perf_counter() - self._begun, 1)
        more = {"baselines": self.baselines} if self.baselines else {}
        text = json.dumps({**about, "seconds": seconds, **more, "rows": self.rows}, indent=1)
        write_atomically(self.path, f"{text}\n".encode())


def read(path: Path) -> Row:
    """The content of a file, nothing if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def environment() -> Row:
    """Where and with what."""
    done = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, encoding="utf-8", check=False
    )
    return {
        "date": datetime.now(UTC).date().isoformat(),
        "commit": done.stdout.strip() or "unknown",
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
    }
