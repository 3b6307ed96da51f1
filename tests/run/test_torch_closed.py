"""Tests of what the ranks of torch.distributed take from outside: no pickles, and connections of this machine alone."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from tests.run.test_plan_torch import cluster
from tests.run.test_torch_run import MODEL, SMALL, timetable

import weftline as wl
from weftline import zoo
from weftline.errors import InputError, WeftlineError
from weftline.measure.links import measure_gloo
from weftline.run import run_schedules
from weftline.run.dist.run import run_plan_torch
from weftline.run.train import launch
from weftline.schedule.make_blocks import make_shape

pytestmark = pytest.mark.slow

HOOK = '''
"""Every Python process imports this at its start: whoever unpickles leaves a file with his stack, and fails."""
import _pickle, os, pickle, traceback

FOLDER = os.environ["WEFTLINE_TEST_PICKLES"]


def refuse(*_, **__):
    with open(os.path.join(FOLDER, f"read-{os.getpid()}"), "a") as file:
        file.write("".join(traceback.format_stack()))
    raise RuntimeError("a pickle was read")


class Refused(_pickle.Unpickler):
    load = refuse


pickle._Unpickler.load = refuse
for module in (pickle, _pickle):
    module.load = module.loads = refuse
    module.Unpickler = Refused
pickle._load = pickle._loads = refuse
open(os.path.join(FOLDER, f"began-{os.getpid()}"), "w").close()
'''


@pytest.fixture
def hooked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder where processes that are started from now on say that they read a pickle."""
    hook, said = tmp_path / "hook", tmp_path / "said"
    hook.mkdir()
    said.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join((str(hook), os.environ.get("PYTHONPATH", ""))))
    monkeypatch.setenv("WEFTLINE_TEST_PICKLES", str(said))
    return said


def train() -> None:
    """Both engines, stages on one rank and on several, split backward."""
    shapes = {"linear": "torch", "zigzag": "torch", "interleaved": "torch", "kshape": "weftline"}
    pairs = [(timetable(make_shape(shape, 2), 4), engine) for shape, engine in shapes.items()]
    for result in run_schedules(pairs, model=SMALL, steps=2, seeds=2):
        result.check()


def run_plan(folder: Path) -> None:
    """A pipeline of two devices."""
    path = folder / "resnet50.onnx"
    zoo.save(zoo.build("resnet50", size="small"), path)
    plan = wl.plan(wl.load(path), cluster(2), objective="throughput", copies=1, work_limit=50, solver="even-split")
    result = run_plan_torch(plan, model=path, requests=20)
    assert result is not None
    result.check()


def measure() -> None:
    """Links."""
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    measure_gloo((1024, 2**16), cores=(cores[:1], cores[-1:]), rounds=20)


def test_no_rank_reads_a_pickle(hooked: Path, tmp_path: Path) -> None:
    """Tests whole runs of schedules and plans, and links, in processes that cannot unpickle."""
    for run in (train, lambda: run_plan(tmp_path), measure):
        before = len(list(hooked.glob("began-*")))
        try:
            run()
        finally:  # the stack of the one who read says most
            assert [path.read_text() for path in hooked.glob("read-*")] == []
        assert len(list(hooked.glob("began-*"))) > before  # the hook was there


def test_a_rank_that_is_asked_for_pickles_fails() -> None:
    """Tests that torch's exchange of shapes, which any rank can ask for, is refused."""
    with pytest.raises(WeftlineError, match="a pickle"):
        run_schedules([(timetable(make_shape("linear", 2), 2), "torch")], model=f"{MODEL}:asks_for_pickles", steps=1)


def test_shapes_that_differ_from_stage_to_stage() -> None:
    """Tests tensors of other widths and types between stages."""
    shapes = ("linear", "zigzag", "interleaved")
    pairs = [(timetable(make_shape(shape, 2), 4), "torch") for shape in shapes]
    for result in run_schedules(pairs, model=f"{MODEL}:widening", steps=2):
        result.check()
    with pytest.raises(InputError, match="stage 0 gives tuple, not one tensor"):
        run_schedules(pairs[:1], model=f"{MODEL}:gives_two", steps=1)


@pytest.mark.skipif(sys.platform != "linux", reason="the name of the loopback device")
@pytest.mark.parametrize("what", ["schedules", "plan", "links"])
def test_ranks_listen_on_this_machine_alone(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests the addresses of all sockets that wait for connections."""
    for name in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        monkeypatch.delenv(name, raising=False)
    runs = {"schedules": train, "plan": lambda: run_plan(tmp_path), "links": measure}
    found = listening_during(runs[what])
    assert found
    assert found <= {"127.0.0.1", "::1"}


def test_an_interface_that_is_named_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the user's setting stays; and so that the test before sees sockets of other addresses."""
    others = {name: [a.address for a in found] for name, found in psutil.net_if_addrs().items() if name != "lo"}
    up = [name for name, state in psutil.net_if_stats().items() if state.isup and name in others]
    named = next((name for name in up if any(a.count(".") == 3 for a in others[name])), None)
    if sys.platform != "linux" or named is None:
        pytest.skip("there is no other interface")
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", named)
    found = listening_during(measure)
    assert found
    assert found <= {address.split("%")[0] for address in others[named]}


@pytest.mark.skipif(sys.platform != "linux", reason="the name of the loopback device")
def test_ranks_are_told_the_loopback_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests what is set where the user set nothing, or an empty text."""
    told: dict[str, str] = {}
    monkeypatch.setattr(launch, "Child", lambda *_, environment, **__: told.update(environment))
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "")
    monkeypatch.delenv("NCCL_SOCKET_IFNAME", raising=False)
    launch._start("module", tmp_path, range(2), 2)
    assert told["GLOO_SOCKET_IFNAME"] == told["NCCL_SOCKET_IFNAME"] == "lo"
    monkeypatch.setenv("GLOO_SOCKET_IFNAME", "eth7")
    launch._start("module", tmp_path, range(2), 2)
    assert told["GLOO_SOCKET_IFNAME"] == "eth7"


def listening_during(run: Callable[[], None]) -> set[str]:
    """Addresses on which children of this process wait for connections while it runs."""
    found: set[str] = set()
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.02):
            for child in psutil.Process().children(recursive=True):
                try:
                    sockets = child.net_connections(kind="inet")
                except psutil.Error:
                    continue
                found.update(s.laddr.ip for s in sockets if s.status == psutil.CONN_LISTEN)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        run()
    finally:
        over.set()
        watcher.join()
    return found
