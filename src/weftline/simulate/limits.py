"""Which limits a costed decision breaks, in words. An empty answer means: this plan may be used."""

from __future__ import annotations

import numpy as np

from weftline.problem import Problem
from weftline.simulate.timeline import Loads, Timeline
from weftline.units import format_bytes

__all__ = ["violations"]


def violations(problem: Problem, result: Timeline | Loads) -> tuple[str, ...]:
    """Memory above the capacity, `together` sets torn apart. (What cannot run at all, the simulator refuses itself.)"""
    found = []
    for device, peak, capacity in zip(problem.devices, result.peak.tolist(), problem.capacity.tolist(), strict=True):
        if peak > capacity:
            found.append(f"device {device.id} needs {format_bytes(peak)} but holds {format_bytes(capacity)}")
    for members in problem.together:
        used = np.unique(result.placement[list(members)])
        if len(used) > 1:
            names = [problem.graph.ops[op].name for op in members[:4]]
            found.append(f"ops {names} must share a device but stand on {[problem.devices[d].id for d in used]}")
    return tuple(found)
