"""Tests that a page is only made of what holds."""

from __future__ import annotations

import msgspec
import pytest
from tests.report.page_samples import KINDS, plan_sample, sample, schedule_sample

from weftline.errors import VerificationError
from weftline.plans import Plan
from weftline.report.html import holds, report_html

PLAN, LARGE, SCHEDULE = plan_sample("throughput"), plan_sample("large"), schedule_sample()


@pytest.mark.parametrize("kind", KINDS)
def test_what_holds(kind: str) -> None:
    """Tests that all but the large plan are checked whole, and that the page says so."""
    assert holds(sample(kind)) == (kind != "large")
    assert (">verified<" in report_html(sample(kind)).decode()) == (kind != "large")


@pytest.mark.parametrize(
    "change",
    [
        {"value_ns": PLAN.value_ns + 1},
        {"bound_ns": PLAN.bound_ns + 1},
        {"devices": {}},
        {"devices": dict(reversed(PLAN.devices.items()))},
        {"stages": ()},
        {"stages": (msgspec.structs.replace(PLAN.stages[0], device="nobody"), *PLAN.stages[1:])},
        {"stages": (msgspec.structs.replace(PLAN.stages[0], load_ns=1), *PLAN.stages[1:])},
        {"baselines": {"x": -1}},
    ],
)
def test_what_does_not_hold(change: dict[str, object]) -> None:
    """Tests that a plan which says too much gets no page."""
    with pytest.raises(VerificationError):
        report_html(msgspec.structs.replace(PLAN, **change))


@pytest.mark.parametrize("change", [{"value_ns": 1}, {"devices": {}}, {"stages": PLAN.stages}])
def test_large_plans_are_compared_with_the_simulator(change: dict[str, object]) -> None:
    """Tests what is seen even where the checker would take too long."""
    assert isinstance(LARGE, Plan)
    with pytest.raises(VerificationError):
        holds(msgspec.structs.replace(LARGE, **change))


@pytest.mark.parametrize(
    "change", [{"makespan": 1}, {"peak_memory": (0, 0, 0, 0)}, {"memory_limit": (4,)}, {"bound": 10**6}]
)
def test_schedules(change: dict[str, object]) -> None:
    """Tests the same for schedules."""
    with pytest.raises(VerificationError):
        report_html(msgspec.structs.replace(SCHEDULE, **change))
