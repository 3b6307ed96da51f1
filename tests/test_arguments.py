"""What the Python API is given: every wrong type is one of weftline's errors, and times and shares may be text."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weftline as wl
from weftline.arguments import a_number, a_share, a_whole_number, seconds, shown
from weftline.graph import Op, Tensor, assemble
from weftline.search import Search, Solver


class Rude:
    """Cannot even be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no")


WRONG: list[Any] = [
    None,
    7,
    -1,
    3.5,
    float("nan"),
    True,
    "",
    "no such thing",
    "\0",
    b"x",
    [],
    [None],
    {},
    {1: 2},
    {"a": {}},
]
WRONG += [(), object(), Rude(), Path("nowhere"), int, lambda: None]


@cache
def graph() -> wl.Graph:
    ops = [Op("x", "MatMul", 1000, 10), Op("y", "MatMul", 1000, 10)]
    return assemble("two", ops, [Tensor("xy", 0, (1,), 8), Tensor("out", 1, (), 4, output=True)])


@cache
def plan() -> wl.Plan:
    return wl.plan(graph(), "two-gpus", solver="single-device", work_limit=1)


@cache
def schedule() -> wl.Schedule:
    return wl.schedule(wl.shape("vshape", 2), micro_batches=2, solver="1f1b", work_limit=1)


def _quick(**changes: Any) -> dict[str, Any]:
    return {"solver": "single-device", "work_limit": 1, **changes}


