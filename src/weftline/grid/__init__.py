"""Many plans in parallel, into a folder that keeps what is finished.

In: a grid of questions. Out: plans and a table. Simplified: each question is planned by itself.

The verb `sweep`: many plans in parallel.

In: lists of models, clusters and options. Out: a folder of plans, and their table. Simplified: one set of limits for
all questions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from weftline.grid.grid import PlanSweep
    from weftline.grid.job import Row

__all__ = ["sweep"]


def sweep(
    models: Sequence[Path | str],
    folder: Path | str,
    *,
    clusters: Sequence[Path | str] = (),
    objectives: Sequence[Literal["latency", "throughput"]] = ("latency",),
    stages: Sequence[int] = (),
    solvers: Sequence[str] = ("auto",),
    seeds: Sequence[int] = (0,),
    gap: float | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    jobs: int | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    on_row: Callable[[Row, int, int], None] | None = None,
) -> PlanSweep:
    """Plan every combination in parallel, into a folder that keeps what is finished; started again, it goes on.

    Models are files or `zoo:NAME:SIZE`, clusters are files or presets. The limits are for each search. An error of one
    question is a row. `on_row` hears each new row, how many are finished, and how many are asked.
    """
    from weftline.ask.request import GridRequest
    from weftline.grid.grid import sweep_plans

    wanted = GridRequest(
        models=tuple(map(str, models)),
        clusters=tuple(map(str, clusters)),
        objectives=tuple(objectives),
        stages=tuple(stages),
        solvers=tuple(solvers),
        seeds=tuple(seeds),
        gap=gap,
        time_limit=time_limit,
        work_limit=work_limit,
    )
    return sweep_plans(wanted, folder, jobs=jobs, engine=engine, address=address, on_row=on_row)
