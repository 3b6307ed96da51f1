"""A row that is measured in a process of its own, so that its peak memory is its own and a crash costs one row."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from benchmarks.planned import Row

__all__ = ["row_of_process"]

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 900.0
"""Seconds after which a process is ended, whatever its limit was."""


def row_of_process(module: str, kind: str, ops: int, seconds: float) -> Row:
    """What `python -m benchmarks.<module> KIND OPS SECONDS` prints as JSON."""
    command = [sys.executable, "-m", f"benchmarks.{module}", kind, str(ops), str(seconds)]
    failed: Row = {"ops": ops, "time_limit": seconds, "value_ns": None, "seconds": LONGEST}
    try:
        done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=LONGEST)
    except subprocess.TimeoutExpired:
        return {**failed, "note": f"ended after {LONGEST:.0f} s"}
    except subprocess.CalledProcessError as error:
        return {**failed, "note": f"crashed: exit status {error.returncode}"}
    row: Row = json.loads(done.stdout)
    return row
