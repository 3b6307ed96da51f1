"""Same seed and work limit: the same bytes, in 20 processes with 5 seeds of Python's hashes.

In: how many runs. Out: a row per case with the number of runs and of different answers, which is 1.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from time import monotonic

from reliability.determinism_once import CASES
from reliability.results_file import ROOT, Results, Row

__all__ = ["determinism", "one_run"]

HASH_SEEDS = (0, 1, 42, 1234, 4294967295)


def determinism(results: Results, *, runs: int, cases: int | None = None, until: float | None = None) -> bool:
    """Every case in so many processes; the seeds of the hashes take turns."""
    chosen = CASES[:cases]
    rows: dict[str, Row] = {case: results.rows.get(case) or _empty() for case in chosen}
    for number in range(min(row["runs"] for row in rows.values()), runs):
        if until is not None and monotonic() > until:
            return False
        seed = HASH_SEEDS[number % len(HASH_SEEDS)]
        for case, digest in one_run(chosen, seed).items():
            row = rows[case]
            row["runs"] += 1
            row["hash_seeds"] = sorted({*row["hash_seeds"], seed})
            row["digests"] = sorted({*row["digests"], digest[:16]})
            row["failed"] = len(row["digests"]) - 1
            results.rows[case] = row
        results.save()
        print(f"determinism: run {number + 1} of {runs}", file=sys.stderr, flush=True)
    return True


def one_run(cases: tuple[str, ...], hash_seed: int) -> dict[str, str]:
    """Case -> digest, from a process of its own."""
    path = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-m", "reliability.determinism_once", *cases],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, str] = json.loads(done.stdout)
    return found


def _empty() -> Row:
    return {"runs": 0, "hash_seeds": [], "digests": [], "failed": 0}
