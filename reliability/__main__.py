"""`python -m reliability`: measure, keep the numbers in reliability/results, render docs/reliability.md.

A run that was broken off (or ended by `--seconds`) goes on where it stood, as long as its settings are the same.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic

from reliability.render import render
from reliability.results_file import FOLDER, ROOT, Results
from reliability.sections import SECTIONS
from weftline.files import write_atomically

__all__ = ["main"]


def main(argv: Sequence[str] | None = None, *, root: Path = ROOT) -> int:
    """Returns 1 if something was found that should not be, 5 if `--seconds` ended a section before its end."""
    asked = _parser().parse_args(argv)
    folder = FOLDER if root == ROOT else root / "results"
    code = 0
    if not asked.render:
        until = None if asked.seconds is None else monotonic() + asked.seconds
        for section in SECTIONS.values():
            if asked.only not in (None, section.name):
                continue
            size = "quick" if asked.quick else "full"
            settings = dict(section.sizes[size])
            if asked.inputs is not None and "inputs" in settings:
                settings["inputs"] = asked.inputs
            results = Results(section.name, {"size": size, **settings}, folder=folder, fresh=asked.fresh)
            if section.measure(results, settings, until):
                results.finish()
            else:
                code = code or 5
            if section.failures(results.rows):
                code = 1
    (root / "docs").mkdir(exist_ok=True)
    write_atomically(root / "docs" / "reliability.md", render(folder).encode())
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m reliability", description="Measure, and write docs/reliability.md."
    )
    parser.add_argument("--only", choices=SECTIONS, help="one section; the others stay as they were measured before")
    parser.add_argument("--quick", action="store_true", help="a small sample of every section")
    parser.add_argument("--inputs", type=int, help="fuzz: how many inputs over all readers")
    parser.add_argument("--seconds", type=float, help="stop after about so long; the next call goes on")
    parser.add_argument("--fresh", action="store_true", help="forget an unfinished run")
    parser.add_argument("--render", action="store_true", help="make the page again from the results, measure nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
