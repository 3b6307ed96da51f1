"""The examples run as a user runs them, and print what they promise."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"

PROMISED = {
    "plan_zoo_model.py": ("resnet50: ", "latency", "inputs per second", "no deployment", "verified: value "),
    "custom_cluster.py": ("with limits: ", "without: ", "ops moved"),
    "train_transformer.py": (
        "zigzag: 2 processes",
        "mshape: 2 processes",
        "gradients differ from one process",
        "losses: ",
    ),
    "own_solver.py": ("solver hill-climb, stopped by ", "heft"),
}

ELSEWHERE = {"run_stages.py", "route.py"}
"""Need an exported folder: tests/export/test_onnx_stages.py and test_router.py run them."""


def test_every_example_is_tested() -> None:
    """Tests that no example is forgotten here."""
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(PROMISED) | ELSEWHERE


@pytest.mark.parametrize("name", PROMISED)
def test_example(name: str, tmp_path: Path) -> None:
    """Tests that an example runs without errors or warnings, and prints the words it promises."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name)],
        cwd=tmp_path,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    for words in PROMISED[name]:
        assert words in done.stdout
    assert list(tmp_path.iterdir()) == []
