"""Tests that a plugin that cannot be loaded is left out with a warning."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import pytest

from weftline import plugins


def _points(group: str) -> list[EntryPoint]:
    good = EntryPoint("good", "weftline.latency.list.schedulers:SOLVER_GREEDY", "weftline.latency")
    bad = EntryPoint("bad", "weftline_no_such_module:SOLVER", "weftline.latency")
    return [good, bad] if group == "weftline.latency" else []


def test_a_broken_plugin_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the good plugin is loaded, and the bad one is named with its reason."""
    monkeypatch.setattr(plugins, "entry_points", _points)
    with pytest.warns(RuntimeWarning, match=r"'bad' of weftline\.latency is left out: ModuleNotFoundError"):
        found = plugins.load_plugins("weftline.latency")
    assert found[-1].name == "greedy"
    assert list(plugins.broken_plugins()) == ["weftline.latency: bad"]


def test_no_plugins_no_warning() -> None:
    """Tests that every plugin of this installation loads."""
    assert plugins.broken_plugins() == {}
