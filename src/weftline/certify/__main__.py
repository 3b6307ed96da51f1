"""The checkers as a program: `python check.pyz FILE`, or `python -m weftline.certify FILE` (exit 0, 2, 3 or 6).

In: a plan, a schedule, a fleet plan or a plan of layers. Out: one JSON object. Simplified: the first bytes of the file
say what it is. As an archive, or as this folder copied to another machine, it runs where weftline is not installed:
then `weftline` and `weftline.certify` are two empty packages that stand for this folder.
"""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

if not __package__:
    here = Path(__file__).parent
    for name, folder in (("weftline", here.parent), ("weftline.certify", here)):
        sys.modules[name] = ModuleType(name)
        sys.modules[name].__path__ = [str(folder)]

from weftline.certify import check, check_fit, check_fleet, check_layers, check_schedule

KINDS = {
    b'"weftline-schedule"': check_schedule.main,
    b'"weftline-fleet"': check_fleet.main,
    b'"weftline-layer-plan"': check_layers.main,
    b'"weftline-fit"': check_fit.main,
}
"""What a file says that it is -> its checker; a plan otherwise."""
HEAD_BYTES = 200


def main(arguments: list[str]) -> int:
    """The checker of the kind of file that the only argument names."""
    if len(arguments) != 1:
        return check.main(arguments)
    head = _head_of(Path(arguments[0]))
    return next((checker for word, checker in KINDS.items() if word in head), check.main)(arguments)


def _head_of(path: Path) -> bytes:
    """Nothing where it cannot be read: the checker says why."""
    try:
        if not path.is_file():  # whoever opens a pipe may wait for ever
            return b""
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except (OSError, ValueError):
        return b""


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
