"""Tests of tables and Markdown: the numbers of the plan, names as plain text."""

from __future__ import annotations

from weftline.ask import make_plan
from weftline.cluster import Cluster
from weftline.graph import Op, Tensor, assemble
from weftline.plans import Plan
from weftline.problem import asked_rules, build_problem
from weftline.report import plan_markdown
from weftline.report.tables import comparison_rows, device_rows, stage_rows
from weftline.units import format_name, format_time


def _plan(objective: str) -> Plan:
    ops = [Op(f"op|{i}\n<b>", "MatMul", flops=10**9, traffic_bytes=10**6) for i in range(6)]
    tensors = [Tensor(f"t{i}", i, (i + 1,), 1000) for i in range(5)]
    graph = assemble("evil | name", ops, tensors)
    return make_plan(build_problem(graph, Cluster.preset("edge"), rules=asked_rules({"objective": objective})))


def test_comparison_holds_the_plan_every_baseline_and_the_bound() -> None:
    """Tests the rows and that ratios are against the plan."""
    plan = _plan("throughput")
    _, rows = comparison_rows(plan)
    assert rows[0][1:] == (format_time(plan.value_ns), "1.00x")
    assert {row[0] for row in rows[1:-1]} == set(plan.baselines)
    assert rows[-1][1] == format_time(plan.bound_ns)


def test_devices_and_stages_add_up() -> None:
    """Tests that every op is counted once, and stages name where they begin and end."""
    plan = _plan("throughput")
    assert sum(int(row[1]) for row in device_rows(plan)[1]) == 6
    stages = stage_rows(plan)[1]
    assert sum(int(row[2].split(":")[0]) for row in stages) == 6
    assert format_name("op|0\n<b>") in stages[0][2]


def test_markdown_escapes_names() -> None:
    """Tests that a name cannot add cells, lines or HTML."""
    text = plan_markdown(_plan("throughput"))
    assert "evil \\| name" in text
    assert "<b>" not in text
    tables = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in tables)
