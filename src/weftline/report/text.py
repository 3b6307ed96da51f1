"""Whole texts for a terminal: what it would obey is shown, not sent."""

from __future__ import annotations

from weftline.units import format_name

__all__ = ["printable"]


def printable(text: str) -> str:
    """Several lines that may hold names from files."""
    return format_name(text, keep="\n")
