"""The report in a real browser: it opens without errors and without any request, and can be used by mouse and keyboard.

Needs Chromium on the path. In CI a missing browser is a failure; elsewhere these tests are skipped with a reason.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from tests.e2e.chromium import chromium
from tests.report.page_samples import HOSTILE, KINDS, hostile_plan, plan_sample, run_of, sample

from weftline.report.html import MOST_BYTES, report_html
from weftline.report.html.run import run_table
from weftline.report.html.sensitivity import Help


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests of the file."""
    path = chromium()
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield opened
        opened.close()


@dataclass
class Seen:
    """An open page, and all that went wrong or out."""

    page: Page
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def quiet(self) -> None:
        """Nothing was said on the console, and only the file itself was read."""
        assert self.errors == []
        assert [url for url in self.requests if not url.startswith("file://")] == []
        assert len(self.requests) == 1


def show(browser: Browser, file: Path, *, width: int = 1200, **context: object) -> Seen:
    """Open a file and wait until its pictures are drawn."""
    for before in browser.contexts:
        before.close()
    page = browser.new_context(viewport={"width": width, "height": 800}, **context).new_page()  # type: ignore[arg-type]
    seen = Seen(page)
    page.on("console", lambda message: seen.errors.append(message.text))
    page.on("pageerror", lambda error: seen.errors.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("dialog", lambda dialog: seen.errors.append(f"dialog {dialog.message}"))
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-ready]", state="attached")
    return seen


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The six kinds as files; the last with measurements and with what would help."""
    folder, found = tmp_path_factory.mktemp("reports"), {}
    for kind in KINDS:
        run = run_table(run_of(plan_sample("run"))) if kind == "run" else None
        helps = [Help("link a – b twice as fast", "", 5, 4, 1.0)] if kind == "run" else ()
        found[kind] = folder / f"{kind}.html"
        found[kind].write_bytes(report_html(sample(kind), run=run, helps=helps))
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_opens(browser: Browser, pages: dict[str, Path], kind: str) -> None:
    """Tests that pictures are drawn, nothing is said on the console or asked of a network, and the file is small."""
    seen = show(browser, pages[kind])
    drawn = {id: seen.page.locator(f"#{id} svg").count() for id in ("timeline", "memory", "stages", "graph", "curve")}
    expected = {
        "schedule": "timeline memory",
        "latency": "timeline memory graph curve",
        "large": "timeline memory graph",
    }
    wanted = set(expected.get(kind, "stages graph" if kind == "run" else "stages graph curve").split())
    assert {id for id, count in drawn.items() if count} == wanted
    seen.quiet()
    assert pages[kind].stat().st_size < MOST_BYTES


@pytest.mark.parametrize("kind", KINDS)
def test_a_phone_never_scrolls_sideways(browser: Browser, pages: dict[str, Path], kind: str) -> None:
    """Tests that the page fits 360 pixels."""
    seen = show(browser, pages[kind], width=360)
    assert seen.page.evaluate("document.documentElement.scrollWidth") == 360
    seen.quiet()


def shown_range(page: Page) -> str:
    return page.locator(".weft-range").inner_text()


def test_zoom_and_pan(browser: Browser, pages: dict[str, Path]) -> None:
    """Tests buttons, drag, wheel and double click; memory follows the timeline."""
    seen = show(browser, pages["latency"])
    page = seen.page
    memory = page.locator("#memory svg").inner_html()
    assert shown_range(page) == "everything"
    page.get_by_role("button", name="Zoom in").click()
    zoomed = shown_range(page)
    assert zoomed != "everything"
    assert page.locator("#memory svg").inner_html() != memory
    page.get_by_role("button", name="Later").click()
    later = shown_range(page)
    assert later != zoomed
    box = page.locator("#timeline .weft-frame").bounding_box()
    assert box is not None
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.move(*middle)
    page.mouse.down()
    page.mouse.move(middle[0] + 120, middle[1], steps=4)
    page.mouse.up()
    dragged = shown_range(page)
    assert dragged != later
    page.keyboard.down("Control")
    page.mouse.wheel(0, -300)
    page.keyboard.up("Control")
    page.wait_for_function("text => document.querySelector('.weft-range').textContent !== text", arg=dragged)
    page.get_by_role("button", name="Show everything").click()
    assert shown_range(page) == "everything"
    page.mouse.dblclick(*middle)
    assert shown_range(page) != "everything"
    seen.quiet()


def test_hover_tells_what_is_there(browser: Browser, pages: dict[str, Path]) -> None:
    """Tests the note over an op, and that it goes away."""
    seen = show(browser, pages["latency"])
    page = seen.page
    plan = plan_sample("latency")
    assert plan.timeline
    op, start, end = max(plan.timeline.ops, key=lambda row: row[2] - row[1])
    name = plan.problem.graph.ops[op].name
    device = list(plan.devices).index(plan.placement[name])
    page.locator("#timeline").scroll_into_view_if_needed()
    lane = page.locator("#timeline .weft-lane").nth(lane_of(page, device)).bounding_box()
    assert lane is not None
    share = (start + end) / 2 / plan.value_ns
    page.mouse.move(lane["x"] + share * lane["width"], lane["y"] + lane["height"] / 2)
    note = page.locator(".weft-note")
    assert note.is_visible()
    assert name in note.inner_text()
    page.mouse.move(5, 5)
    assert not note.is_visible()
    seen.quiet()


def lane_of(page: Page, device: int) -> int:
    """The number of the lane where a device computes."""
    return int(
        page.evaluate(
            """device => JSON.parse(document.getElementById("weft-data").textContent)
            .timeline.lanes.findIndex((lane) => lane.device === device && lane.role === "compute")""",
            device,
        )
    )


def test_the_keyboard_is_enough(browser: Browser, pages: dict[str, Path]) -> None:
    """Tests zoom, movement and steps from op to op without a pointer, and that the choice is told."""
    seen = show(browser, pages["latency"])
    page = seen.page
    page.locator("#timeline .weft-frame").focus()
    page.keyboard.press("+")
    zoomed = shown_range(page)
    assert zoomed != "everything"
    page.keyboard.press("ArrowRight")
    assert shown_range(page) != zoomed
    page.keyboard.press("0")
    assert shown_range(page) == "everything"
    page.keyboard.press(".")
    note = page.locator(".weft-note")
    assert note.is_visible()
    first = note.inner_text()
    page.keyboard.press(".")
    assert note.inner_text() != first
    page.keyboard.press(",")
    assert note.inner_text() == first
    page.keyboard.press("ArrowDown")
    assert note.inner_text() != first
    page.keyboard.press("Escape")
    assert not note.is_visible()
    node = page.locator("#graph .weft-node").first
    node.focus()
    page.keyboard.press("Enter")
    assert page.locator("#graph .weft-marked").count() == 1
    assert "ops" in page.locator("#graph .weft-detail").inner_text()
    seen.quiet()


@pytest.mark.parametrize("kind", ["latency", "throughput", "large"])
def test_search_finds_ops_by_name(browser: Browser, pages: dict[str, Path], kind: str) -> None:
    """Tests that a name leads to its device and, where there is a timeline, to its time."""
    seen = show(browser, pages[kind])
    page, plan = seen.page, plan_sample(kind)
    op = plan.problem.graph.ops[len(plan.problem.graph.ops) // 2].name
    page.get_by_label("Find an op").fill(op)
    hit = page.locator(".weft-hit").filter(has=page.get_by_text(op, exact=True))
    hit.click()
    assert plan.placement[op] in hit.inner_text()
    assert plan.placement[op] in (page.locator("#graph .weft-marked").text_content() or "")
    if kind != "throughput":
        assert op in page.locator(".weft-note").inner_text()
        assert page.locator("#timeline .weft-chosen").count() == 1
    page.get_by_label("Find an op").fill("no such op anywhere")
    page.get_by_text("no op has that in its name").wait_for()
    seen.quiet()


def test_tables_sort(browser: Browser, pages: dict[str, Path]) -> None:
    """Tests that a column sorts up and down by its numbers."""
    seen = show(browser, pages["latency"])
    head = seen.page.locator("#how-good th", has_text="latency")
    cells = seen.page.locator("#how-good tbody td[data-sort]:nth-child(3)")
    for order in (sorted, lambda values: sorted(values, reverse=True)):
        head.get_by_role("button").click()
        values = [float(cell.get_attribute("data-sort") or "") for cell in cells.all()]
        assert values == order(values)
    seen.quiet()


def test_marks_of_a_schedule_and_of_a_run(browser: Browser, pages: dict[str, Path]) -> None:
    """Tests that the page of a schedule can be zoomed, and that a run and its help are there to be read."""
    seen = show(browser, pages["schedule"])
    seen.page.get_by_role("button", name="Zoom in").click()
    assert seen.page.locator("#timeline .weft-forward").count() > 0
    seen.quiet()
    seen = show(browser, pages["run"])
    assert "1.2 ms" in seen.page.locator("#run-section").inner_text()
    assert "twice as fast" in seen.page.locator("#helps-section").inner_text()
    seen.quiet()


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_hostile_names_are_inert(browser: Browser, tmp_path: Path, objective: str) -> None:
    """Tests that names which try to be scripts are only text, in tables, notes, search and graph."""
    path = tmp_path / "hostile.html"
    path.write_bytes(report_html(hostile_plan(objective), run=run_table(run_of(hostile_plan(objective)))))
    seen = show(browser, path)
    page = seen.page
    page.get_by_label("Find an op").fill("onerror")
    page.locator(".weft-hit").first.click()
    page.locator("#graph .weft-node").first.click()
    ways = page.locator("#graph .weft-detail button")
    if ways.count():
        ways.first.click()
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert HOSTILE in page.locator("h1").inner_text()
    seen.quiet()


def test_the_policy_stops_what_is_not_ours(browser: Browser, pages: dict[str, Path]) -> None:
    """Tests that a script or image that got into the page anyway would not run or load."""
    seen = show(browser, pages["run"])
    seen.page.evaluate(
        """() => {
        const script = document.createElement("script");
        script.textContent = "window.owned = true";
        document.body.append(script);
        const image = document.createElement("img");
        image.src = "https://example.org/x.png";
        document.body.append(image);
    }"""
    )
    seen.page.wait_for_timeout(100)
    assert seen.page.evaluate("window.owned") is None
    assert len(seen.errors) >= 2
    assert all("Content Security Policy" in error for error in seen.errors)


def test_light_dark_and_print(browser: Browser, pages: dict[str, Path]) -> None:
    """Tests that the ground follows the reader's choice, that print is light, and that text stands out in both."""
    grounds = {}
    for scheme in ("light", "dark"):
        seen = show(browser, pages["latency"], color_scheme=scheme)
        grounds[scheme] = seen.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert contrast(seen.page, "p.sentence") > 7
        assert contrast(seen.page, "#timeline-section p.soft") > 4.5
        if scheme == "dark":
            seen.page.emulate_media(media="print", color_scheme="dark")
            assert seen.page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
        seen.quiet()
    assert grounds["light"] != grounds["dark"]


def contrast(page: Page, selector: str) -> float:
    """Of a text to the card below it, by the rule of WCAG."""
    found = page.evaluate(
        """selector => {
        const light = (text) => {
            const [r, g, b] = text.match(/[\\d.]+/g).map(Number).map((c) => c / 255)
                .map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
            return 0.2126 * r + 0.7152 * g + 0.0722 * b;
        };
        const element = document.querySelector(selector);
        const card = element.closest(".card");
        return [light(getComputedStyle(element).color), light(getComputedStyle(card).backgroundColor)];
    }""",
        selector,
    )
    return float((max(found) + 0.05) / (min(found) + 0.05))


def test_pictures_have_names(browser: Browser, pages: dict[str, Path]) -> None:
    """Tests that every picture says in words what it shows, and that ids are not used twice."""
    for kind in ("latency", "throughput"):
        page = show(browser, pages[kind]).page
        nameless = """[...document.querySelectorAll("svg")].filter((svg) =>
            !svg.closest("[aria-hidden=true]") && !svg.getAttribute("aria-label")).length"""
        assert page.evaluate(nameless) == 0
        ids = page.evaluate("[...document.querySelectorAll('[id]')].map((element) => element.id)")
        assert len(ids) == len(set(ids))
