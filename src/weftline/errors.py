"""Everything that weftline raises on purpose.

WeftlineError                  exit code
├── UsageError                     2   the call itself makes no sense (unknown solver, contradictory options)
├── InputError                     3   a file or a value from outside is wrong: what, where, what to try
├── InfeasibleError                4   no plan can satisfy the limits, or this solver found none; with what conflicts
├── LimitReached                   5   time or work ran out before the asked gap
├── VerificationError              6   a plan does not hold what it says
├── ExecutionMismatch              7   a real run differs from the plan
└── MissingExtra                   2   an optional dependency is not installed

And `near`, for the words of a message; `no_such_file` and `unreadable`, the errors about files that cannot be read.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from pathlib import Path

__all__ = [
    "ExecutionMismatch",
    "InfeasibleError",
    "InputError",
    "LimitReached",
    "MissingExtra",
    "UsageError",
    "VerificationError",
    "WeftlineError",
    "near",
    "no_such_file",
    "unreadable",
]


class WeftlineError(Exception):
    """Root of the tree; `exit_code` is what the command line returns."""

    exit_code = 1


class UsageError(WeftlineError):
    """The call itself makes no sense."""

    exit_code = 2


class InputError(WeftlineError):
    """Something that came from outside is wrong.

    `what` says what is wrong, `where` the file and the place in it, `hint` what to try.
    """

    exit_code = 3
    most_letters = 2000
    """Of each part of the message: what is quoted from a file may be as long as the file."""

    def __init__(self, what: str, *, where: str = "", hint: str = "") -> None:
        what, where, hint = (_cut(text, self.most_letters) for text in (what, where, hint))
        self.what, self.where, self.hint = what, where, hint
        message = f"{where}: {what}" if where else what
        super().__init__(f"{message} ({hint})" if hint else message)

    def at(self, place: str) -> InputError:
        """The same error, seen from further outside: `place` is put before `where`."""
        where = f"{place}: {self.where}" if self.where else place
        return InputError(self.what, where=where, hint=self.hint)


class InfeasibleError(WeftlineError):
    """No plan satisfies the limits (`proved`), or a solver found none."""

    exit_code = 4

    def __init__(self, what: str, *, conflicts: tuple[str, ...] = (), proved: bool = False) -> None:
        self.what, self.conflicts, self.proved = what, conflicts, proved
        super().__init__("\n  - ".join((what, *conflicts)))


class LimitReached(WeftlineError):
    """Time or work ran out before the asked gap was reached; the best plan so far is kept."""

    exit_code = 5


class VerificationError(WeftlineError):
    """A plan does not hold what it says."""

    exit_code = 6


class ExecutionMismatch(WeftlineError):
    """A real run differs from what the plan says."""

    exit_code = 7


class MissingExtra(WeftlineError):
    """An optional dependency is not installed."""

    exit_code = 2

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(f"{package} is not installed. Try: pip install 'weftline[{extra}]'")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}..."


LEAST_LIKENESS = 0.7
"""Of two words, 1 for the same: below it a guess confuses more than it helps (llama is no flava)."""


def near(word: str, known: Iterable[str]) -> str:
    """The end of a sentence about an unknown word: a guess at the known one that was meant, or nothing."""
    from difflib import get_close_matches

    found = get_close_matches(word[:100], list(known), n=1, cutoff=LEAST_LIKENESS)
    return f", did you mean {found[0]!r}?" if found else ""


_MOST_NAMES, _SHOWN_NAMES = 1000, 3
"""Of a folder: names that are looked at, and names that are shown."""


def no_such_file(path: Path | str, *, hint: str = "") -> InputError:
    """The one error about a file that is not there: it names files beside it that may have been meant."""
    path = Path(path)
    try:
        beside = sorted(entry.name for entry in islice(path.parent.iterdir(), _MOST_NAMES) if entry.is_file())
    except (OSError, ValueError):
        beside = []
    guess = near(path.name, beside)
    alike = [name for name in beside if path.suffix and name.endswith(path.suffix)]
    if alike and not guess:
        more = ", ..." if len(alike) > _SHOWN_NAMES else ""
        hint = "; ".join(filter(None, (f"there is {', '.join(alike[:_SHOWN_NAMES])}{more}", hint)))
    return InputError(f"no such file{guess}", where=str(path), hint=hint)


def unreadable(path: Path | str, error: Exception) -> InputError:
    """What to raise where a file could not be read because of `error`."""
    if isinstance(error, FileNotFoundError):
        return no_such_file(path)
    return InputError(f"cannot be read: {getattr(error, 'strerror', '') or error}", where=str(path))
