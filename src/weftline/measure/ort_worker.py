"""The process in which ONNX Runtime is timed on one device: it may crash or hang without harm to the caller.

In: lines of JSON on standard input: a `OrtSetup`, then `Prepare`, `Measure` and `Rest` in any order. Out: an
`ProfileAnswer` for each. It is bound to the cores of its device before ONNX Runtime is loaded, and ends when its input
ends. Simplified: random inputs; kernels are timed by ONNX Runtime's own profiler in whole microseconds, so half of one
is added to each.
"""

from __future__ import annotations

import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

from weftline.errors import InputError, WeftlineError
from weftline.graph.ir import MODEL_INPUT
from weftline.measure.kernels import RunNode
from weftline.measure.processes import LEVELS, Measure, OrtSetup, Prepare, ProfileAnswer, Request, Rest
from weftline.run.devices import CPU, Pace, bind_cores
from weftline.run.feeds import example_feed
from weftline.run.local.layout import ELEMENTS
from weftline.run.split.manifest import ModelWire
from weftline.run.split.values import input_ranges
from weftline.worker.child import Conversation, serve

__all__ = ["WARM_UP_RUNS", "OrtBench", "middle_of"]

WARM_UP_RUNS = 3
MAX_EVENTS = 60_000
"""Timed kernels in all runs together: what the profiler keeps in memory and writes."""
HALF_MICROSECOND_NS = 500.0
KERNEL = "_kernel_time"
WITH_BODIES = frozenset({"If", "Loop", "Scan"})


class OrtBench:
    """A model on a device, and its current session."""

    def __init__(self, setup: OrtSetup) -> None:
        bind_cores(setup.device.cores)
        import onnxruntime

        self._ort, self._setup = onnxruntime, setup
        self.pace = Pace(setup.device, setup.speed)
        there = onnxruntime.get_available_providers()
        if setup.device.provider not in there:
            raise InputError(f"ONNX Runtime has no {setup.device.provider} here", hint=f"it has {', '.join(there)}")
        self._session: Any = None
        self._binding: Any = None
        self._held: dict[str, Any] = {}
        """Inputs, for as long as they are bound."""
        self._nodes: tuple[RunNode, ...] = ()

    @property
    def version(self) -> str:
        """Of ONNX Runtime."""
        return str(self._ort.__version__)

    def prepare(self, ask: Prepare) -> ProfileAnswer:
        """Make a session, run it a few times."""
        self._session = self._binding = None
        model = ask.model or self._setup.model
        options = self._options(ask)
        device = self._setup.device
        without = ["CommonSubexpressionElimination"] if ask.kernels else []  # its nodes stand for ops twice
        self._session = self._ort.InferenceSession(
            model, options, [(device.provider, device.options)], disabled_optimizers=without
        )
        if self._session.get_providers()[0] != device.provider:
            raise InputError(f"ONNX Runtime does not use {device.provider} for this model")
        self._nodes = self._read_nodes() if ask.kernels else ()
        self._bind_arrays(Path(model), {} if ask.model else self._setup.shapes)
        try:
            for _ in range(WARM_UP_RUNS):
                self.run()
        except Exception as error:  # onnxruntime has a type for each of its codes
            raise InputError(f"ONNX Runtime cannot run the model with random inputs: {_first_line(error)}") from error
        return ProfileAnswer(nodes=self._nodes)

    def measure(self, ask: Measure) -> ProfileAnswer:
        """Time whole runs, and kernels if the session was made for that."""
        taken: list[int] = []
        most = MAX_EVENTS // len(self._nodes) if self._nodes else 10**6
        begin, worked = time.monotonic(), 0
        while len(taken) < max(most, 3):
            spent = time.monotonic() - begin
            if len(taken) >= 3 and (spent > ask.most_seconds or (len(taken) >= ask.runs and spent > ask.least_seconds)):
                break
            start, before = time.perf_counter_ns(), time.thread_time_ns()
            self.pace.begin()
            self.run()
            taken.append(time.perf_counter_ns() - start)
            worked += time.thread_time_ns() - before
            if ask.keep:
                self.pace.end()
        if not self._nodes:
            return ProfileAnswer(ns=tuple(taken), stolen=self._stolen(sum(taken), worked))
        times = self._kernel_times(WARM_UP_RUNS, len(taken))
        middle, spread = middle_of(times)
        return ProfileAnswer(
            ns=tuple(taken),
            kernel_ns=tuple((middle + HALF_MICROSECOND_NS).tolist()),
            kernel_spread=tuple(spread.tolist()),
        )

    def run(self) -> None:
        """Once."""
        self._session.run_with_iobinding(self._binding)

    def _stolen(self, taken: int, worked: int) -> float:
        """One thread of a CPU is this thread: what it did not compute, it waited for its core."""
        one = self._setup.device.provider == CPU and self._setup.device.threads == 1
        return min(max(1 - worked / max(taken, 1), 0.0), 1.0) if one else 0.0

    def _options(self, ask: Prepare) -> Any:
        options = self._ort.SessionOptions()
        options.graph_optimization_level = getattr(self._ort.GraphOptimizationLevel, LEVELS[ask.level])
        options.intra_op_num_threads, options.inter_op_num_threads = self._setup.device.threads, 1
        options.log_severity_level = 4
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if ask.kernels:
            folder = Path(self._setup.folder)
            options.optimized_model_filepath = str(folder / "optimised.onnx")
            options.enable_profiling = True
            options.profile_file_prefix = str(folder / "profile")
            # Weights stay out of the graph that is read back.
            options.add_session_config_entry("session.optimized_model_external_initializers_file_name", "weights")
        return options

    def _read_nodes(self) -> tuple[RunNode, ...]:
        import onnx

        from weftline.reduce.fusion.oracle_run import reads_of

        graph = onnx.load(Path(self._setup.folder) / "optimised.onnx", load_external_data=False).graph
        return tuple(
            RunNode(node.op_type, node.name, tuple(filter(None, reads_of(node))), tuple(filter(None, node.output)))
            for node in graph.node
        )

    def _bind_arrays(self, model: Path, shapes: dict[str, tuple[int, ...]]) -> None:
        """Inputs where they are, outputs in the same memory every time."""
        found = _input_wires(model, shapes)
        self._held = example_feed(found, np.random.default_rng(self._setup.seed))
        self._binding = self._session.io_binding()
        wires = {wire.name: wire for wire in found}
        for value in self._session.get_inputs():
            if value.name in wires:
                wire, array = wires[value.name], np.ascontiguousarray(self._held[value.name])
                self._held[value.name] = array
                where = int(array.ctypes.data)
                self._binding.bind_input(value.name, "cpu", 0, ELEMENTS[wire.dtype], list(array.shape), where)
        for value in self._session.get_outputs():
            self._binding.bind_output(value.name)

    def _kernel_times(self, skip: int, runs: int) -> Any:
        """(runs, nodes): ns of every kernel, without the first `skip` runs."""
        events = json.loads(Path(self._session.end_profiling()).read_bytes())
        rows = _outermost([event for event in events if event.get("name", "").endswith(KERNEL)])
        count = len(self._nodes)
        if len(rows) == (skip + runs) * count:
            kinds = [node.kind for node in self._nodes]
            if all(row["args"].get("op_name") == kinds[i % count] for i, row in enumerate(rows)):
                times = np.array([float(row["dur"]) for row in rows]).reshape(skip + runs, count)
                return times[skip:] * 1e3
        position = {node.name: i for i, node in enumerate(self._nodes) if node.name}
        found: dict[int, list[float]] = {}
        for row in rows:  # nodes that were added later (copies between devices) are part of the whole run alone
            if (name := row["name"].removesuffix(KERNEL)) in position:
                found.setdefault(position[name], []).append(float(row["dur"]))
        if not found or any(len(times) < skip + runs for times in found.values()):
            raise WeftlineError("the profile of ONNX Runtime does not fit the graph that it runs")
        return np.array([found.get(i, [0.0] * (skip + runs))[-runs:] for i in range(count)]).T * 1e3


