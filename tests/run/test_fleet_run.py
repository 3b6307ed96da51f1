"""Tests of running fleets: outputs are right, shares are kept, a lost worker ends all, nothing piles up."""

from __future__ import annotations

import json
import os
import signal
import threading
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
from tests.run.fleet_samples import fleet_plan, fleet_problem
from tests.run.local_samples import expected, feeds, small_model, team
from tests.run.test_turns import BACK, COPY, CUT, OTHER
from typer.testing import CliRunner

import weftline as wl
from weftline.ask.fleets import make_fleet
from weftline.cli.main import app
from weftline.errors import ExecutionMismatch, InputError, UsageError, WeftlineError
from weftline.plans.fleet import FleetPlan
from weftline.run.compare import difference
from weftline.run.dist.run import run_plan_torch
from weftline.run.local import watch as local_watch
from weftline.run.local.engine import Engine, WorkerLost
from weftline.run.local.run import run_local
from weftline.run.local.watch import run_watched
from weftline.run.turns import lane_turns

STAGES = [[0] * 6 + [1] * 8, [0] * 6 + [2] * 8]
"""Two lanes that share their first stage; the second stage is there twice."""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("fleet") / "small.onnx")


def test_two_copies_with_unequal_shares(model: Path) -> None:
    """Tests outputs, exact shares, and that total, lanes and devices are told, measured beside planned."""
    plan = fleet_plan(model, [COPY, OTHER], [2, 1], (1, 0.5))
    found = run_local(plan, model=model, requests=60)
    found.check(1e-4)
    assert [(lane.requests, lane.devices, lane.segments) for lane in found.lanes] == [
        (40, ("d0",), 1),
        (20, ("d1",), 1),
    ]
    assert [lane.share for lane in found.lanes] == pytest.approx([2 / 3, 1 / 3])
    assert sum(lane.predicted_rate for lane in found.lanes) == pytest.approx(plan.rate)
    assert all(lane.measured_rate and lane.measured_rate > 0 for lane in found.lanes)
    assert [run.predicted_busy for run in found.devices] == [plan.devices[id].busy for id in ("d0", "d1")]
    assert all(0 < run.utilisation <= 1 and run.ops == 14 for run in found.devices)
    assert found.predicted_ns == plan.value_ns
    assert set(found.baselines) == {"2 whole-model replicas", next(iter(found.baselines))}
    told = found.summary()
    assert "lane 0 (d0): 40 requests, 66.7% planned" in told
    assert "(planned 100%)" in told
    assert msgspec.json.decode(msgspec.json.encode(found.to_json()))["lanes"][1]["requests"] == 20


def test_a_copied_stage_on_three_devices(model: Path) -> None:
    """Tests that two devices take turns with what one makes, and that its segment is one session for both lanes."""
    plan = fleet_plan(model, STAGES, [2, 1], (1, 1, 0.5))
    found = wl.run(plan, model=model, requests=30, baselines=False)
    assert found is not None
    found.check(1e-4)
    lanes = found.to_json()["lanes"]
    assert [(lane["requests"], list(lane["devices"])) for lane in lanes] == [(20, ["d0", "d1"]), (10, ["d0", "d2"])]


MIXED: tuple[tuple[list[list[int]], tuple[int, ...]], ...] = (
    ([COPY, OTHER, CUT, BACK, [1] * 6 + [0] * 8], (5, 3, 2, 1, 2)),
    ([BACK], (1,)),
    ([[i % 3 for i in range(14)], [2 - i % 3 for i in range(14)]], (1, 3)),
    (STAGES, (1, 1)),
)


