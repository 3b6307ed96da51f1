"""Problem refuses parts that do not fit, and derives tables from those that do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from weftline.cluster import Device
from weftline.cost import CostTable
from weftline.errors import InputError
from weftline.graph import Op, Tensor, assemble
from weftline.problem import NO_LIMIT, Problem, Rules

PROBLEM = Problem(
    assemble("g", [Op("a"), Op("b"), Op("c")], [Tensor("t", 0, (1,))]),
    (Device("gpu", "gpu", 100, reserve=30), Device("cpu", "cpu", None, host=True)),
    CostTable(np.ones((3, 2), np.int64), np.zeros((1, 2, 2), np.int64), np.zeros(1, np.int32)),
    together=((0, 2),),
    buses=((0, 1, "usb"), (1, 0, "pcie")),
)


def test_derived_tables() -> None:
    """Tests that capacity, hosts, buses and groups are what kernels expect."""
    assert PROBLEM.capacity.tolist() == [70, NO_LIMIT]
    assert PROBLEM.host.tolist() == [False, True]
    assert PROBLEM.bus.tolist() == [[-1, 1], [0, -1]]
    assert PROBLEM.group.tolist() == [0, 1, 0]
    assert PROBLEM.device_index == {"gpu": 0, "cpu": 1}
    assert PROBLEM.stage_limit == 2
    assert PROBLEM.with_rules(Rules(stages=1)).stage_limit == 1


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"devices": PROBLEM.devices[:1]}, "the costs do not fit 3 ops, 1 tensors and 1 devices"),
        ({"devices": (PROBLEM.devices[0],) * 2}, "two devices have the same id"),
        ({"together": ((0, 3),)}, "together: must be disjoint sets of existing ops"),
        ({"together": ((-1, 0),)}, "together: must be disjoint"),
        ({"together": ((0, 1), (1, 2))}, "together: must be disjoint"),
        ({"together": ((1,),)}, "together: a set has two or more ops, ascending"),
        ({"together": ((2, 0),)}, "together: a set has two or more ops, ascending"),
        ({"buses": ((0, 2, "x"),)}, "buses: a bus refers to a device that does not exist"),
        ({"buses": ((0, 1, "x"), (0, 1, "y"))}, "buses: a link stands on two buses"),
        ({"rules": Rules(stages=3)}, "rules.stages: stages = 3 does not fit 2 devices"),
        ({"rules": Rules(stages=-1)}, "rules.stages: stages = -1"),
    ],
)
def test_parts_that_do_not_fit(change: dict[str, Any], complaint: str) -> None:
    """Tests that each misfit is named."""
    with pytest.raises(InputError) as error:
        replace(PROBLEM, **change)
    assert complaint in str(error.value)
