"""A solver's numbers: defaults, `--set`, and what is refused."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

import weftline as wl
from weftline.latency import solvers as latency_solvers
from weftline.pipeline import solvers as throughput_solvers
from weftline.schedule import schedulers
from weftline.search import Search, Termination, check_names, read_parameters
from weftline.testing.generate import random_problem


@dataclass(frozen=True)
class Numbers:
    """Of a solver that does not exist."""

    most_steps: int = 100
    share_of_time: float = field(default=0.5, metadata={"most": 1})
    is_bold: bool = False
    rule: str = field(default="best", metadata={"choices": ("best", "first")})


def test_defaults_stay_where_nothing_is_said() -> None:
    """Tests that options of others are not looked at."""
    assert read_parameters(Numbers, {"weights": "file"}) == Numbers()


def test_words_become_values_of_the_field() -> None:
    """Tests each type."""
    words = {"most_steps": "7", "share_of_time": "0.25", "is_bold": "yes", "rule": "first"}
    assert read_parameters(Numbers, words) == Numbers(7, 0.25, True, "first")


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("most_steps", "1.5"),
        ("most_steps", "-1"),
        ("most_steps", "many"),
        ("most_steps", "9" * 30),
        ("most_steps", ""),
        ("most_steps", "+7"),
        ("most_steps", "1_0"),
        ("most_steps", " 7"),
        ("most_steps", "٣"),
        ("most_steps", "100001"),
        ("share_of_time", "nan"),
        ("share_of_time", "inf"),
        ("share_of_time", "1.01"),
        ("is_bold", "perhaps"),
        ("rule", "worst"),
        ("rule", 3),
    ],
)
def test_what_is_no_value_is_refused(name: str, word: str) -> None:
    """Tests that the error names the setting."""
    with pytest.raises(wl.UsageError, match=name):
        read_parameters(Numbers, {name: word})


def test_unknown_names_are_refused() -> None:
    """Tests that the error lists what there is."""
    with pytest.raises(wl.UsageError, match=r"has no setting 'most_step'; it takes most_steps"):
        check_names("bold", ("most_steps",), {"most_step": "1"})


@pytest.mark.parametrize("registry", [latency_solvers, throughput_solvers, schedulers])
def test_every_parameter_can_be_set(registry) -> None:  # type: ignore[no-untyped-def]
    """Tests that all classes of parameters are read back from their own defaults."""
    for solver in registry().values():
        if solver.parameters is not None:
            defaults = solver.parameters()
            words = {name: str(getattr(defaults, name)) for name in solver.parameters.__dataclass_fields__}
            assert read_parameters(solver.parameters, words) == defaults, solver.name
        assert len(set(solver.takes)) == len(solver.takes)


def test_a_search_knows_why_it_ended() -> None:
    """Tests that no rule is false, and that rules are the words of the files."""
    problem = random_problem(6, "latency")
    search = Search(problem=problem, work_limit=0)
    assert search.stopped_by is Termination.WORK
    assert f"{search.stopped_by}" == "work"
    assert not Search(problem=problem).stopped_by
    assert Termination.GAP.is_close
    assert not Termination.TIME.is_close
