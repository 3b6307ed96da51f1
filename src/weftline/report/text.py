"""Names come from files: what a terminal would obey is shown, not sent."""

from __future__ import annotations

__all__ = ["printable"]


def printable(text: str) -> str:
    """The text with control characters (all but line breaks) written as escapes."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else c.encode("unicode_escape").decode() for c in text)
