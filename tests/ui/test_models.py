"""Uploads: limits, labels, and what is left of one that fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from weftline.errors import InputError, UsageError
from weftline.ui.models import Models, PageLimits, clean_label
from weftline.ui.requests import AskedCluster, PlanForm, plan_task


async def chunks(*sizes: int) -> AsyncIterator[bytes]:
    for size in sizes:
        yield b"x" * size


def add(models: Models, name: str, *sizes: int) -> tuple[int, int]:
    return asyncio.run(models.add(name, chunks(*sizes)))


def test_an_upload_is_kept_under_our_name(tmp_path: Path) -> None:
    """Tests that what the browser calls a file is a label: the path is ours, its ending one of a few."""
    models = Models(tmp_path, PageLimits())
    number, size = add(models, "../../etc/passwd\n.ONNX", 3, 2**20, 4)
    model = models.find(number)
    assert size == 2**20 + 7
    assert Path(model.path) == tmp_path / "model-1" / "model.onnx"
    assert Path(model.path).stat().st_size == size
    assert model.label == "passwd\\n.ONNX"
    other, _ = add(models, "evil.exe", 1)
    assert Path(models.find(other).path).name == "model"


@pytest.mark.parametrize(("sizes", "words"), [((600, 600), "larger than"), ((), "empty")])
def test_a_refused_upload_leaves_nothing(tmp_path: Path, sizes: tuple[int, ...], words: str) -> None:
    """Tests that too large and empty files are refused and removed."""
    models = Models(tmp_path, PageLimits(upload_bytes=1000))
    with pytest.raises(InputError, match=words):
        add(models, "a.onnx", *sizes)
    assert list(tmp_path.iterdir()) == []
    assert models.all() == []


def test_room_is_limited(tmp_path: Path) -> None:
    """Tests the limits on the number of models and on all files together."""
    models = Models(tmp_path, PageLimits(models=1))
    number, _ = add(models, "a.onnx", 10)
    with pytest.raises(UsageError, match="remove some"):
        add(models, "b.onnx", 10)
    asyncio.run(models.remove(number))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "large").write_bytes(bytes(2000))
    with pytest.raises(InputError, match="no room"):
        add(Models(tmp_path, PageLimits(stored_bytes=1000)), "c.onnx", 10)


def test_a_broken_upload_leaves_nothing(tmp_path: Path) -> None:
    """Tests that a browser that leaves in the middle leaves no file."""

    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionResetError

    models = Models(tmp_path, PageLimits())
    with pytest.raises(ConnectionResetError):
        asyncio.run(models.add("a.onnx", broken()))
    assert list(tmp_path.iterdir()) == []
    assert models.all() == []


@pytest.mark.parametrize(
    ("name", "label"),
    [("a/b/c.onnx", "c.onnx"), ("C:\\x\\y.xml", "y.xml"), ("", "model"), ("  ", "model"), ("x" * 300, "x" * 100)],
)
def test_labels(name: str, label: str) -> None:
    """Tests that labels are short, printable, and without folders."""
    assert clean_label(name) == label


def test_shapes_and_dimensions_of_a_form(tmp_path: Path) -> None:
    """Tests that both reach the task, and the call that asks the same."""
    choices = {"solvers": {"latency": [("auto", "")]}, "presets": [("laptop", "", "text")], "zoo": []}
    models = Models(tmp_path, PageLimits())
    number, _ = add(models, "a.onnx", 10)
    asked = PlanForm(seconds=1, model=number, preset="laptop", shapes=["x=1x3"], dims=["batch=8", "length=4"])
    task = plan_task(asked, choices, models, PageLimits(), AskedCluster("text", "laptop", preset=True))(tmp_path)
    assert (task.shapes, task.dims) == (("x=1x3",), ("batch=8", "length=4"))
    assert task.argv[-6:] == ("--shape", "x=1x3", "--dim", "batch=8", "--dim", "length=4")
