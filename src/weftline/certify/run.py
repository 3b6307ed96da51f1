"""Runs the checker in a process of its own, which imports neither solvers nor the simulator."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from weftline.certify.check import Verdict
from weftline.errors import InputError, VerificationError

__all__ = ["verify_bytes", "verify_file"]


def verify_bytes(data: bytes) -> Verdict:
    """The same for a plan that is not in a file yet."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plan.json"
        path.write_bytes(data)
        return verify_file(path)


def verify_file(path: Path | str) -> Verdict:
    """The verdict, or `InputError` (unreadable) or `VerificationError` (refused)."""
    script = Path(__file__).with_name("check.py")
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
    return Verdict(answer["objective"], answer["value_ns"], answer["proved_bound_ns"], tuple(answer["checks"]))
