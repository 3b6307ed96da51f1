"""Writes the reference pages from the code: JSON Schemas of the files, the command line, the Python API.

In: the installed weftline. Out: docs/schemas/*.json and docs/reference/*.md, or with --check the list of files that are
not up to date and exit code 1. Simplified: a schema says what the decoder accepts by type; rules across fields (ranges,
sums, references) are checked when the file is read.

    python docs/make_reference.py [--check]
"""

from __future__ import annotations

import inspect
import json
import re
import sys
import types
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
SCHEMAS = {
    "plan": ("weftline.plans.plan", "Plan", "plan.json, `plan --json`"),
    "schedule": ("weftline.plans.schedule", "Schedule", "sched.json, `schedule --json`"),
    "problem": ("weftline.problem.model", "ProblemFile", "a problem: graph, devices, costs, limits"),
    "graph": ("weftline.graph", "Graph", "the graph inside a problem or a JSON graph"),
    "blocks": ("weftline.problem.blocks", "BlocksFile", "blocks.json"),
    "costs": ("weftline.cost.profile_file", "Profile", "costs.json of `weftline profile`"),
    "manifest": ("weftline.run.split.manifest", "Manifest", "manifest.json of `export --to onnx-stages`"),
    "router": ("weftline.export.router", "Router", "router.json of `export --to router`"),
    "sweep": ("weftline.grid.questions", "SweepFile", "sweep.toml"),
    "results": ("weftline.grid.job", "Row", "a line of results.jsonl"),
}
HEAD = "<!-- Written by docs/make_reference.py from the code. Do not edit. -->\n\n"


def schema_files() -> dict[str, str]:
    """File -> JSON Schema."""
    import msgspec

    found, rows = {}, ""
    for name, (module, struct, what) in SCHEMAS.items():
        kind = getattr(__import__(module, fromlist=[struct]), struct)
        schema = msgspec.json.schema(kind, schema_hook=lambda unknown: {"description": "anything"})
        title = {
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": f"weftline {name}",
            "$comment": what,
        }
        found[f"schemas/{name}.json"] = json.dumps({**title, **schema}, indent=2, sort_keys=True) + "\n"
        rows += f"| [{name}.json](../schemas/{name}.json) | {what} | {_first(kind.__doc__)} |\n"
    found["reference/schemas.md"] = (
        f"{HEAD}# JSON Schemas\n\nOf the files that weftline writes and reads, by type. What a field means stands in "
        f"[File formats](../formats.md).\nA file that fits its schema may still be refused: ranges, sums and "
        f"references are checked when it is read.\n\n| schema | of | |\n|---|---|---|\n{rows}"
    )
    return found


def cli_page() -> str:
    """Every verb with its own help."""
    import typer.main
    from typer.testing import CliRunner

    from weftline.cli.main import app

    runner, root = CliRunner(), typer.main.get_command(app)
    parts = [f"{HEAD}# Command line\n\nWhat `weftline --help` and `weftline VERB --help` print.\n"]

    def tell(words: list[str], command: Any) -> None:
        shown = runner.invoke(app, [*words, "--help"], prog_name="weftline", env={"NO_COLOR": "1", "COLUMNS": "110"})
        text = "\n".join(line.rstrip() for line in shown.output.strip("\n").splitlines())
        parts.append(f"## {' '.join(['weftline', *words])}\n\n```text\n{text}\n```\n")
        for name, inner in getattr(command, "commands", {}).items():
            tell([*words, name], inner)

    tell([], root)
    return "\n".join(parts)


def api_page() -> str:
    """Every public name of the facade, from its docstring and signature."""
    import weftline

    kinds: dict[str, list[str]] = {"Verbs": [], "Values": [], "Errors": []}
    for name in weftline.__all__:
        value = getattr(weftline, name)
        if name == "__version__":
            continue
        if isinstance(value, type):
            group = "Errors" if issubclass(value, Exception) else "Values"
            kinds[group].append(_class(name, value))
        else:
            kinds["Verbs"].append(_function(name, value))
    body = "\n".join(f"## {title}\n\n{''.join(entries)}" for title, entries in kinds.items())
    return f"{HEAD}# Python API\n\n{inspect.getdoc(weftline).split(chr(10))[0]}\n\n{body.rstrip()}\n"


def _function(name: str, value: Any) -> str:
    return f"### {name}\n\n```text\n{_signature(f'wl.{name}', value)}\n```\n\n{_doc(value)}\n\n"


def _class(name: str, value: type) -> str:
    lines = [f"### {name}\n\n{_doc(value)}\n\n"]
    fields = getattr(value, "__struct_fields__", None) or getattr(value, "__dataclass_fields__", ())
    if fields:
        lines.append(f"Fields: {', '.join(f'`{field}`' for field in fields if not field.startswith('_'))}.\n\n")
    for method, inner in sorted(vars(value).items()):
        plain = inner.__func__ if isinstance(inner, (classmethod, staticmethod)) else inner
        if method.startswith("_") or not isinstance(plain, (types.FunctionType, property)):
            continue
        if isinstance(plain, property):
            lines.append(f"- `.{method}`: {_first(plain.__doc__)}\n")
        else:
            lines.append(f"- `{_signature('.' + method, plain, short=True)}`: {_first(plain.__doc__)}\n")
    return "".join(lines).rstrip() + "\n\n"


def _signature(name: str, function: Any, *, short: bool = False) -> str:
    parameters = [p for p in inspect.signature(function).parameters.values() if p.name not in ("self", "cls")]
    words, star = [], False
    for p in parameters:
        if p.kind is p.KEYWORD_ONLY and not star:
            words.append("*")
            star = True
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else f" = {_default(p.default)}"
        words.append(stars + (p.name if short else f"{p.name}: {p.annotation}{default}"))
    returns = inspect.signature(function).return_annotation
    arrow = "" if short or returns is inspect.Signature.empty else f" -> {returns}"
    line = f"{name}({', '.join(words)}){arrow}"
    return line if short or len(line) <= 100 else f"{name}(\n    " + ",\n    ".join(words) + f",\n){arrow}"


def _default(value: object) -> str:
    return "{}" if isinstance(value, types.MappingProxyType) else repr(value)


def _doc(value: Any) -> str:
    return _plain(inspect.cleandoc(value.__doc__ or ""))


def _first(text: str | None) -> str:
    return _plain(inspect.cleandoc(text or "").split("\n\n")[0].replace("\n", " "))


def _plain(text: str) -> str:
    """Docstrings are text: nothing in them is a tag or a table."""
    return re.sub(r"<", "&lt;", text).replace("|", "\\|")


def design_page() -> str:
    """The titles of the design notes."""
    notes = sorted((DOCS / "design").glob("*.md"))
    titles = [(note.name, note.read_text(encoding="utf-8").splitlines()[0].removeprefix("# ")) for note in notes]
    rows = "\n".join(f"- [{title}](../design/{name})" for name, title in titles)
    return f"{HEAD}# Design notes\n\nWhy things are as they are: context, choice, cost.\n\n{rows}\n"


def pages() -> dict[str, str]:
    """Every generated file -> its text."""
    written = {"reference/cli.md": cli_page(), "reference/api.md": api_page(), "reference/design.md": design_page()}
    return {**schema_files(), **written}


def main() -> int:
    """Write, or with --check compare."""
    stale = []
    for name, text in pages().items():
        path = DOCS / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in sys.argv[1:]:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    print("\n".join(stale) or "up to date")
    return int(bool(stale) and "--check" in sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
