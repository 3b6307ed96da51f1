"""One model through everything: `python -m benchmarks.models.judge NAME SECONDS` prints its row as JSON.

In: the name of a source. Out: what came of making it, ONNX Runtime alone, import, flops, plan, verify, split, run on
two workers, export; each step says what went wrong, and those after it that do not need it go on. Simplified: one plan
for throughput (OpenVINO: latency), with estimated costs; where the best plan uses one worker, an even split is run.
"""

from __future__ import annotations

import json
import os
import re
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import msgspec

import weftline as wl
from benchmarks.models.collection import SOURCES
from benchmarks.models.count import count_by_runtime, count_by_torch, plain_run
from benchmarks.models.source import Made
from benchmarks.results import Row
from weftline.cluster.detect import worker_cluster
from weftline.cluster.model import Limits
from weftline.errors import WeftlineError
from weftline.run.compare import difference

__all__ = ["judge"]

REQUESTS = 12
PACKAGE_FOLDER = sysconfig.get_path("purelib")
"""Errors name files of packages from here on."""


class Judge:
    """Runs steps, and keeps what they say."""

    def __init__(self, name: str, limit: float) -> None:
        self.source = SOURCES[name]
        self.limit = limit
        self.row: Row = {"failures": {}, "times": {}}

    def step(self, name: str, do: Callable[[], Any]) -> Any:
        """What it gives; None where it fails, and the row says why."""
        begun = perf_counter()
        try:
            return do()
        except Exception as error:
            kind = "" if isinstance(error, WeftlineError) else f"{type(error).__name__}: "
            said = " ".join(str(error).split()).replace(f"{PACKAGE_FOLDER}/", "")
            self.row["failures"][name] = (kind + said)[:300] or kind
            traceback.print_exc()
            return None
        finally:
            self.row["times"][name] = round(perf_counter() - begun, 2)

    def all_steps(self, folder: Path) -> Row:
        """Make it, judge it."""
        made = self.step("make", lambda: self.source.make(folder))
        if made is None:
            return self.row
        if made.path is not None and made.path.suffix == ".onnx":
            outputs = self.step("ort", lambda: plain_run(made.path, made.feeds))
            self.row["ort"] = outputs is not None
        graph = self.step("import", lambda: self._import(made))
        if graph is None:
            return self.row
        self.row |= {
            "ops": len(graph.ops),
            "guessed": len(graph.guessed),
            "flops": int(sum(op.flops for op in graph.ops)),
        }
        self.row["counted"] = self.step("count", lambda: self._count(made))
        self._planned(made, graph, folder)
        return self.row

    def _import(self, made: Made) -> Any:
        if made.path is None:
            return wl.from_torch(made.module, made.inputs, name=self.source.name)
        return wl.load(made.path, shapes=made.shapes)

    def _count(self, made: Made) -> int | None:
        if made.module is not None:
            return count_by_torch(made.module, made.inputs)
        assert made.path is not None
        return count_by_runtime(made.path, made.feeds) if self.row.get("ort") else None

    def _planned(self, made: Made, graph: Any, folder: Path) -> None:
        theirs = made.path is not None and made.path.suffix == ".xml"
        how: dict[str, Any] = (
            {"objective": "latency", "runtime": "sequential"} if theirs else {"objective": "throughput", "copies": 1}
        )
        cluster = worker_cluster((1.0, 1.0))
        if made.path is None:  # its export is by layers, which stay whole then
            cluster = msgspec.structs.replace(cluster, limits=Limits(together=_layers(graph)))
        plan = self.step("plan", lambda: wl.plan(graph, cluster, time_limit=self.limit, **how))
        if plan is None:
            return
        self.row |= {"gap": plan.gap, "proof": plan.proof, "alone": len(set(plan.placement.values())) < 2}
        self.row["verify"] = self.step("verify", lambda: wl.verify(plan) is not None)
        if self.row["alone"]:
            even = self.step("even", lambda: wl.plan(graph, cluster, solver="even-split", time_limit=self.limit, **how))
            plan = even or plan
        self.row["devices"] = len(set(plan.placement.values()))
        if made.path is not None:
            self._run(made.path, made, plan, theirs)
        target = "openvino" if theirs else "onnx-stages" if made.path is not None else "accelerate"
        runtimes = RUNTIMES if theirs else {}
        self.row["export"] = self.step(
            "export", lambda: len(wl.export(plan, target, folder / "out", model=made.path, runtimes=runtimes))
        )

    def _run(self, path: Path, made: Made, plan: Any, theirs: bool) -> None:
        def run() -> bool:
            more: dict[str, Any] = (
                {"runtimes": RUNTIMES, "rounds": 2} if theirs else {"requests": REQUESTS, "baselines": False}
            )
            done: Any = wl.run(plan, model=path, inputs=made.feeds or None, **more)
            self.row["difference"] = done.max_output_difference
            if done.max_output_difference > STEADY and not theirs:
                own = difference(plain_run(path, made.feeds, optimised=False), plain_run(path, made.feeds))
                self.row["own_difference"] = min(own, 1e30)
            done.check()
            if not theirs:
                self.row["segments"] = len(done.segments)
            return True

        self.row["run"] = self.step("run", run)


STEADY = 1e-3
"""Above this we ask how far ONNX Runtime is from itself without its optimiser."""
LAYER = re.compile(r"(.*?\.\d+)\.")
RUNTIMES = {"w0": "openvino:CPU", "w1": "openvino:CPU2"}


def _layers(graph: Any) -> tuple[tuple[str], ...]:
    """A pattern for every layer: what its ops' names have up to the first number."""
    found = [part.group(1) for op in graph.ops if (part := LAYER.match(op.name))]
    return tuple((f"{layer}.*",) for layer in dict.fromkeys(found))


def judge(name: str, limit: float) -> Row:
    """The row of one model."""
    warnings.simplefilter("ignore")
    with TemporaryDirectory(prefix="weftline-models-") as folder:
        return Judge(name, limit).all_steps(Path(folder))


if __name__ == "__main__":
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what packages print is not the answer
    print(json.dumps(judge(sys.argv[1], float(sys.argv[2]))), file=answer, flush=True)
