"""Weights in other files: hostile ones are refused, large ones are never held in memory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from tests.run.split_samples import DEVICES, floats, outside, placed, save_graph, split_and_compare, stored, value

from weftline.errors import InputError
from weftline.importers import read_file
from weftline.run.split.split import split_model
from weftline.run.split.weights import WEIGHTS

NODES = [helper.make_node("Add", ["x", "w"], ["a"]), helper.make_node("Neg", ["a"], ["y"])]


def save_with(folder: Path, location: str, offset: int = 0, length: int | None = None) -> Path:
    weight = outside("w", [512], location, offset, length)
    return save_graph(folder / "m.onnx", NODES, [value("x", 512)], [value("y", 512)], [weight])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model's folder, beside a file that is none of its business."""
    made = tmp_path / "model"
    made.mkdir()
    (made / "sub").mkdir()
    for place in (tmp_path / "secret", made / "plain", made / "sub" / "plain", made / "linked"):
        floats(512, seed=5).tofile(place)
    (made / "soft").symlink_to(tmp_path / "secret")
    (made / "inside").symlink_to("plain")
    (made / "elsewhere").symlink_to(tmp_path)
    (made / "here").symlink_to("sub")
    os.link(made / "linked", tmp_path / "other name")
    os.mkfifo(made / "pipe")
    return made


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("location", ["plain", "sub/plain", "./sub//plain"])
def test_plain_files(location: str, in_place: bool, folder: Path, tmp_path: Path) -> None:
    """Tests that what is inside the model's folder is taken."""
    path = save_with(folder, location)
    parts = placed(read_file(path).graph, 0, 1)
    split_and_compare(path, parts, tmp_path / "out", {"x": floats(512)}, in_place=in_place)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("location", "why"),
    [
        ("../secret", "plain relative path"),
        ("sub/../plain", "plain relative path"),
        ("/etc/passwd", "plain relative path"),
        ("", "plain relative path"),
        ("C:\\secret", "plain relative path"),
        ("a\0b", "plain relative path"),
        ("soft", "link, a folder or a device"),
        ("inside", "link, a folder or a device"),
        ("elsewhere/secret", "cannot be read"),
        ("here/plain", "cannot be read"),
        ("linked", "hard links"),
        ("pipe", "link, a folder or a device"),
        ("sub", "link, a folder or a device"),
        ("missing", "cannot be read"),
        ("*/_ORT_MEM_ADDR_/*", "cannot be read"),
    ],
)
def test_hostile_places(location: str, why: str, in_place: bool, folder: Path, tmp_path: Path) -> None:
    """Tests that every way out of the model's folder is an `InputError`, and that nothing is written then."""
    path = save_with(folder, location)
    graph = read_file(path).graph
    out = tmp_path / "out"
    out.mkdir()
    with pytest.raises(InputError, match=why):
        split_model(path, graph, placed(graph, 0, 1), DEVICES, out, in_place=in_place)
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(("offset", "length"), [(8, None), (-4, None), (10**20, None), (0, -1), (2**63, 2**63)])
@pytest.mark.parametrize("in_place", [False, True])
def test_ranges_outside_of_the_file(
    offset: int, length: int | None, in_place: bool, folder: Path, tmp_path: Path
) -> None:
    """Tests that a range that the file does not hold is refused."""
    path = save_with(folder, "plain", offset, length)
    graph = read_file(path).graph
    with pytest.raises(InputError, match=r"tensor 'w'.*( are not all in 'plain'|has fewer)"):
        split_model(path, graph, placed(graph, 0, 1), DEVICES, tmp_path, in_place=in_place)


def test_weights_in_bodies_and_constants(tmp_path: Path) -> None:
    """Tests that external tensors are checked wherever they stand: in a body, in a Constant node."""
    floats(512).tofile(tmp_path / "w.bin")
    inner = [helper.make_node("Add", ["x", "inner"], ["end"])]
    for location, works in (("w.bin", True), ("../w.bin", False)):
        body = helper.make_graph(inner, "b", [], [value("end", 512)], [outside("inner", [512], "w.bin")])
        nodes = [
            helper.make_node("Constant", [], ["w"], value=outside("", [512], location)),
            helper.make_node("Add", ["x", "w"], ["a"]),
            helper.make_node("If", ["c"], ["y"], then_branch=body, else_branch=body),
        ]
        inputs = [value("x", 512), value("c", kind=onnx.TensorProto.BOOL)]
        path = save_graph(tmp_path / "m.onnx", nodes, inputs, [value("y", 512), value("a", 512)], [])
        graph = read_file(path).graph
        out = tmp_path / f"out{works}"
        out.mkdir()
        if works:
            split_model(path, graph, placed(graph, 0, 1), DEVICES, out)
            assert (out / WEIGHTS).stat().st_size == 2048  # one range of one file
        else:
            with pytest.raises(InputError, match="plain relative path"):
                split_model(path, graph, placed(graph, 0, 1), DEVICES, out)


