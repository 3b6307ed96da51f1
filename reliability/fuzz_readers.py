"""Every reader of a file from outside: how it is called, what it may raise, and which seeds and mutations fit it.

In: the path of an input. Out: nothing, or an exception; whatever is not in `may_raise` is a defect. What was read is
used as well (simulated, explained, costed), for a value that breaks later was not checked when it was read.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from reliability.fuzz_fleets import (
    read_checked_fit,
    read_checked_fleet,
    read_checked_layers,
    read_fit,
    read_layer_file,
    read_profiles,
    read_whole_fleet,
)
from weftline.certify import check
from weftline.certify.check_schedule import check_schedule, read_schedule
from weftline.errors import InfeasibleError, InputError, UsageError, VerificationError

if TYPE_CHECKING:
    from weftline.graph import Graph

__all__ = ["READERS", "Reader"]


@dataclass(frozen=True)
class Reader:
    """One way into weftline."""

    name: str
    file: str
    """Name of the input file, where the name matters."""
    seeds: str
    form: str
    read: Callable[[Path], object]
    may_raise: tuple[type[Exception], ...] = (InputError,)
    weight: int = 1
    """Its share of the inputs."""


def _model(path: Path) -> None:
    """As `wl.load`."""
    from weftline.graph import Graph, check_graph
    from weftline.problem import read_model

    found = read_model(path)
    check_graph(found if isinstance(found, Graph) else found.graph)


def _cluster(path: Path) -> None:
    """Read, write, cost a small graph on it."""
    from weftline.cluster import Cluster
    from weftline.problem import build_problem

    cluster = Cluster.load(path)
    assert Cluster.parse(cluster.to_toml()).devices == cluster.devices
    if len(cluster.devices) <= 64:
        build_problem(_small_graph(), cluster)


@cache
def _small_graph() -> Graph:
    from weftline.graph import Op, Tensor, assemble

    tensors = [Tensor(f"t{i}", i, (i + 1,), 64 << i) for i in range(7)]
    return assemble("generated", [Op(f"op{i}", flops=10**6, weight_bytes=9) for i in range(8)], tensors)


def _plan(path: Path) -> None:
    """Load, simulate, explain, draw."""
    from weftline.plans import diff_plans, explain_op, explain_plan, explain_stage, load_plan, placed_ops, plan_result
    from weftline.report import trace_json

    plan = load_plan(path)
    plan.summary()
    plan_result(plan)
    explain_plan(plan)
    explain_stage(plan)
    placed_ops(plan)
    explain_op(plan, next(iter(plan.placement), "x"))
    diff_plans(plan, plan)
    trace_json(plan)


def _checked_plan(path: Path) -> None:
    check.check_plan(check.read_plan(str(path)))


def _schedule(path: Path) -> None:
    from weftline.plans.schedule import load_schedule
    from weftline.report.trace import schedule_trace

    schedule = load_schedule(path)
    schedule.timetable()
    schedule_trace(schedule)


def _checked_schedule(path: Path) -> None:
    check_schedule(read_schedule(str(path)))


def _blocks(path: Path) -> None:
    from weftline.problem import read_blocks

    read_blocks(path)


def _costs(path: Path) -> None:
    from reliability.fuzz_texts import CLUSTER
    from weftline.cluster import Cluster
    from weftline.cost import load_profile
    from weftline.problem import build_problem

    build_problem(_small_graph(), Cluster.parse(CLUSTER[0]), costs=load_profile(path))


def _sweep(path: Path) -> None:
    from weftline.grid.questions import read_sweep_file

    read_sweep_file(path)


def _rows(path: Path) -> None:
    """The folder of an earlier sweep."""
    from weftline.grid.grid import SweepFolder

    with SweepFolder(path.parent) as folder:
        for key in folder.rows:
            folder.is_finished(key)


def _torch_csv(path: Path) -> None:
    from weftline.export.torch_csv import read_torch_csv

    for form in ("compute_only", "compute_comms"):
        try:
            read_torch_csv(path, form=form)
        except InputError as error:
            last = error
        else:
            return
    raise last


def _npz(path: Path) -> None:
    from weftline.run.inputs import read_arrays

    read_arrays(path)


def _policy(path: Path) -> None:
    from reliability.fuzz_seeds import SHAPES
    from weftline.latency.policy.network import read_arrays

    read_arrays(path, SHAPES)


def _checkpoint(path: Path) -> None:
    from reliability.fuzz_seeds import SHAPES
    from weftline.papers.training import Owner, read_checkpoint

    read_checkpoint(path, Owner("s", "p", {"x": "1"}), SHAPES)


def _manifest(path: Path) -> None:
    from weftline.run.split.manifest import read_manifest

    read_manifest(path.parent)


def _affinity(path: Path) -> None:
    from weftline.export.openvino import read_affinity

    read_affinity(path)


def _quantities(path: Path) -> None:
    """Options of the command line; the last error, if none of them takes the text."""
    from weftline import units

    text = path.read_bytes().decode("utf-8", "replace")
    last: InputError | None = None
    parsers: tuple[Callable[[str], Any], ...] = (units.parse_bytes, units.parse_bandwidth, units.parse_time)
    for parse in (*parsers, units.parse_flops, units.parse_ratio):
        try:
            parse(text)
        except InputError as error:
            last = error
        else:
            return
    if last is not None:
        raise last


def _external_data(path: Path) -> None:
    """A location in a model; what is opened must be the one file inside the folder."""
    import os

    from weftline.run.split.weights import open_weights

    folder = path.parent / "model"
    if not folder.is_dir():
        (folder / "inner").mkdir(parents=True)
        for place in (folder / "weights.bin", folder / "inner" / "weights.bin"):
            place.write_bytes(b"inside")
        (path.parent / "secret").write_bytes(b"outside")
        (folder / "link.bin").symlink_to("../secret")
        (folder / "hard.bin").hardlink_to(path.parent / "secret")
    with open_weights(folder, path.read_bytes().decode("utf-8", "replace")) as descriptor:
        assert os.read(descriptor, 7) == b"inside"


def _language(path: Path) -> None:
    """A language model, used as costs use it."""
    from weftline.importers.llm import read_language_model, requantised

    model = read_language_model(path)
    assert model.parameters >= 0
    assert all(tensor.bytes >= 0 for tensor in requantised(model, "q4_k_m").tensors)


def _language_files(path: Path) -> None:
    """A file of weights beside a configuration."""
    from reliability.fuzz_texts import LANGUAGE_CONFIGS

    (path.parent / "config.json").write_text(LANGUAGE_CONFIGS[0], encoding="utf-8")
    _language(path)


def _language_index(path: Path) -> None:
    """An index of files of weights, one of which is there, beside a configuration."""
    from reliability.fuzz_seeds import seeds

    (path.parent / "model.safetensors").write_bytes(seeds("llm-weights")[0])
    _language_files(path)


_LOADS = (InputError, InfeasibleError)
_ASKS = (InputError, InfeasibleError, UsageError)

READERS = {
    reader.name: reader
    for reader in (
        Reader("onnx", "m.onnx", "onnx", "protobuf", _model, weight=3),
        Reader("openvino-ir", "m.xml", "openvino", "text", _model, weight=2),
        Reader("msr-fiddle", "m.json", "msr-fiddle", "json", _model, _LOADS),
        Reader("moirai-json", "m.json", "moirai", "json", _model, _LOADS),
        Reader("moirai-xls", "m.xls", "moirai-xls", "bytes", _model, _LOADS),
        Reader("regal", "m.pbtxt", "regal", "text", _model, _LOADS),
        Reader("graph", "g.json", "graph", "json", _model),
        Reader("problem", "p.json", "problem", "json", _model, _LOADS, weight=2),
        Reader("cluster", "c.toml", "cluster", "text", _cluster, _LOADS, weight=2),
        Reader("plan", "plan.json", "plan", "json", _plan, _ASKS, weight=3),
        Reader("plan checker", "plan.json", "plan", "json", _checked_plan, (check.Refusal,), weight=3),
        Reader("schedule", "s.json", "schedule", "json", _schedule, weight=2),
        Reader("schedule checker", "s.json", "schedule", "json", _checked_schedule, (check.Refusal,), weight=2),
        Reader("fleet", "f.json", "fleet", "json", read_whole_fleet, _ASKS, weight=2),
        Reader("fleet checker", "f.json", "fleet", "json", read_checked_fleet, (check.Refusal,), weight=2),
        Reader("layers", "l.json", "layers", "json", read_layer_file, weight=2),
        Reader("plan of layers", "f.json", "layer-plan", "json", read_whole_fleet, _ASKS, weight=2),
        Reader("checker of layers", "f.json", "layer-plan", "json", read_checked_layers, (check.Refusal,), weight=2),
        Reader("fit plan", "f.json", "fit-plan", "json", read_fit, (InputError, VerificationError), weight=2),
        Reader("fit checker", "f.json", "fit-plan", "json", read_checked_fit, (check.Refusal,), weight=2),
        Reader("serving profiles", "p.json", "profiles", "json", read_profiles, _ASKS),
        Reader("blocks", "b.json", "blocks", "json", _blocks),
        Reader("costs", "c.json", "costs", "json", _costs, _LOADS),
        Reader("sweep TOML", "s.toml", "sweep", "text", _sweep),
        Reader("sweep JSON", "s.json", "sweep-json", "json", _sweep),
        Reader("sweep rows", "results.jsonl", "rows", "lines", _rows),
        Reader("torch CSV", "s.csv", "torch-csv", "text", _torch_csv),
        Reader("npz inputs", "x.npz", "npz", "npz", _npz, weight=2),
        Reader("policy weights", "p.safetensors", "policy", "safetensors", _policy),
        Reader("checkpoint", "c.safetensors", "checkpoint", "safetensors", _checkpoint),
        Reader("manifest", "manifest.json", "manifest", "json", _manifest),
        Reader("affinities", "a.json", "affinity", "json", _affinity),
        Reader("quantities", "q.txt", "quantities", "text", _quantities),
        Reader("GGUF", "m.gguf", "gguf", "bytes", _language, weight=3),
        Reader("model weights", "model.safetensors", "llm-weights", "safetensors", _language_files, weight=3),
        Reader("index of weights", "model.safetensors.index.json", "llm-index", "json", _language_index),
        Reader("config.json", "config.json", "llm-config", "json", _language, weight=3),
        Reader("external data", "location.txt", "external-data", "text", _external_data),
    )
}
