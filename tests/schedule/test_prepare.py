"""Tests of preparing: the kernels that it loads are all that a search calls."""

from __future__ import annotations

import json
import subprocess
import sys

SCRIPT = """
import json, sys
from numba.core.registry import CPUDispatcher
from weftline.schedule import ScheduleSearch, prepare, schedulers
from weftline.schedule.make_blocks import make_shape

def loaded():
    modules = [vars(m).values() for name, m in list(sys.modules.items()) if name.startswith("weftline")]
    kernels = {v for values in modules for v in list(values) if isinstance(v, CPUDispatcher)}
    return {f"{k.py_func.__module__}.{k.py_func.__name__}": len(k.signatures) for k in kernels if k.signatures}

prepare()
before = loaded()
for name in ("auto", "cyclic", "sequence", "list"):
    for limits in ({"time_limit": 1.0}, {"work_limit": 40}):
        blocks = make_shape("kshape", 4).with_memory(6)
        schedulers()[name].solve(ScheduleSearch(blocks, 8, wants_period=True, **limits))
print(json.dumps([before, loaded()]))
"""


def test_a_search_compiles_nothing_more() -> None:
    """Tests that after preparing no method compiles or loads a kernel while its clock runs."""
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, timeout=600, check=True)
    before, after = json.loads(done.stdout)
    assert "weftline.schedule.cyclic.anneal._anneal" in before
    assert "weftline.schedule.sequence.kernel.anneal_sequences" in before
    assert before == after
