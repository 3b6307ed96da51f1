"""The registries: whatever a file of ours offers is found by its name; a plugin that cannot be loaded is a warning."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import import_module
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import weftline
from weftline import latency, pipeline, plugins
from weftline.export import Exporter, fleet_exporters, plan_exporters, schedule_exporters
from weftline.fleet import FleetSolver, fleet_solvers
from weftline.importers import registry
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
        FleetSolver: (fleet_solvers(), fleet_solvers(layers=True)),
        Scheduler: (schedulers(),),
        Importer: (importers(),),
        Exporter: (plan_exporters(), fleet_exporters(), schedule_exporters()),
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


class Bare(BaseException):
    """What some libraries raise to end a program."""


def _exits() -> None:
    raise SystemExit(3)


def _is_bare() -> None:
    raise Bare("bare")


TARGETS: dict[str, tuple[str, str]] = {
    "missing": ("weftline_no_such_module:SOLVER", "ModuleNotFoundError"),
    "exits": ("weftline_hostile_exits:SOLVER", "SystemExit: 3"),
    "bare": ("weftline_hostile_bare:SOLVER", "Bare: bare"),
    "kind": ("weftline.errors:InputError", "it is a type, not a Solver"),
    "named": ("weftline_hostile_kinds:NAMED", "its name is 7, not text"),
    "taken": ("weftline_hostile_kinds:TAKEN", "its name 'auto' is taken"),
}
"""Entry point -> what it names, and why it is left out."""


def _points(group: str) -> list[EntryPoint]:
    points = {"good": "weftline_hostile_kinds:GOOD", **{name: target for name, (target, _) in TARGETS.items()}}
    found = [EntryPoint(name, target, "weftline.latency") for name, target in points.items()]
    return found if group == "weftline.latency" else []


class Failing(ModuleType):
    """A module that raises when something of it is asked for, as the import of a real one would."""

    def __init__(self, name: str, raises: Callable[[], None]) -> None:
        super().__init__(name)
        self.raises = raises

    def __getattr__(self, name: str) -> Any:
        return self.raises()


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Packages with entry points of every bad kind, and a registry that does not know them yet."""
    auto = latency.solvers()["auto"]
    kinds = ModuleType("weftline_hostile_kinds")
    vars(kinds).update(NAMED=replace(auto, name=7), TAKEN=replace(auto, description="mine"))  # type: ignore[arg-type]
    vars(kinds).update(GOOD=replace(auto, name="good"))
    for module in (Failing("weftline_hostile_exits", _exits), Failing("weftline_hostile_bare", _is_bare), kinds):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(plugins, "entry_points", _points)
    latency.solvers.cache_clear()
    yield
    latency.solvers.cache_clear()


def test_a_broken_plugin_is_a_warning(hostile: None) -> None:
    """Tests that the good plugin is there, and that each bad one is named with its reason; none replaces ours."""
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        found = latency.solvers()
    assert found["good"].name == "good"
    assert found["auto"].description != "mine"
    said = [str(warning.message) for warning in heard]
    for name, (_, why) in TARGETS.items():
        assert any(f"{name!r} of weftline.latency is left out: {why}" in text for text in said), (name, said)
    assert set(plugins.broken_plugins()) == {f"weftline.latency: {name}" for name in TARGETS if name != "taken"}


def test_an_importer_that_fails_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a plugin that raises at a file that is none of its own does not hide the importer that reads it."""

    def fail(path: Path, head: bytes) -> bool:
        raise KeyError("no")

    ours = importers()
    broken = replace(next(iter(ours.values())), name="broken", accepts=fail)
    monkeypatch.setattr(registry, "importers", lambda: {"broken": broken, **ours})
    path = tmp_path / "graph.json"
    path.write_text('{"format": "weftline-graph"}')
    with pytest.warns(RuntimeWarning, match="importer 'broken' fails at 'graph.json'"):
        assert registry.detect(path).name == "weftline"


def test_no_plugins_no_warning() -> None:
    """Tests that every plugin of this installation loads."""
    assert plugins.broken_plugins() == {}
