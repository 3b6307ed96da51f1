"""How long files and processes take: a large graph file, a large ONNX model, the command line's help, the checker.

Each stands beside the least that anybody would have to do (parse the JSON, parse the protobuf, start Python), in the
same run; the checker stands beside its own growth.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.clock import Prepare, best_median, exponent, interleaved
from benchmarks.speed import SEED, layered_problem
from weftline.ask import make_plan
from weftline.certify import check_plan, read_plan
from weftline.graph import graph_from_json, graph_to_json
from weftline.importers import read_file
from weftline.zoo import build, save, synthetic

__all__ = ["measure_check", "measure_files"]

NODES_PER_LAYER = 34
"""Of the zoo's gpt2, roughly; the exact number of nodes is reported."""


def measure_files(*, graph_ops: int, onnx_nodes: int, repeats: int) -> list[dict[str, Any]]:
    """Rows: what, size, seconds, and the seconds of the least that it could take."""
    with tempfile.TemporaryDirectory() as folder:
        rows = [_graph_file(graph_ops, repeats), _onnx_file(Path(folder), onnx_nodes, repeats), _help(repeats)]
    return rows


def _graph_file(ops: int, repeats: int) -> dict[str, Any]:
    data = graph_to_json(synthetic("layered", ops=ops, seed=SEED))
    size = f"{ops:,} ops, {len(data) / 2**20:.1f} MiB"
    return _compare(
        f"graph JSON: read and check ({size})",
        _plain(partial(graph_from_json, data)),
        "json.loads",
        _plain(partial(json.loads, data)),
        repeats,
    )


def _onnx_file(folder: Path, nodes: int, repeats: int) -> dict[str, Any]:
    import onnx

    path = folder / "model.onnx"
    model = build("gpt2", weights=False, layers=max(1, nodes // NODES_PER_LAYER))
    save(model, path)
    size = f"{len(model.graph.node):,} nodes, {path.stat().st_size / 2**20:.1f} MiB"
    return _compare(
        f"ONNX: import, shapes, FLOP, traffic ({size})",
        _plain(partial(read_file, path)),
        "onnx.load",
        _plain(partial(onnx.load, path, load_external_data=False)),
        repeats,
    )


def _help(repeats: int) -> dict[str, Any]:
    script = "from weftline.cli import main; main()"
    call = partial(subprocess.run, check=True, capture_output=True)
    return _compare(
        "weftline --help: whole process",
        _plain(partial(call, [sys.executable, "-c", script, "--help"])),
        "python -c pass",
        _plain(partial(call, [sys.executable, "-c", "pass"])),
        repeats,
        wall=True,
    )


def _plain(action: Callable[[], object]) -> Prepare:
    return lambda: action


def _compare(
    what: str, ours: Prepare, against: str, least: Prepare, repeats: int, *, wall: bool = False
) -> dict[str, Any]:
    interleaved({"ours": ours, "least": least}, 1)  # caches of the file system, lazy imports
    seconds = interleaved({"ours": ours, "least": least}, repeats, wall=wall)
    mine, other = best_median(seconds["ours"]), best_median(seconds["least"])
    return {"what": what, "seconds": mine, "against": against, "against_seconds": other, "ratio": mine / other}


def measure_check(sizes: tuple[int, ...], *, repeats: int) -> dict[str, Any]:
    """Seconds of the independent checker (parsing the plan included) over the number of ops; latency plans by HEFT."""
    actions: dict[str, Prepare] = {}
    bytes_of = {}
    with tempfile.TemporaryDirectory() as folder:
        for ops in sizes:
            path = Path(folder) / f"{ops}.json"
            make_plan(layered_problem(ops), solver="heft", work_limit=2).save(path)
            bytes_of[ops] = path.stat().st_size
            actions[str(ops)] = _plain(partial(_check, str(path)))
        seconds = interleaved(actions, repeats)
    rows: list[dict[str, Any]] = []
    for ops in sizes:
        taken = best_median(seconds[str(ops)])
        rows.append({"ops": ops, "plan_bytes": bytes_of[ops], "seconds": taken, "us_per_op": taken * 1e6 / ops})
    times = [row["seconds"] for row in rows]
    return {"rows": rows, "exponent_of_n": exponent([float(n) for n in sizes], times), "repeats": repeats}


def _check(path: str) -> None:
    check_plan(read_plan(path))
