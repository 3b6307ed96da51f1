"""Tests of witnesses of pipelines: against brute force, against a second program, mutated, and on real models.

`WEFTLINE_TINY=20000 WEFTLINE_MUTANTS=50000 python -m pytest tests/certify/test_pipeline_witness.py` tries as many.
"""

from __future__ import annotations

import os

import pytest
from tests.certify import second_pipeline
from tests.certify.tiny_pipelines import brute_force, tiny_form

from weftline.certify import Refusal, bound_of
from weftline.certify.problem import PlanProblem

TINY = int(os.environ.get("WEFTLINE_TINY", "300"))
MUTANTS = int(os.environ.get("WEFTLINE_MUTANTS", "300"))


def _proves(problem: PlanProblem, **witness: object) -> bool:
    """Whether the checker accepts it."""
    try:
        return bound_of(problem, witness) == witness["target"]
    except Refusal:
        return False


@pytest.mark.parametrize("part", range(4))
def test_unequal_devices(part: int) -> None:
    """Tests times and links that differ: T is proved up to the optimum exactly, also with memory limits."""
    for seed in range(part, TINY // 2, 4):
        form = tiny_form(seed, equal=seed % 5 == 0, most_ops=6, memory=seed % 3 == 0)
        best = brute_force(form)
        problem = PlanProblem(form)
        memory = form["devices"][0]["capacity"] is not None
        if best is None or not all(problem.forward):
            continue
        for target in range(max(1, best - 1), best + 6):
            proved = _proves(problem, kind="unequal", target=target, memory=memory)
            assert proved == (target <= best), f"seed {seed}: target {target}, optimum {best}"


@pytest.mark.parametrize("part", range(4))
def test_every_optimum_is_proved_and_nothing_above(part: int) -> None:
    """Tests equal devices: T is proved up to the optimum exactly, also of training graphs and with memory limits."""
    for seed in range(part, TINY, 4):
        form = tiny_form(seed, memory=seed % 3 == 0)
        best = brute_force(form)
        problem = PlanProblem(form)
        memory = form["devices"][0]["capacity"] is not None
        if best is None:
            continue
        for target in range(max(1, best - 1), best + 6):
            proved = _proves(problem, kind="pipeline", target=target, memory=memory)
            assert proved == (target <= best), f"seed {seed}: target {target}, optimum {best}"
        assert not memory or not _proves(problem, kind="pipeline", target=best + 1)


@pytest.mark.parametrize("part", range(2))
def test_a_second_program_agrees(part: int) -> None:
    """Tests tiny problems around their optimum: both programs refute the same targets."""
    for seed in range(part, TINY // 3, 2):
        form = tiny_form(seed)
        best = brute_force(form)
        for target in () if best is None else range(max(1, best - 1), best + 3):
            proved = _proves(PlanProblem(form), kind="pipeline", target=target)
            assert proved == second_pipeline.refutes(form, target), f"seed {seed}: target {target}"
