"""The section about the policy: all methods on every instance, and what must hold whatever the weights are."""

from __future__ import annotations

from argparse import Namespace

import pytest
from benchmarks.results import Collector, Row
from benchmarks.sections.policy import HELD_OUT, METHODS, SECTION, SHOWN, policy_instances, policy_summary

from weftline.latency.policy.instances import TRAINING_FAMILIES


def settings_of(size: str) -> Row:
    return SECTION.settings(size, Namespace(time_limit=None))


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> list[Row]:
    """A tiny run."""
    settings = settings_of("tiny")
    collect = Collector(tmp_path_factory.mktemp("policy") / "rows.json", settings, resume=False)
    SECTION.measure(settings, collect)
    return collect.rows


def test_every_method_on_every_instance(rows: list[Row]) -> None:
    """Tests that rows have a reference and the values of all methods."""
    assert len(rows) == len(list(policy_instances(settings_of("tiny"))))
    for row in rows:
        assert row["reference_ns"] > 0
        assert set(row["values"]) == set(METHODS)


def test_pools_are_never_worse_than_their_parts(rows: list[Row]) -> None:
    """Tests that the best of 64 is no worse than heuristics or one decode, and steps of annealing only help."""
    for row in rows:
        values = row["values"]
        best = values["policy, best of 64"]
        assert best <= min(values[name] for name in ("best single device", "best heuristic", "policy, one decode"))
        assert values["policy + 2k steps"] <= best
        assert values["policy + 20k steps"] <= best


def test_summary(rows: list[Row]) -> None:
    """Tests means and worst cases, for each kind and for all."""
    summary = {line["method"]: line for line in policy_summary(rows)}
    assert list(summary) == list(METHODS)
    assert set(SHOWN) <= set(METHODS)
    ratios = [row["values"]["HEFT"] / row["reference_ns"] for row in rows]
    assert summary["HEFT"]["all"]["count"] == len(rows)
    assert summary["HEFT"]["all"]["worst"] == max(ratios)
    assert min(ratios) <= summary["HEFT"]["all"]["mean"] <= max(ratios)


def test_full_run_is_large_and_unseen() -> None:
    """Tests that at least 100 instances are of families that training never sees, and that names differ."""
    found = list(policy_instances(settings_of("full")))
    assert sum(kind != "training family" for kind, _, _ in found) >= 100
    assert len({name for _, name, _ in found}) == len(found)
    assert not set(HELD_OUT) & set(TRAINING_FAMILIES)
