"""Tests of layers on devices through the face."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import weftline as wl
from weftline.ask.layers import serve_plan
from weftline.certify import LayersVerdict
from weftline.plans.layers import LayerPlan
from weftline.problem.layers import DevicePool, LayerProblem, LayerUnit
from weftline.problem.serving import ServingRules, fixed_requests

PROFILE = """{"tiny": {"layers": 6, "avg_input": 100, "avg_output": 20, "kinds": {"d": {"max_layers": 3,
"kv_tokens_per_layer": [40000, 20000, 12000], "prompt_ms_per_layer": [[0, 0.0], [2000, 20.0]],
"decode_ms_per_layer": [[0, 0.0], [2, 1.0], [100, 4.0]], "prompt_max_requests": [4, 4, 4]}}}}"""


def _problem() -> Any:
    pool, unit = DevicePool("d", 6), LayerUnit("d", 0, (9_000_000, 5_000_000, 3_000_000))
    return LayerProblem("tiny", 6, (pool,), (unit,))


def test_a_problem_of_layers_is_planned_by_the_face() -> None:
    """Tests that `wl.plan` gives a plan of layers that the checker accepts, with a front over depth."""
    plan = wl.plan(_problem(), objective="throughput", work_limit=40)
    assert isinstance(plan, LayerPlan)
    assert plan.rate == plan.rate_bound == 10.0  # two devices with two layers each, three times
    assert [(point.depth, point.rate) for point in plan.front] == [(2, 9.0), (3, 10.0)]
    verdict = wl.verify(plan)
    assert isinstance(verdict, LayersVerdict)
    assert verdict.proved_rate == 10.0
    shallow = wl.plan(_problem(), objective="throughput", max_depth=2, work_limit=40)
    assert isinstance(shallow, LayerPlan)
    assert (shallow.rate, shallow.depth) == (9.0, 2)


def test_a_plan_of_layers_is_served(tmp_path: Path) -> None:
    """Tests that every point of the front is ranked and simulated, each at its own depth."""
    plan = wl.plan(_problem(), objective="throughput", work_limit=40)
    assert isinstance(plan, LayerPlan)
    path = tmp_path / "profiles.json"
    path.write_text(PROFILE)
    rules = ServingRules(warm_up_ns=10**9, duration_ns=10**10)
    rows = serve_plan(plan, path, requests=fixed_requests(20_000, 100, 20), rules=rules)
    assert [row.depth for row in rows] == [2, 3]
    assert all(row.run is not None and row.run.rate > 0 for row in rows)
