"""Tests that 44 mistakes which people make in their first minutes end with the right words and exit code.

They are those of a record of strangers' first minutes; each row has its number there.
"""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner

from weftline.cli.main import app
from weftline.errors import WeftlineError
from weftline.zoo import build

CLUSTER = """version = 1
name = "two"
[[device]]
id = "gpu0"
kind = "gpu"
memory = "24 GiB"
rate = { fp32 = "10 TFLOP/s", bandwidth = "1008 GB/s", launch = "5 us" }
runtime = "ort:CUDAExecutionProvider:0"
[[device]]
id = "cpu0"
kind = "cpu"
memory = "64 GiB"
rate = { fp32 = "1 TFLOP/s", bandwidth = "80 GB/s", launch = "1 us" }
runtime = "ort:CPUExecutionProvider"
[[link]]
between = ["gpu0", "cpu0"]
bandwidth = "16 GB/s"
latency = "10 us"
"""


def call(*words: object) -> tuple[int, str]:
    """Exit code and everything that was said."""
    done = CliRunner().invoke(app, [str(word) for word in words], prog_name="weftline")
    if isinstance(done.exception, WeftlineError):
        return done.exception.exit_code, f"{done.output}{done.exception}"
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.output + (done.stderr if done.stderr_bytes else "")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, clusters with mistakes, plans and a schedule, as somebody's folder has them after some minutes."""
    place = tmp_path_factory.mktemp("first-minutes")
    onnx.save(build("resnet50", size="small"), place / "vision.onnx")
    (place / "garbage.onnx").write_bytes(b"\x00\x01garbage" * 40)
    (place / "model.gguf").write_bytes(b"GGUF" + bytes(64))
    (place / "config.json").write_text('{"model_type": "llama", "hidden_size": 5120}')
    limits = '[limits]\npin = [{ op = "%s", device = "%s" }]\n'
    texts = {
        "good": CLUSTER,
        "gigs": CLUSTER.replace("24 GiB", "24 gigs"),
        "bare": CLUSTER.replace("24 GiB", "24"),
        "speed": CLUSTER.replace("1008 GB/s", "1008 GiBps"),
        "typo": CLUSTER.replace("bandwidth", "bandwith", 1),
        "link": CLUSTER.replace('between = ["gpu0", "cpu0"]', 'between = ["gpu7", "cpu0"]'),
        "cuda": CLUSTER + limits % ("*", "cuda:0"),
        "second": CLUSTER + limits % ("*", "cuda:1"),
        "unlinked": CLUSTER[: CLUSTER.index("[[link]]")],
        "layer": CLUSTER + limits % ("/layer4/*", "cpu0"),
        "gpu": CLUSTER[: CLUSTER.index('[[device]]\nid = "cpu0"')],
    }
    for name, text in texts.items():
        (place / f"{name}.toml").write_text(text)
    quick = ("--solver", "greedy", "--work", "1")
    plan = ("plan", place / "vision.onnx", "-c", place / "good.toml", *quick)
    assert call(*plan, "-o", place / "latency.json")[0] == 0
    assert call(*plan, "--objective", "throughput", "--copies", "1", "-o", place / "pipeline.json")[0] == 0
    shape = ("schedule", "--shape", "vshape", "--devices", "2", "-n", "3", "--solver", "1f1b")
    assert call(*shape, "-o", place / "sched.json")[0] == 0
    return place


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody stands in that folder."""
    monkeypatch.chdir(folder)


PLAN = "plan vision.onnx -c good.toml --solver greedy --work 1"
MISTAKES: dict[str, tuple[str, int, tuple[str, ...]]] = {
    "1": ("plan modle.onnx -c good.toml", 3, ("modle.onnx: no such file", "there is garbage.onnx, vision.onnx")),
    "1-near": ("plan vison.onnx -c good.toml", 3, ("no such file, did you mean 'vision.onnx'?",)),
    "2": ("plan vision.onnx -c two-gpu", 3, ("did you mean 'two-gpus'?", "laptop")),
    "3": ("plan vision.onnx -c rtx4090,rtx3060", 3, ("neither a cluster file nor a preset", "two-gpus > mine.toml")),
    "4": ("plan vision.onnx", 2, ("holds no costs, so devices are needed", "--gpu", "--cluster laptop")),
    "4-zoo": ("plan zoo:resnet50", 2, ("zoo:resnet50 holds no costs",)),
    "5": (f"{PLAN} --time 10", 0, ("faster", "not written")),
    "6": (f"{PLAN} --time 10sec", 0, ("not written",)),
    "6-min": (f"{PLAN} --time 10min", 0, ("not written",)),
    "6-minus": ("plan vision.onnx -c good.toml --time -5s", 2, ("--time: '-5s' is negative", "60s")),
    "6-unit": ("plan vision.onnx -c good.toml --time 10parsec", 2, ("unknown unit 'parsec'", "'60s'", "s, min, h")),
    "7": (f"{PLAN} --time 0", 0, ("not written",)),
    "8": ("plan vision.onnx -c good.toml --gap 1", 2, ("is a gap of 100%", "1%")),
    "9": ("plan vision.onnx -c good.toml --solver gurobi", 2, ("unknown solver 'gurobi'", "auto")),
    "10": ("plan vision.onnx -c good.toml --solver exact", 2, ("'exact' is a solver for throughput, not for latency",)),
    "10-back": (
        "plan vision.onnx -c good.toml --objective throughput --solver heft",
        2,
        ("'heft' is a solver for latency, not for throughput",),
    ),
    "10-order": ("plan vision.onnx -c good.toml --solver gpipe", 2, ("orders micro-batches", "weftline schedule")),
    "10-place": ("schedule --shape vshape --solver heft", 2, ("'heft' is a solver for latency, not for schedule",)),
    "11": ("plan vision.onnx -c good.toml --stages 2", 2, ("stages have no meaning for the objective latency",)),
    "12": ("plan vision.onnx -c good.toml --objective speed", 2, ("latency", "throughput")),
    "13": ("plan vision.onnx -c good.toml --batch 8", 2, ("--dim batch=8", "--shape input=8x3x224x224")),
    "14": ("plan vision.onnx -c good.toml --shape 8x3x224x224", 2, ("write it like input=1x3x224x224",)),
    "15": ("plan vision.onnx -c good.toml --shape images=1x3x8x8", 3, ("not an input", "inputs: input")),
    "16": (
        "plan vision.onnx -c good.toml --shape input=8x3x64x64",
        3,
        ("contradicts the file", "leave --shape out", "export the model again"),
    ),
    "17": ("plan vision.onnx -c gigs.toml", 3, ("gigs.toml: device[0].memory", "'gigs'", "24 GiB")),
    "18": ("plan vision.onnx -c bare.toml", 3, ("bare.toml: device[0].memory", "no unit")),
    "19": ("plan vision.onnx -c speed.toml", 3, ("device[0].rate.bandwidth", "GiBps", "GB/s")),
    "20": ("plan vision.onnx -c typo.toml", 3, ("did you mean 'bandwidth'?",)),
    "21": ("plan vision.onnx -c link.toml", 3, ("unknown device 'gpu7', did you mean 'gpu0'?", "gpu0, cpu0")),
    "22": (
        "plan vision.onnx -c cuda.toml",
        3,
        ("cuda.toml: limits.pin[0].device: unknown device 'cuda:0'", "did you mean 'gpu0'?"),
    ),
    "22-more": ("plan vision.onnx -c second.toml", 3, ("of the kind gpu it has 1",)),
    "23": (
        "plan vision.onnx -c unlinked.toml --solver single-device --work 1",
        0,
        ("no link between gpu0 and cpu0, so no tensor can pass there",),
    ),
    "24": ("plan vision.onnx -c layer.toml", 3, ("layer.toml: limits.pin: '/layer4/*' matches no op", "'/layer4.0/")),
    "25": (
        "plan zoo:gpt2:13b -c two-gpus --without cpus --objective throughput",
        4,
        ("the weights need 47.85 GiB in fp32", "in half precision (fp16 or bf16) they would need 23.9", "which fits"),
    ),
    "26": ("plan garbage.onnx -c good.toml", 3, ("weftline reads onnx:", "(Hugging Face, GGUF) go to weftline fit")),
    "26-gguf": ("plan model.gguf -c good.toml", 3, ("GGUF", "ONNX")),
    "26-hf": ("plan config.json -c good.toml", 3, ("Hugging Face", "optimum-cli export onnx")),
    "26-hub": (
        "plan meta-llama/Llama-2-13b-hf -c good.toml",
        3,
        ("no such file", "weftline fit meta-llama/Llama-2-13b-hf"),
    ),
    "26-hub-unknown": (
        "plan acme/segmenter -c good.toml",
        3,
        ("no such file", "optimum-cli export onnx --model acme"),
    ),
    "26-zoo": (
        "plan resnet50 -c good.toml",
        3,
        ("for a model of the zoo write zoo:resnet50; `weftline zoo` lists them",),
    ),
    "27": (
        "plan vision.onnx -c vision.onnx",
        3,
        ("this is an ONNX model, not a cluster file (",),
    ),
    "28": ("plan latency.json -c good.toml", 3, ("this is a weftline plan", "explain")),
    "29": ("explain sched.json", 0, ("micro-batches take", "What binds:")),
    "29-diff": ("diff sched.json sched.json", 0, ("the schedules are the same",)),
    "29-both": ("diff sched.json latency.json", 2, ("give two plans or two schedules",)),
    "30": ("schedule --plan latency.json", 2, ("needs a throughput plan: weftline plan MODEL --objective throughput",)),
    "31": ("schedule", 2, ("what is scheduled?", "--shape NAME")),
    "32": ("schedule --shape vshap", 2, ("did you mean 'vshape'?",)),
    "32-solver": ("schedule --shape vshape --solver gpip", 2, ("did you mean 'gpipe'?",)),
    "33": (
        "schedule --shape vshape --memory 12GiB",
        2,
        ("has no bytes", "1 is one activation of a stage", "Write --memory 4", "bytes are for plans"),
    ),
    "33-word": ("schedule --shape vshape --memory much", 2, ("not a whole number in units of the blocks",)),
    "34": ("schedule --shape vshape --memory 0", 4, ("block 'F0' needs 1 memory on device '0'",)),
    "35": ("schedule --shape vshape --solver zb-h1", 4, ("split backward pass", "--shape linear and zigzag")),
    "36": ("export pipeline.json --to tensorrt", 2, ("unknown target 'tensorrt'", "onnx-stages")),
    "37": ("export pipeline.json --to vllm -o out", 2, ("vllm",)),
    "38": ("export latency.json --to ort -o out", 2, ("--model",)),
    "40": ("run latency.json", 2, ("--model",)),
    "40-profile": ("profile vision.onnx -c good.toml", 2, ("--output",)),
    "41": ("explain latency.json --op Gemm", 3, ("did you mean '/fc/Gemm'?",)),
    "42": ("verify nothing.json", 3, ("nothing.json: no such file",)),
    "42-export": ("export nothing.json --to onnx-stages -o out", 3, ("nothing.json: no such file",)),
    "42-explain": ("explain nothing.json", 3, ("nothing.json: no such file",)),
    "42-report": ("report nothing.json", 3, ("nothing.json: no such file",)),
    "42-blocks": ("schedule --blocks nothing.json", 3, ("nothing.json: no such file",)),
    "43": ("plan-model vision.onnx", 2, ("No such command 'plan-model'",)),
    "cpus": (
        "plan vision.onnx -c gpu.toml --without cpus --solver greedy --work 1",
        0,
        ("there is no CPU to leave out: the kinds of devices are gpu",),
    ),
}


@pytest.mark.parametrize("number", MISTAKES)
def test_a_natural_mistake(number: str) -> None:
    """Tests the exit code and the decisive words of one mistake."""
    words, code, parts = MISTAKES[number]
    found, said = call(*words.split())
    text = " ".join(said.split())
    assert found == code, text
    for part in parts:
        assert part in text, (part, text)
    for never in ("Value error", "Traceback", "weftline-zoo-", "file: no such file", "'between'"):
        assert never not in text


def test_no_harmful_guess() -> None:
    """Tests that a CUDA device is never taken for a CPU."""
    _, said = call("plan", "vision.onnx", "-c", "cuda.toml")
    assert "did you mean 'cpu0'" not in said


def test_a_run_where_cuda_is_missing() -> None:
    """Tests mistake 39: what the plan wants is not installed, and there is something to try."""
    words = "plan vision.onnx -c good.toml --solver single-device --work 1 --without cpus -o gpu.json"
    assert call(*words.split())[0] == 0
    code, said = call("run", "gpu.json", "--model", "vision.onnx")
    assert code == 3
    assert "CUDAExecutionProvider" in said
    assert "--runtime DEVICE=ort:CPUExecutionProvider" in said


def test_two_schedules_side_by_side(folder: Path) -> None:
    """Tests that `diff` of two schedules shows both values and every device."""
    other = ("schedule", "--shape", "vshape", "--devices", "2", "-n", "3", "--solver", "gpipe", "-o", "other.json")
    assert call(*other)[0] == 0
    code, said = call("diff", "sched.json", "other.json")
    assert code == 0
    first, second = (json.loads((folder / name).read_text()) for name in ("sched.json", "other.json"))
    row = next(line.split() for line in said.splitlines() if line.startswith("makespan"))
    assert row == ["makespan", str(first["makespan"]), str(second["makespan"])]
    assert "1: memory" in said
    told = json.loads(call("diff", "sched.json", "other.json", "--json")[1])
    assert told["same_blocks"] is True
    assert told["identical"] is False


@pytest.mark.parametrize("option", ["--recompute", "--split-backward"])
def test_options_of_plans_are_not_ignored_for_shapes(option: str) -> None:
    """Tests that what a shape cannot follow is said."""
    code, text = call("schedule", "--shape", "vshape", option)
    assert code == 2
    assert "for training by a plan" in text