@pytest.mark.parametrize(("lanes", "rates"), MIXED, ids=["all kinds", "there and back", "scattered", "shared stage"])
def test_outputs_of_every_request(model: Path, lanes: list[list[int]], rates: tuple[int, ...]) -> None:
    """Tests that each request gets the outputs of its own inputs, whichever lane it takes, in run after run."""
    given = feeds(5)
    wanted = [expected(model, feed) for feed in given]
    with team(model, lanes, rates) as running:
        for count in (70, 3, 41):
            done = running.run([count], given, keep=[frozenset(range(count))])[0]
            assert list(done.turns) == lane_turns(rates, count)
            assert sorted(done.kept) == list(range(count))
            assert all(sent < end for sent, end in zip(done.sent_ns, done.done_ns, strict=True))
            assert list(done.sent_ns) == sorted(done.sent_ns)  # in the order of the requests
            for request, outputs in done.kept.items():
                theirs = wanted[request % len(given)]
                assert difference([outputs[n] for n in sorted(outputs)], [theirs[n] for n in sorted(theirs)]) < 1e-4


def test_nothing_piles_up_before_a_slow_device(tmp_path: Path) -> None:
    """Tests back-pressure: with one lane on a device that is very slow, few requests are sent ahead of the last answer,
    although the other lane could take far more; and shares are kept."""
    model = small_model(tmp_path / "wide.onnx", width=256)
    with team(model, [COPY, OTHER], (1, 1), (1, 0.02)) as running:
        done = running.run([120], feeds(width=256))[0]
    ended = np.sort(done.done_ns)
    on_their_way = np.arange(1, 121) - np.searchsorted(ended, done.sent_ns)
    assert on_their_way.max() <= 2 * 16 + 2  # slots of the rings of both lanes
    by_lane = Counter(done.turns)
    assert by_lane[0] == by_lane[1] == 60
    slow = np.diff([end for lane, end in zip(done.turns, done.done_ns, strict=True) if lane == 1])
    fast = np.diff([end for lane, end in zip(done.turns, done.done_ns, strict=True) if lane == 0])
    assert (
        1 / 4 < np.mean(fast[20:]) / np.mean(slow[20:]) < 4
    )  # one waits for the other; alone it would be 50 times as fast


@pytest.mark.parametrize("victim", [0, 2])
def test_a_worker_that_is_killed(model: Path, victim: int) -> None:
    """Tests that its end is noticed, named and told with its signal, and that no other worker is left."""
    with team(model, STAGES, (1, 1)) as running:
        pids = running.pids
        threading.Timer(0.2, os.kill, (pids[victim], signal.SIGKILL)).start()
        with pytest.raises(WorkerLost, match=rf"device 'd{victim}' was ended by SIGKILL") as caught:
            running.run([10**6], feeds())
    assert caught.value.devices == {f"d{victim}"}
    assert not any(psutil.pid_exists(pid) for pid in pids)


def test_a_worker_that_hangs(model: Path) -> None:
    """Tests that a stopped worker is a hang after the timeout, although the other lane goes on as long as it can."""
    with team(model, [COPY, OTHER], (1, 1)) as running:
        pids = running.pids
        os.kill(pids[1], signal.SIGSTOP)
        running.timeout = 2
        with pytest.raises(WeftlineError, match=r"no worker has given a sign of life for 2 s.*d1 \(stopped\)"):
            running.run([10**6], feeds())
    assert not any(psutil.pid_exists(pid) for pid in pids)


def watched_plan(tmp_path: Path) -> tuple[FleetPlan, Path]:
    path = small_model(tmp_path / "watched.onnx", width=256)
    return make_fleet(fleet_problem(path, (1, 1)), work_limit=50), path