def test_numbers_that_are_not_raw(tmp_path: Path) -> None:
    """Tests that weights in typed fields go to the common file as well, but for lists of whole numbers."""
    weights = [
        helper.make_tensor("f", onnx.TensorProto.FLOAT, [400], floats(400).tolist()),
        helper.make_tensor("i", onnx.TensorProto.INT64, [400], np.arange(400)),
        helper.make_tensor("h", onnx.TensorProto.FLOAT16, [400], floats(400).astype(np.float16)),
    ]
    nodes = [
        helper.make_node("Add", ["x", "f"], ["a"]),
        helper.make_node("Gather", ["a", "i"], ["g"]),
        helper.make_node("Cast", ["h"], ["c"], to=onnx.TensorProto.FLOAT),
        helper.make_node("Add", ["g", "c"], ["y"]),
    ]
    path = save_graph(tmp_path / "m.onnx", nodes, [value("x", 400)], [value("y", 400)], weights)
    split_and_compare(path, placed(read_file(path).graph, 0, 1, 1), tmp_path / "out", {"x": floats(400)})
    assert (tmp_path / "out" / WEIGHTS).stat().st_size >= 400 * 4


@pytest.mark.parametrize("in_place", [False, True])
def test_weights_inside_and_beside(in_place: bool, folder: Path, tmp_path: Path) -> None:
    """Tests a model that has both, and whose own file of weights is called like ours."""
    (folder / "plain").rename(folder / WEIGHTS)
    nodes = [helper.make_node("Add", ["x", "w"], ["a"]), helper.make_node("Mul", ["a", "v"], ["y"])]
    weights = [outside("w", [512], WEIGHTS), stored("v", floats(512, seed=8))]
    path = save_graph(folder / "m.onnx", nodes, [value("x", 512)], [value("y", 512)], weights)
    parts = placed(read_file(path).graph, 0, 1)
    manifest = split_and_compare(path, parts, tmp_path / "out", {"x": floats(512)}, in_place=in_place)
    assert manifest.weights_folder == (str(folder) if in_place else "")


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    """Tests that a folder that cannot be written is an `InputError`."""
    weights = [stored("w", floats(512))]
    path = save_graph(tmp_path / "m.onnx", NODES, [value("x", 512)], [value("y", 512)], weights)
    graph = read_file(path).graph
    with pytest.raises(InputError, match="cannot be written"):
        split_model(path, graph, placed(graph, 0, 1), DEVICES, tmp_path / "missing")


LARGE = """
import sys
from pathlib import Path
def peak():  # not ru_maxrss: that of the process that started this one counts there
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
sys.path.insert(0, {root!r})
from tests.run.split_samples import *
path, out = Path({path!r}), Path({out!r})
graph = read_file(path).graph
split_model(path, graph, placed(graph, 0, 1, 1, 2, 2), DEVICES, out, in_place={in_place})
after_split = peak()
np.save(out / "y.npy", run_segments(out, {{"rows": np.array([1, 7])}}, optimised=False)["y"])
print(after_split, peak())
"""


@pytest.mark.parametrize("in_place", [False, True])
def test_more_than_two_gigabytes(in_place: bool, tmp_path: Path) -> None:
    """Tests a model of 2.2 GB, mostly holes: it is never held in memory as a whole, and holes stay holes."""
    height, width = 180_000, 1024
    size = height * width * 4
    with (tmp_path / "w.bin").open("wb") as file:
        for table in range(3):
            file.seek(table * size)
            file.write(floats(8, width, seed=table).tobytes())
        file.truncate(3 * size)
    weights = [outside(f"w{table}", [height, width], "w.bin", table * size) for table in range(3)]
    nodes = [
        helper.make_node("Gather", ["w0", "rows"], ["a"]),
        helper.make_node("Gather", ["w1", "rows"], ["b"]),
        helper.make_node("Add", ["a", "b"], ["c"]),
        helper.make_node("Gather", ["w2", "rows"], ["d"]),
        helper.make_node("Add", ["c", "d"], ["y"]),
    ]
    rows = value("rows", 2, kind=onnx.TensorProto.INT64)
    path = save_graph(tmp_path / "m.onnx", nodes, [rows], [value("y", 2, width)], weights)
    out = tmp_path / "out"
    out.mkdir()
    script = LARGE.format(root=str(Path(__file__).parents[2]), path=str(path), out=str(out), in_place=in_place)
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    split_peak, run_peak = map(int, done.stdout.split())
    assert split_peak < 500e6
    assert run_peak < 600e6
    expected = sum(floats(8, width, seed=table)[[1, 7]] for table in range(3))
    np.testing.assert_allclose(np.load(out / "y.npy"), expected, rtol=1e-5)
    assert sum(file.stat().st_blocks * 512 for file in out.iterdir()) < 10e6
    assert not (out / WEIGHTS).exists() if in_place else (out / WEIGHTS).stat().st_size == 3 * size
