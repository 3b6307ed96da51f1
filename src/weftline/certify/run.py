"""Runs the checker in a process of its own, which imports neither solvers nor the simulator."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from weftline.certify.check import Verdict
from weftline.certify.check_fit import FitVerdict
from weftline.certify.check_fleet import FleetVerdict
from weftline.certify.check_layers import LayersVerdict
from weftline.certify.check_schedule import ScheduleVerdict
from weftline.errors import InputError, VerificationError, no_such_file

__all__ = ["AnyVerdict", "is_fit", "is_fleet", "is_schedule", "verify_bytes", "verify_file"]

AnyVerdict = Verdict | ScheduleVerdict | FleetVerdict | LayersVerdict | FitVerdict

SCHEDULE, FLEETS = b'"weftline-schedule"', (b'"weftline-fleet"', b'"weftline-layer-plan"')
FIT_WORD = b'"weftline-fit"'
_KINDS: dict[bytes, Callable[..., AnyVerdict]] = {
    SCHEDULE: ScheduleVerdict,
    FLEETS[0]: FleetVerdict,
    FLEETS[1]: LayersVerdict,
    FIT_WORD: FitVerdict,
}
"""What a file says that it is -> what its checker answers; a plan otherwise."""
HEAD_BYTES = 200
"""Bytes of a file that say what it is."""


def verify_bytes(data: bytes) -> AnyVerdict:
    """The same for a plan that is not in a file yet."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_bytes(data)
        return verify_file(path)


def verify_file(path: Path | str) -> AnyVerdict:
    """The verdict on a plan or schedule, or `InputError` (unreadable) or `VerificationError` (refused)."""
    if "\0" in str(path) or not Path(path).exists():
        raise no_such_file(path)
    verdict = next((kind for word, kind in _KINDS.items() if _says(Path(path), word)), Verdict)
    done = subprocess.run(
        [sys.executable, "-I", str(Path(__file__).parent), str(path)],
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
        stdin=subprocess.DEVNULL,
    )
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise VerificationError(f"{path}: the checker failed: {done.stderr.strip()[-300:]}") from None
    if done.returncode == 3:
        raise InputError(answer["message"], where=str(path))
    if done.returncode != 0:
        raise VerificationError(f"{path}: {answer['message']}")
    fields = {**answer, "checks": tuple(answer["checks"])}
    del fields["ok"]
    return verdict(**fields)


def is_schedule(path: Path) -> bool:
    """Whether a file says that it is a schedule; a plan otherwise."""
    return _says(path, SCHEDULE)


def is_fleet(path: Path) -> bool:
    """Whether a file says that it is a fleet plan, of ops or of layers."""
    return any(_says(path, word) for word in FLEETS)


def is_fit(path: Path) -> bool:
    """Whether a file says that it is a plan of a language model on cards."""
    return _says(path, FIT_WORD)


def _says(path: Path, word: bytes) -> bool:
    try:
        if not path.is_file():  # whoever opens a pipe may wait for ever
            return False
        with path.open("rb") as file:
            return word in file.read(HEAD_BYTES)
    except (OSError, ValueError):
        return False