CALLS: dict[str, tuple[Callable[..., Any], Callable[[Path], dict[str, Any]]]] = {
    "load": (wl.load, lambda tmp: {"path": tmp / "graph.json", "shapes": {}, "dims": {}}),
    "load_problem": (
        wl.load_problem,
        lambda tmp: {
            "path": tmp / "graph.json",
            "cluster": "two-gpus",
            "shapes": {},
            "dims": {},
            "without": (),
            "objective": "latency",
            "stages": None,
        },
    ),
    "plan": (
        wl.plan,
        lambda tmp: _quick(
            model=graph(),
            cluster="two-gpus",
            objective="latency",
            runtime=None,
            transfers=None,
            communication=None,
            memory=None,
            stages=None,
            shapes={},
            dims={},
            without=(),
            costs=None,
            coarsen="none",
            model_file=None,
            reward="simulated",
            measurements=None,
            runtimes={},
            gap=None,
            time_limit=None,
            seed=0,
            settings={},
            on_event=None,
        ),
    ),
    "plan_stages": (
        wl.plan_stages,
        lambda tmp: _quick(
            model=graph(), cluster="two-gpus", stages=[1], communication=None, memory=None, gap=None, time_limit=None
        ),
    ),
    "shape": (wl.shape, lambda tmp: {"name": "vshape", "devices": 2, "train": True}),
    "schedule": (
        wl.schedule,
        lambda tmp: {
            "question": wl.shape("vshape", 2),
            "micro_batches": 2,
            "memory": None,
            "train": True,
            "split_backward": False,
            "recompute": False,
            "objective": "makespan",
            "arrivals": None,
            "solver": "1f1b",
            "gap": None,
            "time_limit": None,
            "work_limit": 1,
            "seed": 0,
            "robust": None,
            "settings": {},
            "on_event": None,
        },
    ),
    "simulate": (
        wl.simulate,
        lambda tmp: {
            "what": graph(),
            "placement": {"x": "gpu0", "y": "gpu0"},
            "cluster": "two-gpus",
            "order": None,
            "objective": "latency",
            "no_such_option": None,
        },
    ),
    "verify": (wl.verify, lambda tmp: {"plan": plan()}),
    "explain": (wl.explain, lambda tmp: {"plan": plan(), "op": None}),
    "diff": (wl.diff, lambda tmp: {"a": plan(), "b": plan()}),
    "answer": (wl.answer, lambda tmp: {"asked": wl.PlanRequest(**_quick(model=graph(), cluster="two-gpus"))}),
    "resolve": (wl.resolve, lambda tmp: {"request": wl.PlanRequest(model=graph(), cluster="two-gpus")}),
    "export": (
        wl.export,
        lambda tmp: {"answer": schedule(), "to": "torch-csv", "output": tmp / "out", "model": None, "runtimes": {}},
    ),
    "report": (
        wl.report,
        lambda tmp: {"answer": plan(), "output": None, "run": None, "sensitivity": None, "on_event": None},
    ),
    "fit": (
        wl.fit,
        lambda tmp: {
            "model": "llama-3.1-8b",
            "gpus": ["RTX 4090"],
            "cpus": ["DDR5-5600"],
            "ram": "64GB",
            "context": "8k",
            "quantisation": "q4_k_m",
            "concurrency": 1,
            "engine": "any",
            "splits": "32",
        },
    ),
    "Plan.load": (wl.Plan.load, lambda tmp: {"path": tmp / "plan.json"}),
    "Plan.save": (lambda path: plan().save(path), lambda tmp: {"path": tmp / "again.json"}),
    "Graph.save": (lambda path: graph().save(path), lambda tmp: {"path": tmp / "again.json"}),
    "Schedule.load": (wl.Schedule.load, lambda tmp: {"path": tmp / "schedule.json"}),
    "Cluster.load": (wl.Cluster.load, lambda tmp: {"path": tmp / "box.toml"}),
    "Cluster.preset": (wl.Cluster.preset, lambda tmp: {"name": "laptop"}),
    "Cluster.parse": (wl.Cluster.parse, lambda tmp: {"text": wl.Cluster.preset("laptop").to_toml()}),
}
REFUSED: dict[str, tuple[Callable[..., Any], dict[str, Any], tuple[str, ...]]] = {
    "detect": (wl.detect, {"devices": 2, "quick": True, "time_limit": "1s", "on_event": None}, ("quick", "devices")),
    "train": (
        wl.train,
        {"output": "x", "time_limit": "5s", "steps": None, "seed": 0, "resume": False},
        ("resume", "seed"),
    ),
    "profile": (
        wl.profile,
        {"model": "x", "cluster": "laptop", "shapes": {}, "dims": {}, "runtimes": {}, "repeats": 3, "cache": True},
        ("cache", "repeats"),
    ),
    "calibrate": (
        wl.calibrate,
        {"model": "x", "cluster": "laptop", "costs": "x", "rounds": 1, "time_limit": "5s"},
        ("rounds", "costs"),
    ),
    "run": (
        wl.run,
        {
            "answer": "x",
            "model": "x",
            "engine": "local",
            "requests": 1,
            "timeout": "5s",
            "watch": False,
            "inputs": None,
        },
        ("requests", "watch"),
    ),
    "from_torch": (wl.from_torch, {"module": 7, "inputs": None, "name": ""}, ("module", "inputs")),
    "from_openvino": (wl.from_openvino, {"model": 7, "name": ""}, ("model", "name")),
    "sweep": (
        wl.sweep,
        {
            "models": 7,
            "folder": "x",
            "clusters": (),
            "solvers": ("auto",),
            "seeds": (0,),
            "time_limit": "5s",
            "jobs": 1,
        },
        ("models", "jobs"),
    ),
}
"""Calls, and arguments of which one is wrong already, so that nothing is measured or trained here."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Files that the calls read; whatever is written lands here."""
    monkeypatch.chdir(tmp_path)
    graph().save(tmp_path / "graph.json")
    plan().save(tmp_path / "plan.json")
    schedule().save(tmp_path / "schedule.json")
    (tmp_path / "box.toml").write_text(wl.Cluster.preset("two-gpus").to_toml())
    return tmp_path


def test_every_verb_is_tried() -> None:
    """Tests that no function of the face is forgotten here."""
    verbs = {name for name in wl.__all__ if callable(getattr(wl, name)) and not isinstance(getattr(wl, name), type)}
    assert verbs <= {*CALLS, *REFUSED}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CALLS)
