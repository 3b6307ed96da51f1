"""Tests of profiles of language models, of the requests that are served, and of files that are no profiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.data import present

from weftline.errors import InputError
from weftline.problem.layers import DevicePool, LayerProblem, LayerUnit
from weftline.problem.serving import (
    CONVERSATION_KINDS,
    RequestKind,
    Requests,
    check_requests,
    dense_times,
    fixed_requests,
    profile_for,
    read_serving,
    sample_requests,
    unit_profiles,
)

KIND: dict[str, Any] = {
    "max_layers": 2,
    "kv_tokens_per_layer": [100, 40],
    "prompt_ms_per_layer": [[0, 0.0], [4, 2.0], [8, 3.0]],
    "decode_ms_per_layer": [[0, 0.0], [2, 1.4], [10, 0.6]],
    "prompt_max_requests": [3, 1],
}
MODEL: dict[str, Any] = {"layers": 3, "avg_input": 750, "avg_output": 240, "kinds": {"T": KIND}}


def _write(folder: Path, content: object) -> Path:
    path = folder / "profiles.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_what_helix_measured() -> None:
    """Tests both models of Helix's file: layers, kinds, rooms, and times between two points."""
    large, small = read_serving(present("helix/profiles.json"))
    assert (large.name, large.layers, large.prompt, large.output) == ("llama2-70b", 80, 750, 240)
    assert (small.name, small.layers, len(small.units)) == ("llama1-30b", 60, 3)
    units = {unit.name: unit for unit in large.units}
    assert set(units) == {"A100", "V100", "L4", "L4x2", "T4", "T4x2", "T4x4"}
    assert units["T4"].room == (2_485_120, 1_015_744, 525_952, 281_056)
    assert set(units["A100"].prompts) == {3}
    prompt, decode = dense_times(units["T4"].prompt), dense_times(units["T4"].decode)
    assert (prompt[750], prompt[763], prompt[7500]) == (48_000_000, 48_000_000 + 11_000_000 * 13 // 250, 479_000_000)
    assert decode[:5].tolist() == [0, 7_100_000, 7_100_000, 7_150_000, 7_200_000]


def test_a_small_file(tmp_path: Path) -> None:
    """Tests ns, that one request alone takes as long as two, and times that fall."""
    (profile,) = read_serving(_write(tmp_path, {"m": MODEL}))
    (unit,) = profile.units
    assert unit.prompt == ((0, 0), (4, 2_000_000), (8, 3_000_000))
    assert unit.decode == ((0, 0), (1, 1_400_000), (2, 1_400_000), (10, 600_000))
    assert dense_times(unit.decode).tolist() == [0, *(1_400_000 - 100_000 * k for k in (0, *range(9)))]
    assert (unit.room, unit.prompts) == ((100, 40), (3, 1))


def _kind(**changes: object) -> dict[str, Any]:
    return {"m": {**MODEL, "kinds": {"T": {**KIND, **changes}}}}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "is not a file of profiles"),
        ("[]", "is not a file of profiles"),
        ({}, "no model has a profile"),
        ({"m": {}}, "missing required field"),
        ({"m": {**MODEL, "layers": 0}}, r"\$\[\.\.\.\]\.layers"),
        ({"m": {**MODEL, "kinds": {}}}, "kinds"),
        ({"m": {**MODEL, "more": 1}}, "unknown field"),
        (_kind(kv_tokens_per_layer=[1]), "m.kinds.T: one kv_tokens_per_layer"),
        (_kind(kv_tokens_per_layer=[1, -1]), "room for -1 tokens"),
        (_kind(kv_tokens_per_layer=[1, 2**41]), "room for"),
        (_kind(prompt_max_requests=[1, 0]), "0 prompts in a batch"),
        (_kind(prompt_ms_per_layer=[[1, 0.0], [2, 1.0]]), r"prompt_ms_per_layer: a table begins at 0"),
        (_kind(decode_ms_per_layer=[[0, 0.0], [2, 1.0], [2, 1.0]]), r"decode_ms_per_layer: .* ascends"),
        (_kind(decode_ms_per_layer=[[0, 0.0], [2, -1.0]]), "none negative"),
        (_kind(decode_ms_per_layer=[[0, 0.0], [3_000_000, 1.0]]), "up to 2000000 tokens"),
        (_kind(decode_ms_per_layer=[[0, 0.0], [2, 1e300]]), "none negative"),
        (_kind(decode_ms_per_layer=[[0, 0.0]]), "length"),
        ('{"m": {"layers": 1e999}}', "is not a file of profiles"),
        ("[" * 100_000, "is not a file of profiles"),
    ],
)
def test_files_that_are_none(tmp_path: Path, content: object, words: str) -> None:
    """Tests that each says what is wrong and where, beginning with the path."""
    path = _write(tmp_path, content)
    with pytest.raises(InputError, match=words) as caught:
        read_serving(path)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value)) < 600


