"""`python -m benchmarks`: measure, keep the numbers in benchmarks/results, write docs/benchmarks.md and its pages.

In: options. Out: results and pages. A run of everything takes the quick subset of the long sections; `--only SECTION`
measures one section whole (or its subset, with `--quick`). Pages show the newest whole run of every section; a subset
never replaces it, and has pages of its own in benchmarks/results/quick.
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
from benchmarks.measure import ROOT, warm_up
from benchmarks.render import all_pages
from benchmarks.results import LATEST, QUICK, BestKnown, Collector, ResultsFile, Row
from benchmarks.section import Section
from benchmarks.sections import SECTIONS
from benchmarks.sections.regal import regal_problem
from weftline.files import write_atomically

__all__ = ["main"]

WARM_OPS = 40


def main(argv: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Results and page go below `root`. Returns 1 if a solver crashed."""
    words = list(sys.argv[1:] if argv is None else argv)
    asked = _parser().parse_args(words)
    file = ResultsFile(root / "benchmarks" / "results")
    crashed = False
    chosen = [section for section in SECTIONS.values() if asked.only in (None, section.name)]
    if not asked.render:
        if not asked.tiny and any(section.warm for section in chosen):
            warm_up(regal_problem("erdos_renyi", WARM_OPS, 0, 4))
        for section in chosen:
            run = _measure(section, asked, words, file)
            crashed |= any(str(row.get("note", "")).startswith("crashed") for row in run["rows"])
    if not file.read():
        print(f"there is no {file.path.relative_to(root)} yet; run python -m benchmarks first", file=sys.stderr)
        return 3
    _write_pages(file, LATEST, root / "docs")
    _write_pages(file, QUICK, file.folder / "quick")
    return int(crashed)


def _write_pages(file: ResultsFile, name: str, folder: Path) -> None:
    """All pages of one file of results; those of sections that are gone are removed."""
    runs = file.read(name)
    pages = all_pages(SECTIONS, runs, BestKnown(file.folder)) if runs else {}
    for path, text in pages.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        write_atomically(folder / path, text.encode())
    for old in (folder / "benchmarks").glob("*.md"):
        if f"benchmarks/{old.name}" not in pages:
            old.unlink()


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
    run = {"stamp": stamp, "settings": settings, "rows": collect.rows, "more": more or {}}
    BestKnown(file.folder).learn(collect.rows, seen)
    file.keep(section.name, run, section.unused)
    collect.close()
    return run


if __name__ == "__main__":
    sys.exit(main())