def test_wrong_types_are_our_errors(name: str, folder: Path) -> None:
    """Tests that a call with any one argument wrong succeeds, or raises a WeftlineError, never anything else."""
    call, make = CALLS[name]
    wrong = []
    for argument in make(folder):
        for value in (value for value in WRONG if argument != "on_event" or not callable(value)):
            given = make(folder) | {argument: value}
            try:
                call(**given)
            except wl.WeftlineError:
                continue
            except Exception as error:
                wrong.append(f"{name}({argument}={shown(value)}): {type(error).__name__}: {error!s:.200}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_types_are_refused(name: str, folder: Path) -> None:
    """Tests the same for verbs that measure, train or start processes; these calls never succeed."""
    call, given, spoilt = REFUSED[name]
    for argument in given:
        for value in WRONG:
            other = next({word: "no"} for word in spoilt if word != argument)
            with pytest.raises(wl.WeftlineError):
                call(**(given | other | {argument: value}))


@pytest.mark.parametrize(
    "inputs", [*(value for value in WRONG if value not in (None, [], {}, (), {"a": {}})), [3], [{1: 2}]]
)
def test_inputs_of_a_run(inputs: Any) -> None:
    """Tests that they are arrays by name, or a list of such, before the model is looked for."""
    with pytest.raises(wl.UsageError, match=r"^inputs(\[0\])? is a mapping like"):
        wl.run(plan(), model="no such model.onnx", inputs=inputs)


def test_times_and_shares_are_text_or_numbers() -> None:
    """Tests "5s", "1.5 min", bare numbers, numpy's numbers, and what is neither."""
    assert [seconds(value) for value in ("5s", "5", 5, 5.0, np.float64(5), "1.5 min", None)] == [*[5.0] * 5, 90.0, None]
    assert [a_share(value) for value in ("1%", "0.01", 0.01, None)] == [0.01, 0.01, 0.01, None]
    assert a_whole_number(np.int64(3), "n", 1, 4) == 3
    several_wrong: list[Any] = ["soon", "5 apples", -1, float("inf"), True, [], Rude()]
    for wrong in several_wrong:
        with pytest.raises(wl.UsageError):
            seconds(wrong)
    with pytest.raises(wl.UsageError, match="gap lies between"):
        a_share(2)
    with pytest.raises(wl.UsageError):
        a_number("3", "n")


def test_a_plan_within_text_limits() -> None:
    """Tests that the verbs understand them, and that the plan says what was meant."""
    made = wl.plan(graph(), "two-gpus", time_limit="5s", gap="1%", solver="single-device")
    assert (made.provenance.time_limit, made.provenance.gap) == (5.0, 0.01)
    found = wl.schedule(wl.shape("vshape", 2), micro_batches=2, solver="1f1b", time_limit="2s", gap="5%")
    assert (found.provenance.time_limit, found.provenance.gap) == (2.0, 0.05)


def test_a_solver_may_be_an_object() -> None:
    """Tests that a solver nobody registered solves, is named in the plan, and takes settings only if it says so."""

    def last(search: Search) -> None:
        search.offer(np.full(len(search.problem.graph.ops), len(search.problem.devices) - 1))

    mine = Solver("mine", "everything on the last device", last)
    for objective in ("latency", "throughput"):
        made = wl.plan(graph(), "two-gpus", objective=objective, copies=1, solver=mine)
        assert made.solver == "mine"
        assert set(made.placement.values()) == {list(made.devices)[-1]}
        wl.verify(made)
    with pytest.raises(wl.UsageError, match="mine"):
        wl.plan(graph(), "two-gpus", solver=mine, settings={"levels": "2"})


def test_a_scheduler_may_be_an_object() -> None:
    """Tests that schedules take one, too."""
    from weftline.schedule import Scheduler, schedulers

    mine = Scheduler("mine", "another name for 1f1b", schedulers()["1f1b"].solve)
    made = wl.schedule(wl.shape("vshape", 2), micro_batches=2, solver=mine)
    assert made.solver == "mine"
    wl.verify(made)
