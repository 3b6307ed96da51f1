"""The registries: whatever a file of ours offers is found by its name; a plugin that cannot be loaded is a warning."""

from __future__ import annotations

import re
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest

import weftline
from weftline import latency, pipeline, plugins
from weftline.export import Exporter, plan_exporters, schedule_exporters
from weftline.importers.registry import Importer, importers
from weftline.schedule import Scheduler, schedulers
from weftline.search import Solver

SOURCE = Path(weftline.__file__).parents[1]
OFFERS = re.compile(r"^(?:SOLVERS?|SCHEDULERS?|IMPORTERS|EXPORTERS) = ", re.MULTILINE)
OFFERING = [path for path in sorted(SOURCE.rglob("*.py")) if OFFERS.search(path.read_text(encoding="utf-8"))]
"""Files with solvers, schedulers, importers or export targets."""


def _registered(one: Any) -> list[Any]:
    """What the registries have by the name of an entry."""
    found: dict[type, tuple[dict[str, Any], ...]] = {
        Solver: (latency.solvers(), pipeline.solvers()),
        Scheduler: (schedulers(),),
        Importer: (importers(),),
        Exporter: (plan_exporters(), schedule_exporters()),
    }
    return [registry[one.name] for registry in found[type(one)] if one.name in registry]


@pytest.mark.parametrize("path", OFFERING, ids=lambda path: str(path.relative_to(SOURCE)))
def test_what_a_file_offers_is_registered(path: Path) -> None:
    """Tests that no entry was forgotten or misspelt in a list of what is built in, and that no name stands twice."""
    module = import_module(".".join(path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__"))
    for value in [value for name, value in vars(module).items() if OFFERS.match(f"{name} = ")]:
        for one in value if isinstance(value, tuple) else (value,):
            if isinstance(one, str):
                continue  # a list of names
            found = _registered(one)
            where = "_BUILT_IN of its room (latency, pipeline, schedule, importers/registry.py, export/exporter.py)"
            assert found, f"{one.name!r} is not registered: name its module in {where}, or in PROVIDES of papers"
            assert any(other is one for other in found), f"two entries have the name {one.name!r}"


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