def test_a_slow_device_brings_a_new_fleet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests with times that say one is slow: its share becomes smaller, no request is lost."""
    plan, path = watched_plan(tmp_path)
    monkeypatch.setattr(
        local_watch._Watched, "_slower", lambda self, *_: {"d0": 1.0, "d1": 1.0 if self.switches else 3.0}
    )
    found = run_watched(plan, model=path, requests=200)
    found.check(1e-4)
    assert found.answered == found.requests == sum(entry.requests for entry in found.rounds) == 200
    (switch,) = found.switches
    assert switch.devices == {"d0": 1.0, "d1": 3.0}
    assert 0 < switch.new_ns < switch.kept_ns
    assert isinstance(found.plan, FleetPlan)
    assert found.plan.rate < plan.rate
    assert "new plan" in found.summary()


@pytest.mark.parametrize("fleet", [True, False], ids=["fleet", "pipeline"])
def test_a_lost_device_brings_a_new_plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleet: bool) -> None:
    """Tests that a worker that is killed in the second round leads to a plan without it; none is answered twice."""
    plan: Any
    plan, path = watched_plan(tmp_path)
    if not fleet:
        plan = wl.plan(plan.load_problem(), solver="even-split", work_limit=1)
    run, calls = Engine.run, Counter[str]()

    def with_a_loss(self: Engine, counts: Sequence[int], *rest: Any, **how: Any) -> Any:
        calls["all"] += 1
        if calls["all"] == 4:  # after the warm-up, the unsplit model and one round
            os.kill(self.pids[1], signal.SIGKILL)
        return run(self, counts, *rest, **how)

    monkeypatch.setattr(Engine, "run", with_a_loss)
    found = run_watched(plan, model=path, requests=60)
    found.check(1e-4)
    assert found.answered == sum(entry.requests for entry in found.rounds) == 60
    (switch,) = found.switches
    assert len(switch.lost) == 1
    assert switch.after > 0
    assert f"{switch.lost[0]} lost; a new plan takes" in found.summary()
    assert not isinstance(found.plan, FleetPlan) or [entry.device for entry in found.plan.instances] != [*switch.lost]


def test_the_last_device_is_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the run ends with what happened where no plan is left."""
    path = small_model(tmp_path / "m.onnx")
    plan = fleet_plan(path, [COPY], [1], (1,))
    lost = WorkerLost("the worker of device 'd0' was ended", frozenset({"d0"}))

    def lose(*_: Any, **__: Any) -> Any:
        raise lost

    monkeypatch.setattr(local_watch._Watched, "_until_late", lose)
    with pytest.raises(WorkerLost, match="'d0' was ended"):
        run_watched(plan, model=path, requests=10)


def test_over_torch_distributed(model: Path) -> None:
    """Tests that processes of torch.distributed give the model's outputs with the same shares, on all kinds of lane."""
    lanes, rates = MIXED[0]
    plan = fleet_plan(model, lanes, rates, (1, 0.5))
    found = run_plan_torch(plan, model=model, requests=26)
    assert found is not None
    found.check(1e-4)
    assert [lane.requests for lane in found.lanes] == [10, 6, 4, 2, 4]
    assert found.compared == 26 + (2 * 2 + 2) * 5
    assert [(rank.device, rank.ops) for rank in found.ranks] == [("d0", 14), ("d1", 14)]
    assert "lane 4 (d1 -> d0): 4 requests" in found.summary()
    with pytest.raises(ExecutionMismatch):
        found.check(-1.0)


def test_from_the_command_line(model: Path, tmp_path: Path) -> None:
    """Tests a planned fleet from its file, by both engines, and what is refused."""
    fleet_plan(model, STAGES, [2, 1], (1, 1, 0.5)).save(tmp_path / "fleet.json")
    call = ["run", str(tmp_path / "fleet.json"), "--model", str(model), "--requests", "12", "--json"]
    for engine in (["--no-baselines"], ["--engine", "torch"]):
        done = CliRunner().invoke(app, [*call, *engine])
        assert done.exit_code == 0, done.output
        said = json.loads(done.stdout)
        assert [lane["requests"] for lane in said["lanes"]] == [8, 4]
        assert said["max_output_difference"] < 1e-3
    with pytest.raises(UsageError, match="a fleet runs by engine local or torch"):
        wl.run(tmp_path / "fleet.json", model=model, engine="openvino")
    with pytest.raises(UsageError, match="a fleet runs by engine local or torch"):
        wl.run(tmp_path / "fleet.json", model=model, runtimes={"d0": "openvino:CPU"})
    with pytest.raises(InputError, match="not the model"):
        wl.run(tmp_path / "fleet.json", model=small_model(tmp_path / "other.onnx", layers=3))
