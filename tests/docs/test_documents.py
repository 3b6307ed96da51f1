"""The documents are run: commands, Python blocks and shown output of every page, in order, in an empty folder.

A fenced block `sh` runs the lines that start with `weftline` (exit code 0, or the one in a comment `# exit 3`);
`python` runs in a fresh namespace; a block with `file=NAME` is written to that file; `text output` is what the block
before it prints. WEFTLINE_UPDATE_DOCS=1 writes such output into the documents instead of comparing it.
"""

from __future__ import annotations

import io
import os
import re
import shlex
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import pytest

from weftline.cli import main

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
UPDATE = os.environ.get("WEFTLINE_UPDATE_DOCS") == "1"

_FENCE = re.compile(r"^```(?P<info>[^\n`]*)\n(?P<body>.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_EXIT = re.compile(r"#\s*exit (\d+)")


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, the words after it, its text, and where the text stands in the page."""

    language: str
    words: tuple[str, ...]
    body: str
    span: tuple[int, int]

    @property
    def file(self) -> str:
        """The file that the block is to be saved as, or nothing."""
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), "")


def blocks(text: str) -> list[Block]:
    """All fenced blocks of a page."""
    found = []
    for match in _FENCE.finditer(text):
        language, *words = match["info"].split() or [""]
        found.append(Block(language, tuple(words), match["body"], match.span("body")))
    return found


def commands(block: Block) -> list[tuple[str, int]]:
    """The weftline commands of a block, each with the exit code it should have."""
    lines = block.body.replace("\\\n", " ").splitlines()
    expected = ((line, _EXIT.search(line)) for line in lines if line.startswith("weftline "))
    return [(line, int(code[1]) if code else 0) for line, code in expected]


def run(line: str, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str, str]:
    """One command in this process -> exit code, stdout, stderr. `> file` at the end is understood."""
    words = shlex.split(line, comments=True)
    target = words[-1] if ">" in words else ""
    words = words[: words.index(">")] if target else words
    monkeypatch.setattr(sys, "argv", words)
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err), pytest.raises(SystemExit) as leave:
        main()
    if target:
        Path(target).write_text(out.getvalue(), encoding="utf-8")
    code = leave.value.code
    return (0 if code is None else int(code)), "" if target else out.getvalue(), err.getvalue()


def plain(text: str) -> str:
    """Without spaces at the ends of lines and empty lines at the ends of the text."""
    return "\n".join(line.rstrip() for line in text.splitlines()).strip("\n")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that everything a page tells the reader to do works, and prints what the page shows."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    for name in ("COLUMNS", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    text = page.read_text(encoding="utf-8")
    printed, changes = "", []
    for block in blocks(text):
        if "output" in block.words:
            if UPDATE:
                changes.append((block.span, printed))
            else:
                assert plain(block.body) == printed, "WEFTLINE_UPDATE_DOCS=1 make docs"
            continue
        printed = ""
        if block.file:
            Path(block.file).write_text(block.body, encoding="utf-8")
        elif block.language == "sh":
            for line, expected in commands(block):
                code, out, err = run(line, monkeypatch)
                assert code == expected, f"{line}\n{out}{err}"
                printed += out
        elif block.language == "python":
            with redirect_stdout(io.StringIO()) as shown:
                exec(compile(block.body, f"{page.name} block", "exec"), {"__name__": "__main__"})
            printed = shown.getvalue()
        printed = plain(printed)
    for (start, end), output in reversed(changes):
        text = f"{text[:start]}{output}\n{text[end:]}"
    if changes:
        page.write_text(text, encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links(page: Path) -> None:
    """Tests that every relative link leads to a file, and to a heading in it where it names one."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for link in _LINK.findall(text):
        if link.startswith(("https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), link
        if anchor:
            assert anchor in anchors(target), link


def anchors(page: Path) -> set[str]:
    """The names that a page's headings get: lower case, spaces to dashes, other signs dropped."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_design_notes_are_numbered() -> None:
    """Tests that the design notes are numbered without gaps and say context, choice and cost."""
    notes = sorted((ROOT / "docs" / "design").glob("*.md"))
    assert [int(note.name[:4]) for note in notes] == list(range(1, len(notes) + 1))
    for note in notes:
        headings = re.findall(r"^## (.+)$", note.read_text(encoding="utf-8"), re.MULTILINE)
        assert headings == ["Context", "Choice", "Cost"], note.name
