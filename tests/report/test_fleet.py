"""The page, the pictures and the notebook view of fleet plans: readable without colour, hostile names stay text."""

from __future__ import annotations

import html
import re
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest
from tests.export.fleet_plans import HOSTILE, fleet_of, hostile_fleet, small_fleet, small_problem
from tests.report.page_samples import parts

import weftline as wl
from weftline.ask import make_fleet
from weftline.errors import VerificationError
from weftline.export.fleet_picture import MOST_DEVICES, MOST_LANES, FleetPicture, FrontPicture
from weftline.export.picture import to_png, to_svg
from weftline.plans.fleet_result import FleetResult, FleetUse, LaneUse, simulate_fleet
from weftline.plans.fleet_story import FleetStory, fleet_guarantee
from weftline.report.fleet import fleet_comparison_rows, fleet_device_rows, fleet_pictures, front_table, lane_rows
from weftline.report.html import report_html
from weftline.testing import random_problem

BUSY = "busy all the time, so more inputs need less work there, or another way"
SVG = "{http://www.w3.org/2000/svg}"


def words_of(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter(f"{SVG}text")]


def test_the_page(tmp_path: Path) -> None:
    """Tests that value, guarantee, lanes, baselines and devices are on it, and that it was verified."""
    plan = small_fleet()
    plan.save(tmp_path / "fleet.json")
    page = wl.report(tmp_path / "fleet.json", tmp_path / "page.html")
    assert page == (tmp_path / "page.html").read_bytes()
    found = parts(page)
    assert html.escape(fleet_guarantee(plan)) in found.text.replace("&#39;", "&#x27;")
    for word in (
        "1,463,415 inputs/s",
        "replicas",
        "verified",
        "66.67%",
        "d1 (1 op) &gt; d0 (2 ops)",
        "busy all the time",
    ):
        assert word in found.text, word
    assert found.text.count("<svg xmlns") == 1
    assert not re.search(r"\sstyle=|\son\w+=", found.text)
    assert not re.search(r"https?://|url\((?!#)", found.text.replace("http://www.w3.org/2000/svg", ""))


def test_a_lie_has_no_page() -> None:
    """Tests that a plan that says more than its lanes give is refused, and so is one with a false bound."""
    plan = small_fleet()
    with pytest.raises(VerificationError, match="not what the plan says"):
        report_html(msgspec.structs.replace(plan, rate=plan.rate * 2))
    with pytest.raises(VerificationError, match="does not hold"):
        report_html(msgspec.structs.replace(plan, gap=0.5))
    with pytest.raises(wl.UsageError, match="sensitivity"):
        wl.report(plan, sensitivity=3)


def test_hostile_names_stay_text() -> None:
    """Tests that no text of a plan becomes markup, in the page, the picture and the notebook."""
    plan = hostile_fleet()
    found = parts(report_html(plan))
    assert "<img" not in found.text
    assert found.text.count("<script") == 2
    assert html.escape(f"model {HOSTILE}") in found.text
    for text in (plan._repr_html_(), to_svg(FleetPicture(simulate_fleet(plan)))):
        assert "<img" not in text
        assert "<script" not in text


def test_a_notebook_shows_it() -> None:
    """Tests tables and picture."""
    text = small_fleet()._repr_html_()
    assert len(text) < 200_000
    assert text.count("<table>") == 3
    assert "<svg" in text
    assert "1,463,415 inputs/s" in text


def test_the_front_is_drawn_where_there_is_one() -> None:
    """Tests rate against depth from rows (depth, rate, bound or nothing), on the page and alone."""
    assert set(fleet_pictures(small_fleet(), simulate_fleet(small_fleet()))) == {"lanes"}
    svg = to_svg(FrontPicture([(9, 200.0, 200.0), (1, 100.0, 120.0), (3, 180.5, None)]))
    assert {"1", "3", "9"} <= set(words_of(svg))
    assert words_of(to_svg(FrontPicture([]))) == ["Rate against devices in a row"]
    points = list(ElementTree.fromstring(svg).iter(f"{SVG}rect"))
    heights = [float(point.attrib["y"]) for point in points if point.attrib["width"] == "8.00"][:3]
    assert heights == sorted(heights, reverse=True)
    assert front_table(small_fleet(), "tokens") is None


