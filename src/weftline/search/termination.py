"""Why a search ended. Files hold the words."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["Termination"]


class Termination(StrEnum):
    """The stop rule that fired first."""

    NONE = ""
    """No rule has fired yet."""
    OPTIMAL = "optimal"
    """The value equals the bound."""
    GAP = "gap"
    """Value and bound are as close as was asked for."""
    TIME = "time"
    """The time limit."""
    WORK = "work"
    """The limit of candidates."""
    SETTLED = "settled"
    """Nobody set a limit, and nothing had become better for a while."""
    MEASUREMENTS = "measurements"
    """As many placements were measured as was asked for."""
    INTERRUPTED = "interrupted"
    """Ctrl-C: the best so far is the answer."""
    DONE = "done"
    """The solver had nothing more to try."""
    INFEASIBLE = "infeasible"
    """It was shown that nothing fits."""
    NOTHING_FOUND = "nothing found"
    """No answer, and nothing was shown."""

    @property
    def is_close(self) -> bool:
        """The answer is as good as was asked for."""
        return self in (Termination.OPTIMAL, Termination.GAP)
