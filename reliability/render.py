"""docs/reliability.md from the results."""

from __future__ import annotations

from pathlib import Path

__all__ = ["render"]


def render(folder: Path) -> str:
    """The page."""
    return f"{folder}"
