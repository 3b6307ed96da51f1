"""Pins, forbids and `together` patterns."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.cluster import Limits
from weftline.cluster.model import OpDevice
from weftline.cost import NO_TIME, CostTable
from weftline.errors import InfeasibleError, InputError
from weftline.graph import Op, assemble
from weftline.problem.feasible import apply_limits, merge_together

GRAPH = assemble("g", [Op(name) for name in ("embed", "layer.0", "layer.1", "head[0]", "Head")], [])
DEVICES = {"gpu": 0, "cpu": 1, "npu": 2}
COST = CostTable(np.full((5, 3), 7, np.int64), np.zeros((0, 3, 3), np.int64), np.zeros(0, np.int32))


def _apply(
    *,
    pin: tuple[tuple[str, str], ...] = (),
    forbid: tuple[tuple[str, str], ...] = (),
    together: tuple[tuple[str, ...], ...] = (),
    cost: CostTable = COST,
) -> tuple[list[list[int]], tuple[tuple[int, ...], ...]]:
    limits = Limits(tuple(OpDevice(*p) for p in pin), together, tuple(OpDevice(*f) for f in forbid))
    table, sets = apply_limits(GRAPH, DEVICES, cost, limits)
    return [np.flatnonzero(row != NO_TIME).tolist() for row in table.time], sets


def test_nothing_asked() -> None:
    """Tests that without limits nothing changes."""
    assert _apply() == ([[0, 1, 2]] * 5, ())


def test_pins() -> None:
    """Tests that patterns select ops, and that a pinned op has one device."""
    allowed, _ = _apply(pin=(("layer.*", "cpu"), ("embed", "gpu"), ("?ead", "npu")))
    assert allowed == [[0], [1], [1], [0, 1, 2], [2]]


def test_the_given_table_is_not_changed() -> None:
    """Tests that the table that came in stays as it was."""
    _apply(pin=(("*", "cpu"),))
    assert (COST.time == 7).all()


def test_forbids() -> None:
    """Tests that a forbidden device is an absent time."""
    assert _apply(forbid=(("*ea*", "gpu"), ("Head", "cpu")))[0] == [[0, 1, 2], [0, 1, 2], [0, 1, 2], [1, 2], [2]]


def test_exact_names_win_over_patterns() -> None:
    """Tests that an op whose name looks like a pattern can be named, and that case matters."""
    assert _apply(pin=(("head[0]", "cpu"),))[0] == [[0, 1, 2]] * 3 + [[1], [0, 1, 2]]
    assert _apply(pin=(("[hH]ead", "cpu"),))[0] == [[0, 1, 2]] * 4 + [[1]]


def test_together() -> None:
    """Tests that sets that share an op become one, and that sets of one op vanish."""
    assert _apply(together=(("layer.*",), ("layer.1", "Head"), ("embed",)))[1] == ((1, 2, 4),)


@given(st.lists(st.sets(st.integers(0, 9), max_size=4), max_size=6))
def test_merged_sets_are_connected_components(sets: list[set[int]]) -> None:
    """Tests that merging gives the components of the relation `shares a set with`."""
    components: list[set[int]] = []
    for members in sets:
        touching = [c for c in components if c & members]
        components = [c for c in components if not c & members] + [members.union(*touching)]
    expected = sorted(tuple(sorted(c)) for c in components if len(c) > 1)
    assert sorted(merge_together(sets)) == expected


def test_two_pins() -> None:
    """Tests that an op pinned to two devices is infeasible, with both pins."""
    with pytest.raises(InfeasibleError, match="'embed' is pinned to two devices") as error:
        _apply(pin=(("em*", "gpu"), ("*bed", "cpu")))
    assert error.value.conflicts == ("pin 'em*' -> gpu", "pin '*bed' -> cpu")
    assert error.value.proved


def test_the_same_pin_twice() -> None:
    """Tests that saying the same twice is no conflict."""
    assert _apply(pin=(("embed", "gpu"), ("em*", "gpu")))[0][0] == [0]


def test_pin_against_forbid() -> None:
    """Tests that the conflict names the pin and the forbid, and nothing that has no part in it."""
    with pytest.raises(InfeasibleError, match="no device is left for op 'embed'") as error:
        _apply(pin=(("embed", "gpu"), ("Head", "cpu")), forbid=(("layer.*", "gpu"), ("e*", "gpu")))
    assert error.value.conflicts == ("pin 'embed' -> gpu", "forbid 'e*' on gpu")


def test_forbidden_everywhere() -> None:
    """Tests that forbids on all devices are listed."""
    with pytest.raises(InfeasibleError) as error:
        _apply(forbid=tuple(("embed", device) for device in DEVICES))
    assert error.value.conflicts == tuple(f"forbid 'embed' on {device}" for device in DEVICES)


def test_pinned_to_a_device_that_cannot() -> None:
    """Tests that a pin to a device without the op is infeasible."""
    time = COST.time.copy()
    time[0, 2] = NO_TIME
    with pytest.raises(InfeasibleError, match="pinned to a device that cannot run it"):
        _apply(pin=(("embed", "npu"),), cost=COST.with_time(time))


@pytest.mark.parametrize("limits", [{"pin": (("nothing*", "gpu"),)}, {"together": (("nothing*",),)}])
def test_a_pattern_without_ops(limits: dict[str, tuple[tuple[str, ...], ...]]) -> None:
    """Tests that a pattern that matches nothing is a mistake, with names that exist."""
    with pytest.raises(InputError, match=r"'nothing\*' matches no op") as error:
        _apply(**limits)  # type: ignore[arg-type]
    assert "'embed'" in error.value.hint


@pytest.mark.parametrize("kind", ["pin", "forbid"])
def test_an_unknown_device(kind: str) -> None:
    """Tests that a device that does not exist is named with those that do."""
    with pytest.raises(InputError, match="unknown device 'tpu'") as error:
        _apply(**{kind: (("embed", "tpu"),)})  # type: ignore[arg-type]
    assert "gpu, cpu, npu" in error.value.hint


def test_patterns_that_nobody_could_wait_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the work of matching is limited; names of ops are found at once, so they do not count."""
    monkeypatch.setattr("weftline.problem.feasible.MOST_MATCHES", 10)
    assert _apply(forbid=(("*ea*", "gpu"), ("Head", "cpu"), ("embed", "cpu")))[0][0] == [0, 2]
    with pytest.raises(InputError, match="limits: 3 patterns for 5 ops are more than can be looked for"):
        _apply(forbid=(("*", "gpu"), ("l*", "gpu")), together=(("*", "embed"),))


def test_forbids_that_say_the_same() -> None:
    """Tests that a reason is kept once, however many patterns give it."""
    same = tuple(("*" * count, "gpu") for count in range(1, 50))
    with pytest.raises(InfeasibleError) as error:
        _apply(forbid=(*same, ("embed", "cpu"), ("embed", "npu")))
    assert error.value.conflicts == ("forbid '*' on gpu", "forbid 'embed' on cpu", "forbid 'embed' on npu")
