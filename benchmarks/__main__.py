"""`python -m benchmarks`: measure, keep the numbers in benchmarks/results, render docs/benchmarks.md.

A run of everything takes the quick subset of the long sections; `--only SECTION` measures one section whole (or its
subset, with `--quick`). What was measured before stays in the results and on the page, with the commit of its run.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from time import perf_counter

from benchmarks.environment import commit, environment
from benchmarks.planned import Row, warm_up
from benchmarks.regal import regal_problem
from benchmarks.render import render
from benchmarks.results_file import BestKnown, Collector, ResultsFile
from benchmarks.sections import SECTIONS, Section
from weftline.files import write_atomically

__all__ = ["main"]

ROOT = Path(__file__).resolve().parents[1]
WARM_OPS = 40
WARM_THEMSELVES = ("scale", "speed", "placement", "fusion", "placement-scale", "schedules", "tessel", "measured")
"""Sections that need no compiled kernels of pipelines, or load what they need in processes of their own."""


def main(argv: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Results and page go below `root`. Returns 1 if a solver crashed."""
    words = list(sys.argv[1:] if argv is None else argv)
    asked = _parser().parse_args(words)
    file = ResultsFile(root / "benchmarks" / "results")
    crashed = False
    if not asked.render:
        if not asked.tiny and asked.only not in WARM_THEMSELVES:
            warm_up(regal_problem("erdos_renyi", WARM_OPS, 0, 4))
        for section in SECTIONS.values():
            if asked.only in (None, section.name):
                run = _measure(section, asked, words, file)
                crashed |= any(str(row.get("note", "")).startswith("crashed") for row in run["rows"])
    sections = file.read()
    if not sections:
        print(f"there is no {file.path.relative_to(root)} yet; run python -m benchmarks first", file=sys.stderr)
        return 3
    (root / "docs").mkdir(exist_ok=True)
    write_atomically(root / "docs" / "benchmarks.md", render(sections, BestKnown(file.folder)).encode())
    return int(crashed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure, and write docs/benchmarks.md.")
    parser.add_argument("--only", choices=SECTIONS, help="one section; the others stay as they were measured before")
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="the subset of a long section, as in a run of everything")
    size.add_argument("--full", action="store_true", help="long sections whole in a run of everything: many hours")
    size.add_argument("--tiny", action="store_true", help="small instances and few repeats, to test the harness")
    parser.add_argument("--resume", action="store_true", help="go on with a section that was broken off")
    parser.add_argument("--render", action="store_true", help="make the page again from the results, measure nothing")
    parser.add_argument("--seeds", type=int, default=1, help="quality: seeds 0..N-1 for each solver but the baselines")
    parser.add_argument("--graphs", type=int, help="regal: how many graphs (default 20)")
    parser.add_argument("--time-limit", type=float, help="seconds for one search (default: depends on the section)")
    parser.add_argument("--date", help="printed on the page as given (default: today)")
    return parser


def _measure(section: Section, asked: argparse.Namespace, words: list[str], file: ResultsFile) -> Row:
    """Run one section and keep it."""
    whole = asked.full or (asked.only is not None and not asked.quick) or not section.long
    size = "tiny" if asked.tiny else "full" if whole else "quick"
    settings = section.settings(size, asked)
    path = file.folder / f"partial-{section.name}-{size}.json"
    collect = Collector(path, settings, resume=asked.resume, commit=commit())
    stamp = {
        "date": asked.date or datetime.now(UTC).date().isoformat(),
        "command": shlex.join(["python", "-m", "benchmarks", *words]),
        "size": size,
        "environment": environment(),
    }
    earlier, begun = collect.seconds, perf_counter()
    more = section.measure(settings, collect)
    seconds = round(earlier + perf_counter() - begun, 1)
    seen = ", ".join(dict.fromkeys([*collect.commits, commit()]))  # files may change while a long run goes on
    stamp |= {"commit": seen, "seconds": seconds}
    run = {"stamp": stamp, "settings": settings, "rows": collect.rows, **(more or {})}
    BestKnown(file.folder).learn(collect.rows, seen)
    file.keep(section.name, "quick" if size == "quick" else "full", run)
    collect.close()
    return run


if __name__ == "__main__":
    sys.exit(main())
