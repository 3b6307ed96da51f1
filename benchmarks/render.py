"""Results -> pages: docs/benchmarks.md with one screen per question, and docs/benchmarks/NAME.md with all rows of it.

In: the runs of latest.json and best.json. Out: the text of every page; the same results give the same bytes, and every
number on a page comes from them. Simplified: Markdown tables, no charts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from benchmarks.results import BestKnown, Row, Runs
from benchmarks.section import Block, Column, Run, Section, Table
from weftline.units import format_bytes

__all__ = ["CHAPTERS", "all_pages", "pivot", "section_page", "summary_page", "table", "text_of"]

CHAPTERS = {
    "throughput": "Pipelines: how many inputs per second?",
    "latency": "Placement: how soon is one input through?",
    "schedule": "Schedules: in which order do micro-batches run?",
    "cards": "Language models on cards: what is planned, and is it so?",
    "real": "Real runs: do plans keep their word?",
    "tool": "The tool itself: all solvers, speed, first start",
}
"""Name -> heading on the page, in order."""
HEAD = """# Benchmarks

Written by `python -m benchmarks`; do not edit. Figures are of the newest whole run (`+`: changes not committed).

- *ours* is the plan of `auto`, unless a line says otherwise. *best known*: of all kept runs of all solvers on the same
  problem, or published; ours where nobody else was asked. *bound* is the best lower bound of the same search: *bound /
  ours* of 1 means that no better plan exists.
- Times of plans are simulated; only columns in seconds, and the chapter on real runs, were measured.
- The points below a table say where we are behind, missed a goal or overran. They are the part to read."""


def table(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A Markdown table; cells may hold Markdown, but no line break and no bar."""
    every = [header, ["---"] * len(header), *lines]
    return "\n".join("| " + " | ".join(_cell(cell) for cell in line) + " |" for line in every)


def _cell(text: str) -> str:
    return text.replace("\n", " ").replace("|", "\\|")


def pivot(
    first: str,
    rows: Iterable[Row],
    down: str | Callable[[Row], str],
    across: Mapping[Any, str],
    key: Callable[[Row], Any],
    cell: Callable[[Row, Mapping[Any, Row]], str],
) -> str:
    """One line per value of `down`, one column per key of `across`; a cell sees its row and the whole line."""
    found: dict[str, dict[Any, Row]] = {}
    for row in rows:
        found.setdefault(row[down] if isinstance(down, str) else down(row), {})[key(row)] = row
    lines = [
        (name, *(cell(line[column], line) if column in line else "-" for column in across))
        for name, line in found.items()
    ]
    return table((first, *across.values()), lines)


def text_of(blocks: Iterable[Block], run: Run) -> list[str]:
    """Blocks one after another; what has nothing to say is left out."""
    found: list[str] = []
    for block in blocks:
        if isinstance(block, str):
            found.append(block.format(**run.settings))
        elif isinstance(block, Table):
            found += _table(block, run)
        else:
            found += block(run)
    return [text for text in found if text]


def _table(block: Table[Any], run: Run) -> Iterator[str]:
    lines = list(block.lines(run))
    if lines:
        columns: Sequence[Column[Any]] = block.columns(run) if callable(block.columns) else block.columns
        yield block.heading and f"## {block.heading}"
        yield block.text.format(**run.settings)
        yield table([column.title for column in columns], [[column.text(line) for column in columns] for line in lines])


def all_pages(sections: Mapping[str, Section], runs: Runs, best: BestKnown) -> dict[str, str]:
    """Path below docs -> text of every page that the results give."""
    made = {
        name: Run(run["rows"], run["settings"], run["stamp"], run.get("more", {}), best)
        for name, run in runs.items()
        if name in sections
    }
    found = {"benchmarks.md": summary_page(sections, made)}
    for name, section in sections.items():
        if name in made:
            found[f"benchmarks/{name}.md"] = section_page(section, made[name])
    return found


def section_page(section: Section, run: Run) -> str:
    """All that was measured for one section."""
    head = f"# {section.title}\n\n{_stamp(run)} Its screen is on [Benchmarks](../benchmarks.md)."
    if not run.rows and not run.more:
        return f"{head}\n\n{section.empty}\n"
    return "\n\n".join([head, *text_of((section.asked, *section.blocks), run)]) + "\n"


def summary_page(sections: Mapping[str, Section], runs: Mapping[str, Run]) -> str:
    """docs/benchmarks.md."""
    parts = [HEAD]
    for chapter, title in CHAPTERS.items():
        mine = [section for section in sections.values() if section.chapter == chapter and section.name in runs]
        parts += [f"## {title}"] if mine else []
        for section in mine:
            parts += _screen(section, runs[section.name])
    return "\n\n".join([*parts, "## Machines", _machines(runs)]) + "\n"


def _screen(section: Section, run: Run) -> Iterator[str]:
    yield f"### {section.title}"
    end = f"[All rows](benchmarks/{section.name}.md). {_stamp(run)}"
    if not run.rows and not run.more:
        yield f"{section.empty} {end}"
        return
    yield " ".join([*text_of((section.asked,), run), end])
    yield from text_of(section.screen, run)
    yield "\n".join(f"- {text}" for text in section.losses(run)) or "No loss was found."


def _stamp(run: Run) -> str:
    stamp = run.stamp
    known = {"full": "", "quick": " **A quick subset.**", "tiny": " **A tiny run: only shows that the harness works.**"}
    words = f"Commit {stamp['commit'] or '(none)'}, {stamp['date']}, `{stamp['command']}`, {stamp['seconds']:.0f} s."
    return f"*{words}*{known[stamp['size']]}"


def _machines(runs: Mapping[str, Run]) -> str:
    seen: dict[str, list[str]] = {}
    for name, run in runs.items():
        machine = run.stamp["environment"]
        text = (
            f"{machine['cpu']}, {machine['cores']} cores, {format_bytes(machine['memory_bytes'])}, {machine['system']}"
        )
        versions = ", ".join(f"{package} {number}" for package, number in machine["versions"].items())
        seen.setdefault(f"{text}; {versions}", []).append(name)
    return table(("machine and versions", "sections"), [(text, ", ".join(names)) for text, names in seen.items()])
