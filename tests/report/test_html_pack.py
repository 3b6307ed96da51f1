"""Tests of packing: differences, joined neighbours, names cut to a budget, JSON that stays in its element."""

from __future__ import annotations

import itertools
import json

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from weftline.report.html.pack import (
    LONGEST_NAME,
    differences,
    packed_spans,
    script_json,
    short_name,
    short_names,
    thinned_steps,
)


@given(st.lists(st.integers(0, 2**50)))
def test_differences_add_up(values: list[int]) -> None:
    """Tests that the page gets every value back."""
    assert np.cumsum(differences(np.array(values, np.int64))).tolist() == values


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 9)), max_size=40), st.integers(1, 50))
def test_joined_spans_cover_the_same_time(rows: list[tuple[int, int]], most: int) -> None:
    """Tests that neighbours are joined from the first start to the last end, and counted."""
    ends = np.cumsum([gap + length for gap, length in rows]) if rows else np.zeros(0, np.int64)
    start = ends - np.array([length for _, length in rows], np.int64)
    packed = packed_spans(start, ends, np.arange(len(rows)), most)
    begin = np.cumsum(packed["start"]).tolist()
    assert len(begin) <= max(most, 1)
    assert sum(-item if item < 0 else 1 for item in packed["item"]) == len(rows)
    if rows:
        assert (begin[0], begin[-1] + packed["length"][-1]) == (start[0], ends[-1])
        assert all(a <= b for a, b in itertools.pairwise(begin))


def test_few_spans_stay_as_they_are() -> None:
    """Tests a lane by hand, given in another order."""
    found = packed_spans(np.array([7, 2]), np.array([9, 5]), np.array([4, 3]), 10)
    assert found == {"start": [2, 5], "length": [3, 2], "item": [3, 4]}


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=60), st.integers(1, 20))
def test_thin_steps_keep_the_peak(steps: list[tuple[int, int]], most: int) -> None:
    """Tests that memory never looks smaller than it was."""
    steps = sorted(steps)
    thin = thinned_steps(steps, most)
    assert len(thin) <= max(most, 1)
    assert max(level for _, level in thin) == max(level for _, level in steps)
    assert thin[0][0] == steps[0][0]


def test_names_are_cut_in_the_middle() -> None:
    """Tests that both ends of a long name can be read."""
    name = "a" * 100 + "b" * 100
    assert short_name("short") == "short"
    assert len(short_name(name)) == LONGEST_NAME
    assert short_name(name).startswith("aaa")
    assert short_name(name).endswith("bbb")
    assert len(short_name("\x00" * 1000)) <= LONGEST_NAME


def test_many_names_keep_a_budget() -> None:
    """Tests that all names together fit, and short ones stay whole."""
    names = ["x" * 150] * 1000 + ["short"]
    found = short_names(names, 40_000)
    assert sum(map(len, found)) <= 40_000
    assert found[-1] == "short"
    assert short_names(names, 10**9) == names


@given(st.recursive(st.text() | st.integers(-(2**60), 2**60), st.lists))
def test_json_cannot_leave_its_element(value: object) -> None:
    """Tests that what is embedded is the same value, without a sign that markup needs."""
    text = script_json(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)
