"""Tests of the words of the command line: shapes, times, shares, clusters."""

from __future__ import annotations

from pathlib import Path
from time import monotonic, time

import psutil
import pytest

from weftline.ask.answer import find_cluster
from weftline.ask.request import read_dims, read_shapes
from weftline.cli.options import process_begun, read_gap, read_seconds, read_settings
from weftline.errors import InputError, UsageError


def test_shapes() -> None:
    """Tests names with signs in them, scalars, and what is no shape."""
    assert read_shapes(["input=1x3x224x224", "a=b=2", "s="]) == {"input": (1, 3, 224, 224), "a=b": (2,), "s": ()}
    for word in ("input", "input=ax3", "input=1x", "=1x2", "x=0x3", "x=-1"):
        with pytest.raises(UsageError):
            read_shapes([word])


def test_dimensions() -> None:
    """Tests names with signs in them, one that is repeated, and what is no size."""
    assert read_dims(["batch=8", "past + 1=2", "a=b=2", "batch=8"]) == {"batch": 8, "past + 1": 2, "a=b": 2}
    for word in ("batch", "=8", "batch=", "batch=x", "batch=-1", "batch=0", "batch=1x2"):
        with pytest.raises(UsageError, match="--dim"):
            read_dims([word], "--dim ")
    with pytest.raises(UsageError, match=r"'batch=9' and 'batch=8' contradict"):
        read_dims(["batch=8", "batch=9"])


def test_when_the_process_began(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a young process counts from its start, and an old one, which serves many commands, from now."""
    for age, counted in ((3.0, 3.0), (3000.0, 0.0)):
        monkeypatch.setattr(psutil.Process, "create_time", lambda self, age=age: time() - age)
        assert monotonic() - process_begun() == pytest.approx(counted, abs=1.0)


def test_settings() -> None:
    """Tests pairs, values with signs in them, options of their own, and what is no setting."""
    assert read_settings(["levels=2", "a=b=c"], preset="paper", polish=None) == {
        "levels": "2",
        "a": "b=c",
        "preset": "paper",
    }
    for word in ("levels", "=2"):
        with pytest.raises(UsageError, match="--set"):
            read_settings([word])


def test_seconds() -> None:
    """Tests bare numbers, units, and what is no time."""
    assert (read_seconds("60"), read_seconds("1.5 min"), read_seconds("20ms"), read_seconds(None)) == (
        60,
        90,
        0.02,
        None,
    )
    with pytest.raises(UsageError, match="--time"):
        read_seconds("soon")


def test_gap() -> None:
    """Tests shares with and without a sign."""
    assert (read_gap("1%"), read_gap("0.5"), read_gap(None)) == (0.01, 0.5, None)
    with pytest.raises(UsageError, match="--gap"):
        read_gap("120%")


def test_clusters(tmp_path: Path) -> None:
    """Tests presets and files, and that the hash follows the text."""
    preset, digest = find_cluster("edge")
    path = tmp_path / "mine.toml"
    path.write_text(preset.to_toml())
    mine, other = find_cluster(str(path))
    assert mine.devices == preset.devices
    assert digest != other
    with pytest.raises(InputError, match="presets are"):
        find_cluster("nowhere")
