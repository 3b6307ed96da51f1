"""`weftline schedule` from end to end: shapes, blocks, plans, sweeps, errors."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.test_command_line import run

FIELDS = {
    "period", "repetend", "period_bound", "period_proved", "makespan", "bubble", "device_span_bubble", "peak_memory",
    "micro_batches", "seconds", "actions", "bound", "gap",
}  # fmt: skip


def test_a_shape(tmp_path: Path) -> None:
    """Tests that a shape is scheduled at its bound within memory, verified, simulated and drawn."""
    words = (
        "schedule",
        "--shape",
        "vshape",
        "--devices",
        "4",
        "--micro-batches",
        "16",
        "--memory",
        "4",
        "--time",
        "10s",
    )
    answer = json.loads(run(*words, "--json", "-o", "s.json", cwd=tmp_path).stdout)
    assert set(answer) >= FIELDS
    assert (answer["period"], answer["period_bound"], answer["period_proved"]) == (4, 4, True)
    assert max(answer["peak_memory"]) <= 4
    assert answer["makespan"] <= 76
    assert "holds" in run("verify", "s.json", cwd=tmp_path).stdout
    run("simulate", "s.json", "--trace", "t.json", cwd=tmp_path)
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    text = run(*words, cwd=tmp_path).stdout
    assert "a micro-batch ends every 4 (its period)" in " ".join(text.split())
    assert "0 0123" in text


def test_a_plan_becomes_blocks(tmp_path: Path) -> None:
    """Tests a pipeline of a zoo model: training with split backward pass, and inference at a given rate."""
    run("zoo", "build", "bert", "--size", "small", "-o", "m.onnx", cwd=tmp_path)
    run(
        "plan",
        "m.onnx",
        "-c",
        "two-gpus",
        "--objective",
        "throughput",
        "--copies",
        "1",
        "--time",
        "5s",
        "-o",
        "p.json",
        cwd=tmp_path,
    )
    words = ("schedule", "--plan", "p.json", "-n", "4", "--time", "2s", "--json")
    train = json.loads(run(*words, "--train", "--split-backward", cwd=tmp_path).stdout)
    assert {block["kind"] for block in train["blocks"]["blocks"]} >= {"F", "B", "W"}
    assert train["provenance"]["inputs"].keys() == {"plan"}
    infer = json.loads(run(*words, "--infer", cwd=tmp_path).stdout)
    slow = json.loads(run(*words, "--infer", "--period", str(2 * infer["period_bound"]), cwd=tmp_path).stdout)
    assert slow["objective"] == "latency"
    assert slow["latency"] == slow["bound"]


def test_memory_sweep(tmp_path: Path) -> None:
    """Tests that more memory never means a longer period, and that too little is said to be so."""
    words = ("schedule", "--shape", "vshape", "--devices", "3", "-n", "6", "--sweep-memory", "0..3", "--time", "8s")
    rows = json.loads(run(*words, "--json", cwd=tmp_path).stdout)["rows"]
    assert rows[0]["period"] is None
    periods = [row["period"] for row in rows[1:]]
    assert periods == sorted(periods, reverse=True)
    assert "Memory against period" in run(*words, cwd=tmp_path).stdout


def test_work_limits_repeat_byte_for_byte(tmp_path: Path) -> None:
    """Tests that the same call with a work limit gives the same bytes."""
    words = ("schedule", "--shape", "kshape", "--devices", "4", "-n", "6", "--memory", "5", "--work", "60")
    for name in ("a.json", "b.json"):
        run(*words, "-o", name, cwd=tmp_path)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        ((), 2, "--shape"),
        (("--shape", "circle"), 2, "vshape"),
        (("--shape", "vshape", "--blocks", "x.json"), 2, "One of"),
        (("--blocks", "none.json"), 3, "none.json"),
        (("--shape", "vshape", "--memory", "0"), 4, "memory"),
        (("--shape", "vshape", "--memory", "many"), 2, "--memory"),
        (("--shape", "vshape", "--solver", "magic"), 2, "unknown solver"),
        (("--shape", "vshape", "--period", "4"), 2, "--infer"),
        (("--shape", "kshape", "--devices", "3"), 2, "even"),
    ],
)
def test_mistakes_are_said_in_one_line(tmp_path: Path, words: tuple[str, ...], code: int, says: str) -> None:
    """Tests exit codes and messages of wrong calls."""
    assert says in run("schedule", *words, "--time", "2s", cwd=tmp_path, code=code).stderr


def test_lists(tmp_path: Path) -> None:
    """Tests that shapes and methods are listed, as text and as JSON."""
    assert "mshape" in run("schedule", "--shape", "help", cwd=tmp_path).stdout
    assert "auto" in json.loads(run("schedule", "--solver", "help", "--json", cwd=tmp_path).stdout)["solvers"]


def test_a_real_run_and_an_export(tmp_path: Path) -> None:
    """Tests that a searched schedule trains a transformer on two processes with both engines, and is exported."""
    words = ("--shape", "zigzag", "--devices", "2", "-n", "4", "--memory", "8", "--time", "2s", "-o", "s.json")
    run("schedule", *words, cwd=tmp_path)
    model = f"{Path(__file__).parents[2] / 'examples' / 'train_transformer.py'}:transformer"
    for engine in ("torch", "weftline"):
        answer = json.loads(run("run", "s.json", "--model", model, "--engine", engine, "--json", cwd=tmp_path).stdout)
        assert answer["max_gradient_difference"] <= 1e-6
        assert answer["measured_seconds"] > 0
    files = json.loads(run("export", "s.json", "--to", "torch-csv", "-o", "out", "--json", cwd=tmp_path).stdout)[
        "files"
    ]
    rows = (tmp_path / "out" / "schedule.csv").read_text().splitlines()
    assert len(files) == len(rows) == 2
    assert run("run", "s.json", "--model", "none.py:f", cwd=tmp_path, code=3).stderr
    assert "torch-csv" in run("export", "s.json", "--to", "magic", "-o", "x", cwd=tmp_path, code=2).stderr
