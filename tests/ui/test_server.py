"""The server as users start it, over real HTTP: plan, compare, download; refusals; many at once; every kind of end."""

from __future__ import annotations

import io
import json
import signal
import socket
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil
import pytest
from tests.ui.serving import Served, plan_when, served, until

from weftline import Plan, verify
from weftline.certify import ScheduleVerdict, Verdict
from weftline.cluster import preset_text
from weftline.zoo import build

LONG = {"zoo": "bert", "size": "small", "preset": "four-unequal", "objective": "throughput", "seconds": 300}
SHORT = {"preset": "laptop", "objective": "latency", "solver": "greedy", "seconds": 5}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where clusters are kept; there is no such folder yet."""
    return tmp_path_factory.mktemp("data") / "weftline" / "clusters"


@pytest.fixture(scope="module")
def server(kept: Path) -> Iterator[Served]:
    with served("--jobs", "1", "--clusters", str(kept)) as found:
        yield found


def is_over(plan: dict[str, Any]) -> bool:
    return plan["state"] not in ("queued", "running")


def has_plan(plan: dict[str, Any]) -> bool:
    """Some row has a value, not only a bound."""
    return any(value is not None for _, value, _ in plan["rows"])


def test_a_plan_from_upload_to_export(server: Served, tmp_path: Path) -> None:
    """Tests the whole way: upload, plan, queue, verify, compare, report, trace, export, remove."""
    number = server.upload(build("bert", size="small").SerializeToString(), "my%20model.onnx")
    with server.watching() as events:
        _, first = server.ask("POST", "/api/plans", {"model": number, **SHORT})
        _, second = server.ask("POST", "/api/plans", {"model": number, **SHORT, "solver": "heft"})
        assert plan_when(events, second["id"], lambda plan: True)["state"] == "queued"
        done = [plan_when(events, answer["id"], is_over) for answer in (first, second)]
    assert [plan["state"] for plan in done] == ["done", "done"]
    assert done[0]["model"] == "my model.onnx"
    assert done[0]["command"][:5] == ["weftline", "plan", "my model.onnx", "--cluster", "laptop"]
    reasons = {name: why for name, _, why in done[0]["answer"]["exports"]}
    assert reasons["onnx-stages"] == ""
    assert "cannot be run by OpenVINO" in reasons["openvino"]
    home = f"/api/plans/{first['id']}"
    _, plan = server.ask("GET", f"{home}/files/plan")
    (tmp_path / "plan.json").write_bytes(json.dumps(plan).encode())
    assert Plan.load(tmp_path / "plan.json").value_ns == done[0]["answer"]["value_ns"]
    verdict = verify(tmp_path / "plan.json")
    assert isinstance(verdict, Verdict)
    assert verdict.value_ns == done[0]["answer"]["value_ns"]

    wanted: list[tuple[str, object]] = [
        ("/api/compare", {"first": first["id"], "second": second["id"]}),
        (f"{home}/files", {"what": "report"}),
        (f"{home}/files", {"what": "trace"}),
        (f"{home}/files", {"what": "export", "target": "onnx-stages"}),
        (f"{home}/files", {"what": "export", "target": "openvino"}),
    ]
    with ThreadPoolExecutor(5) as pool:
        found, report, trace, stages, refused = pool.map(lambda asked: server.ask("POST", *asked)[1], wanted)
    assert found["same_problem"]
    assert found["value_ns"] == [plan["answer"]["value_ns"] for plan in done]
    allowed = {"Authorization": f"Bearer {server.token}"}
    _, page, headers = server.raw("GET", report["href"] + "?view", allowed)
    assert page[:15].lower() == b"<!doctype html>"
    assert "sandbox allow-scripts" in headers["content-security-policy"]
    assert "content-disposition" not in headers
    _, _, headers = server.raw("GET", report["href"], allowed)
    assert headers["content-disposition"].startswith("attachment")
    assert "traceEvents" in server.ask("GET", trace["href"])[1]
    archive = zipfile.ZipFile(io.BytesIO(server.ask("GET", stages["href"])[1]))
    assert {"manifest.json", "segment_0.onnx"} <= set(archive.namelist())
    assert "cannot be run by OpenVINO" in refused["error"]
    assert server.ask("DELETE", home)[0] == 204
    assert server.ask("GET", f"{home}/files/plan")[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/api/plans", {"zoo": "bert", "seconds": 1e9}, "up to 3600"),
        ("/api/plans", {"zoo": "bert", "seconds": 0.1}, "seconds"),
        ("/api/plans", {"zoo": "nothing", "seconds": 1}, "the zoo has no"),
        ("/api/plans", {"zoo": "bert", "model": 1, "seconds": 1}, "one model"),
        ("/api/plans", {"seconds": 1}, "one model"),
        ("/api/plans", {"zoo": "bert", "seconds": 1, "preset": "../laptop"}, "unknown preset"),
        ("/api/plans", {"zoo": "bert", "seconds": 1, "solver": "etc/passwd"}, "unknown solver"),
        ("/api/plans", {"zoo": "bert", "seconds": 1, "output": "/tmp/x"}, "unknown field"),
        ("/api/plans", {"zoo": "bert", "seconds": 1, "cluster": "x" * (3 << 20)}, "at most 2048 KiB"),
        ("/api/plans", {"zoo": "bert", "seconds": 1, "cluster": "version = 1\n[[device]]\nid = 3\n"}, "device[0].id"),
        ("/api/plans", {"zoo": "bert", "seconds": 1, "preset": "laptop", "kept": "lab"}, "one of them"),
        ("/api/schedules", {"seconds": 1}, "one of them"),
        ("/api/schedules", {"seconds": 1, "shape": "../etc"}, "unknown shape"),
        ("/api/schedules", {"seconds": 1, "shape": "vshape", "solver": "etc/passwd"}, "unknown solver"),
        ("/api/schedules", {"seconds": 1, "shape": "vshape", "recompute": True}, "are for plans"),
        ("/api/compare", [1, 2], "makes no sense"),
    ],
)
def test_questions_that_make_no_sense(server: Served, path: str, body: object, words: str) -> None:
    """Tests that they are refused with a sentence before a process is started."""
    status, answer = server.ask("POST", path, body)
    assert status == 422
    assert words in answer["error"]


def test_what_is_not_there(server: Served) -> None:
    """Tests that unknown numbers, files and assets are 404, and other bodies than JSON are refused."""
    for method, path in (
        ("GET", "/api/plans/999/files/plan"),
        ("POST", "/api/plans/999/stop"),
        ("DELETE", "/api/models/999"),
        ("GET", "/api/clusters/nothing"),
        ("DELETE", "/api/clusters/..%2flaptop"),
        ("GET", "/assets/..%2fapp.py"),
        ("GET", "/docs"),
        ("GET", f"/api/plans/{'9' * 100}/files/plan"),
    ):
        status, said = server.ask(method, path)
        assert status == 404, path
        assert set(said) == {"error"}, path
    assert server.ask("DELETE", "/")[0] == 405
    assert server.ask("GET", f"/api/plans/{'9' * 5000}/files/plan")[0] == 414
    assert server.ask("POST", "/api/plans", {"model": 999, "seconds": 1})[0] == 404
    assert server.ask("POST", "/api/plans", b"{}")[0] == 422


def test_refused_over_real_http(server: Served) -> None:
    """Tests that without a token, with another host, or from another origin nothing is answered."""
    allowed = {"Cookie": f"weftline-{server.port}={server.token}"}
    assert server.raw("GET", "/", {})[0] == 403
    assert server.raw("GET", "/api/choices", {"Cookie": f"weftline-{server.port}=guess"})[0] == 403
    assert server.raw("GET", "/", {**allowed, "Host": "evil.example"})[0] == 421
    assert server.raw("POST", "/api/plans", {**allowed, "Origin": "https://evil.example"}, b"{}")[0] == 403
    assert server.raw("GET", "/", allowed)[0] == 200
    addresses = {c.laddr.ip for c in psutil.Process(server.process.pid).net_connections() if c.status == "LISTEN"}
    assert addresses == {"127.0.0.1"}


def test_variants_of_a_cluster_can_be_told_apart(server: Served) -> None:
    """Tests the names of a preset and of two edits of it, that each text can be had again, and comparisons."""
    text = preset_text("laptop")
    own = text + "# of my own\n"
    asked = {"zoo": "bert", "size": "small", "seconds": 5, "solver": "greedy"}
    questions = [
        {"preset": "laptop"},
        {"cluster": text},
        {"cluster": own},
        {"cluster": text, "objective": "throughput"},
    ]
    with server.watching() as events:
        numbers = [server.ask("POST", "/api/plans", {**asked, **question})[1]["id"] for question in questions]
        plans = [plan_when(events, number, is_over) for number in numbers]
    names = [plan["cluster"] for plan in plans]
    label = f"laptop-{sha256(own.encode()).hexdigest()[:6]}"
    assert names == ["laptop", "laptop", label, "laptop"]
    assert plans[2]["title"] == f"bert-small on {label}"
    assert plans[0]["command"][2:5] == ["zoo:bert:small", "--cluster", "laptop"]
    assert plans[2]["command"][4] == f"{label}.toml"
    allowed = {"Authorization": f"Bearer {server.token}"}
    _, data, headers = server.raw("GET", f"/api/plans/{numbers[2]}/files/cluster", allowed)
    assert (data.decode(), f"{label}.toml" in headers["content-disposition"]) == (own, True)

    subjects = [plan["answer"]["subject"] for plan in plans]
    assert subjects[0] == subjects[2] != subjects[3]
    assert server.ask("POST", "/api/compare", {"first": numbers[0], "second": numbers[2]})[0] == 200
    status, refused = server.ask("POST", "/api/compare", {"first": numbers[0], "second": numbers[3]})
    assert (status, "One is a latency, the other a period" in refused["error"]) == (422, True)
    for number in numbers:
        server.ask("DELETE", f"/api/plans/{number}")


def test_clusters_are_kept(server: Served, kept: Path) -> None:
    """Tests that a cluster is kept as a file of its name and nothing else, found by the next server, and removed."""
    text = preset_text("two-gpus") + "# mine\n"
    for name, body in (("..", text), (".hidden", text), ("a%2fb", text), ("bad", "no toml"), ("x" * 61, text)):
        assert server.ask("PUT", f"/api/clusters/{name}", {"text": body})[0] in (404, 405, 422), name
    assert not kept.exists()
    assert server.ask("PUT", "/api/clusters/lab", {"text": text})[0] == 201
    assert [path.name for path in kept.iterdir()] == ["lab.toml"]
    assert kept.stat().st_mode & 0o077 == 0
    (kept / "elsewhere.toml").symlink_to(kept / "lab.toml")
    with served("--clusters", str(kept)) as other:
        assert other.ask("GET", "/api/form")[1]["clusters"] == ["lab"]
        assert other.ask("GET", "/api/clusters/lab") == (200, {"text": text})
    assert server.ask("DELETE", "/api/clusters/lab")[0] == 204
    assert not (kept / "lab.toml").exists()


def test_the_form_is_kept_behind_the_token(server: Served) -> None:
    """Tests that what stands in the forms comes back, and to nobody without the token; nonsense is refused."""
    fields = {"model": "zoo:bert", "toml": "name = '<b>'"}
    assert server.ask("PUT", "/api/form", {"fields": fields})[0] == 204
    assert server.ask("GET", "/api/form")[1]["fields"] == fields
    assert server.raw("GET", "/api/form", {})[0] == 403
    assert server.raw("PUT", "/api/form", {"Cookie": f"weftline-{server.port}={server.token}"}, b"{}")[0] == 403
    for wrong in ({"fields": {"a": 3}}, {"fields": {str(i): "" for i in range(65)}}, {"path": "x"}):
        assert server.ask("PUT", "/api/form", wrong)[0] == 422
    assert server.ask("GET", "/api/form")[1]["fields"] == fields


def test_schedules(server: Served, tmp_path: Path) -> None:
    """Tests schedules of a shape and of a plan: progress, files that verify, pictures, exports, comparisons."""
    with server.watching() as events:
        plan = {"zoo": "bert", "size": "small", "preset": "four-unequal", "objective": "throughput", "solver": "greedy"}
        _, source = server.ask("POST", "/api/plans", {**plan, "seconds": 5})
        assert plan_when(events, source["id"], is_over)["state"] == "done"
        shape = {"shape": "vshape", "devices": 2, "micro_batches": 4, "memory": "2", "seconds": 3}
        of_plan = {"plan": source["id"], "micro_batches": 4, "seconds": 3, "solver": "1f1b"}
        asked = [shape, of_plan, {**of_plan, "recompute": True}, {**shape, "memory": "12 GiB"}]
        numbers = [server.ask("POST", "/api/schedules", question)[1]["id"] for question in asked]
        found = [plan_when(events, number, is_over) for number in numbers]
    assert [job["state"] for job in found] == ["done", "done", "done", "failed"]
    assert "has no bytes" in found[3]["error"]
    assert " ".join(found[0]["command"][2:]) == "--shape vshape --devices 2 --micro-batches 4 --memory 2 --time 3s"
    assert found[1]["command"][2:4] == ["--plan", f"bert-small-{source['id']}-plan.json"]
    assert "--recompute" in found[2]["command"]
    assert [job["answer"]["unit"] for job in found[:3]] == ["", "ns", "ns"]
    for number, job in zip(numbers[:3], found, strict=False):
        home = f"/api/plans/{number}/files"
        (tmp_path / "sched.json").write_bytes(json.dumps(server.ask("GET", f"{home}/schedule")[1]).encode())
        verdict = verify(tmp_path / "sched.json")
        assert isinstance(verdict, ScheduleVerdict)
        assert verdict.value == job["answer"]["makespan"]
        assert server.ask("GET", f"{home}/picture")[1]["timeline"]["end"] == job["answer"]["makespan"]
    files = f"/api/plans/{numbers[0]}/files"
    _, made = server.ask("POST", files, {"what": "export", "target": "torch-csv"})
    assert "schedule.csv" in zipfile.ZipFile(io.BytesIO(server.ask("GET", made["href"])[1])).namelist()
    assert server.ask("POST", files, {"what": "report"})[0] == 200
    _, same = server.ask("POST", "/api/compare", {"first": numbers[1], "second": numbers[2]})
    assert same["rows"][0][:3] == ["makespan", *(job["answer"]["makespan"] for job in found[1:3])]
    for other, words in ((numbers[1], "are not compared"), (source["id"], "different questions")):
        status, refused = server.ask("POST", "/api/compare", {"first": numbers[0], "second": other})
        assert (status, words in refused["error"]) == (422, True)


def test_many_at_once_and_slow_ones(server: Served) -> None:
    """Tests that 50 parallel requests are answered while others send and read as slowly as they can."""
    with ThreadPoolExecutor(50) as pool:
        slow = [_slow_client(server) for _ in range(10)]
        found = list(pool.map(lambda i: server.ask("GET", "/api/choices" if i % 2 else "/"), range(50)))
        for client in slow:
            client.close()
    assert [status for status, _ in found] == [200] * 50


def _slow_client(server: Served) -> socket.socket:
    """Half an upload, and then nothing."""
    client = socket.create_connection(("127.0.0.1", server.port))
    head = f"POST /api/models HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {server.token}\r\n"
    client.sendall(f"{head}Content-Length: 1000000\r\n\r\nhalf".encode())
    return client


def test_stop_and_remove(server: Served) -> None:
    """Tests that stop keeps the best plan, and that removing a running search ends its processes."""
    with server.watching() as events:
        _, first = server.ask("POST", "/api/plans", LONG)
        plan_when(events, first["id"], has_plan)
        assert server.ask("POST", f"/api/plans/{first['id']}/stop")[0] == 204
        stopped = plan_when(events, first["id"], is_over)
        assert stopped["answer"]["stopped_by"] == "interrupted"
        _, second = server.ask("POST", "/api/plans", LONG)
        plan_when(events, second["id"], lambda plan: plan["state"] == "running")
        until(lambda: len(server.workers()) >= 2)
        assert server.ask("DELETE", f"/api/plans/{second['id']}")[0] == 204
        assert next(data for kind, data in events if kind == "gone") == second["id"]
    until(lambda: not server.workers())


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_the_end_of_the_server_is_the_end_of_everything(how: signal.Signals, tmp_path: Path) -> None:
    """Tests that no process outlives the server, and no file; after kill -9 the next start removes them."""
    with served(folder=str(tmp_path)) as server:
        with server.watching():
            server.ask("POST", "/api/plans", LONG)
            until(lambda: len(server.workers()) >= 2)
            workers = server.workers()
            code = server.end(how)
        assert code == (-how if how == signal.SIGKILL else 0)
        until(lambda: not any(worker.is_running() for worker in workers))
    if how == signal.SIGKILL:
        assert list(tmp_path.glob("weftline-*"))
        with served(folder=str(tmp_path)) as other:
            assert len(list(tmp_path.glob("weftline-*"))) == 1
            other.end()
    assert not list(tmp_path.glob("weftline-*"))


def test_devices_by_name_become_a_cluster(server: Served) -> None:
    """Tests that names give a text that can be planned on, with what was assumed, and wrong names a sentence."""
    status, found = server.ask(
        "POST", "/api/devices", {"gpus": ["H100", "2x RTX 3060 12GB"], "cpus": [], "ram": "64GB"}
    )
    assert status == 200
    assert 'accelerator = "H100 SXM5 80GB"' in found["text"]
    assert len(found["notes"]) == 2
    assert server.ask("POST", "/api/cluster", {"text": found["text"]})[1]["count"] == 4
    assert "could be several" in server.ask("POST", "/api/devices", {"gpus": ["3060"]})[1]["error"]
    assert "no devices" in server.ask("POST", "/api/devices", {})[1]["error"]
    assert server.ask("POST", "/api/devices", {"gpus": ["x" * 500]})[0] == 422
    offered = server.ask("GET", "/api/choices")[1]
    assert "GeForce RTX 4090" in offered["devices"]["gpu"]
    assert "nvlink" in offered["links"]


def test_a_language_model_on_cards(server: Served) -> None:
    """Tests that names give cards, rates and a command, and that mistakes and files give a sentence."""
    asked = {"model": "llama-3.1-8b", "quantisation": "q8_0", "gpus": ["RTX 4090", "RTX 3060 12GB"], "context": "16k"}
    status, found = server.ask("POST", "/api/fit", asked)
    assert status == 200
    assert [card["id"] for card in found["cards"]] == ["gpu0", "gpu1"]
    assert found["advice"].startswith("Do not split")
    assert found["commands"][0].startswith("CUDA_DEVICE_ORDER=PCI_BUS_ID llama-server")
    assert "did you mean" in server.ask("POST", "/api/fit", {**asked, "gpus": ["RTX 4909"]})[1]["error"]
    assert "known by name" in server.ask("POST", "/api/fit", {**asked, "model": "/etc/passwd"})[1]["error"]
    assert "GiB are missing" in server.ask("POST", "/api/fit", {**asked, "model": "deepseek-v3"})[1]["error"]
    assert server.ask("POST", "/api/fit", {**asked, "concurrency": 0})[0] == 422
    assert "llama-3.1-8b" in server.ask("GET", "/api/choices")[1]["llms"]
    assert b"cards-form" in server.ask("GET", "/fit")[1]
