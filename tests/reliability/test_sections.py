"""The other measurements, in their smallest sizes, and what they must notice."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from reliability.agreement import Answers, instance, judge
from reliability.determinism_once import CASES, answer
from reliability.kills import kill_rounds
from reliability.kills_shared import full_disk, read_only, shared_profiles, shared_sweep
from reliability.mutants import find_mutants, mutated
from reliability.render import render
from reliability.results_file import Results

from reliability import agreement, determinism, mutation
from weftline.ask.questions import lower_bounds
from weftline.bounds import Bound
from weftline.problem import Problem

SOURCE = '''
LIMIT = 3

def first(a, b):
    """Text with 1 number."""
    check(a)
    return a + 1 if a < b and not b else max(a, b)

@kernel
def second(a):
    a -= 2
'''


def test_mutants_of_a_module() -> None:
    """Tests that every kind of change is found once, outside text and constants of the module."""
    found = find_mutants(SOURCE)
    changes = [mutant.what for mutant in found]
    expected = ["call dropped", "Lt -> LtE", "not dropped", "And -> Or", "1 -> 2", "1 -> 0", "Add -> Sub"]
    expected += ["max -> min", "return None", "2 -> 3", "2 -> 1", "Sub= -> Add="]
    assert sorted(changes) == sorted(expected)
    assert [mutant.function for mutant in found if mutant.kernel] == ["second"] * 3
    texts = {mutated(SOURCE, mutant.number) for mutant in found}
    assert len(texts) == len(found)
    assert mutated(SOURCE, -1) not in texts
    assert "a <= b" in mutated(SOURCE, changes.index("Lt -> LtE"))


def test_the_score_counts_what_survives() -> None:
    """Tests that survivors lower the score, that hanging mutants do not, and that the sample is always the same."""
    outcomes = ("killed", "killed", "timed out", "survived")
    rows = {str(i): {"room": "bounds", "outcome": outcome} for i, outcome in enumerate(outcomes)}
    found = mutation.score(rows, "bounds")
    assert (found["killed"], found["survived"], found["score"]) == (3, ["3"], 0.75)
    room = mutation.ROOMS[0]
    assert mutation.draw(room, 5) == mutation.draw(room, 9)[:5]


def test_bounds_above_values_are_seen() -> None:
    """Tests that a bound above a value, and a proof that nothing fits beside a plan, are violations."""
    assert not list(Answers({"a": 5}, {"b": 5}).broken())
    assert len(list(Answers({"a": 5, "c": 7}, {"b": 6}).broken())) == 1
    assert len(list(Answers({"a": 5}, {"b": 5}, ["c"]).broken())) == 1


@pytest.mark.parametrize("number", [0, 5, 7])
def test_solvers_agree(number: int) -> None:
    """Tests three of the problems, with presolve on and off where the number says so."""
    row = judge(instance(number), number)
    assert row["broken"] == []
    assert 20 <= row["ops"] <= 60
    assert row["answers"] > 0
    assert row["bound"] <= row["value"]
    assert row["presolve"] == (number in (0, 5))


def test_a_wrong_bound_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that bounds that are too high by half become violations."""

    def wrong(problem: Problem) -> list[Bound]:
        import dataclasses

        return [dataclasses.replace(bound, value=2 * bound.value) for bound in lower_bounds(problem)]

    monkeypatch.setattr(agreement, "lower_bounds", wrong)
    assert judge(instance(7), 7)["failed"] > 0


def test_same_bytes_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests one case in two processes with different hashes, and that different answers are counted."""
    monkeypatch.setattr(determinism, "CASES", ("throughput greedy",))
    results = Results("determinism", {}, folder=tmp_path)
    assert determinism.determinism(results, runs=2)
    row = results.rows["throughput greedy"]
    assert (row["runs"], row["failed"], len(row["hash_seeds"])) == (2, 0, 2)
    monkeypatch.setattr(determinism, "one_run", lambda cases, seed: dict.fromkeys(cases, "other"))
    assert determinism.determinism(results, runs=3)
    assert results.rows["throughput greedy"]["failed"] == 1


def test_every_case_has_an_answer_of_a_work_limit() -> None:
    """Tests that answers hold no seconds, which would differ."""
    for case in CASES:
        if case.split()[1] in ("greedy", "heft", "1f1b"):
            assert json.loads(answer(case))["seconds"] is None


def test_kills_and_folders(tmp_path: Path) -> None:
    """Tests a few rounds of each; nothing is torn, lost or left."""
    for name in ("kill", "profiles", "sweep", "read-only", "full"):
        (tmp_path / name).mkdir()
    tmp_path.chmod(0o755)
    row = kill_rounds(tmp_path / "kill", 3)
    assert (row["torn"], row["lost"], row["failed"]) == (0, 0, 0)
    assert shared_profiles(tmp_path / "profiles")["failed"] == 0
    assert shared_sweep(tmp_path / "sweep") == {"processes": 4, "inside": 1, "refused": 3, "failed": 0}
    assert read_only(tmp_path / "read-only")["failed"] == 0
    assert full_disk(tmp_path / "full")["failed"] == 0


def test_runs_go_on_and_are_rendered(tmp_path: Path) -> None:
    """Tests that rows of an unfinished run stay, that other settings begin anew, and that the page holds them."""
    first = Results("kills", {"rounds": 2}, folder=tmp_path)
    first.add("kill -9", {"rounds": 2, "torn": 1, "failed": 1})
    again = Results("kills", {"rounds": 2}, folder=tmp_path)
    assert again.rows == first.rows
    page = render(tmp_path)
    assert "| kill -9 | rounds 2, torn 1 | 1 |" in page
    assert "**Not complete.**" in page
    again.finish()
    assert "**Not complete.**" not in render(tmp_path)
    assert Results("kills", {"rounds": 2}, folder=tmp_path).rows == {}
    assert Results("kills", {"rounds": 3}, folder=tmp_path).rows == {}
