"""Mutants of a module: one small change each, as a wrong programmer would make it.

In: source text. Out: the places that can be changed, and the text with one of them changed. Comparisons, signs, whole
numbers, and/or, not, min/max, returned values and calls that stand alone are changed; text, annotations and what
compilers of kernels read (decorators) are not.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass

__all__ = ["Mutant", "find_mutants", "mutated"]

SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.And: ast.Or,
    ast.Or: ast.And,
}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}
KERNELS = {"kernel", "part", "uncounted_part"}


@dataclass(frozen=True)
class Mutant:
    """One change."""

    number: int
    """Its place in the walk through the module."""
    line: int
    what: str
    function: str
    kernel: bool
    """Inside a function that numba compiles."""


def find_mutants(source: str) -> list[Mutant]:
    """All of a module, in order."""
    walk = _Walk(-1)
    walk.visit(ast.parse(source))
    return walk.found


def mutated(source: str, number: int) -> str:
    """The module with one change."""
    tree = ast.parse(source)
    _Walk(number).visit(tree)
    return ast.unparse(ast.fix_missing_locations(tree))


class _Walk(ast.NodeTransformer):
    """Counts places, and changes the one whose number is `target`."""

    def __init__(self, target: int) -> None:
        self.target, self.found = target, []  # type: int, list[Mutant]
        self._inside: list[tuple[str, bool]] = []

    def _hit(self, node: ast.AST, what: str) -> bool:
        if not self._inside:
            return False  # constants of the module: limits and tables
        name = ".".join(name for name, _ in self._inside)
        kernel = any(kernel for _, kernel in self._inside)
        self.found.append(Mutant(len(self.found), getattr(node, "lineno", 0), what, name, kernel))
        return len(self.found) - 1 == self.target

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        names = {d.id for d in node.decorator_list if isinstance(d, ast.Name)}
        self._inside.append((node.name, bool(names & KERNELS)))
        node.body = [kept for child in node.body if (kept := self.visit(child)) is not None] or [ast.Pass()]
        self._inside.pop()
        return node

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        if node.value is not None:
            node.value = self.visit(node.value)
        return node

    def visit_JoinedStr(self, node: ast.JoinedStr) -> ast.AST:
        return node

    def visit_Raise(self, node: ast.Raise) -> ast.AST:
        return node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:
        self.generic_visit(node)
        for i, op in enumerate(node.ops):
            other = SWAPS.get(type(op))
            if other is not None and self._hit(node, f"{type(op).__name__} -> {other.__name__}"):
                node.ops[i] = other()  # type: ignore[call-overload]
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        other = SWAPS.get(type(node.op))
        if other is not None and self._hit(node, f"{type(node.op).__name__} -> {other.__name__}"):
            node.op = other()  # type: ignore[assignment]
        return node

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.AST:
        self.generic_visit(node)
        other = SWAPS.get(type(node.op))
        if other is not None and self._hit(node, f"{type(node.op).__name__}= -> {other.__name__}="):
            node.op = other()  # type: ignore[assignment]
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:
        self.generic_visit(node)
        other = SWAPS[type(node.op)]
        if self._hit(node, f"{type(node.op).__name__} -> {other.__name__}"):
            node.op = other()  # type: ignore[assignment]
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.op, ast.Not) and self._hit(node, "not dropped"):
            return node.operand
        return node

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if type(node.value) is int:
            for step in (1, -1):
                if self._hit(node, f"{node.value} -> {node.value + step}"):
                    return ast.copy_location(ast.Constant(node.value + step), node)
        elif type(node.value) is bool and self._hit(node, f"{node.value} -> {not node.value}"):
            return ast.copy_location(ast.Constant(not node.value), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in NAMES:
            other = NAMES[node.func.id]
            if self._hit(node, f"{node.func.id} -> {other}"):
                node.func = ast.copy_location(ast.Name(other, ast.Load()), node.func)
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST:
        if isinstance(node.value, ast.Constant):
            return node  # a docstring
        self.generic_visit(node)
        if isinstance(node.value, ast.Call) and self._hit(node, "call dropped"):
            return ast.copy_location(ast.Pass(), node)
        return node

    def visit_Return(self, node: ast.Return) -> ast.AST:
        self.generic_visit(node)
        if node.value is not None and not isinstance(node.value, ast.Constant) and self._hit(node, "return None"):
            node.value = ast.copy_location(ast.Constant(None), node)
        return node
