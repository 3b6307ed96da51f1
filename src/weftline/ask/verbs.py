"""The verbs that need no machine at all: read, plan, schedule.

In: models, clusters, options. Out: frozen answers. Everything heavy is imported when a verb is called. Simplified: an
answer that was interrupted is the best so far, and says so.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, overload

# Rooms that have a verb's name are loaded here, before the face binds the verbs: to load one later would take its name.
import weftline.schedule
import weftline.simulate  # noqa: F401
from weftline.arguments import a_flag, a_function, a_path, a_text, a_whole_number, several

if TYPE_CHECKING:
    from weftline.ask.stages import Sweep
    from weftline.cluster import Cluster
    from weftline.cost import Profile
    from weftline.graph import Graph
    from weftline.plans import Plan
    from weftline.plans.fleet import FleetPlan
    from weftline.plans.schedule import Schedule
    from weftline.problem import Blocks, Problem
    from weftline.schedule import Scheduler
    from weftline.schedule.noise import Noise
    from weftline.search import Event, Solver

__all__ = [
    "from_openvino",
    "from_torch",
    "load",
    "load_problem",
    "plan",
    "plan_stages",
    "schedule",
    "shape",
]


def load(
    path: Path | str,
    *,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    dims: Mapping[str, int] = MappingProxyType({}),
) -> Graph | Problem:
    """Read a model file of any known format, or `zoo:NAME`: a Graph, or a Problem where the file holds costs too.

    `shapes` sets inputs with symbolic dimensions: {"input": (1, 3, 224, 224)}; `dims` the dimensions themselves,
    wherever they stand: {"batch": 1}.
    """
    from weftline.ask.answer import model_path
    from weftline.ask.request import import_options
    from weftline.problem import read_model

    return read_model(model_path(a_path(path, "path")), import_options(shapes, dims))


def from_openvino(model: Any, *, name: str = "", shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})) -> Graph:
    """The graph of an `openvino.Model`: the same that its saved IR gives. `shapes` are for open inputs, by name."""
    from weftline.ask.request import import_options
    from weftline.importers.openvino.live import graph_of_openvino

    return graph_of_openvino(model, a_text(name, "name"), import_options(shapes, {}).shapes)


def from_torch(
    module: Any, inputs: Any = None, *, name: str = "", dims: Mapping[str, int] = MappingProxyType({})
) -> Graph:
    """The graph of a `torch.nn.Module` for example inputs: a tensor, a tuple of them, or keyword arguments as a dict.

    Or of a `torch.export.ExportedProgram`: the inputs say the sizes of its open dimensions, or `dims` do by name; else
    the limit of a dimension counts (`Dim("batch", max=512)`). Its plans are by estimated costs, and are exported by
    module names. To run one, export the module to ONNX first.
    """
    from weftline.ask.request import import_options
    from weftline.importers.torch import graph_of_torch

    return graph_of_torch(module, inputs, a_text(name, "name"), import_options({}, dims).dims)


def load_problem(
    path: Path | str,
    *,
    cluster: Cluster | Path | str | None = None,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    dims: Mapping[str, int] = MappingProxyType({}),
    without: Collection[str] = (),
    **rules: object,
) -> Problem:
    """Read a model or problem file as the command line does, with everything that may be said about it.

    The cluster is an object, a file, or a preset; `rules` are objective, runtime, transfers, communication, memory,
    stages (for files with accelerators: how many); `without` drops limits: cpus, memory, together.
    """
    from weftline.ask.answer import find_devices, model_path
    from weftline.ask.request import import_options
    from weftline.problem import load_problem

    options, dropped = import_options(shapes, dims), several(without, "without", a_text, '("cpus",)')
    file, devices = model_path(a_path(path, "path")), find_devices(cluster)
    return load_problem(file, cluster=devices, rules=rules, without=dropped, options=options)[0]


@overload
def plan(
    model: Graph | Problem | Path | str,
    cluster: Cluster | Path | str | None = None,
    *,
    objective: Literal["latency"] | None = None,
    copies: Literal[1] | None = None,
    **options: Any,
) -> Plan: ...


@overload
def plan(
    model: Graph | Problem | Path | str,
    cluster: Cluster | Path | str | None = None,
    *,
    objective: Literal["latency", "throughput"] | None = None,
    copies: Literal[1],
    **options: Any,
) -> Plan: ...


@overload
def plan(
    model: Graph | Problem | Path | str,
    cluster: Cluster | Path | str | None = None,
    *,
    objective: Literal["latency", "throughput"] | None = None,
    copies: int | Literal["auto"] | None = None,
    **options: Any,
) -> Plan | FleetPlan: ...


def plan(  # type: ignore[misc]
    model: Graph | Problem | Path | str,
    cluster: Cluster | Path | str | None = None,
    *,
    gpus: Collection[str] = (),
    cpus: Collection[str] = (),
    links: Collection[str] = (),
    ram: str | None = None,
    objective: Literal["latency", "throughput"] | None = None,
    runtime: Literal["parallel", "sequential"] | None = None,
    transfers: Literal["per-tensor", "per-edge"] | None = None,
    communication: Literal["added", "overlapped"] | None = None,
    memory: Literal["dynamic", "static"] | None = None,
    stages: int | None = None,
    copies: int | Literal["auto"] | None = None,
    max_depth: int | None = None,
    latency_limit: float | str | None = None,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    dims: Mapping[str, int] = MappingProxyType({}),
    strict: bool = False,
    without: Collection[str] = (),
    keep: Literal["", "layers"] = "",
    target: Literal["", "vllm", "megatron", "llamacpp", "accelerate"] = "",
    costs: Profile | Path | str | None = None,
    coarsen: Literal["none", "gcof", "oracle", "chains", "coplace"] = "none",
    model_file: Path | str | None = None,
    reward: Literal["simulated", "measured"] = "simulated",
    measurements: int | None = None,
    runtimes: Mapping[str, str] = MappingProxyType({}),
    solver: str | Solver = "auto",
    gap: float | str | None = None,
    time_limit: float | str | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    proof: float | str | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
    on_event: Callable[[Event], None] | None = None,
) -> Plan | FleetPlan:
    """Decide where everything runs, and how far that can be from the best possible plan.

    The model is an object, a file, or `zoo:NAME`; the cluster an object, a file, or a preset. Instead of it `gpus` and
    `cpus` name products ("2x RTX 3060 12GB", "DDR5-6000 dual channel"), `links` what joins them ("pcie4x16"), `ram` the
    memory of the CPU ("64GB"). A Graph needs one of both; a Problem has its own devices. What is not given keeps the
    problem's rules or the defaults (latency, parallel, per-tensor, added, dynamic). `shapes`, `dims` and `without` are
    as in `load_problem`, for a file. `time_limit` is in seconds, or text like "5s" or "2 min"; `gap` a share, or text
    like "1%". `solver` is the name of one (`weftline plan --solver help`), or a `weftline.search.Solver` of your own. A
    throughput search stops within 0.01 % of the bound unless another gap is asked for, and after 60 s unless time or
    work is limited. `proof` is the time for proofs that `verify` can repeat, after the search (10 s; 0: none).

    Throughput is the rate of the whole cluster, a `FleetPlan`: whole copies of the model, pipelines side by side,
    whatever gives most. `copies=1` asks for one pipeline, a `Plan`; so do `stages`, `coarsen`, measured rewards, a
    solver of pipelines, and a model with its own devices (a Problem, or its file), where `copies="auto"` asks for a
    fleet. `max_depth` is the most devices in a row on the way of an input, `latency_limit` ("5ms", or seconds) the
    longest that an input that is alone may take. A LayerProblem, or its file, gives a `LayerPlan`.

    `keep="layers"` keeps each layer whole on one device: numbered blocks, else sub-graphs that repeat; ops between are
    placed freely. `target` is who will run the plan, which implies that, one pipeline, and
    no CPUs where it needs so. `costs` are measured times (`wl.profile`, or its file) of a Graph; kernels that ran as
    one stay so.

    Dimensions that cannot be computed make costs a guess (`Plan.guessed`); `strict` makes it an `InputError`.

    `coarsen` joins ops before a search for latency: gcof and oracle as backends fuse them (no plan cuts a fused
    kernel), chains and coplace only for a smaller search. The oracle reads `model_file`, the graph's ONNX file; if it
    fails, a warning says why, and gcof takes its place. `settings` are the solver's own: {"preset": "paper"}.

    `reward="measured"` runs up to `measurements` candidates (60) of `model_file` (OpenVINO IR or ONNX) by OpenVINO, in
    turns with one device; the plan is the best measured. `runtimes` says what a device is: {"gpu": "openvino:CPU2"}.
    """
    from weftline.ask.answer import NOTE_MARK, answer, resolve
    from weftline.ask.layers import answer_layers, read_layer_problem
    from weftline.ask.request import PlanRequest

    request = PlanRequest(
        model=model,
        cluster=cluster,
        gpus=gpus,  # type: ignore[arg-type]
        cpus=cpus,  # type: ignore[arg-type]
        links=links,  # type: ignore[arg-type]
        ram=ram,
        objective=objective,
        runtime=runtime,
        transfers=transfers,
        communication=communication,
        memory=memory,
        stages=stages,
        copies=copies,
        max_depth=max_depth,
        latency_limit=latency_limit,
        shapes=shapes,
        dims=dims,
        strict=strict,
        without=without,  # type: ignore[arg-type]
        keep=keep,
        target=target,
        costs=costs,
        coarsen=coarsen,
        model_file=model_file,
        reward=reward,
        measurements=measurements,
        runtimes=runtimes,
        solver=solver,
        gap=gap,
        time_limit=time_limit,
        work_limit=work_limit,
        seed=seed,
        proof=proof,
        settings=settings,
    )
    a_function(on_event, "on_event")
    if (layers := read_layer_problem(model)) is not None:
        return answer_layers(request, *layers, on_event=on_event)  # type: ignore[return-value]
    notes: list[str] = []
    found = resolve(request, say=notes.append)
    for note in notes:
        if not note.startswith(NOTE_MARK):
            warnings.warn(note, stacklevel=2)
    return answer(found, on_event=on_event)


def plan_stages(
    model: Graph | Problem | Path | str,
    cluster: Cluster | Path | str | None = None,
    *,
    stages: str | Sequence[int] = "auto",
    communication: Literal["added", "overlapped"] | None = None,
    memory: Literal["dynamic", "static"] | None = None,
    keep: Literal["", "layers"] = "",
    solver: str | Solver = "auto",
    gap: float | str | None = None,
    time_limit: float | str | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    on_event: Callable[[Event], None] | None = None,
) -> Sweep:
    """Plan the pipeline for several numbers of stages: which is best, and what would one more device bring?

    `stages` is "auto", "1..8", "1,2,4,8" or the numbers. A path is read as by the command line: in a problem file with
    accelerators, the number of stages replaces their number. The limits are for the whole sweep.
    """
    from weftline.ask.answer import NOTE_MARK, answer_stages
    from weftline.ask.request import PlanRequest

    request = PlanRequest(
        model=model,
        cluster=cluster,
        objective="throughput",
        communication=communication,
        memory=memory,
        keep=keep,
        solver=solver,
        gap=gap,
        time_limit=time_limit,
        work_limit=work_limit,
        seed=seed,
    )
    a_function(on_event, "on_event")
    notes: list[str] = []
    try:
        return answer_stages(request, stages, on_event=on_event, say=notes.append)
    finally:
        for note in notes:
            if not note.startswith(NOTE_MARK):
                warnings.warn(note, stacklevel=2)


def shape(name: str, devices: int, *, train: bool = True) -> Blocks:
    """The blocks of one micro-batch in a named placement: vshape, xshape, mshape, nnshape, kshape, ..."""
    from weftline.schedule.make_blocks import make_shape

    return make_shape(a_text(name, "name"), a_whole_number(devices, "devices", 1, 4096), train=a_flag(train, "train"))


def schedule(
    question: Blocks | Plan | Path | str,
    *,
    micro_batches: int,
    memory: int | Sequence[int] | None = None,
    train: bool = True,
    split_backward: bool = False,
    recompute: bool = False,
    objective: Literal["makespan", "device-span"] = "makespan",
    arrivals: int | None = None,
    solver: str | Scheduler = "auto",
    gap: float | str | None = None,
    time_limit: float | str | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    robust: Noise | None = None,
    proof: float | str | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
    on_event: Callable[[Event], None] | None = None,
) -> Schedule:
    """Decide the order of many micro-batches on the devices of their blocks.

    The question is Blocks (`wl.shape`), a throughput Plan, or a blocks.json file. `train`, `split_backward` and
    `recompute` say how the stages of a plan become blocks. `memory` limits every device. Without limits of time or work
    the search ends when nothing becomes better, after 60 s at the latest. `proof` is the time for proofs that `verify`
    can repeat, after the search (10 s; 0: none).
    """
    from weftline.ask.micro_batches import answer_schedule
    from weftline.ask.request import ScheduleRequest
    from weftline.plans import Plan

    request = ScheduleRequest(
        blocks=None if isinstance(question, Plan) else question,
        plan=question if isinstance(question, Plan) else None,
        micro_batches=micro_batches,
        memory=memory,
        train=train,
        split_backward=split_backward,
        recompute=recompute,
        objective=objective,
        arrivals=arrivals,
        solver=solver,
        gap=gap,
        time_limit=time_limit,
        work_limit=work_limit,
        seed=seed,
        robust=robust,
        proof=proof,
        settings=settings,
    )
    return answer_schedule(request, on_event=a_function(on_event, "on_event"))
