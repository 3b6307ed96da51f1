"""Sizes that are known only when the model runs.

In: numbers. Out: `Size`, an integer that is the largest possible value, or where nothing limits it a stand-in (then it
is `guessed`); arithmetic with it keeps that, so that whatever is computed from it can be asked too. A plain integer is
exact. Simplified: only sums, products and quotients keep an upper bound; differences and quotients by a `Size` are
guesses.
"""

from __future__ import annotations

from typing import Any

__all__ = ["Shape", "Size", "broadcast", "dynamic_axes", "is_guessed", "largest", "least", "rounded_up"]

Shape = tuple[int, ...]


class Size(int):
    """A number that is not exact."""

    guessed: bool
    """A stand-in, not even an upper bound."""
    symbol: str
    """Two sizes of one symbol are equal when the model runs; empty where nothing is known about that."""

    def __new__(cls, number: int, *, guessed: bool = False, symbol: str = "") -> Size:
        """A size of at most so much."""
        made = super().__new__(cls, number)
        made.guessed, made.symbol = guessed, symbol
        return made

    def __getnewargs_ex__(self) -> Any:
        """Copies keep what is known."""
        return (int(self),), {"guessed": self.guessed, "symbol": self.symbol}

    def __add__(self, other: int) -> Size:
        return self._with(int(self) + int(other), other, same=other == 0)

    __radd__ = __add__

    def __mul__(self, other: int) -> Size:
        return self._with(int(self) * int(other), other, same=other == 1)

    __rmul__ = __mul__

    def __sub__(self, other: int) -> Size:
        return self._with(int(self) - int(other), other, same=other == 0, shrinks=True)

    def __rsub__(self, other: int) -> Size:
        return Size(int(other) - int(self), guessed=True)

    def __floordiv__(self, other: int) -> Size:
        return self._with(int(self) // int(other), other, same=other == 1, shrinks=True)

    def __rfloordiv__(self, other: int) -> Size:
        return Size(int(other) // int(self), guessed=True)

    def __mod__(self, other: int) -> Size:
        return Size(int(self) % int(other), guessed=True)

    def __neg__(self) -> Size:
        return Size(-int(self), guessed=True)

    def _with(self, number: int, other: int, *, same: bool, shrinks: bool = False) -> Size:
        inexact = isinstance(other, Size)
        guessed = self.guessed or is_guessed(other) or (inexact and shrinks)
        return Size(number, guessed=guessed, symbol=self.symbol if same and not inexact else "")


def is_guessed(number: int) -> bool:
    """Does it rest on a stand-in?"""
    return isinstance(number, Size) and number.guessed


def dynamic_axes(shape: Shape) -> tuple[int, ...]:
    """The axes that are not exact."""
    return tuple(axis for axis, size in enumerate(shape) if isinstance(size, Size))


def largest(*sizes: int) -> int:
    """The largest of some sizes, exact if all of them are."""
    most = max(map(int, sizes))
    if not any(isinstance(size, Size) for size in sizes):
        return most
    symbols = {size.symbol if isinstance(size, Size) else "" for size in sizes}
    return Size(most, guessed=any(map(is_guessed, sizes)), symbol=symbols.pop() if len(symbols) == 1 else "")


def least(*sizes: int) -> int:
    """The least of some sizes; one that is no guess limits the others."""
    if not any(isinstance(size, Size) for size in sizes):
        return min(sizes)
    limits = [int(size) for size in sizes if not is_guessed(size)]
    number = min(limits) if limits else min(map(int, sizes))
    symbols = {size.symbol if isinstance(size, Size) else "" for size in sizes}
    return Size(number, guessed=not limits, symbol=symbols.pop() if len(symbols) == 1 else "")


def rounded_up(size: int, by: int) -> int:
    """A quotient, rounded up."""
    return (size + (by - 1)) // by


def broadcast(first: Shape, second: Shape) -> Shape:
    """The shape of two operands together; `ValueError` where they do not fit."""
    length = max(len(first), len(second))
    left = (1,) * (length - len(first)) + tuple(first)
    right = (1,) * (length - len(second)) + tuple(second)
    return tuple(_joined(a, b) for a, b in zip(left, right, strict=True))


def _joined(a: int, b: int) -> int:
    open_a, open_b = isinstance(a, Size), isinstance(b, Size)
    if not open_a and a == 1:
        return b
    if not open_b and b == 1:
        return a
    if open_a and open_b:
        return largest(a, b)
    if open_a or open_b:
        return b if open_a else a  # the other can only be this, or 1
    if a != b:
        raise ValueError(f"{a} and {b} do not fit")
    return a
