"""Sweeps over many questions: every answer is a row, nothing is done twice, whatever ends a sweep before its time."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import psutil
import pytest

from weftline.ask.request import GridRequest
from weftline.errors import InputError, UsageError
from weftline.grid.grid import SweepFolder, sweep_plans
from weftline.grid.job import answer, failed
from weftline.grid.questions import questions_of, read_sweep_file

WANTED = GridRequest(
    models=("zoo:unet:small", "zoo:bert:small"),
    clusters=("laptop", "two-gpus", "edge"),
    objectives=("latency", "throughput"),
    stages=(2, 3),
    solvers=("greedy", "heft"),
    work_limit=10,
)
WORDS = [
    *(f"--model={word}" for word in WANTED.models),
    *(f"--cluster={word}" for word in WANTED.clusters),
    *(f"--objective={word}" for word in WANTED.objectives),
    *(f"--stages={number}" for number in WANTED.stages),
    *(f"--solver={word}" for word in WANTED.solvers),
    *("--work=10", "--jobs=1", "-o", "out"),
]


def plans(folder: Path) -> dict[str, bytes]:
    """File name -> bytes of every plan."""
    return {path.name: path.read_bytes() for path in (folder / "plans").iterdir()}


def lines(folder: Path) -> list[dict[str, object]]:
    """The rows as they stand in the file."""
    path = folder / "results.jsonl"
    return [json.loads(line) for line in path.read_bytes().splitlines()] if path.exists() else []


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a sweep of 24 questions that nothing disturbed, on two workers."""
    folder = tmp_path_factory.mktemp("whole")
    done = sweep_plans(WANTED, folder, jobs=2)
    assert (done.asked, len(done.rows), done.repeated, done.interrupted) == (24, 24, 0, False)
    assert not [row.error for row in done.rows if row.error is not None]
    return folder


def test_rows_are_those_of_their_plans(whole: Path) -> None:
    """Tests that a row says what its plan says, and that the plan is the one that this process makes."""
    rows = {str(row["key"]): row for row in lines(whole)}
    assert len(rows) == len(lines(whole)) == 24
    for row in rows.values():
        plan = json.loads((whole / str(row["plan"])).read_bytes())
        for field in ("value_ns", "bound_ns", "gap", "proof", "bound_by", "solver", "seconds", "stopped_by"):
            assert row[field] == plan[field]
    question = questions_of(WANTED, whole / "models")[0]
    assert answer(question)[1] == plans(whole)[f"{question.key}.json"]


def test_nothing_is_done_twice(whole: Path, tmp_path: Path) -> None:
    """Tests that a second sweep starts no worker, a torn line is dropped, and a lost plan is made again."""
    whole = Path(shutil.copytree(whole, tmp_path / "whole"))
    before, stamps = plans(whole), {p.name: p.stat().st_mtime_ns for p in (whole / "plans").iterdir()}
    text = (whole / "results.jsonl").read_bytes()
    (whole / "results.jsonl").write_bytes(text + text[:100])
    again = sweep_plans(WANTED, whole, on_row=lambda *_: pytest.fail("work was repeated"))
    assert (again.asked, len(again.rows), again.repeated) == (24, 24, 24)
    assert (whole / "results.jsonl").read_bytes() == text
    assert {p.name: p.stat().st_mtime_ns for p in (whole / "plans").iterdir()} == stamps
    lost = sorted(before)[0]
    (whole / "plans" / lost).unlink()
    assert sweep_plans(WANTED, whole, jobs=1).repeated == 23
    assert plans(whole) == before


def test_stopped_and_killed(whole: Path, tmp_path: Path) -> None:
    """Tests that Ctrl-C and SIGKILL leave no worker, and that the next sweep goes on to the same plans."""
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "  # nohup has it ignored
    command = [sys.executable, "-c", f"{code}from weftline.cli import main; main()", "sweep", *WORDS]
    folder, kept = tmp_path / "out", 0
    for number, expected in ((signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)):
        process = subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        while len(lines(folder)) < kept + 2:
            assert process.poll() is None, process.communicate()
            time.sleep(0.01)
        children = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(number)
        try:
            out, _ = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        assert process.returncode == expected
        assert (b"the same call goes on" in out) == (number == signal.SIGINT)
        assert not psutil.wait_procs(children, timeout=60)[1]
        found = [row["key"] for row in lines(folder)]
        assert kept < len(found) == len(set(found)) < 24
        kept = len(found)
    stamps = {p.name: p.stat().st_mtime_ns for p in (folder / "plans").iterdir()}
    done = sweep_plans(WANTED, folder, jobs=2)
    assert (len(done.rows), done.repeated) == (24, kept)
    assert len(lines(folder)) == 24
    assert plans(folder) == plans(whole)
    unchanged = [name for name, stamp in stamps.items() if (folder / "plans" / name).stat().st_mtime_ns == stamp]
    assert len(unchanged) >= kept


