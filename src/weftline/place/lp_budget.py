"""A linear program within what is left of a search's time, for heuristics that have something cheap to fall back on.

In: a Search and a Program. Out: the solution, or None where the program is too large or did not finish. With a work
limit the size alone decides, so that the answer does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Callable

from weftline.bounds.linear_program import Floats, Program, minimise
from weftline.search import Search

__all__ = ["Floats", "Program", "solve_within"]

SECONDS = 20.0
"""No program gets more, and none more than half of the time that is left."""
ROWS_WITHIN_WORK, ROWS_WITHIN_TIME = 12_000, 60_000
PLENTY = 600.0


def solve_within(search: Search, rows: int, make: Callable[[], Program]) -> Floats | None:
    """(columns,), or None. The program, of that many rows, is only made where it may be solved."""
    if search.work_limit is not None:
        return _solution(make(), PLENTY) if rows <= ROWS_WITHIN_WORK else None
    left = SECONDS if search.time_limit is None else min(SECONDS, (search.time_limit - search.seconds) / 2)
    return _solution(make(), left) if rows <= ROWS_WITHIN_TIME and left > 0 else None


def _solution(program: Program, seconds: float) -> Floats | None:
    solution = minimise(program, seconds=seconds).solution
    return solution if len(solution) else None
