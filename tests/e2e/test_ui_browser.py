"""The local page in a real browser: upload, plan, converge, compare, report, export; refusals; a killed browser."""

from __future__ import annotations

import os
import re
import signal
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import psutil
import pytest
from playwright.sync_api import Browser, Page, Playwright, expect, sync_playwright
from tests.e2e.chromium import chromium
from tests.ui.serving import PATIENCE, Served, plan_when, served, until

from weftline.zoo import build, save

NAME = "<img src=x onerror=alert(1)>.onnx"
"""The file's name is hostile: it must stay text."""


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    with sync_playwright() as found:
        yield found


def launch(playwright: Playwright) -> Browser:
    return playwright.chromium.launch(executable_path=chromium(), args=["--no-sandbox"])


@pytest.fixture(scope="module")
def browser(playwright: Playwright) -> Iterator[Browser]:
    found = launch(playwright)
    yield found
    found.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served("--clusters", str(tmp_path_factory.mktemp("kept"))) as found:
        yield found


def choose_small(page: Page) -> None:
    """A model of the zoo; the form has what stood in it before."""
    page.select_option("#model", "zoo:bert")
    page.select_option("#size", "small")


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page on which nothing may go wrong: no error of a script, no request to anybody else."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    context.set_default_timeout(PATIENCE * 1000)
    found, wrong = context.new_page(), list[str]()
    found.on("pageerror", lambda error: wrong.append(str(error)))
    found.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    found.on("request", lambda request: None if "//127.0.0.1:" in request.url else wrong.append(request.url))
    found.on("dialog", lambda dialog: wrong.append(dialog.message))
    yield found
    context.close()
    assert [text for text in wrong if not text.startswith("data:")] == []


def open_page(page: Page, server: Served) -> None:
    page.goto(server.url)
    page.wait_for_selector("html[data-ready]")


def listed(page: Page) -> int:
    """How many plans the page shows, once that has not changed for a second."""
    count, same = -1, 0
    while same < 4:
        now = page.locator("#list li").count()
        count, same = now, same + 1 if now == count else 0
        page.wait_for_timeout(250)
    return count


def start(page: Page) -> int:
    """Press the button -> the number of the plan, which is shown now."""
    with page.expect_response("**/api/plans") as answer:
        page.click("#go")
    number = int(answer.value.json()["id"])
    expect(page.locator("#detail-title")).to_contain_text(f"{number}. ", timeout=PATIENCE * 1000)
    return number


def finished(page: Page) -> None:
    expect(page.locator("#detail .acts button", has_text="plan.json")).to_be_visible(timeout=PATIENCE * 1000)


def test_from_upload_to_export(page: Page, server: Served, tmp_path: Path) -> None:
    """Tests the whole way that a user goes, with a model whose file name is an attack."""
    model = tmp_path / NAME
    save(build("bert", size="small"), model)
    open_page(page, server)
    assert server.token not in page.url
    page.set_input_files("#file", model)
    expect(page.locator("#model")).to_have_value(re.compile(r"\d+"), timeout=PATIENCE * 1000)
    page.select_option("#preset", "four-unequal")
    page.locator("input[value=throughput]").check(force=True)
    page.fill("#seconds", "3")
    first = start(page)
    assert NAME in page.inner_text("#detail-title")

    line = page.locator("#detail .weft-value-line")
    expect(line).to_have_count(1, timeout=PATIENCE * 1000)
    before = line.get_attribute("d")
    page.wait_for_function(
        "d => document.querySelector('#detail .weft-value-line').getAttribute('d') !== d", arg=before
    )
    finished(page)
    figures = page.locator("#detail .figures dd").all_inner_texts()
    assert figures[0].endswith(" us")
    assert figures[2].endswith(" %")
    assert "pipeline" in page.inner_text("#detail .verdict")  # the best possible, or how far from it

    page.fill("#stages", "2")
    second = start(page)
    finished(page)
    page.locator(".tick input").nth(0).check()
    page.locator(".tick input").nth(1).check()
    expect(page.locator("#compare tbody tr").first).to_contain_text("value", timeout=PATIENCE * 1000)
    assert page.inner_text("#compare-title") == f"Plan {first} and plan {second}"
    assert "times as fast" in page.inner_text("#compare .verdict")

    page.click("#detail .menu summary")
    with page.expect_download() as waiting:
        page.click("#detail .menu button:has-text('onnx-stages')")
    waiting.value.save_as(tmp_path / "stages.zip")
    assert {"manifest.json", "segment_0.onnx", "segment_1.onnx"} <= set(
        zipfile.ZipFile(tmp_path / "stages.zip").namelist()
    )

    page.click("#detail .acts button.primary")
    inside = page.frame_locator("#report-frame")
    expect(inside.locator("h1").first).to_be_visible(timeout=PATIENCE * 1000)
    page.keyboard.press("Escape")
    expect(page.locator("#report")).not_to_be_visible()


