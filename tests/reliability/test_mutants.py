"""Mutants that are called equivalent: each of them exists."""

from __future__ import annotations

from reliability.mutants import find_mutants
from reliability.mutation_equivalent import EQUIVALENT
from reliability.results_file import ROOT


def test_every_equivalent_mutant_is_one() -> None:
    """Tests that no entry has been left behind by an edit of its module."""
    names = set()
    for module in {name.split(":")[0] for name in EQUIVALENT}:
        text = (ROOT / "src" / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8")
        names |= {f"{module}:{mutant.line} {mutant.function}: {mutant.what}" for mutant in find_mutants(text)}
    gone = EQUIVALENT.keys() - names
    moved = {name: sorted(other for other in names if _place(other) == _place(name)) for name in gone}
    lines = [f"{name}\n    is now one of: {', '.join(others) or 'none, it is gone'}" for name, others in moved.items()]
    assert not moved, "\n".join(["lines have moved; write the new ones in reliability/mutation_equivalent.py:", *lines])


def _place(name: str) -> tuple[str, str]:
    """Module and change of a mutant, without its line."""
    where, _, what = name.partition(" ")
    return where.partition(":")[0], what
