"""The one path from a question to an answer.

In: a Problem or Blocks, and the name of a solver. Out: a `Plan` or `Schedule` with value, bound, gap, proof and
baselines, or a `Sweep` over numbers of stages (a `DeviceSweep` over devices of the whole
cluster). Simplified: baselines use the same simulator, without a search of their
own.
"""

from typing import TYPE_CHECKING

from weftline.lazy import lazy_names

if TYPE_CHECKING:
    from weftline.ask.device_sweep import DeviceCount, DeviceSweep, sweep_devices
    from weftline.ask.fleets import make_fleet
    from weftline.ask.planning import make_plan
    from weftline.ask.stage_counts import StageProblems, stage_problems
    from weftline.ask.stages import Sweep, SweepRow, sweep_stages

__all__ = [
    "DeviceCount",
    "DeviceSweep",
    "StageProblems",
    "Sweep",
    "SweepRow",
    "make_fleet",
    "make_plan",
    "stage_problems",
    "sweep_devices",
    "sweep_stages",
]

__getattr__ = lazy_names(
    __name__,
    {
        "DeviceCount": "weftline.ask.device_sweep",
        "DeviceSweep": "weftline.ask.device_sweep",
        "StageProblems": "weftline.ask.stage_counts",
        "Sweep": "weftline.ask.stages",
        "SweepRow": "weftline.ask.stages",
        "make_fleet": "weftline.ask.fleets",
        "make_plan": "weftline.ask.planning",
        "stage_problems": "weftline.ask.stage_counts",
        "sweep_devices": "weftline.ask.device_sweep",
        "sweep_stages": "weftline.ask.stages",
    },
)
