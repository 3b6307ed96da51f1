"""`simulate`, `explain`, `diff`, `report` and `export` of fleet plans, by the command line."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from tests.export.fleet_plans import small_fleet, small_problem
from typer.testing import CliRunner, Result

from weftline.ask import make_plan
from weftline.cli.main import app
from weftline.errors import InputError, UsageError, VerificationError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "fleet.json"
    small_fleet().save(path)
    return path


def ask(*words: str | Path) -> Result:
    """The result of a command; errors come through."""
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False, env={"COLUMNS": "160"})


def test_simulate(file: Path) -> None:
    """Tests rate, period, shares, latency; and JSON."""
    done = ask("simulate", file)
    for word in ("1,463,415 inputs/s (684 ns per input)", "one input alone takes 1.24 us .. 1.47 us", "66.67%", "d0"):
        assert word in done.output, word
    told = json.loads(ask("simulate", file, "--json").stdout)
    assert told["value_ns"] == told["plan_value_ns"] == small_fleet().value_ns
    assert [lane["latency_ns"] for lane in told["lanes"]] == [1240, 1470]
    assert set(told["devices"]) == {"d0", "d1"}
    with pytest.raises(UsageError, match="no trace"):
        ask("simulate", file, "--trace", file.with_name("trace.json"))


def test_explain(file: Path) -> None:
    """Tests what binds, prices, baselines; and JSON."""
    done = ask("explain", file)
    for word in ("d0, d1: busy all the time", "raises the bound by", "replicas", "+34.48%", "No deployment"):
        assert word in done.output, word
    told = json.loads(ask("explain", file, "--json").stdout)
    assert told["saturated"] == ["d0", "d1"]
    assert told["baselines"]["replicas"]["gain"] == pytest.approx(0.3448, abs=1e-4)
    with pytest.raises(UsageError, match="a fleet plan, whose lanes each have a placement"):
        ask("explain", file, "--op", "op0")


def test_diff(file: Path, tmp_path: Path) -> None:
    """Tests fleets, a fleet beside a pipeline, and a fleet beside a schedule."""
    assert "the plans are the same" in ask("diff", file, file).output
    pipeline, copies = tmp_path / "plan.json", tmp_path / "copies.json"
    make_plan(small_problem(), work_limit=50).save(pipeline)
    small_fleet("replicas").save(copies)
    assert "(+34.48%)" in ask("diff", copies, file).output
    assert "rate of the pipeline" in ask("diff", pipeline, file).output
    assert json.loads(ask("diff", file, pipeline, "--json").stdout)["kinds"] == ["fleet", "pipeline"]
    schedule = tmp_path / "sched.json"
    ask("schedule", "--shape", "vshape", "--devices", "2", "--micro-batches", "2", "--work", "1", "-o", schedule)
    with pytest.raises(UsageError, match="cannot be compared"):
        ask("diff", schedule, file)


def test_report_and_export(file: Path, tmp_path: Path) -> None:
    """Tests that both verbs take the file."""
    ask("report", file, "-o", tmp_path / "page.html")
    assert "1,463,415 inputs/s" in (tmp_path / "page.html").read_text()
    assert json.loads(ask("export", file, "--to", "router", "-o", tmp_path / "out", "--json").stdout) == {
        "files": [str(tmp_path / "out" / "router.json")]
    }
    assert "router" in ask("export", "--to", "help").output


@pytest.mark.parametrize("verb", ["simulate", "explain"])
def test_what_does_not_hold(verb: str, file: Path) -> None:
    """Tests a file that claims another rate, and one whose lanes are broken."""
    plan = small_fleet()
    msgspec.structs.replace(plan, rate=plan.rate * 2).save(file)
    with pytest.raises(VerificationError, match="not what the plan says"):
        ask(verb, file)
    hops = tuple(msgspec.structs.replace(lane, hops=lane.hops[:1]) for lane in plan.lanes)
    msgspec.structs.replace(plan, lanes=hops).save(file)
    with pytest.raises(InputError, match=r"fleet\.json: a lane ends before the last op"):
        ask(verb, file)
