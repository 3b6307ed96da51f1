"""The command line from end to end, as a user calls it: every verb, exit codes, stdout and stderr kept apart."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.data import present


def run(*words: str, cwd: Path, code: int = 0) -> subprocess.CompletedProcess[str]:
    """One command in its own process; fails unless it leaves with `code`."""
    done = subprocess.run(
        [sys.executable, "-c", "from weftline.cli import main; main()", *words],
        capture_output=True, text=True, cwd=cwd, check=False, env={**os.environ, "COLUMNS": "120"},
    )  # fmt: skip
    assert done.returncode == code, f"{words}: exit {done.returncode}\n{done.stdout[-800:]}\n{done.stderr[-2000:]}"
    assert "Traceback" not in done.stderr
    return done


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a small model and a plan of each objective."""
    folder = tmp_path_factory.mktemp("work")
    run("zoo", "build", "unet", "--size", "small", "-o", "unet.onnx", cwd=folder)
    run("plan", "unet.onnx", "-c", "laptop", "-o", "latency.json", cwd=folder)
    run(
        "plan",
        "unet.onnx",
        "-c",
        "two-gpus",
        "--objective",
        "throughput",
        "--copies",
        "1",
        "-o",
        "pipeline.json",
        cwd=folder,
    )
    return folder


def test_help_lists_the_verbs(tmp_path: Path) -> None:
    """Tests that --help names every verb and its exit codes, and that every verb has help that teaches."""
    text = run("--help", cwd=tmp_path).stdout
    for verb in (
        "demo",
        "zoo",
        "cluster",
        "plan",
        "sweep",
        "schedule",
        "run",
        "export",
        "verify",
        "simulate",
        "explain",
        "diff",
        "doctor",
    ):
        assert f"  {verb} " in text
        assert "Usage" in run(verb, "--help", cwd=tmp_path).stdout
    assert "exit codes" in text.lower()


def test_plan_json_has_the_promised_fields(work: Path) -> None:
    """Tests that `plan --json` prints one object with every field that programs rely on."""
    plan = json.loads(run("plan", "unet.onnx", "-c", "laptop", "--json", cwd=work).stdout)
    fields = {
        "objective", "value_ns", "bound_ns", "gap", "proof", "bound_by", "solver", "seconds", "stopped_by", "baselines",
        "devices", "placement", "stages", "timeline", "provenance", "problem",
    }  # fmt: skip
    assert fields <= set(plan)
    assert plan["bound_ns"] <= plan["value_ns"] == max(row[2] for row in plan["timeline"]["ops"])
    assert set(plan["placement"].values()) <= set(plan["devices"])
    assert set(plan["provenance"]["inputs"]) == {"model", "cluster"}


def test_verify_and_simulate_and_trace(work: Path) -> None:
    """Tests that a fresh plan verifies, simulates to its own value, and gives a trace that is valid JSON."""
    for name in ("latency.json", "pipeline.json"):
        verdict = json.loads(run("verify", name, "--json", cwd=work).stdout)
        assert verdict["ok"] is True
        answer = json.loads(run("simulate", name, "--trace", "trace.json", "--json", cwd=work).stdout)
        assert answer["value_ns"] == answer["plan_value_ns"] == verdict["value_ns"]
        events = json.loads((work / "trace.json").read_text())["traceEvents"]
        assert any(event["ph"] == "X" for event in events)


def test_explain_and_diff(work: Path) -> None:
    """Tests that the chain of a latency plan ends at its value, one op can be asked for, and plans can be compared."""
    chain = json.loads(run("explain", "latency.json", "--json", cwd=work).stdout)
    assert chain["chain"][-1]["end_ns"] == chain["value_ns"]
    op = next(iter(json.loads((work / "latency.json").read_text())["placement"]))
    assert {limit["kind"] for limit in chain["binding"]} & {"compute", "transfer"}
    text = run("explain", "latency.json", "--op", op, cwd=work).stdout
    assert op in text
    assert "If it stood elsewhere" in text
    story = json.loads(run("explain", "latency.json", "--op", op, "--json", cwd=work).stdout)
    assert [move["value_ns"] for move in story["moves"] if move["here"]] == [chain["value_ns"]]
    assert "no op" in run("explain", "latency.json", "--op", "nowhere", cwd=work, code=3).stderr
    assert json.loads(run("diff", "latency.json", "latency.json", "--json", cwd=work).stdout)["identical"]
    assert "different problems" in run("diff", "latency.json", "pipeline.json", cwd=work).stdout
    lie = json.loads((work / "latency.json").read_text())
    lie["value_ns"] //= 2
    (work / "lie.json").write_text(json.dumps(lie))
    assert "lie.json: the simulated value is not" in run("diff", "latency.json", "lie.json", cwd=work, code=6).stderr


