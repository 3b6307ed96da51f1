"""A plan or schedule for real, compared with one process and with what was predicted.

In: a plan and its model file, or a schedule and a model in stages. Out: how far outputs or gradients are from one
process, measured and predicted times. Simplified: plans run on this machine; schedules by torch on CPU with gloo, on
processes of this machine, or torchrun's.
"""

from typing import TYPE_CHECKING

from weftline.lazy import lazy_names

if TYPE_CHECKING:
    from weftline.run.result import RunResult
    from weftline.run.train.model import Layout, Shard, StageModel
    from weftline.run.train.run import RankResult, TrainRunResult, run_schedule, run_schedules

__all__ = [
    "Layout",
    "RankResult",
    "RunResult",
    "Shard",
    "StageModel",
    "TrainRunResult",
    "run_schedule",
    "run_schedules",
]

__getattr__ = lazy_names(
    __name__,
    {
        "Layout": "weftline.run.train.model",
        "RankResult": "weftline.run.train.run",
        "RunResult": "weftline.run.result",
        "Shard": "weftline.run.train.model",
        "StageModel": "weftline.run.train.model",
        "TrainRunResult": "weftline.run.train.run",
        "run_schedule": "weftline.run.train.run",
        "run_schedules": "weftline.run.train.run",
    },
)