def test_ribbons_are_as_thick_as_their_shares() -> None:
    """Tests boxes of lanes in a drawing without colour: their height is the share, and every lane is in the legend."""
    plan = fleet_of(small_problem(), [lambda _: "d0", lambda _: "d1"], [3 * 10**9, 10**9])
    svg = to_svg(FleetPicture(simulate_fleet(plan)))
    words = words_of(svg)
    assert "lane 0: 75.0% of the inputs, a whole copy on d0" in words
    assert "lane 1: 25.0% of the inputs, a whole copy on d1" in words
    assert "0: 75%" in words
    boxes = [element.attrib["height"] for element in ElementTree.fromstring(svg).iter(f"{SVG}rect")]
    assert {"36.00", "12.00"} <= set(boxes)
    assert 'fill="url(#weft-' in svg  # a lane differs by hatching, too


@pytest.mark.parametrize("seed", range(8))
def test_any_fleet_is_drawn(seed: int) -> None:
    """Tests random fleets: well-formed, every lane in the legend, and nothing leaves the page."""
    problem = random_problem(seed, "throughput", max_ops=9, max_devices=4, stages=0, limits=False)
    found = simulate_fleet(make_fleet(problem, work_limit=30))
    root = ElementTree.fromstring(to_svg(FleetPicture(found)))
    words = [element.text or "" for element in root.iter(f"{SVG}text")]
    assert sum(word.startswith("lane ") for word in words) == len(found.lanes)
    for box in root.iter(f"{SVG}rect"):
        x, y, width, height = (float(box.attrib.get(name, 0)) for name in ("x", "y", "width", "height"))
        assert min(x, y, width, height) >= 0
        assert x + width <= float(root.attrib["width"]) + 1e-6
        assert y + height <= float(root.attrib["height"]) + 1e-6


def test_a_plan_without_a_rate_is_told_without_dividing() -> None:
    """Tests the words for a file that claims a rate of 0."""
    plan = msgspec.structs.replace(small_fleet(), rate=0.0, bound_ns=1)
    assert fleet_guarantee(plan) == "This plan gives nothing, so any other is better."


def many(devices: int, lanes: int) -> FleetResult:
    """As many copies as there are lanes."""
    uses = tuple(FleetUse(f"gpu{d}", 1 - d / 10**4, None, None, ((0, 5),)) for d in range(devices))
    ways = tuple(LaneUse(10**6, 1 / lanes, 1, None, ((n % devices, 0, 5),)) for n in range(lanes))
    return FleetResult("many", "layer", [f"layer {n}" for n in range(5)], uses, ways, unit="tokens")


def test_large_clusters_are_cut() -> None:
    """Tests that a thousand devices and lanes make a drawing of some rows, which says what it leaves out."""
    found = many(1000, 1000)
    svg = to_svg(FleetPicture(found))
    words = words_of(svg)
    assert len(svg) < 200_000
    assert f"and {1000 - MOST_LANES} more lanes, which are not drawn" in words
    assert f"and {1000 - MOST_DEVICES} more devices, which are not drawn" in words
    assert "first layer" in words
    assert any("of the tokens" in word for word in words)
    assert lane_rows(found)[1][-1][0].endswith("more")
    assert fleet_device_rows(found)[1][-1][0] == "and 900 more"
    story = FleetStory(found, "", None, {})
    assert story.lines() == ["gpu0, gpu1, gpu2, gpu3, gpu4, gpu5, gpu6, gpu7 and 3 more: " + BUSY]


def test_png() -> None:
    """Tests that the same is drawn as PNG."""
    assert to_png(FleetPicture(simulate_fleet(small_fleet()))).startswith(b"\x89PNG")
    assert to_png(FrontPicture([(1, 2.0, 3.0), (2, 2.5, None)])).startswith(b"\x89PNG")


def test_export(tmp_path: Path) -> None:
    """Tests the verb for both formats."""
    (file,) = wl.export(small_fleet(), "svg", tmp_path / "x.svg")
    root = ElementTree.fromstring(file.read_text())
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= {
        "svg", "title", "defs", "pattern", "path", "rect", "text"
    }  # fmt: skip
    assert wl.export(small_fleet(), "png", tmp_path)[0].read_bytes().startswith(b"\x89PNG")


def test_rows_of_the_comparison() -> None:
    """Tests gains over every simple plan, and a baseline that breaks a limit."""
    plan = msgspec.structs.replace(small_fleet(), baselines={"replicas": small_fleet().rate / 2, "slice": None})
    rows = fleet_comparison_rows(plan)[1]
    assert rows[1] == ("replicas", "731,707 inputs/s", "+100.00%")
    assert rows[2] == ("slice", "breaks a limit", "")
    better = msgspec.structs.replace(plan, baselines={"replicas": plan.rate * 2})
    assert "A simple plan is better than this one: replicas" in report_html(better).decode()