def test_stages_auto_and_sweep(work: Path) -> None:
    """Tests that a sweep prints a table, a curve and words, writes the best plan, and has one JSON object."""
    words = ("plan", "unet.onnx", "-c", "two-gpus", "--objective", "throughput", "--solver", "greedy")
    done = run(*words, "--stages", "auto", "-o", "best.json", cwd=work)
    assert done.stderr == ""
    for word in ("Numbers of stages", "Speed-up against 1 stage", "best here", "How good is it", "device"):
        assert word in done.stdout
    run("verify", "best.json", cwd=work)
    answer = json.loads(run(*words, "--sweep-stages", "1..3", "--json", cwd=work).stdout)
    assert [row["stages"] for row in answer["sweep"]] == [1, 2, 3]
    values = [row["value_ns"] for row in answer["sweep"]]
    assert values == sorted(values, reverse=True)
    assert answer["plan"]["value_ns"] == values[answer["best_stages"] - 1]
    assert json.loads((work / "best.json").read_text())["value_ns"] == answer["plan"]["value_ns"]
    assert set(answer["plan"]["provenance"]["inputs"]) == {"model", "cluster"}
    assert len(json.loads(run(*words, "--stages", "2", "--json", cwd=work).stdout)["stages"]) <= 2


def test_stages_of_a_file_with_accelerators(tmp_path: Path) -> None:
    """Tests that a sweep may ask for more accelerators than a problem file has."""
    run("zoo", "build", "erdos_renyi", "--ops", "30", "-o", "random.pbtxt", cwd=tmp_path)
    words = ("plan", "random.pbtxt", "--objective", "throughput", "--solver", "greedy", "--json")
    answer = json.loads(run(*words, "--sweep-stages", "1,2,5", cwd=tmp_path).stdout)
    assert [row["stages"] for row in answer["sweep"]] == [1, 2, 5]
    assert answer["one_more"]["stages"] == answer["best_stages"] + 1
    assert len(json.loads(run(*words, "--stages", "auto", cwd=tmp_path).stdout)["sweep"]) == 2


@pytest.mark.parametrize("words", [("--stages", "auto"), ("--objective", "throughput", "--sweep-stages", "1..9")])
def test_stages_that_make_no_sense(words: tuple[str, ...], work: Path) -> None:
    """Tests that a sweep for latency, or over more devices than there are, is a usage error and writes nothing."""
    run("plan", "unet.onnx", "-c", "laptop", *words, "-o", "none.json", cwd=work, code=2)
    assert not (work / "none.json").exists()


def test_a_default_gap_is_no_promise(work: Path) -> None:
    """Tests that only a gap that was asked for changes the exit code."""
    plan = json.loads((work / "pipeline.json").read_text())
    assert (plan["provenance"]["gap"], plan["provenance"]["time_limit"]) == (0.0001, 60.0)
    words = ("plan", "unet.onnx", "-c", "two-gpus", "--objective", "throughput", "--solver", "even-split")
    run(*words, cwd=work)
    run(*words, "--gap", "0.01%", cwd=work, code=5)


def test_explain_a_pipeline_and_a_placement(work: Path) -> None:
    """Tests that the slowest stage is named with its ops, and that the whole placement can be listed."""
    told = json.loads(run("explain", "pipeline.json", "--json", cwd=work).stdout)
    assert told["slowest_stage"]["load_ns"] == told["value_ns"]
    text = run("explain", "pipeline.json", cwd=work).stdout
    assert "The slowest stage is" in text
    assert "What binds:" in text
    assert told["slowest_stage"]["ops"][0]["op"] in text
    for name in ("latency.json", "pipeline.json"):
        plan = json.loads((work / name).read_text())
        rows = json.loads(run("explain", name, "--placement", "--json", cwd=work).stdout)["placement"]
        assert {row["op"]: row["device"] for row in rows} == plan["placement"]
        assert rows[0]["op"] in run("explain", name, "--placement", cwd=work).stdout
    run("explain", "latency.json", "--placement", "--op", "x", cwd=work, code=2)


