"""Numbers of the house: how many files, how long, how they lean on each other. For before and after a move.

`python tests/house_numbers.py [SRC_DIR]`; SRC_DIR is the folder that holds the package, `src` unless told.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

PACKAGE = "weftline"
SENTINELS = f"{PACKAGE}.simulate.sentinels"
LONG_FUNCTION, LONG_FILE, MANY_PARAMETERS = 60, 400, 8
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One file."""

    name: str
    is_package: bool
    lines: int
    tree: ast.Module


def read_modules(source: Path) -> dict[str, Module]:
    """Dotted name -> module, of every file of the package."""
    found = {}
    for path in sorted((source / PACKAGE).rglob("*.py")):
        parts = path.relative_to(source).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        text = path.read_text(encoding="utf-8")
        found[name] = Module(name, parts[-1] == "__init__", len(text.splitlines()), ast.parse(text))
    return found


def imported(module: Module, modules: dict[str, Module]) -> set[str]:
    """Modules that a file imports anywhere; `from a import b` is a.b where that is a module, otherwise a."""
    names: set[str] = set()
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:  # relative: from the package of this file, or one above it for every further dot
                parts = module.name.split(".")
                kept = parts[: len(parts) - node.level + module.is_package]
                base = ".".join([*kept, *([node.module] if node.module else [])])
            whole = {f"{base}.{alias.name}" for alias in node.names}
            names |= {name if name in modules else base for name in whole}
    return {name for name in names if name in modules and name != module.name}


def imported_once(modules: dict[str, Module]) -> list[str]:
    """Modules that exactly one other imports. Packages, `__main__` and what the checkers are made of do not count."""
    users: dict[str, set[str]] = defaultdict(set)
    for module in modules.values():
        for name in imported(module, modules):
            users[name].add(module.name)
    names = [m.name for m in modules.values() if not m.is_package and not m.name.endswith("__main__")]
    plain = [name for name in names if not name.startswith("weftline.certify.")]
    return [name for name in plain if len(users[name]) == 1]


def is_number(node: ast.expr | None) -> bool:
    """A number literal, or an expression of them."""
    if isinstance(node, ast.UnaryOp):
        return is_number(node.operand)
    if isinstance(node, ast.BinOp):
        return is_number(node.left) and is_number(node.right)
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool)


def pairs(target: ast.expr, value: ast.expr | None) -> Iterator[tuple[str, ast.expr | None]]:
    """Names and what each gets, also of `A, B = 1, 2`."""
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple) and len(target.elts) == len(value.elts):
        for one, other in zip(target.elts, value.elts, strict=True):
            yield from pairs(one, other)


def numeric_constants(module: Module) -> list[str]:
    """Uppercase names that module-level code gives a number, once for every definition."""
    found: list[str] = []
    for node in module.tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        named = [pair for target in targets for pair in pairs(target, value)]
        found += [name for name, number in named if name.isupper() and is_number(number)]
    return found


def one_word_constants(modules: dict[str, Module]) -> dict[str, list[str]]:
    """Module -> its constants of one word; the module of sentinels, which is the one place for them, aside."""
    others = (module for module in modules.values() if module.name != SENTINELS)
    found = {module.name: [name for name in numeric_constants(module) if "_" not in name] for module in others}
    return {name: words for name, words in found.items() if words}


def walk_all(modules: dict[str, Module]) -> Iterator[ast.AST]:
    """Every node of every file."""
    for module in modules.values():
        yield from ast.walk(module.tree)


def numbers(modules: dict[str, Module]) -> dict[str, float]:
    """The table."""
    lines = [module.lines for module in modules.values()]
    functions = [node for node in walk_all(modules) if isinstance(node, Function)]
    classes = Counter(node.name for node in walk_all(modules) if isinstance(node, ast.ClassDef))
    constants = [name for module in modules.values() for name in numeric_constants(module)]
    positional = [len(function.args.posonlyargs) + len(function.args.args) for function in functions]
    lengths = [(function.end_lineno or function.lineno) - function.lineno + 1 for function in functions]
    return {
        "files": len(lines),
        "lines": sum(lines),
        "median lines of a file": median(lines),
        f"files over {LONG_FILE} lines": sum(count > LONG_FILE for count in lines),
        "modules imported by exactly one other": len(imported_once(modules)),
        f"functions over {LONG_FUNCTION} lines": sum(length > LONG_FUNCTION for length in lengths),
        f"functions with more than {MANY_PARAMETERS} positional parameters": sum(
            n > MANY_PARAMETERS for n in positional
        ),
        "numeric constants of modules": len(constants),
        "numeric constants of one word": sum(map(len, one_word_constants(modules).values())),
        "public class names defined more than once": sum(
            count > 1 and not name.startswith("_") for name, count in classes.items()
        ),
    }


def main(arguments: list[str]) -> int:
    """Print the table."""
    source = Path(arguments[0]) if arguments else Path(__file__).parents[1] / "src"
    modules = read_modules(source)
    if not modules:
        sys.stderr.write(f"{source} holds no package {PACKAGE}\n")
        return 2
    for name, number in numbers(modules).items():
        sys.stdout.write(f"{name:<52}{number:>8g}\n" if number < 10**5 else f"{name:<52}{number:>8.0f}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
