"""What all tests share: Ctrl-C means the same however they were started, and which tests are slow.

A test is slow if it starts child processes, a browser or torch, builds a package, or searches for more than about ten
seconds. `make test` leaves them out, `make test-slow` runs them alone. Use `pytest.mark.slow`, or name them here.
"""

from __future__ import annotations

import signal

import pytest

signal.signal(signal.SIGINT, signal.default_int_handler)  # `nohup` and `&` have it ignored, here and in every child

SLOW = (
    "benchmarks/test_benchmark_run.py::test_tiny_run_writes_results_and_page",
    "benchmarks/test_fleet_sections.py::test_serving_of_helix",
    "benchmarks/test_measured_section.py",
    "benchmarks/test_models_section.py::test_a_process_that_takes_too_long_is_one_row",
    "benchmarks/test_models_section.py::test_tiny_run",
    "benchmarks/test_schedules_section.py::test_tiny_runs",
    "benchmarks/test_steps_section.py",
    "bounds/test_bounds.py::test_priced_bounds_hold",
    "certify/test_check.py::test_plans_of_random_problems_hold",
    "certify/test_layer_mutants.py",
    "conformance/test_fleet_solvers.py::test_layers_conform",
    "conformance/test_placement_solvers.py::test_conforms[moirai-milp",
    "docs/test_documents.py::test_page_runs",
    "docs/test_extension.py",
    "docs/test_site.py",
    "e2e/",
    "examples/",
    "fleet/test_serving.py::test_lanes_that_cross_break_convoys_up",
    "fleet/test_serving.py::test_requests_that_arrive_as_they_do_there",
    "fleet/test_serving.py::test_the_ranking_of_eight_layouts",
    "grid/",
    "importers/test_torch_live.py",
    "importers/test_torch_open.py",
    "latency/test_hub_search.py::test_blocks_that_are_annealed_again_are_never_longer",
    "latency/test_hub_search.py::test_cases_raise_the_bound_of_the_chain",
    "latency/test_decompose.py::test_blocks_are_annealed_as_long_as_cp_sat_took",
    "latency/test_spans.py::test_hub_bound_holds",
    "latency/test_policy_network.py::test_torch_and_numpy_agree",
    "measure/",
    "package/",
    "papers/test_checkpoints.py::test_killed_training_resumes_to_the_same_bytes",
    "papers/test_learned_conformance.py",
    "pipeline/test_exact.py::test_agrees_with_brute_force",
    "pipeline/test_superblocks.py::test_never_above_the_optimum",
    "reliability/test_fuzz.py::test_a_slice",
    "reliability/test_sections.py",
    "report/test_html.py::test_a_large_graph_with_long_names_stays_below_the_limit",
    "report/test_html.py::test_a_page_that_is_too_large_gets_less_room",
    "run/test_fleet_run.py",
    "run/test_kills.py",
    "run/test_local_engine.py",
    "run/test_local_run.py",
    "run/test_local_watch.py",
    "run/test_open_shapes.py",
    "run/test_openvino_reward.py",
    "run/test_openvino_run.py",
    "run/test_plan_torch.py",
    "run/test_split_light.py",
    "run/test_torch_run.py",
    "run/test_weights.py",
    "ui/test_server.py",
    "ui/test_work.py",
    "zoo/test_synthetic.py::test_hundred_thousand_ops",
)
"""Beginnings of the names of slow tests, from the folder of this file."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the slow ones."""
    for item in items:
        if item.nodeid.removeprefix("tests/").startswith(SLOW):
            item.add_marker(pytest.mark.slow)
