"""Execute: run a schedule for real and compare it with one process and with the simulator.

In: a `Timetable` and a model in stages, named by the user. Out: `RunResult`: how far gradients are from one process,
losses, measured and simulated step times. Simplified: torch on CPU with gloo; processes of this machine, or torchrun's.
"""

from weftline.execute.torch_model import Layout, Shard, StageModel
from weftline.execute.torch_run import RankResult, RunResult, run_schedule, run_schedules

__all__ = ["Layout", "RankResult", "RunResult", "Shard", "StageModel", "run_schedule", "run_schedules"]
