"""A plan or schedule for real, compared with one process and with what was predicted.

In: a plan and its model file, or a schedule and a model in stages. Out: how far outputs or gradients are from one
process, measured and predicted times. Simplified: plans run on this machine; schedules by torch on CPU with gloo, on
processes of this machine, or torchrun's.
"""

from weftline.run.train.model import Layout, Shard, StageModel
from weftline.run.train.run import RankResult, RunResult, run_schedule, run_schedules

__all__ = ["Layout", "RankResult", "RunResult", "Shard", "StageModel", "run_schedule", "run_schedules"]
