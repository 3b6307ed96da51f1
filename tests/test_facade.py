"""The public face: everything in `__all__` exists, nothing public is missing from it, and importing it is light."""

from __future__ import annotations

import subprocess
import sys
import types
from pathlib import Path
from typing import Any, cast

import pytest

import weftline


def test_all_names_exist() -> None:
    """Tests that each public name can be reached."""
    for name in weftline.__all__:
        assert getattr(weftline, name) is not None


def test_no_public_name_is_missing() -> None:
    """Tests that what the module defines without an underscore is in `__all__`."""
    defined = {
        name
        for name, value in vars(weftline).items()
        if not name.startswith("_")
        and not isinstance(value, types.ModuleType)
        and getattr(value, "__module__", "weftline").startswith("weftline")
        and name not in ("annotations", "TYPE_CHECKING")
    }
    assert defined <= set(weftline.__all__)


def test_verbs_are_functions_although_rooms_have_their_names() -> None:
    """Tests that verbs stay functions after the rooms that have their names are imported, in a fresh process."""
    code = (
        "import weftline.export, weftline.report, weftline.run, weftline.schedule, weftline.simulate, types\n"
        "from weftline.simulate import Timeline\n"
        "from weftline.schedule import schedulers\n"
        "names = 'plan export report run schedule simulate'.split()\n"
        "print(all(isinstance(getattr(weftline, name), types.FunctionType) for name in names))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "True"


def test_rooms_can_be_imported_by_their_full_name() -> None:
    """Tests that the verb does not hide the modules of the room that has its name, and that the room can be called."""
    from weftline.ask import planning as make

    assert make.make_plan.__module__ == "weftline.ask.planning"
    with pytest.raises(weftline.UsageError, match="a Graph or Problem"):
        weftline.plan(cast(Any, 7), "laptop")
    with pytest.raises(weftline.InputError, match="no such file"):
        weftline.plan("no-model.onnx", "laptop")


def test_unknown_names_are_attribute_errors() -> None:
    """Tests that a misspelt name fails as in any module."""
    assert not hasattr(weftline, "plam")


def test_import_is_light() -> None:
    """Tests that neither `import weftline` nor the command line's help loads a heavy package."""
    code = (
        "import sys, weftline, weftline.cli\n"
        "heavy = {'numpy', 'numba', 'onnx', 'onnxruntime', 'ortools', 'torch', 'rustworkx', 'openvino', 'ray'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_readme_api(tmp_path: Path) -> None:
    """Tests the flow of the Python API from a model file to a verified plan."""
    from weftline import zoo
    from weftline.certify import Verdict
    from weftline.search import Event
    from weftline.simulate import Timeline

    path = tmp_path / "model.onnx"
    zoo.save(zoo.build("resnet50", size="small", weights=False), path)
    graph = weftline.load(path)
    seen: list[Event] = []
    plan = weftline.plan(graph, weftline.Cluster.preset("laptop"), objective="latency", seed=0, on_event=seen.append)
    assert seen
    found, verdict = weftline.simulate(plan), weftline.verify(plan)
    assert isinstance(found, Timeline)
    assert isinstance(verdict, Verdict)
    assert plan.value_ns == found.value == verdict.value_ns
    plan.save(tmp_path / "plan.json")
    again = weftline.Plan.load(tmp_path / "plan.json")
    assert again == plan
    assert weftline.diff(plan, again).identical
    assert "bound" in plan.summary()
