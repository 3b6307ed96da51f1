"""The rules of the house that can be kept by a test: which room may import which, how large a file may grow."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest
from tests.conftest import SLOW
from tests.house_numbers import (
    LONG_FILE,
    LONG_FUNCTION,
    MANY_PARAMETERS,
    Module,
    numbers,
    one_word_constants,
    read_modules,
    walk_all,
)

import weftline

ROOT = Path(weftline.__file__).parent
FLOW = [
    "_start",
    "lazy",
    "errors",
    "interrupts",
    "units",
    "arguments",
    "files",
    "plugins",
    "worker",
    "graph",
    "importers",
    "zoo",
    "cluster",
    "cost",
    "problem",
    "reduce",
    "simulate",
    "search",
    "bounds",
    "latency",
    "pipeline",
    "fleet",
    "schedule",
    "papers",
    "certify",
    "plans",
    "ask",
    "run",
    "measure",
    "grid",
    "export",
    "report",
    "ui",
    "cli",
    "testing",
]
QUESTIONS = {"latency", "pipeline", "fleet", "schedule"}
"""Rooms that do not import each other."""
TOP = {"__init__", "__main__"}
FILES = sorted(path for path in ROOT.rglob("*.py"))


def room(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """Rooms of weftline that a file imports, anywhere in it."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            parts = (node.module or "").split(".")
            if parts[0] == "weftline":
                found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name.split(".")[1] for alias in node.names if alias.name.startswith("weftline.")}
    return found & set(FLOW)


def test_every_room_has_its_place() -> None:
    """Tests that the flow names every room that exists."""
    rooms = {room(path) for path in FILES} - TOP
    assert rooms <= set(FLOW)


@pytest.mark.parametrize(
    "path", [path for path in FILES if room(path) not in TOP], ids=lambda p: str(p.relative_to(ROOT))
)
def test_imports_follow_the_flow(path: Path) -> None:
    """Tests that a room imports only rooms that stand before it."""
    here = FLOW.index(room(path))
    against = [name for name in imported_rooms(path) if FLOW.index(name) > here]
    if room(path) in QUESTIONS:
        against += sorted(imported_rooms(path) & QUESTIONS - {room(path)})
    assert not against, f"{path} imports {against}"


def test_no_room_imports_papers() -> None:
    """Tests that methods we compare with are asked through the door for plug-ins alone."""
    asking = [path for path in FILES if room(path) != "papers" and "papers" in imported_rooms(path)]
    assert not asking


@pytest.mark.parametrize(
    "name", [str(path.parent.relative_to(ROOT)) for path in FILES if path.name == "__init__.py" and path.parent != ROOT]
)
def test_a_room_says_what_it_does(name: str) -> None:
    """Tests that each room opens with what comes in, what goes out, and what is simplified."""
    text = ast.get_docstring(ast.parse((ROOT / name / "__init__.py").read_text(encoding="utf-8"))) or ""
    for word in ("In:", "Out:", "Simplified:"):
        assert word in text, f"{name}/__init__.py lacks {word!r}"


def test_every_module_has_a_docstring() -> None:
    """Tests that no module is silent."""
    silent = [path for path in FILES if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))]
    assert not silent


def test_no_room_without_a_name_for_its_purpose() -> None:
    """Tests that nobody opened a drawer for everything."""
    names = {part.removesuffix(".py") for path in FILES for part in path.relative_to(ROOT).parts}
    assert not names & {"utils", "util", "helpers", "common", "manager", "base", "misc"}


@pytest.mark.parametrize("name", sorted({path.parent.name for path in FILES if path.parent.parent == ROOT / "papers"}))
def test_every_paper_has_a_readme(name: str) -> None:
    """Tests that each folder of papers says in a few lines what it is and how to repeat its numbers."""
    lines = (ROOT / "papers" / name / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert 5 <= len(lines) <= 20


LONG_FILES: set[str] = set()
"""May have more than 400 lines."""
MOST_FACE_LINES, MOST_LONG_FUNCTIONS, MOST_IMPORTED_ONCE = 120, 8, 92
"""Of the face; functions of more than 60 lines; modules with one importer. Whoever gets below writes the smaller number
here.
"""


@pytest.fixture(scope="module")
def modules() -> dict[str, Module]:
    return read_modules(ROOT.parent)


def test_sizes(modules: dict[str, Module]) -> None:
    """Tests that files and functions do not grow."""
    assert {module.name for module in modules.values() if module.lines > LONG_FILE} <= LONG_FILES
    assert modules["weftline"].lines <= MOST_FACE_LINES
    found = numbers(modules)
    assert found[f"functions over {LONG_FUNCTION} lines"] <= MOST_LONG_FUNCTIONS
    assert found[f"functions with more than {MANY_PARAMETERS} positional parameters"] == 0
    assert found["modules imported by exactly one other"] <= MOST_IMPORTED_ONCE


def test_no_class_name_has_two_meanings(modules: dict[str, Module]) -> None:
    """Tests that no two files define public classes of one name."""
    classes = Counter(node.name for node in walk_all(modules) if isinstance(node, ast.ClassDef))
    assert not [name for name, count in classes.items() if count > 1 and not name.startswith("_")]


def test_constants_say_what_they_are(modules: dict[str, Module]) -> None:
    """Tests that a number's name has two words at least; a solver's numbers are fields of its parameters."""
    assert one_word_constants(modules) == {}


@pytest.mark.parametrize("name", SLOW)
def test_slow_tests_are_there(name: str) -> None:
    """Tests that no name of a slow test is left over from one that has gone or moved."""
    file, _, function = name.partition("::")
    path = Path(__file__).parent / file
    assert path.exists()
    assert not function or f"def {function.partition('[')[0]}(" in path.read_text(encoding="utf-8")
