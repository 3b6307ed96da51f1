"""Tests that words of a user become a request about a language model, or one sentence about what is wrong."""

from __future__ import annotations

from typing import Any

import pytest

from weftline.ask.fit_request import FitRequest, read_context, read_splits, read_want
from weftline.errors import UsageError


@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("16k", 16384),
        ("128K", 131072),
        ("1m", 1048576),
        ("4096", 4096),
        (300, 300),
        ("1.5k", 1536),
        ("8k tokens", 8192),
    ],
)
def test_contexts(text: object, tokens: int) -> None:
    """Tests the short forms: k is 1024."""
    assert read_context(text) == tokens


@pytest.mark.parametrize("text", ["", "0", "-5", "16kb", "k", "1e9", "9" * 30, 0, -1, 1.5, None, True])
def test_other_contexts_are_refused(text: object) -> None:
    """Tests what is no number of tokens."""
    with pytest.raises(UsageError, match="context"):
        read_context(text)


def test_splits_and_rates() -> None:
    """Tests lists of layers, and tokens per second."""
    assert read_splits("20,12") == read_splits("20/12") == (20, 12)
    assert [read_want(text) for text in ("20 tok/s", "20", "7.5 t/s", "12 tokens/s", 3)] == [20, 20, 7.5, 12, 3]
    for wrong in ("", "a,b", "1,-2", "50%,50%"):
        with pytest.raises(UsageError, match="no list of layers"):
            read_splits(wrong)
    for nothing in ("fast", "-3", "0 tok/s", 0, float("nan"), True):
        with pytest.raises(UsageError, match="want"):
            read_want(nothing)


def test_values() -> None:
    """Tests that everything is put in its form."""
    asked = FitRequest(
        model="m",
        gpus=("RTX 4090",),
        context="16k",
        live="1k",
        engine="llama.cpp",
        kv_type="q8_0,q4_0",
        want="20 tok/s",
    )
    assert (asked.context, asked.live, asked.engine, asked.want) == (16384, 1024, "llamacpp", 20.0)
    assert asked.kv_types == ("q8_0", "q4_0")
    assert FitRequest(model="m", cpus=("DDR5-5600",), ram="64GB").kv_types == ("f16", "f16")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "which devices"),
        ({"gpus": "RTX 4090"}, "is a list like"),
        ({"gpus": ("a",), "engine": "vlm"}, "did you mean 'vllm'"),
        ({"gpus": ("a",), "context": "4k", "live": "8k"}, "do not fit in a context"),
        ({"cpus": ("a",), "engine": "vllm"}, "runs on GPUs"),
        ({"gpus": ("a",), "tensor_parallel": 2}, "for --for vllm"),
        ({"gpus": ("a",), "splits": (1, 2), "want": 5}, "leave one out"),
        ({"gpus": ("a",), "concurrency": 0}, "concurrency is a whole number from 1"),
    ],
)
def test_what_contradicts_itself(given: dict[str, Any], says: str) -> None:
    """Tests that each is refused before anything is read."""
    with pytest.raises(UsageError, match=says):
        FitRequest(model="m", **given)
