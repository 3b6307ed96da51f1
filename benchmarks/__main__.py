"""`python -m benchmarks`: measure, write benchmarks/results/latest.json, render docs/benchmarks.md.

`--only SECTION` measures one section, keeps its results in a file of their own and prints the page, so that the page
in docs/ always comes from one whole run.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.clock import on_one_core
from benchmarks.environment import environment
from benchmarks.instances import FAMILIES, instances
from benchmarks.quality import measure_quality, share_of_budget
from benchmarks.render import render
from benchmarks.speed import measure_growth, measure_simulator
from benchmarks.speed_of_files import measure_check, measure_files
from weftline.files import write_atomically

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
QUALITY_BUDGET = 200.0
"""Seconds that solvers may search in all, for one seed."""
FULL: dict[str, dict[str, Any]] = {
    "simulator": {"ops": 1000, "batch": 1200, "plain": 20, "reference": 1, "repeats": 20},
    "growth": {"sizes": (1_000, 3_000, 10_000, 30_000, 100_000), "work": 300_000, "repeats": 15},
    "files": {"graph_ops": 100_000, "onnx_nodes": 10_000, "repeats": 10},
    "check": {"sizes": (300, 1_000, 3_000, 10_000), "repeats": 5},
}
QUICK: dict[str, dict[str, Any]] = {
    "simulator": {"ops": 100, "batch": 200, "plain": 5, "reference": 1, "repeats": 3},
    "growth": {"sizes": (200, 400, 800), "work": 4_000, "repeats": 3},
    "files": {"graph_ops": 1_000, "onnx_nodes": 200, "repeats": 1},
    "check": {"sizes": (50, 100), "repeats": 1},
}


def main(argv: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Results and page go below `root`. Returns 1 if a solver crashed."""
    words = list(sys.argv[1:] if argv is None else argv)
    asked = _parser().parse_args(words)
    file = root / "benchmarks" / "results" / (f"only-{asked.only}.json" if asked.only else "latest.json")
    if not asked.render:
        results = _measure(asked, words)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, (json.dumps(results, indent=1) + "\n").encode())
    elif not file.is_file():
        print(f"there is no {file.relative_to(root)} yet; run python -m benchmarks first", file=sys.stderr)
        return 3
    results = json.loads(file.read_text(encoding="utf-8"))
    page = render(results)
    if asked.only:
        print(page)
    else:
        (root / "docs").mkdir(exist_ok=True)
        write_atomically(root / "docs" / "benchmarks.md", page.encode())
    rows = results.get("quality", {}).get("rows", [])
    return int(any(row["note"].startswith("crashed") for row in rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, and write docs/benchmarks.md.")
    parser.add_argument("--quick", action="store_true", help="small instances and few repeats, to test the harness")
    parser.add_argument(
        "--only", choices=(*FAMILIES, "speed"), help="one section; prints the page instead of writing it"
    )
    parser.add_argument("--render", action="store_true", help="make the page again from the results, measure nothing")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0..N-1 for every solver that is no baseline")
    parser.add_argument("--time-limit", type=float, help="seconds for one run of a solver (default: a share of 200 s)")
    parser.add_argument("--date", default="", help="printed on the page as given")
    return parser


def _measure(asked: argparse.Namespace, words: list[str]) -> dict[str, Any]:
    begun = perf_counter()
    results: dict[str, Any] = {
        "format": "weftline-benchmarks",
        "version": 1,
        "command": shlex.join(["python", "-m", "benchmarks", *words]),
        "date": asked.date,
        "quick": asked.quick,
        "seeds": asked.seeds,
        "environment": environment(),
    }
    if asked.only in (None, "speed"):
        results["speed"] = _speed(QUICK if asked.quick else FULL)
    if asked.only != "speed":
        chosen = [one for one in instances(quick=asked.quick) if asked.only in (None, one.family)]
        limit = asked.time_limit or (0.2 if asked.quick else share_of_budget(chosen, QUALITY_BUDGET))
        rows = measure_quality(chosen, seeds=asked.seeds, time_limit=limit)
        results["quality"] = {"time_limit": limit, "only": asked.only, "rows": rows}
    return {**results, "seconds": round(perf_counter() - begun, 1)}


def _speed(settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    parts = {"simulator": measure_simulator, "growth": measure_growth, "files": measure_files, "check": measure_check}
    found: dict[str, Any] = {}
    with on_one_core() as pinned:
        for name, measure in parts.items():
            print(f"speed: {name}", file=sys.stderr, flush=True)
            found[name] = measure(**settings[name])  # type: ignore[operator]
    return {"pinned": pinned, **found}


if __name__ == "__main__":
    sys.exit(main())