def test_by_keyboard_on_a_phone_in_the_dark(browser: Browser, server: Served) -> None:
    """Tests that a narrow dark page has nothing beside its edge, and that a plan can be started without a pointer."""
    context = browser.new_context(viewport={"width": 360, "height": 740}, color_scheme="dark")
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    open_page(page, server)
    choose_small(page)
    page.focus("#seconds")
    page.keyboard.press("Control+A")
    page.keyboard.type("1")
    count = listed(page)
    page.keyboard.press("Enter")
    expect(page.locator("#list li")).to_have_count(count + 1, timeout=PATIENCE * 1000)
    finished(page)
    page.focus("#detail .menu summary")
    page.keyboard.press("Enter")
    expect(page.locator("#detail .menu button").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.keyboard.press("Escape")
    expect(page.locator("#detail .menu button").first).not_to_be_visible()
    page.focus(".views a >> nth=1")
    page.keyboard.press("Enter")
    expect(page.locator("#schedule-form")).to_be_visible()
    page.fill("#schedule-seconds", "1")
    page.keyboard.press("Enter")
    expect(page.locator("#detail .picture .weft-frame")).to_be_visible(timeout=PATIENCE * 1000)
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    context.close()


def test_a_wrong_cluster_is_told_while_one_writes(page: Page, server: Served) -> None:
    """Tests that the text of a cluster is checked, and that no plan is begun with a wrong one."""
    open_page(page, server)
    page.click("#edit summary")
    page.fill("#toml", "version = 1\n[[device]]\nid = 3\n")
    expect(page.locator("#cluster-note.wrong")).to_contain_text("device[0].id: is a number", timeout=PATIENCE * 1000)
    before = page.locator("#list li").count()
    page.click("#go")
    expect(page.locator("#form-error")).to_contain_text("device[0].id: is a number")
    assert page.locator("#list li").count() == before


def test_devices_by_name_fill_the_cluster(page: Page, server: Served) -> None:
    """Tests that names of devices become the text of the cluster, and that a wrong name is told."""
    open_page(page, server)
    page.click("#named summary")
    page.fill("#gpus", "RTX 4090, 2x RTX 3060 12GB")
    page.fill("#cpus", "DDR5-6000")
    page.fill("#ram", "64GB")
    page.click("#use-named")
    expect(page.locator("#cluster-note")).to_contain_text("4 devices: gpu0, gpu1, gpu2, cpu0", timeout=PATIENCE * 1000)
    assert 'accelerator = "GeForce RTX 4090"' in page.input_value("#toml")
    page.fill("#gpus", "3060")
    page.click("#use-named")
    expect(page.get_by_text("could be several devices")).to_be_visible(timeout=PATIENCE * 1000)


def test_a_language_model_on_cards(page: Page, server: Served) -> None:
    """Tests the page of language models: from the first page to bars and a command, and a mistake that is told."""
    open_page(page, server)
    page.click(".views a[href='/fit']")
    expect(page.locator("html[data-ready=yes]")).to_be_attached(timeout=PATIENCE * 1000)
    page.fill("#llm", "llama-3.3-70b")
    page.fill("#quant", "q4_k_m")
    page.fill("#gpus", "RTX 4090, 2x RTX 3060 12GB")
    page.click("#cards-go")
    expect(page.locator("#cards-answer h2")).to_contain_text("tokens per second", timeout=PATIENCE * 1000)
    assert page.locator("#cards-answer svg").count() == 3
    assert "llama-server -m llama-3.3-70b-q4_k_m.gguf" in page.inner_text("#cards-answer")
    page.fill("#gpus", "RTX 4909")
    page.click("#cards-go")
    expect(page.locator("#cards-error")).to_contain_text("did you mean", timeout=PATIENCE * 1000)


def test_clusters_exports_and_comparisons(page: Page, server: Served, tmp_path: Path) -> None:
    """Tests edited clusters from the editor to the file on disk, exports with reasons, what may be compared, ratios."""
    open_page(page, server)
    choose_small(page)
    page.select_option("#preset", "two-gpus")
    page.locator("input[value=latency]").check(force=True)
    page.fill("#seconds", "2")
    plain = start(page)
    finished(page)
    page.click("#edit summary")
    page.fill("#toml", page.input_value("#toml") + "# edited\n")
    expect(page.locator("#cluster-note")).to_contain_text("devices:", timeout=PATIENCE * 1000)
    with page.expect_download() as waiting:
        page.click("#save-cluster")
    assert re.fullmatch(r"two-gpus-[0-9a-f]{6}\.toml", waiting.value.suggested_filename)
    page.fill("#keep-name", "lab")
    page.click("#keep-cluster")
    expect(page.locator("#preset")).to_have_value(":kept:lab", timeout=PATIENCE * 1000)
    edited = start(page)
    finished(page)
    title = page.inner_text("#detail-title")
    assert re.fullmatch(rf"{edited}\. bert-small on lab-[0-9a-f]{{6}}", title)
    name = title.rpartition(" ")[2]
    assert f"--cluster {name}.toml" in page.inner_text("#detail .command")
    with page.expect_download() as waiting:
        page.click(f"#detail .acts button:has-text('{name}.toml')")
    assert waiting.value.suggested_filename == f"{name}.toml"
    waiting.value.save_as(tmp_path / "lab.toml")
    assert (tmp_path / "lab.toml").read_text().endswith("# edited\n")

    page.click("#detail .menu summary")
    offered = [text.split()[0] for text in page.locator("#detail .menu button").all_inner_texts()]
    refused = page.locator("#detail .cannot dt").all_inner_texts()
    assert "onnx-stages" in offered
    assert "openvino" in refused
    assert {*offered} ^ {*refused} >= {"onnx-stages", "openvino", "ort", "vllm", "llamacpp", "megatron", "accelerate"}
    assert "cannot be run by OpenVINO" in page.inner_text("#detail .cannot")
    assert page.evaluate("document.documentElement.scrollWidth") == 1280
    page.keyboard.press("Escape")

    page.locator("input[value=throughput]").check(force=True)
    period = start(page)
    finished(page)
    ticks = {number: page.get_by_label(f"compare plan {number}", exact=True) for number in (plain, edited, period)}
    ticks[plain].check()
    expect(ticks[period]).to_be_disabled()
    ticks[edited].check()
    expect(page.locator("#compare tbody tr").first).to_contain_text("value", timeout=PATIENCE * 1000)
    ratios = page.evaluate(
        "[[100, 105], [100, 5343], [5343, 100], [3, 3], [0, 5]].map(([a, b]) => weft.change(a, b, true))"
    )
    assert ratios == ["+5.00 %", "53x slower", "53x faster", "", ""]
    ticks[plain].uncheck()
    ticks[edited].uncheck()


def test_the_form_survives_a_reload(page: Page, server: Served) -> None:
    """Tests that everything entered is there again, on the same view, and that nothing is stored in the browser."""
    open_page(page, server)
    choose_small(page)
    page.locator("input[value=throughput]").check(force=True)
    page.fill("#stages", "3")
    page.select_option("#preset", ":edited")
    page.fill("#toml", "# <img src=x onerror=alert(1)>")
    page.click(".views a >> nth=1")
    page.select_option("#what", "mshape")
    page.fill("#memory", "6,6")
    page.locator("#schedule-form summary").click()
    page.select_option("#aim", "device-span")
    until(lambda: server.ask("GET", "/api/form")[1]["fields"].get("aim") == "device-span")
    page.reload()
    page.wait_for_selector("html[data-ready]")
    expect(page.locator("#schedule-form")).to_be_visible()
    for field, value in (
        ("what", "mshape"),
        ("memory", "6,6"),
        ("stages", "3"),
        ("size", "small"),
        ("preset", ":edited"),
    ):
        expect(page.locator(f"#{field}")).to_have_value(value)
    assert page.input_value("#toml") == "# <img src=x onerror=alert(1)>"
    assert page.locator("input[value=throughput]").is_checked()
    assert page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0


def test_a_schedule_of_a_plan(page: Page, server: Served) -> None:
    """Tests the way from a throughput plan to its schedule, with a picture, a report and a comparison."""
    open_page(page, server)
    choose_small(page)
    page.select_option("#preset", "four-unequal")
    page.locator("input[value=throughput]").check(force=True)
    page.fill("#seconds", "1")
    number = start(page)
    finished(page)
    page.click("#detail .acts button:has-text('Schedule it')")
    expect(page.locator("#what")).to_have_value(f"plan:{number}")
    page.fill("#schedule-seconds", "1")
    page.fill("#memory", "")
    page.select_option("#aim", "makespan", force=True)
    made = []
    for again in (False, True):
        page.locator("#recompute").set_checked(again)
        with page.expect_response("**/api/schedules") as answer:
            page.click("#schedule-go")
        made.append(int(answer.value.json()["id"]))
        expect(page.locator("#detail-title")).to_contain_text(f"{made[-1]}. ", timeout=PATIENCE * 1000)
        expect(page.locator("#detail .picture .weft-frame svg").first).to_be_visible(timeout=PATIENCE * 1000)
    for one in made:
        page.get_by_label(f"compare schedule {one}", exact=True).check()
    expect(page.locator("#compare tbody tr").first).to_contain_text("makespan", timeout=PATIENCE * 1000)
    page.click("#detail .acts button.primary")
    expect(page.frame_locator("#report-frame").locator("h1").first).to_be_visible(timeout=PATIENCE * 1000)
    page.keyboard.press("Escape")


@contextmanager
def elsewhere() -> Iterator[int]:
    """A server of somebody else on this machine, who serves a page -> its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(b"<!doctype html><p>elsewhere")

        def log_message(self, *words: object) -> None:
            pass

    other = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=other.serve_forever, daemon=True).start()
    yield other.server_port
    other.shutdown()
    other.server_close()


def test_refused(browser: Browser, server: Served) -> None:
    """Tests that without the token there is nothing to see, and that a page elsewhere gets nothing and does nothing."""
    context = browser.new_context()
    stranger = context.new_page()
    answer = stranger.goto(server.origin)
    assert answer is not None
    assert answer.status == 403
    mine = context.new_page()
    open_page(mine, server)  # from now on the browser has the cookie
    before = listed(mine)
    tries = """async ([home, method]) => {
        try { return (await fetch(home + '/api/plans/1', {method, mode: 'no-cors', credentials: 'include'})).type; }
        catch (error) { return 'refused'; }
    }"""
    with elsewhere() as address:
        other = context.new_page()
        for host in ("127.0.0.1", "localhost"):
            other.goto(f"http://{host}:{address}/")
            for method in ("GET", "POST"):
                assert other.evaluate(tries, [server.origin, method]) == "refused"
            form = f"<form method=post action='{server.origin}/api/plans/1/stop'></form>"
            with other.expect_navigation() as gone:
                other.evaluate("form => { document.body.innerHTML = form; document.forms[0].submit(); }", form)
            assert gone.value is not None
            assert gone.value.status == 403
    assert listed(mine) == before
    context.close()


def test_a_killed_browser_leaves_nothing_running(playwright: Playwright) -> None:
    """Tests that a search is stopped when its browser is killed; no process is left, and its best plan is kept."""
    with served("--away", "1s") as server:
        mine = psutil.Process()
        before = set(mine.children(recursive=True))
        browser = launch(playwright)
        started = set(mine.children(recursive=True)) - before
        page = browser.new_page()
        open_page(page, server)
        choose_small(page)
        page.select_option("#preset", "four-unequal")
        page.locator("input[value=throughput]").check(force=True)
        page.fill("#seconds", "600")
        page.click("#go")
        page.wait_for_selector("#detail .weft-value-line", state="attached", timeout=PATIENCE * 1000)
        assert server.workers()
        for process in started:
            if process.is_running():
                os.kill(process.pid, signal.SIGKILL)
        until(lambda: not server.workers())
        with server.watching() as events:  # the next page finds the best plan
            found = plan_when(events, 1, lambda plan: plan["state"] == "done")
        assert found["answer"]["stopped_by"] == "interrupted"