def test_a_worker_dies(tmp_path: Path) -> None:
    """Tests that a sweep outlives its workers."""
    killed: list[int] = []

    def kill(*_: object) -> None:
        if len(killed) < 2:
            for child in psutil.Process().children():
                if "spawn_main" in " ".join(child.cmdline()):
                    os.kill(child.pid, signal.SIGKILL)
                    killed.append(child.pid)

    wanted = msgspec.structs.replace(WANTED, models=("zoo:unet:small",), objectives=("latency",), stages=())
    done = sweep_plans(wanted, tmp_path, jobs=1, on_row=kill)
    assert len(killed) == 2
    assert len(lines(tmp_path)) == len(done.rows) == 6
    assert not [row.error for row in done.rows if row.error is not None]


def test_errors_are_rows(tmp_path: Path) -> None:
    """Tests missing and broken files, unknown models of the zoo, and limits that nothing satisfies."""
    (tmp_path / "broken.onnx").write_bytes(b"not a model")
    (tmp_path / "bad.toml").write_text("version = 2")
    cluster = '[[device]]\nid = "a"\nkind = "cpu"\nmemory = "1 KiB"\n'
    rate = 'rate = { fp32 = "1 TFLOP/s", bandwidth = "10 GB/s", launch = "1 us" }\n'
    (tmp_path / "small.toml").write_text(f"version = 1\n{cluster}{rate}")
    models = (str(tmp_path / "broken.onnx"), str(tmp_path / "none.onnx"), "zoo:ghost", "zoo:unet:small")
    wanted = GridRequest(
        models=models, clusters=(str(tmp_path / "small.toml"), str(tmp_path / "bad.toml")), solvers=("greedy",)
    )
    done = sweep_plans(wanted, tmp_path / "out", jobs=1)
    kinds = {(row.model, Path(row.cluster or "").name): row.error and row.error.kind for row in done.rows}
    assert kinds.pop(("zoo:unet:small", "small.toml")) == "InfeasibleError"
    assert set(kinds.values()) == {"InputError"}
    assert len(done.rows) == 8
    again = sweep_plans(wanted, tmp_path / "out", jobs=1)
    assert again.repeated == 8
    (tmp_path / "none.onnx").write_bytes(b"another")
    assert sweep_plans(wanted, tmp_path / "out", jobs=1).repeated == 6


def test_one_sweep_in_a_folder(tmp_path: Path) -> None:
    """Tests that a second sweep in the same folder is refused while the first works, and a foreign file is."""
    with SweepFolder(tmp_path), pytest.raises(UsageError, match="another sweep works in"):
        sweep_plans(WANTED, tmp_path)
    (tmp_path / "results.jsonl").write_text('{"key": "1"}\n')
    with pytest.raises(InputError, match=r"results.jsonl: line 1: is not a row"):
        sweep_plans(WANTED, tmp_path)


@pytest.mark.parametrize("name", ["results.jsonl", ".lock"])
@pytest.mark.parametrize("kind", ["symlink", "hard link", "pipe"])
def test_files_of_others_in_a_folder(kind: str, name: str, tmp_path: Path) -> None:
    """Tests that links to what is somebody's, and pipes, are refused and stay as they were."""
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    other.write_bytes(b"precious")
    if kind == "symlink":
        (folder / name).symlink_to(other)
    elif kind == "hard link":
        (folder / name).hardlink_to(other)
    else:
        os.mkfifo(folder / name)
    with pytest.raises(InputError, match=f"{name}.*is a link or no regular file"), SweepFolder(folder):
        pass
    assert other.read_bytes() == b"precious"


