"""The engine ray of sweeps gives the plans of the engine local, byte for byte."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from weftline.ask.request import GridRequest
from weftline.errors import UsageError
from weftline.grid.grid import sweep_plans
from weftline.grid.job import Row

WANTED = GridRequest(
    models=("zoo:unet:small", "zoo:bert:small"),
    clusters=("laptop", "two-gpus", "edge"),
    objectives=("latency", "throughput"),
    stages=(2, 3),
    solvers=("greedy", "heft"),
    work_limit=10,
)


def _untimed(row: Row) -> Row:
    """Without how long it took, which is never the same."""
    return msgspec.structs.replace(row, took_seconds=None)


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_same_plans_by_both_engines(tmp_path: Path) -> None:
    """Tests 24 questions under a work limit: the same rows, and plans of the same bytes."""
    local = sweep_plans(WANTED, tmp_path / "local", jobs=2)
    by_ray = sweep_plans(WANTED, tmp_path / "ray", jobs=2, engine="ray")
    assert [_untimed(row) for row in local.rows] == [_untimed(row) for row in by_ray.rows]
    assert len(local.rows) == 24
    for row in local.rows:
        assert row.plan is not None
        assert (tmp_path / "local" / row.plan).read_bytes() == (tmp_path / "ray" / row.plan).read_bytes()


def test_engines(tmp_path: Path) -> None:
    """Tests that unknown engines and addresses without Ray are refused."""
    with pytest.raises(UsageError, match="local or ray, not 'dask'"):
        sweep_plans(WANTED, tmp_path, engine="dask")
    with pytest.raises(UsageError, match="an address is for the engine ray"):
        sweep_plans(WANTED, tmp_path, address="auto")