def test_exit_codes(work: Path) -> None:
    """Tests usage (2), bad input (3), infeasible (4), gap missed (5), verification failed (6); errors go to stderr."""
    run("plan", "unet.onnx", cwd=work, code=2)
    run("plan", "unet.onnx", "-c", "laptop", "--solver", "nonsense", cwd=work, code=2)
    run("plan", "unet.onnx", "-c", "laptop", "--objective", "speed", cwd=work, code=2)
    run("plan", "unet.onnx", "-c", "laptop", "--gap", "minus", cwd=work, code=2)
    (work / "empty.onnx").write_bytes(b"")
    done = run("plan", "empty.onnx", "-c", "laptop", "-o", "never.json", "--json", cwd=work, code=3)
    assert "empty.onnx" in done.stderr
    assert json.loads(done.stdout)["exit_code"] == 3
    assert not (work / "never.json").exists()
    (work / "tiny.toml").write_text(
        'version = 1\n[[device]]\nid = "a"\nkind = "cpu"\nmemory = "1 KiB"\n'
        'rate = { fp32 = "1 GFLOP/s", bandwidth = "1 GB/s", launch = "1 us", source = "guess" }\n'
    )
    assert "hold" in run("plan", "unet.onnx", "-c", "tiny.toml", "-o", "never.json", cwd=work, code=4).stderr
    assert not (work / "never.json").exists()
    run(
        "plan",
        "unet.onnx",
        "-c",
        "laptop",
        "--solver",
        "round-robin",
        "--gap",
        "1%",
        "-o",
        "missed.json",
        cwd=work,
        code=5,
    )
    assert (work / "missed.json").exists()
    plan = json.loads((work / "latency.json").read_text())
    plan["value_ns"] -= 1
    (work / "lowered.json").write_text(json.dumps(plan))
    assert "value" in run("verify", "lowered.json", cwd=work, code=6).stderr
    (work / "cut.json").write_bytes((work / "latency.json").read_bytes()[:1000])
    run("verify", "cut.json", cwd=work, code=3)


def test_the_same_work_gives_the_same_bytes(work: Path) -> None:
    """Tests that two plans under a work limit are byte for byte the same file, wherever they are written."""
    for name in ("one.json", "two.json"):
        run("plan", "unet.onnx", "-c", "laptop", "--work", "50", "--seed", "3", "-o", name, cwd=work)
    assert (work / "one.json").read_bytes() == (work / "two.json").read_bytes()


def test_solver_help_lists_the_registry(work: Path) -> None:
    """Tests that `--solver help` names every solver of the objective."""
    assert "heft" in run("plan", "--solver", "help", cwd=work).stdout
    assert "greedy" in run("plan", "--objective", "throughput", "--solver", "help", cwd=work).stdout


def test_zoo_and_cluster(tmp_path: Path) -> None:
    """Tests the lists, a synthetic graph in both forms, a preset as a start for one's own file, and `check`."""
    listed = json.loads(run("zoo", "--json", cwd=tmp_path).stdout)
    assert len(listed["architectures"]) >= 10
    run("zoo", "build", "erdos_renyi", "--ops", "60", "-o", "random.pbtxt", cwd=tmp_path)
    plan = json.loads(
        run(
            "plan", "random.pbtxt", "--objective", "throughput", "--stages", "4", "--time", "3s", "--json", cwd=tmp_path
        ).stdout
    )
    assert len(plan["devices"]) == 4
    run("zoo", "build", "layered", "--ops", "60", "-o", "layered.json", cwd=tmp_path)
    run("plan", "layered.json", "--cluster", "edge", "--time", "3s", cwd=tmp_path)
    (tmp_path / "mine.toml").write_text(run("cluster", "show", "edge", cwd=tmp_path).stdout)
    assert json.loads(run("cluster", "check", "mine.toml", "--json", cwd=tmp_path).stdout)["name"] == "edge"
    (tmp_path / "mine.toml").write_text((tmp_path / "mine.toml").read_text().replace("GiB", "GiBs", 1))
    assert "device[0]" in run("cluster", "check", "mine.toml", cwd=tmp_path, code=3).stderr
    run("zoo", "build", "resnet51", "-o", "x.onnx", cwd=tmp_path, code=2)
    assert not (tmp_path / "x.onnx").exists()


