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

from weftline.arguments import a_function, a_path, a_share, a_text, a_whole_number, seconds, several

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
    gap: float | str | None = None,
    time_limit: float | str | None = None,
    work_limit: int | None = None,
    jobs: int | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    on_row: Callable[[Row, int, int], None] | None = None,
) -> PlanSweep:
    """Plan every combination in parallel, into a folder that keeps what is finished; started again, it goes on.

    Models are files or `zoo:NAME:SIZE`, clusters are files or presets; solvers are names, those that you registered in
    this process (`weftline.latency.solvers()[name] = solver`) are unknown to the processes that plan. The limits
    are for each search. An error of one
    question is a row. `on_row` hears each new row, how many are finished, and how many are asked.
    """
    from weftline.ask.request import GridRequest
    from weftline.grid.grid import sweep_plans

    wanted = GridRequest(
        models=several(models, "models", _file, '("bert.onnx", "zoo:bert")'),
        clusters=several(clusters, "clusters", _file, '("laptop", "box.toml")'),
        objectives=several(objectives, "objectives", a_text, '("latency",)'),
        stages=several(stages, "stages", _number, "(1, 2, 4)"),
        solvers=several(solvers, "solvers", a_text, '("auto", "heft")'),
        seeds=several(seeds, "seeds", _number, "(0, 1)"),
        gap=a_share(gap),
        time_limit=seconds(time_limit),
        work_limit=None if work_limit is None else _number(work_limit, "work_limit"),
    )
    return sweep_plans(
        wanted,
        a_path(folder, "folder"),
        jobs=None if jobs is None else _number(jobs, "jobs"),
        engine=a_text(engine, "engine"),
        address=None if address is None else a_text(address, "address"),
        on_row=a_function(on_row, "on_row"),
    )


def _file(value: object, name: str) -> str:
    return str(a_path(value, name))


def _number(value: object, name: str) -> int:
    return a_whole_number(value, name, 0, 2**62)