def _outermost(events: list[Any]) -> list[Any]:
    """Without the kernels of bodies: they end before the node they belong to, whose time holds theirs."""
    kept: list[Any] = []
    for event in events:
        if event["args"].get("op_name") in WITH_BODIES:
            while kept and kept[-1]["ts"] >= event["ts"] and kept[-1]["dur"] <= event["dur"]:
                kept.pop()
        kept.append(event)
    return kept


def middle_of(times: Any) -> tuple[Any, Any]:
    """Mean of the middle half of the runs, and their interquartile range as a share of it."""
    ordered = np.sort(times, axis=0)
    runs = len(ordered)
    low, high = runs // 4, max(runs - runs // 4, runs // 4 + 1)
    middle = ordered[low:high].mean(axis=0)
    return middle, (ordered[high - 1] - ordered[low]) / np.maximum(middle, HALF_MICROSECOND_NS)


def _input_wires(model: Path, shapes: dict[str, tuple[int, ...]]) -> list[ModelWire]:
    """Inputs of a model that have no default, with the numbers that fit."""
    from weftline.importers.onnx.infer import Inference
    from weftline.importers.onnx.model import input_types, opsets_of
    from weftline.importers.onnx.scope import load_model, read_scope

    loaded = load_model(model)
    scope = read_scope(loaded.graph)
    plain = {name for name, proto in scope.inputs.items() if proto.WhichOneof("value") == "tensor_type"}
    given, symbols = input_types(scope, {name: shape for name, shape in shapes.items() if name in plain})
    ranges = input_ranges(scope, Inference(opsets_of(loaded), symbols).run(scope, given))
    return [
        ModelWire(name, kind.dtype, kind.shape, MODEL_INPUT, (), False, between=ranges.get(name, ()))
        for name, kind in given.items()
        if name in plain
    ]


def answer(conversation: Conversation, folder: list[str]) -> None:
    """Answer line by line; what is put into `folder` is removed if the caller is gone and cannot do it itself."""
    setup = conversation.receive(OrtSetup)
    folder.append(setup.folder)
    bench = OrtBench(setup)
    conversation.send(ProfileAnswer(version=bench.version))
    while True:
        ask: Request = conversation.receive(Request)  # type: ignore[arg-type]
        if isinstance(ask, Prepare):
            conversation.send(bench.prepare(ask))
            continue
        if isinstance(ask, Rest):
            conversation.send(ProfileAnswer())
            continue
        conversation.send(bench.measure(ask))
        while ask.keep and conversation.idle:
            bench.pace.begin()
            bench.run()
            bench.pace.end()


def _remove(folder: list[str]) -> None:
    for name in folder:
        shutil.rmtree(Path(name).parent, ignore_errors=True)


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [""])[0][:300]


if __name__ == "__main__":
    made: list[str] = []
    sys.exit(serve(lambda conversation: answer(conversation, made), at_end=lambda: _remove(made), in_short=_first_line))
