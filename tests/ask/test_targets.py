"""Tests that the engine which a plan is for implies what it needs, and that the plan can then be exported to it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import weftline as wl
from weftline.ask.request import PlanRequest
from weftline.errors import UsageError

BOX = {"gpus": ("RTX 4090", "RTX 3060 12GB"), "cpus": ("DDR5-6000",), "ram": "64GB"}


def test_a_target_implies_what_it_needs() -> None:
    """Tests layers, objective, CPUs and copies, and that what was said stays."""
    asked = PlanRequest(model="zoo:bert:small", cluster="laptop", target="vllm")
    assert (asked.keep, asked.objective, asked.without, asked.copies) == ("layers", "throughput", ("cpus",), 1)
    asked = PlanRequest(model="zoo:bert:small", cluster="laptop", target="llamacpp", stages=2, without=("memory",))
    assert (asked.objective, asked.without, asked.copies) == ("throughput", ("memory",), None)
    asked = PlanRequest(model="zoo:bert:small", cluster="laptop", target="accelerate", objective="latency")
    assert (asked.keep, asked.objective, asked.without) == ("layers", "latency", ())
    assert PlanRequest(model="zoo:bert:small", cluster="laptop").keep == ""


def test_what_contradicts_a_target() -> None:
    """Tests an unknown target, and the latency of layers in a row."""
    with pytest.raises(UsageError, match="no target"):
        PlanRequest(model="zoo:bert:small", cluster="laptop", target="ollama")
    with pytest.raises(UsageError, match="leave --objective latency out"):
        PlanRequest(model="zoo:bert:small", cluster="laptop", target="megatron", objective="latency")


@pytest.mark.parametrize("target", ["vllm", "megatron", "llamacpp", "accelerate"])
def test_a_plan_for_a_target_is_exported_to_it(target: str, tmp_path: Path) -> None:
    """Tests that no pins and no `together` by hand are needed between a model and the files of an engine."""
    given: dict[str, Any] = {**BOX, "target": target}
    plan = wl.plan("zoo:bert:small", copies=None if target == "accelerate" else 1, time_limit="2s", proof=0, **given)
    written = wl.export(plan, target, tmp_path / target)
    assert written
    assert all(path.stat().st_size for path in written)
