"""Fleet plans of layers on devices with tables: every verb that looks at them, their pages, fronts and router files."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from tests.report.page_samples import HOSTILE, parts
from typer.testing import CliRunner

import weftline as wl
from weftline.ask.layers import make_layer_plan
from weftline.cli.main import app
from weftline.errors import InputError, UsageError, VerificationError
from weftline.plans.fleet import load_fleet
from weftline.plans.fleet_result import simulate_fleet
from weftline.plans.layers import LayerPlan
from weftline.plans.records import FLEET_TABLES
from weftline.problem.layers import DevicePool, LayerLane, LayerProblem, LayerUnit
from weftline.report.fleet import fleet_pictures, front_table
from weftline.report.html import report_html

BIG, SMALL = (9_000_000, 4_500_000, 3_000_000, 2_250_000), (4_000_000, 2_000_000)


def problem(name: str = "llm", pool: str = "big") -> LayerProblem:
    """Four layers on two large devices, which hold all of them, and three small ones, which hold two at most."""
    pools = (DevicePool(pool, 2), DevicePool("small", 3))
    return LayerProblem(name, 4, pools, (LayerUnit("B", 0, BIG), LayerUnit("S", 1, SMALL)))


@cache
def plan() -> LayerPlan:
    return make_layer_plan(problem(), work_limit=50)


def test_the_result_is_what_the_plan_says() -> None:
    """Tests rate, instances, shares of their time, and devices that hold nothing."""
    found = simulate_fleet(plan())
    assert (found.rate, found.value, found.depth) == (plan().rate, plan().value_ns, plan().depth)
    assert (found.part, len(found.names)) == ("layer", 4)
    assert not found.violations
    held = {use.id: use.holds for use in found.devices if use.holds}
    assert held == {"+".join(one.devices): ((one.first, one.last),) for one in plan().instances}
    assert {name for use in found.devices for name in use.id.split("+")} == set(problem().device_names())
    assert all(0 <= use.busy <= 1 for use in found.devices)
    assert sum(lane.share for lane in found.lanes) == pytest.approx(1)


def test_verbs(tmp_path: Path) -> None:
    """Tests simulate, explain, diff, report and export of the file, by the command line and from Python."""
    file, other = tmp_path / "plan.json", tmp_path / "other.json"
    plan().save(file)
    make_layer_plan(msgspec.structs.replace(problem(), max_depth=1), work_limit=50).save(other)
    assert load_fleet(file) == plan()

    def ask(*words: str | Path) -> str:
        return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False).output

    assert "units/s" in ask("simulate", file)
    assert "No deployment of this model" in ask("explain", file)
    assert "other max_depth" in ask("diff", other, file)
    assert "the plans are the same" in ask("diff", file, file)
    ask("report", file, "-o", tmp_path / "page.html")
    assert "units/s" in (tmp_path / "page.html").read_text()
    router = json.loads(wl.export(file, "router", tmp_path / "out")[0].read_bytes())
    assert router["part"] == "layer"
    assert len(router["lanes"]) == len(plan().lanes)
    with pytest.raises(UsageError, match="does not say"):
        wl.export(file, "vllm", tmp_path / "vllm")
    for name in FLEET_TABLES:
        assert plan().table(name)
    assert "<svg" in plan()._repr_html_()


def test_the_front() -> None:
    """Tests that the rates of smaller depths are a picture and a table."""
    drawn = fleet_pictures(plan(), simulate_fleet(plan()))
    assert set(drawn) == {"lanes", "front"}
    words = [element.text for element in ElementTree.fromstring(drawn["front"]).iter() if element.tag.endswith("text")]
    assert {str(point.depth) for point in plan().front} <= set(words)
    table = front_table(plan(), "units")
    assert table is not None
    assert table.row_count == len(plan().front)
    assert parts(report_html(plan())).text.count("<svg xmlns") == 2


def test_hostile_names_stay_text() -> None:
    """Tests names of the model and of devices in the page and the notebook."""
    evil = make_layer_plan(problem(f"model {HOSTILE}", f"d{HOSTILE}"), work_limit=20)
    found = parts(report_html(evil))
    assert "<img" not in found.text
    assert found.text.count("<script") == 2
    assert "<img" not in evil._repr_html_()


def test_what_does_not_hold() -> None:
    """Tests another rate, lanes over instances that are not there, and instances of unknown devices."""
    with pytest.raises(VerificationError, match="not what the plan says"):
        report_html(msgspec.structs.replace(plan(), rate=plan().rate * 2))
    for hops in (((99, 0, 4),), ((0, 4, 0),)):
        with pytest.raises(InputError, match="a lane goes over"):
            simulate_fleet(msgspec.structs.replace(plan(), lanes=(LayerLane(1, hops),)))
    one = msgspec.structs.replace(plan().instances[0], devices=("nobody",))
    with pytest.raises(InputError, match="no known device"):
        simulate_fleet(msgspec.structs.replace(plan(), instances=(one, *plan().instances[1:])))
    with pytest.raises(InputError, match="rates above 0"):
        simulate_fleet(msgspec.structs.replace(plan(), lanes=()))