@pytest.mark.parametrize("what", ["plans", "models", "plan", "model"])
def test_links_inside_a_folder(what: str, tmp_path: Path) -> None:
    """Tests that no plan and no model is written behind a link that somebody has put into the folder."""
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    (other / "file").write_bytes(b"precious")
    if what in ("plans", "models"):
        (folder / what).symlink_to(other)
    else:
        (folder / f"{what}s").mkdir()
        key = questions_of(msgspec.structs.replace(WANTED, models=("zoo:unet:small",)), tmp_path / "m")[0].key
        name = f"{key}.json" if what == "plan" else "unet-small.onnx"
        (folder / f"{what}s" / name).symlink_to(other / "file")
    with pytest.raises(InputError, match="is a link or no folder"):
        sweep_plans(msgspec.structs.replace(WANTED, models=("zoo:unet:small",)), folder, jobs=1)
    assert [path.name for path in other.iterdir()] == ["file"]
    assert (other / "file").read_bytes() == b"precious"


def test_a_link_that_comes_later(tmp_path: Path) -> None:
    """Tests that a plan is not written behind a link that was not there when the sweep began."""
    row = failed(questions_of(msgspec.structs.replace(WANTED, models=("none.onnx",)), tmp_path)[0], "x", "y", 3)
    (tmp_path / "file").write_bytes(b"precious")
    with SweepFolder(tmp_path / "out") as folder:
        (tmp_path / "out" / "plans" / f"{row.key}.json").symlink_to(tmp_path / "file")
        with pytest.raises(InputError, match="not a regular file"):
            folder.add(row, b"{}")
        assert folder.rows == {}
    assert (tmp_path / "file").read_bytes() == b"precious"


def test_rows_that_cannot_be(whole: Path, tmp_path: Path) -> None:
    """Tests that a row with a negative value is an error that says where, not one of a logarithm later."""
    (tmp_path / "plans").mkdir()
    row = {**lines(whole)[0], "value_ns": -5}
    (tmp_path / "results.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(InputError, match=r"line 1: is not a row: .*value_ns"), SweepFolder(tmp_path):
        pass


@pytest.mark.parametrize(
    "text",
    [
        "version = 1\n" + ".".join("a" * 500) + " = 1",
        "version = 1\nmodels = " + "[" * 5000 + "]" * 5000,
        "version = 1\nmodels = ['a']\nseeds = [0x" + "f" * 5000 + "]",
        "version = 1\nmodels = ['a']\nseeds = [" + "9" * 5000 + "]",
        "version = 1\nmodels = ['a']\nseeds = [nan]",
        "version = 1\nmodels = ['a']\nversion = 1",
        "version = 1\nmodels = ['a']\ntime = inf",
        "version = 1\nmodels = ['a']\n" + "#" * 2**20,
    ],
    ids=["dotted key", "depth", "hexadecimal", "digits", "no number", "twice", "infinite", "size"],
)
def test_sweep_files_made_to_cost(text: str, tmp_path: Path) -> None:
    """Tests that a file made to cost time or memory is one error, of the kind that ends with exit code 3 or 2."""
    path = tmp_path / "sweep.toml"
    path.write_text(text)
    with pytest.raises((InputError, UsageError)):
        sweep_plans(read_sweep_file(path), tmp_path / "out", jobs=1)


def test_a_last_line_that_is_no_row_stays(tmp_path: Path) -> None:
    """Tests that only what can be the beginning of a row is dropped."""
    path = tmp_path / "results.jsonl"
    path.write_bytes(b"my own notes, without an end of line")
    with pytest.raises(InputError, match="its last line is not a row"), SweepFolder(tmp_path):
        pass
    assert path.read_bytes() == b"my own notes, without an end of line"
    for rest in (b'{"k', b'{"key":"abc","mod', b"\0\0\0"):
        path.write_bytes(rest)
        with SweepFolder(tmp_path) as folder:
            assert folder.rows == {}
        assert path.read_bytes() == b""


def test_keys_name_no_files_elsewhere(tmp_path: Path) -> None:
    """Tests that a row whose key is a path does not count as finished."""
    plan = tmp_path / "plans" / "x.json"
    plan.parent.mkdir()
    plan.write_text("{}")
    about = {"objective": "latency", "seed": 0, "stages": None, "gap_limit": None, "time_limit": None}
    texts = dict.fromkeys(("model", "solver", "model_sha256", "cluster_sha256", "cluster"), "x")
    row = {"key": "../plans/x", **about, **texts, "work_limit": None}
    (tmp_path / "results.jsonl").write_text(json.dumps(row) + "\n")
    with SweepFolder(tmp_path) as folder:
        assert folder.rows == {}


def test_a_full_disk_leaves_no_part_of_a_row(tmp_path: Path) -> None:
    """Tests that a row that finds no room is an error, and that the rows before it stay whole."""
    row = failed(questions_of(msgspec.structs.replace(WANTED, models=("none.onnx",)), tmp_path)[0], "x", "y" * 500, 3)
    with SweepFolder(tmp_path / "out") as folder:
        folder.add(row, b"")
        size = (tmp_path / "out" / "results.jsonl").stat().st_size
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 100, limits[1]))
        try:
            with pytest.raises(InputError, match=r"results\.jsonl: cannot be written: no room left"):
                folder.add(row, b"")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert (tmp_path / "out" / "results.jsonl").stat().st_size == size


