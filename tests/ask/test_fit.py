"""Tests that a request about a language model is answered by a plan that is checked and no worse than simple ones."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

import weftline as wl
from weftline.certify.check_fit import check_fit_plan
from weftline.errors import InfeasibleError, UsageError
from weftline.plans.fit import FitPlan

BOXES: list[dict[str, object]] = [
    {"gpus": ["RTX 4090", "RTX 3060 12GB"]},
    {"gpus": ["3x RTX 3090"], "cpus": ["DDR5-5600"], "ram": "64GB"},
    {"gpus": ["M2 Ultra 192GB"]},
    {"gpus": ["2x A100 80GB", "2x V100 32GB"], "engine": "vllm", "concurrency": 8},
]
MODELS = [("llama-3.1-8b", "q8_0"), ("llama-3.3-70b", "q4_k_m"), ("qwen3-30b-a3b", "q4_k_m")]


@pytest.mark.parametrize("box", BOXES, ids=["two cards", "spill", "one chip", "served"])
@pytest.mark.parametrize(("model", "quantisation"), MODELS)
def test_no_simple_plan_is_better(model: str, quantisation: str, box: dict[str, object]) -> None:
    """Tests rates against baselines and bound, memory of every card, and the whole file by the checker."""
    given = {**box, "quantisation": "bf16" if "engine" in box else quantisation}
    if model == "llama-3.3-70b" and box is BOXES[0]:
        with pytest.raises(InfeasibleError, match="GiB are missing"):
            wl.fit(model, context="8k", **given)  # type: ignore[arg-type]
        return
    plan = wl.fit(model, context="8k", **given)  # type: ignore[arg-type]
    assert all(rate is None or rate <= plan.rate * 1.000001 for rate in plan.baselines.values())
    assert plan.bound_tokens_per_second >= plan.rate * 0.999999
    assert plan.gap <= 0.01
    assert plan.proof == ("claimed" if "engine" in box else "proved")
    for one in plan.devices:
        assert one.weights_bytes + one.kv_bytes + one.compute_bytes <= one.limit_bytes
    assert sum(one.output for one in plan.devices) >= 1
    assert check_fit_plan(msgspec.to_builtins(plan)).value_ns == plan.value_ns
    assert msgspec.json.decode(msgspec.json.encode(plan), type=FitPlan) == plan


def test_experts_go_to_the_host_before_layers_do() -> None:
    """Tests that parts of layers move where that is faster than whole layers, and that the command says so."""
    plan = wl.fit("qwen3-30b-a3b", quantisation="q8_0", gpus=["RTX 3090"], cpus=["DDR5-5600"], ram="64GB")
    assert {move.part for move in plan.moved} == {"experts"}
    assert "-ot" in plan.command[0] or "--n-cpu-moe" in plan.command[0]
    assert plan.rate > 1.02 * max(rate or 0.0 for rate in plan.baselines.values())


def test_engines_are_constraints() -> None:
    """Tests equal groups, and that no rank of vLLM is on the host or on a chip that it does not run on."""
    plan = wl.fit("llama-3.1-8b", gpus=["2x RTX 4090", "RTX 3090"], engine="sglang", concurrency=4)
    assert len({one.share for one in plan.devices if one.layers}) == 1
    assert "sglang.launch_server" in plan.command[0]
    with pytest.raises(UsageError, match="Apple"):
        wl.fit("llama-3.1-8b", gpus=["M2 Ultra 192GB"], engine="vllm")
    spare = wl.fit("llama-3.1-8b", gpus=["RTX 4090"], cpus=["DDR5-5600"], ram="64GB", engine="vllm")
    assert [one.id for one in spare.devices] == ["gpu0"]
    assert any("runs no layers on the host" in note for note in spare.notes)


def test_python_says_what_a_request_has() -> None:
    """Tests a wrong name."""
    with pytest.raises(UsageError, match="quant"):
        wl.fit("llama-3.1-8b", gpus=["RTX 4090"], quant="q8_0")


@pytest.mark.slow
def test_first_answer_loads_no_solver() -> None:
    """Tests in a new process that neither kernels nor solvers nor frameworks are loaded for an answer."""
    heavy = ("numba", "torch", "onnx", "onnxruntime", "ortools", "openvino", "jinja2")
    code = (
        "import sys; sys.argv = ['weftline', 'fit', 'llama-3.3-70b', '--quant', 'q4_k_m', '--gpu', 'RTX 4090', "
        "'--gpu', '2x RTX 3060 12GB', '--context', '16k']\n"
        "from weftline.cli import main\n"
        "try:\n    main()\nexcept SystemExit as leave:\n    assert not leave.code, leave.code\n"
        f"print('LOADED', [name for name in {heavy!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.rstrip().endswith("LOADED []")
