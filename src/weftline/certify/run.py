"""Runs the checker in a process of its own, which imports neither solvers nor the simulator."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from weftline.certify.check import Verdict
from weftline.certify.check_fleet import FleetVerdict
from weftline.certify.check_schedule import ScheduleVerdict
from weftline.errors import InputError, VerificationError, no_such_file

__all__ = ["is_fleet", "is_schedule", "verify_bytes", "verify_file"]

SCHEDULE, FLEET = b'"weftline-schedule"', b'"weftline-fleet"'
HEAD_BYTES = 200
"""Bytes of a file that say what it is."""


def verify_bytes(data: bytes) -> Verdict | ScheduleVerdict | FleetVerdict:
    """The same for a plan that is not in a file yet."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_bytes(data)
        return verify_file(path)


def verify_file(path: Path | str) -> Verdict | ScheduleVerdict | FleetVerdict:
    """The verdict on a plan or schedule, or `InputError` (unreadable) or `VerificationError` (refused)."""
    if "\0" in str(path) or not Path(path).exists():
        raise no_such_file(path)
    schedule = is_schedule(Path(path))
    fleet = not schedule and is_fleet(Path(path))
    script = Path(__file__).with_name("check_schedule.py" if schedule else "check_fleet.py" if fleet else "check.py")
    done = subprocess.run(
        [sys.executable, "-I", str(script), str(path)],
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
    if fleet:
        return FleetVerdict(**fields)
    return ScheduleVerdict(**fields) if schedule else Verdict(**fields)


def is_schedule(path: Path) -> bool:
    """Whether a file says that it is a schedule; a plan otherwise."""
    return _says(path, SCHEDULE)


def is_fleet(path: Path) -> bool:
    """Whether a file says that it is a fleet plan."""
    return _says(path, FLEET)


def _says(path: Path, word: bytes) -> bool:
    try:
        if not path.is_file():  # whoever opens a pipe may wait for ever
            return False
        with path.open("rb") as file:
            return word in file.read(HEAD_BYTES)
    except (OSError, ValueError):
        return False