def test_questions(tmp_path: Path) -> None:
    """Tests the cross product: stages for throughput alone, solvers where they exist, equal content once."""
    questions = questions_of(WANTED, tmp_path)
    assert len(questions) == len({question.key for question in questions}) == 24
    assert {(q.objective, q.stages, q.solver) for q in questions} == {
        ("latency", None, "greedy"),
        ("latency", None, "heft"),
        ("throughput", 2, "greedy"),
        ("throughput", 3, "greedy"),
    }
    (tmp_path / "copy.onnx").write_bytes((tmp_path / "unet-small.onnx").read_bytes())
    more = msgspec.structs.replace(WANTED, models=(*WANTED.models, str(tmp_path / "copy.onnx")))
    assert [q.key for q in questions_of(more, tmp_path)] == [q.key for q in questions]
    other = msgspec.structs.replace(WANTED, work_limit=11)
    assert not {q.key for q in questions_of(other, tmp_path)} & {q.key for q in questions}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"models": ()}, "which models"),
        ({"solvers": ("ghost",)}, "no objective of the sweep has a solver 'ghost'"),
        ({"objectives": ("latency",)}, "stages are for the objective throughput"),
        ({"objectives": ("speed",)}, "latency or throughput, not 'speed'"),
        ({"stages": (0,)}, "between 1 and"),
        ({"seeds": (-1,)}, "a seed lies between"),
        ({"seeds": tuple(range(50_000))}, "more than the 100,000"),
        ({"work_limit": 0}, "a work limit at least 1"),
    ],
)
def test_calls_that_make_no_sense(change: dict[str, object], words: str, tmp_path: Path) -> None:
    """Tests that what is wrong for all questions is an error, not a row."""
    with pytest.raises(UsageError, match=words):
        sweep_plans(msgspec.structs.replace(WANTED, **change), tmp_path)
    assert not lines(tmp_path)


def test_sweep_file(tmp_path: Path) -> None:
    """Tests both forms of the file, names relative to it, and errors that name the field."""
    text = 'version = 1\nmodels = ["a.onnx", "zoo:bert"]\nclusters = ["laptop", "c.toml"]\ntime = "5 s"\ngap = "1%"\n'
    (tmp_path / "s.toml").write_text(text)
    wanted = read_sweep_file(tmp_path / "s.toml")
    assert wanted.models == (str(tmp_path / "a.onnx"), "zoo:bert")
    assert wanted.clusters == ("laptop", str(tmp_path / "c.toml"))
    assert (wanted.time_limit, wanted.gap, wanted.work_limit) == (5.0, 0.01, None)
    (tmp_path / "s.json").write_text('{"version": 1, "models": ["zoo:bert"], "stages": [2], "work": 7}')
    assert read_sweep_file(tmp_path / "s.json") == GridRequest(models=("zoo:bert",), stages=(2,), work_limit=7)
    for wrong, said in (
        ('version = 1\nmodel = ["a"]', "model"),
        ("version = 2", "version"),
        ('version = 1\nmodels = ["a"]\nseeds = ["x"]', r"seeds\[0\]"),
        (f"{'a.' * 2000}a = 1", "dots"),
        ("version =", "neither TOML nor JSON"),
    ):
        (tmp_path / "wrong.toml").write_text(wrong)
        with pytest.raises(InputError, match=said):
            read_sweep_file(tmp_path / "wrong.toml")