def test_doctor_and_demo(tmp_path: Path) -> None:
    """Tests that doctor finds this installation complete and that demo writes plan, trace and summary that hold."""
    assert json.loads(run("doctor", "--json", cwd=tmp_path).stdout)["ok"]
    told = json.loads(run("demo", "--json", cwd=tmp_path).stdout)
    assert told["run"]["max_output_difference"] < 1e-3
    assert {"plan.json", "costs.json"} < {path.name for path in (tmp_path / "demo" / "run").iterdir()}
    run("verify", "demo/run/plan.json", cwd=tmp_path)
    assert json.loads((tmp_path / "demo" / "run" / "plan.json").read_bytes())["format"] == "weftline-fleet"
    assert told["run"]["pipeline_ns"] > 0
    for entry in told["plans"]:
        folder = tmp_path / entry["folder"]
        fleet = json.loads((folder / "plan.json").read_bytes())["format"] == "weftline-fleet"
        files = {"plan.json", "summary.md", "report.html"} | (set() if fleet else {"trace.json"})
        assert {path.name for path in folder.iterdir()} == files
        assert entry["proved_bound_ns"] <= entry["value_ns"]
        assert ("no deployment" if fleet else "lower bound") in (folder / "summary.md").read_text()


def graph_file(ops: Sequence[object], tensors: Sequence[object]) -> bytes:
    """Our own JSON form."""
    head = {"format": "weftline-graph", "version": 1, "name": "written by hand"}
    return json.dumps({**head, "ops": ops, "tensors": tensors}).encode()


CYCLE = [{"name": "x", "producer": 0, "consumers": [1]}, {"name": "y", "producer": 1, "consumers": [0]}]
BAD_FILES = {
    "empty": b"",
    "random": bytes(range(256)) * 8,
    "text": b"hello, this is not a model\n",
    "truncated": None,
    "broken json": b'{"format": "weftline-graph", "version": 1, "name": "x", "ops": [',
    "wrong json": b'{"maxFPGAs": 2}',
    "cycle": graph_file([{"name": "a"}, {"name": "b"}], CYCLE),
    "duplicate": graph_file([{"name": "a"}, {"name": "a"}], []),
    "absurd": graph_file([{"name": "a", "flops": 10**30}], []),
    "deep": b"[" * 100_000,
}


@pytest.mark.parametrize("kind", BAD_FILES)
def test_bad_files_are_refused_with_their_name(kind: str, work: Path) -> None:
    """Tests that whatever is given instead of a model leads to exit 3, the file's name, and nothing written."""
    data = BAD_FILES[kind]
    if data is None:
        data = (work / "unet.onnx").read_bytes()[:5000]
    (work / "bad.bin").write_bytes(data)
    done = run("plan", "bad.bin", "-c", "laptop", "-o", "bad-plan.json", cwd=work, code=3)
    assert "bad.bin" in done.stderr
    assert done.stdout == ""
    assert not (work / "bad-plan.json").exists()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("explain", "unet.onnx"), "unet.onnx: this is an ONNX model, not a weftline plan"),
        (("diff", "latency.json", "laptop.toml"), "laptop.toml: this is a cluster file, not a weftline plan"),
        (("cluster", "check", "latency.json"), "latency.json: this is a weftline plan, not a cluster file"),
        (("plan", "laptop.toml", "-c", "laptop"), "laptop.toml: this is a cluster file, not a model"),
        (("plan", "unet.onnx", "-c", "unet.onnx"), "unet.onnx: this is an ONNX model, not a cluster file"),
        (("plan", "unet.onnx", "-c", "laptop", "--costs", "latency.json"), "this is a weftline plan, not a file of"),
        (("report", "latency.json", "--run", "latency.json"), "this is a weftline plan, not what `weftline run"),
        (("plan", "unet.onnx", "-c", "laptp"), "neither a cluster file nor a preset, did you mean 'laptop'?"),
        (("verify", "unet.onnx"), "not a weftline plan, which is UTF-8 text"),
    ],
)
def test_a_file_of_the_wrong_kind_is_named(words: tuple[str, ...], says: str, work: Path) -> None:
    """Tests that the message says what the file is, or which name was meant."""
    (work / "laptop.toml").write_text(run("cluster", "show", "laptop", cwd=work).stdout)
    assert says in run(*words, cwd=work, code=3).stderr


def test_a_model_of_the_zoo_by_name(tmp_path: Path) -> None:
    """Tests that zoo:NAME:SIZE is planned like the file that `zoo build` writes, and that its name is looked up."""
    run("plan", "zoo:unet:small", "-c", "laptop", "--work", "50", "-o", "named.json", cwd=tmp_path)
    run("zoo", "build", "unet", "--size", "small", "--no-weights", "-o", "unet.onnx", cwd=tmp_path)
    run("plan", "unet.onnx", "-c", "laptop", "--work", "50", "-o", "file.json", cwd=tmp_path)
    named, file = (json.loads((tmp_path / name).read_text()) for name in ("named.json", "file.json"))
    assert named["provenance"].pop("argv") != file["provenance"].pop("argv")
    assert named == file
    assert "did you mean 'unet'?" in run("plan", "zoo:unett", "-c", "laptop", cwd=tmp_path, code=2).stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file.json", "named.json", "unet.onnx"]


