"""Models whose sizes nobody knows before they run, and a runner: two workers beside plain ONNX Runtime."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper
from tests.run.local_samples import seats

from weftline.files import run_folder
from weftline.importers import ImportOptions
from weftline.importers.registry import read_file
from weftline.run.feeds import as_planned, make_feeds
from weftline.run.local.engine import Engine
from weftline.run.local.layout import lay_out
from weftline.run.split.segments import parts_by_level
from weftline.run.split.split import split_model

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
node, info = helper.make_node, helper.make_tensor_value_info
Feeds = Sequence[Mapping[str, Any]]


def save(
    path: Path,
    nodes: list[Any],
    inputs: list[Any],
    outputs: list[Any],
    weights: Mapping[str, Any] | None = None,
    opset: int = 18,
) -> Path:
    """A model file; weights are arrays by name."""
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(nodes, "open", inputs, outputs, stored)
    domains = {"": opset} | {made.domain: 1 for made in nodes if made.domain}
    opsets = [helper.make_opsetid(domain, version) for domain, version in domains.items()]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=9), path)
    return path


def plain(path: Path, feed: Mapping[str, Any]) -> dict[str, Any]:
    """What ONNX Runtime makes of the whole model; bfloat16 as its bits."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    names = [value.name for value in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(feed)), strict=True))


def two_workers(
    path: Path,
    placement: Sequence[int] | Callable[[str], int],
    feeds: Feeds,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
    *,
    declare: bool = True,
    rounds: int = 2,
) -> list[dict[str, Any]]:
    """Outputs of the model on two workers, for every feed, of the last of several rounds."""
    graph = read_file(path, ImportOptions(shapes=shapes or {})).graph
    rows = [placement(op.name) for op in graph.ops] if callable(placement) else list(placement)
    count = len(feeds) * rounds
    with run_folder() as folder:
        parts = parts_by_level(graph, np.array(rows, np.int32))
        manifest = split_model(path, graph, parts, ["d0", "d1"], folder, shapes=declare)
        checked = make_feeds(manifest, feeds, 0)
        layout = lay_out(manifest, str(folder), pipelined=True, as_planned=as_planned(manifest, checked))
        with Engine([(layout, seats((1, 1)))]) as engine:
            last = frozenset(range(count - len(feeds), count))
            kept = engine.run([count], checked, keep=[last])[0].kept
    return [kept[number] for number in sorted(kept)]


def same(ours: Any, theirs: Any) -> None:
    """Equal, whatever it is; numbers up to rounding, and their types too."""
    if isinstance(theirs, list):
        assert len(ours) == len(theirs)
        for a, b in zip(ours, theirs, strict=True):
            same(a, b)
    elif isinstance(theirs, dict):
        assert ours.keys() == theirs.keys()
        for key in theirs:
            same(ours[key], theirs[key])
    elif isinstance(theirs, np.ndarray) and theirs.dtype.kind == "f":
        assert (ours.shape, ours.dtype) == (theirs.shape, theirs.dtype)
        np.testing.assert_allclose(ours.astype(np.float64), theirs.astype(np.float64), rtol=1e-3, atol=1e-5)
    elif theirs is None:
        assert ours is None
    else:
        np.testing.assert_array_equal(ours, theirs)
        assert np.asarray(ours).shape == np.asarray(theirs).shape


def check_equal(
    path: Path,
    placement: Sequence[int] | Callable[[str], int],
    feeds: Feeds,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> None:
    """Two workers make what plain ONNX Runtime makes, for every feed."""
    for feed, found in zip(feeds, two_workers(path, placement, feeds, shapes), strict=True):
        wanted = plain(path, feed)
        assert found.keys() == wanted.keys()
        for name, value in wanted.items():
            same(found[name], value)


def floats(*shape: int, seed: int = 0) -> Any:
    """Normal values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)
