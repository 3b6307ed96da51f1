"""Execute: run a plan or schedule for real and compare it with one process and with what was predicted.

In: a plan and its model file (`local_run`, `openvino_run`), or a `Timetable` and a model in stages, named by the user.
Out: how far outputs or gradients are from one process, measured and predicted times. Simplified: plans run on this
machine; schedules by torch on CPU with gloo, on processes of this machine, or torchrun's.
"""

from weftline.execute.torch_model import Layout, Shard, StageModel
from weftline.execute.torch_run import RankResult, RunResult, run_schedule, run_schedules

__all__ = ["Layout", "RankResult", "RunResult", "Shard", "StageModel", "run_schedule", "run_schedules"]