def test_no_file(tmp_path: Path) -> None:
    """Tests a file that is not there, and a folder."""
    for path in (tmp_path / "no.json", tmp_path):
        with pytest.raises(InputError):
            read_serving(path)


def test_the_profile_that_fits(tmp_path: Path) -> None:
    """Tests that layers and units choose the profile, that a pool's name will do, and what is said otherwise."""
    other = {**MODEL, "layers": 9}
    profiles = read_serving(_write(tmp_path, {"nine": other, "three": MODEL}))
    pools = (DevicePool("T", 1), DevicePool("V", 1))
    named = LayerProblem("p", 3, pools, (LayerUnit("one T", 0, (1,)),))
    assert profile_for(named, profiles).name == "three"
    assert [unit.name for unit in unit_profiles(named, profiles[1])] == ["T"]
    for problem, name, words in (
        (named, "nine", "has 3 layers, 'nine' has 9"),
        (named, "ten", "no profile fits 'p' .*there is nine, three"),
        (LayerProblem("q", 3, pools, (LayerUnit("V", 1, (1,)),)), "three", r"no profile of 'V' \(it has T\)"),
        (
            LayerProblem("q", 3, (DevicePool("T", 2),), (LayerUnit("T x2", 0, (1,), 2),)),
            "three",
            "no profile of 'T x2'",
        ),
        (LayerProblem("q", 4, pools, (LayerUnit("T", 0, (1,)),)), "", "no profile fits 'q'"),
    ):
        with pytest.raises(InputError, match=words):
            profile_for(problem, profiles, name)


def test_requests_like_those_of_the_trace() -> None:
    """Tests the means of the trace (763 and 232), the limits, that long prompts have long answers, and the seed."""
    drawn = sample_requests(20_000, 3)
    assert abs(drawn.mean_prompt - 763) < 15
    assert abs(drawn.mean_output - 232) < 5
    prompts, outputs = zip(*drawn.lengths, strict=True)
    assert (min(prompts) >= 4, max(prompts) <= 2048, min(outputs) >= 4, max(outputs) <= 1024) == (True,) * 4
    assert 380 < sorted(prompts)[5_000] < 410
    assert 400 < sorted(prompts)[9_000] < 500
    assert 1_000 < sorted(prompts)[15_000] < 1_200
    long = [output for prompt, output in drawn.lengths if 900 < prompt < 1_250]
    assert sum(long) / len(long) > 1.5 * drawn.mean_output
    assert sample_requests(50, 3).lengths == drawn.lengths[:50]
    assert sample_requests(50, 4).lengths != drawn.lengths[:50]
    assert drawn.arrivals == ()


def test_requests_that_arrive() -> None:
    """Tests the mean rate and the order of arrivals, and other kinds."""
    kind = RequestKind(1, 20.0, 0.0, 7.0, 0.0)
    drawn = sample_requests(5_000, 1, kinds=[kind], per_second=4.0)
    assert set(drawn.lengths) == {(20, 7)}
    assert abs(drawn.arrivals[-1] / 10**9 - 1_250) < 60
    assert list(drawn.arrivals) == sorted(drawn.arrivals)
    assert fixed_requests(3, 5, 6) == Requests(((5, 6),) * 3)
    assert sum(kind.weight for kind in CONVERSATION_KINDS) == 1_000


def test_requests_that_cannot_be() -> None:
    """Tests one sentence for each."""
    for requests, words in (
        (Requests(()), "0 requests"),
        (Requests(((0, 1),)), "request 0: a prompt of 0"),
        (Requests(((1, 1), (1, 3_000_000))), "request 1: .* 3000000 tokens after it"),
        (Requests(((1, 1),) * 2, (1,)), "an arrival for every request"),
        (Requests(((1, 1),) * 2, (2, 1)), "ascending"),
        (Requests(((1, 1),), (10**15,)), "the last request arrives after"),
    ):
        with pytest.raises(InputError, match=words):
            check_requests(requests)
    for count, rate in ((0, 0.0), (10**9, 0.0), (1, -1.0), (1, float("nan"))):
        with pytest.raises(InputError, match="can be drawn"):
            sample_requests(count, per_second=rate)
    with pytest.raises(InputError, match="hardly ever 4 to 2048 tokens"):
        sample_requests(1, kinds=[RequestKind(1, 1e6, 0.1, 5.0, 0.1)])
    with pytest.raises(InputError, match="can be served"):
        fixed_requests(10**7, 1, 1)
