"""Names of methods in words."""

from __future__ import annotations

import pytest

from weftline.plans.bound_words import PLAN_BOUNDS, SCHEDULE_BOUNDS, explain_bound, explain_schedule_bound, told_bound


@pytest.mark.parametrize(
    ("by", "method"),
    [
        ("path", "path"),
        ("exact (CP-SAT 9.15.6755)", "exact"),
        ("CP-SAT 9.15.6755", "CP-SAT"),
        ("guess(3) (CP-SAT 9.15.6755)", "guess"),
        ("bottleneck (CP-SAT 9.15.6755)", "bottleneck"),
        ("convex-set", "convex-set"),
    ],
)
def test_methods_of_plans(by: str, method: str) -> None:
    """Tests that versions and numbers do not matter."""
    assert explain_bound(by) == PLAN_BOUNDS[method]


@pytest.mark.parametrize(
    ("by", "method"),
    [
        ("load", "load"),
        ("load of device gpu0", "load of device"),
        ("memory of device a (b) 3", "memory of device"),
        ("all operations (CP-SAT 9.15.6755)", "all operations"),
    ],
)
def test_methods_of_schedules(by: str, method: str) -> None:
    """Tests the same for schedules, where devices are named too."""
    assert explain_schedule_bound(by) == SCHEDULE_BOUNDS[method]


def test_methods_of_others() -> None:
    """Tests that the method of a plug-in has its name alone."""
    assert told_bound("mine 2.0", explain_bound("mine 2.0")) == "mine 2.0"
    assert told_bound("path", "words") == "path: words"
