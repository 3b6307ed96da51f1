"""benchmarks/results: what was measured, section by section, each with the commit and the command of its run.

`latest.json` has the newest whole run of every section, and pages are made from it; a quick or tiny run takes its place
only if there is no whole one, and goes to `quick.json` otherwise, which is not kept in the repository. `partial-*.json`
is a run that has not ended, from which `--resume` goes on; `best.json` has the best value ever seen for each problem.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from weftline.files import write_atomically

__all__ = ["LATEST", "QUICK", "BestKnown", "Collector", "ResultsFile", "Row", "Runs"]

FORMAT, VERSION = "weftline-benchmarks", 3
LATEST, QUICK = "latest.json", "quick.json"
Row = dict[str, Any]
Runs = dict[str, Row]
"""Section -> its run: stamp, settings, rows."""


class ResultsFile:
    """The runs of a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / LATEST

    def read(self, name: str = LATEST) -> Runs:
        """All runs of a file; empty if nothing was ever measured."""
        path = self.folder / name
        if not path.is_file():
            return {}
        data = json.loads(path.read_text(encoding="utf-8"))
        return data["sections"] if data.get("version") == VERSION else {}

    def keep(self, section: str, run: Row, unused: tuple[str, ...] = ()) -> str:
        """Put one run into a file, whose name is returned; everything else in it stays.

        Rows lose the fields in `unused`: those that no page shows.
        """
        latest = self.read()
        whole = section in latest and latest[section]["stamp"]["size"] == "full"
        name = QUICK if whole and run["stamp"]["size"] != "full" else LATEST
        rows = [{field: value for field, value in row.items() if field not in unused} for row in run["rows"]]
        self.write({**self.read(name), section: {**run, "rows": rows}}, name)
        return name

    def write(self, runs: Runs, name: str = LATEST) -> None:
        """One row per line, so that changes can be read."""
        parts = []
        for section, run in sorted(runs.items()):
            about = {field: value for field, value in run.items() if field != "rows"}
            rows = ",\n".join(f"   {json.dumps(row)}" for row in run["rows"])
            parts.append(f'  {json.dumps(section)}: {json.dumps(about)[:-1]}, "rows": [\n{rows}\n  ]}}')
        head = f'{{"format": "{FORMAT}", "version": {VERSION}, "sections": {{'
        text = head + "\n" + ",\n".join(parts) + "\n}}\n"
        self.folder.mkdir(parents=True, exist_ok=True)
        write_atomically(self.folder / name, text.encode())


class BestKnown:
    """The best value that any run has found for a problem."""

    def __init__(self, folder: Path | None = None) -> None:
        self.path = None if folder is None else folder / "best.json"
        self.values: dict[str, Row] = {}
        if self.path is not None and self.path.is_file():
            self.values = json.loads(self.path.read_text(encoding="utf-8"))

    def learn(self, rows: list[Row], commit: str) -> None:
        """Keep what is better than anything before, and write the file."""
        for row in rows:
            if row.get("value_ns") is not None and row.get("problem"):
                before = self.values.get(row["problem"], {})
                runs = before.get("runs", 0) + 1
                if not before or row["value_ns"] < before["value_ns"]:
                    about = {"instance": row["instance"], "commit": commit, "time_limit": row["time_limit"]}
                    before = {"value_ns": row["value_ns"], **about}
                self.values[row["problem"]] = {**before, "runs": runs}
        if self.path is not None:
            _write(self.path, dict(sorted(self.values.items())))

    def of(self, row: Row) -> int | None:
        """The best value known for the row's problem."""
        found = self.values.get(row.get("problem", ""))
        return None if found is None else int(found["value_ns"])

    def is_comparable(self, row: Row) -> bool:
        """The problem was planned more than once."""
        return bool(self.values.get(row.get("problem", ""), {}).get("runs", 1) > 1)

    def compared(self, row: Row) -> str:
        """Value / best known for the page; a problem that was planned only once has nothing to be compared with."""
        found = self.values.get(row.get("problem", ""))
        if found is None or not self.is_comparable(row):
            return "only run"
        return f"{row['value_ns'] / found['value_ns']:.4f} ({found['runs']} runs)"


class Collector:
    """Rows of a run as they are measured; a run that was broken off goes on where it stood."""

    def __init__(self, path: Path, settings: Row, *, resume: bool, commit: str = "") -> None:
        self.path = path
        self.settings = settings
        self.rows: list[Row] = []
        self.seconds = 0.0
        self.commits = [commit]
        """All commits that rows were measured at, this one last."""
        if resume and path.is_file():
            data = json.loads(path.read_text(encoding="utf-8"))
            if data["settings"] == json.loads(json.dumps(settings)):
                self.rows, self.seconds = data["rows"], data["seconds"]
                self.commits = list(dict.fromkeys([*data["commits"], commit]))

    def measure(self, key: Row, make: Callable[[], Row]) -> None:
        """Measure the row of `key`, unless the run has it already."""
        if any(all(row.get(name) == value for name, value in key.items()) for row in self.rows):
            return
        row = {**key, **make()}
        self.rows.append(row)
        self.seconds += row.get("seconds") or 0.0
        about = {"settings": self.settings, "commits": self.commits, "seconds": self.seconds}
        _write(self.path, {**about, "rows": self.rows})

    def close(self) -> None:
        """The run is whole; its rows stand in latest.json now."""
        self.path.unlink(missing_ok=True)


def _write(path: Path, data: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, (json.dumps(data, indent=1) + "\n").encode())
