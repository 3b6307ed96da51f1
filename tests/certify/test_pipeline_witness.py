"""Tests of witnesses of pipelines: against brute force, against a second program, mutated, and on real models.

`WEFTLINE_TINY=20000 WEFTLINE_MUTANTS=50000 python -m pytest tests/certify/test_pipeline_witness.py` tries as many.
"""

from __future__ import annotations

import os
import random

import msgspec
import pytest
from benchmarks.measure import ROOT
from benchmarks.results import ResultsFile
from benchmarks.sections.paper import paper_instances
from tests.certify import second_pipeline
from tests.certify.tiny_pipelines import Json, brute_force, tiny_form

from weftline.certify import Refusal, bound_of
from weftline.certify.bound_unequal import UnequalGraph, twins
from weftline.certify.problem import PlanProblem
from weftline.problem.model import problem_to_file

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


SECOND_MODELS = os.environ.get("WEFTLINE_SECOND", "light shufflenet:8,unet:4").split(",")
"""Models and stages of the benchmark `proofs`; `all` for every row that was proved by all ideals."""


def test_a_second_program_agrees_on_benchmarks() -> None:
    """Tests certificates of the benchmark `proofs`: the other program accepts each, and not 1 % above the plan."""
    rows = ResultsFile(ROOT / "benchmarks" / "results").read()["proofs"]["rows"]
    models = paper_instances()
    chosen = [row for row in rows if row["kind"] == "equal devices" and row.get("witness") == "pipeline"]
    found = 0
    for row in chosen:
        name = f"{row['instance']}:{row['stages']}"
        if row["instance"] not in models or (SECOND_MODELS != ["all"] and name not in SECOND_MODELS):
            continue
        form = msgspec.to_builtins(problem_to_file(models[row["instance"]][1](row["stages"])))
        for target, expected in ((row["proved_ns"], True), (row["value_ns"] + 1 + row["value_ns"] // 100, False)):
            assert second_pipeline.refutes(form, target) == expected, (name, target)
            assert _proves(PlanProblem(form), kind="pipeline", target=target) == expected, (name, target)
        found += 1
    assert found == (len(chosen) if SECOND_MODELS == ["all"] else len(SECOND_MODELS))


def _in_kinds(form: Json, dice: random.Random) -> Json:
    """The same ops on four devices of two kinds; links depend on the kinds alone."""
    form["devices"] = [{"id": f"d{d}", "kind": "gpu", "capacity": None} for d in range(4)]
    form["time_rows"] = [[row[0], row[0], row[1], row[1]] for row in form["time_rows"]]
    rows = []
    for _ in form["transfer_rows"]:
        near, there, back = (dice.choice((0, 1, 2, 5)) for _ in range(3))
        between = {(0, 0): near, (1, 1): near, (0, 1): there, (1, 0): back}
        rows.append([0 if a == b else between[a // 2, b // 2] for a in range(4) for b in range(4)])
    form["transfer_rows"] = rows
    form["rules"]["stages"] = dice.choice((0, 3))
    return form


def test_kinds_of_devices() -> None:
    """Tests two kinds of two devices each, whose twins are used in one order: T is proved up to the optimum exactly."""
    for seed in range(TINY // 5):
        form = _in_kinds(tiny_form(seed, equal=False, most_ops=5), random.Random(seed))
        best, problem = brute_force(form), PlanProblem(form)
        if best is None or not all(problem.forward):
            continue
        for target in range(max(1, best - 1), best + 4):
            proved = _proves(problem, kind="unequal", target=target)
            assert proved == (target <= best), f"seed {seed}: target {target}, optimum {best}"


def test_the_first_of_two_twins_is_used_first() -> None:
    """Tests that devices count as alike only if times, memory and all links agree."""
    form = _in_kinds(tiny_form(1, equal=False), random.Random(1))
    form["rules"]["stages"] = 0

    def found(change: Json | None = None) -> list[int]:
        graph = UnequalGraph(PlanProblem({**form, **(change or {})}), memory=False)
        return twins(graph, [1, 1, 1, 2 if change and "devices" in change else 1])

    rows = [[*row[:1], 9, *row[2:]] for row in form["transfer_rows"]]
    times = [[row[0], row[0] + 1, *row[2:]] for row in form["time_rows"]]
    assert found() == [0, 1, 0, 4]
    assert found({"devices": form["devices"]}) == [0, 1, 0, 0]
    assert found({"transfer_rows": rows}) == [0, 0, 0, 4]
    assert found({"time_rows": times}) == [0, 0, 0, 4]