def test_verify_says_what_was_not_checked(tmp_path: Path) -> None:
    """Tests that a bound above the proved one is called a claim, and one that is proved is not."""
    run("zoo", "build", "layered", "--ops", "12", "-o", "graph.json", cwd=tmp_path)
    run("plan", "graph.json", "-c", "two-gpus", "--work", "5000", "-o", "plan.json", cwd=tmp_path)
    verdict = json.loads(run("verify", "plan.json", "--json", cwd=tmp_path).stdout)
    text = run("verify", "plan.json", cwd=tmp_path).stdout
    assert verdict["bound_ns"] > verdict["proved_bound_ns"]
    assert "is a claim, which was not checked" in text
    run("zoo", "build", "layered", "--ops", "1", "-o", "one.json", cwd=tmp_path)
    run("plan", "one.json", "-c", "two-gpus", "--work", "5", "-o", "one-plan.json", cwd=tmp_path)
    assert "claim" not in run("verify", "one-plan.json", cwd=tmp_path).stdout


def test_names_cannot_drive_the_terminal(tmp_path: Path) -> None:
    """Tests that a hostile op name reaches the terminal as visible text, in tables, explanations and errors."""
    (tmp_path / "evil.json").write_bytes(graph_file([{"name": "\x1b[2Jgone[bold]"}], []))
    run("plan", "evil.json", "-c", "edge", "-o", "plan.json", cwd=tmp_path)
    told = (
        run("explain", "plan.json", cwd=tmp_path).stdout
        + run("explain", "plan.json", "--op", "x", cwd=tmp_path, code=3).stderr
    )
    assert "\x1b" not in told
    assert "\\x1b[2Jgone[bold]" in told


def test_a_reader_that_leaves_is_no_error(work: Path) -> None:
    """Tests that `weftline ... | head -1` ends quietly with code 0."""
    words = f"{sys.executable} -c 'from weftline.cli import main; main()' explain latency.json --most 10000"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {words} | head -n 1"], capture_output=True, text=True, cwd=work, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""


def test_ctrl_c_leaves_quickly_and_cleanly(work: Path) -> None:
    """Tests that an interrupt during a large plan ends it with code 130 or with the best plan so far."""
    run("zoo", "build", "layered", "--ops", "30000", "-o", "large.json", cwd=work)
    words = [sys.executable, "-c", "from weftline.cli import main; main()", "plan", "large.json", "-c", "four-unequal"]
    process = subprocess.Popen([*words, "-o", "interrupted.json"], cwd=work, stderr=subprocess.PIPE, text=True)
    time.sleep(2.5)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=120)
    assert process.returncode in (0, 130)
    assert "Traceback" not in err
    if process.returncode == 0:
        run("verify", "interrupted.json", cwd=work)


@pytest.mark.parametrize(("name", "seconds"), [("GoogLeNet", 2.336), ("yolov5x", 24.169)])
def test_published_instances(name: str, seconds: float, tmp_path: Path) -> None:
    """Tests the best single device of Moirai's samples."""
    path = present(f"moirai/{name}.json")
    answer = run("plan", str(path), "--objective", "latency", "--solver", "single-device", "--json", cwd=tmp_path)
    assert json.loads(answer.stdout)["value_ns"] == round(seconds * 1e9)


def test_sweep(work: Path) -> None:
    """Tests a sweep from a file and from options: a table, one JSON object, and errors that are rows."""
    (work / "sweep.toml").write_text(
        'version = 1\nmodels = ["unet.onnx", "none.onnx"]\nclusters = ["laptop"]\nsolvers = ["greedy"]\nwork = 5\n'
    )
    done = run("sweep", "sweep.toml", "--jobs", "1", "-o", "results", cwd=work)
    assert done.stderr == ""
    for word in ("Plans", "no such file", "2 of 2 finished; 1 without a plan", "written to results"):
        assert word in done.stdout
    words = ("sweep", "sweep.toml", "--model", "unet.onnx", "--solver", "greedy", "-o", "results", "--json")
    answer = json.loads(run(*words, cwd=work).stdout)
    assert (answer["asked"], answer["finished"], answer["from_before"], answer["without_plan"]) == (1, 1, 1, 0)
    run("verify", f"results/{answer['rows'][0]['plan']}", cwd=work)
    assert "Add -o FOLDER" in run("sweep", "--model", "unet.onnx", cwd=work, code=2).stderr
    assert "which models" in run("sweep", "-o", "other", cwd=work, code=2).stderr
