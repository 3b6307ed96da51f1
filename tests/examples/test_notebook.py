"""The notebook runs from its first cell to its last, and what it ends cells with shows itself as HTML."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "first-plan.ipynb"
SHOWN = 6
"""Cells that end with a value of ours."""


def run(source: str, names: dict[str, Any]) -> Any:
    """A cell as notebooks run it: the value of a last expression is what it shows."""
    tree = ast.parse(source)
    last = tree.body.pop()
    if not isinstance(last, ast.Expr):
        tree.body.append(last)
    exec(compile(tree, "cell", "exec"), names)
    return eval(compile(ast.Expression(last.value), "cell", "eval"), names) if isinstance(last, ast.Expr) else None


def test_the_notebook_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests every code cell in order, in one namespace; it is saved without outputs."""
    monkeypatch.chdir(tmp_path)
    book = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    names: dict[str, Any] = {"__name__": "__main__"}
    shown = 0
    for cell in (cell for cell in book["cells"] if cell["cell_type"] == "code"):
        assert cell["outputs"] == []
        value = run("".join(cell["source"]), names)
        if hasattr(value, "_repr_html_"):
            assert value._repr_html_().startswith("<div>")
            shown += 1
    assert shown == SHOWN
    assert (tmp_path / "schedule.svg").read_text().startswith("<svg")
    assert names["shuffled"].value_ns >= names["plan"].bound_ns
    whole = {device for op, device in names["pipeline"].placement.items() if "/h.0/" in op}
    assert len(whole) == 1
