"""weftline: plan how one neural network runs on several unequal devices, prove how good the plan is, and run it.

    import weftline as wl
    graph = wl.load("bert.onnx")
    plan = wl.plan(graph, wl.Cluster.preset("laptop"), objective="latency")
    print(plan.summary())

Everything public is here; rooms load when they are first used.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, Literal

from weftline.errors import (
    InfeasibleError,
    InputError,
    LimitReached,
    MissingExtra,
    UsageError,
    VerificationError,
    WeftlineError,
)

# Recent versions of ONNX Runtime send events to their maker, unless this is set before they are imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weftline.ask import Sweep
    from weftline.certify import ScheduleVerdict, Verdict
    from weftline.cluster import Cluster
    from weftline.cost import Profile
    from weftline.graph import Graph
    from weftline.grid.grid import PlanSweep
    from weftline.grid.job import Row
    from weftline.plans import Difference, Plan
    from weftline.plans.schedule import Schedule
    from weftline.problem import Blocks, Problem
    from weftline.run.local.result import LocalResult
    from weftline.schedule.noise import Noise
    from weftline.search import Event
    from weftline.simulate import Loads, Timeline, Timetable

__version__ = "0.1.0"

__all__ = [
    "Blocks",
    "Cluster",
    "Graph",
    "InfeasibleError",
    "InputError",
    "LimitReached",
    "MissingExtra",
    "Plan",
    "Problem",
    "Profile",
    "Schedule",
    "UsageError",
    "VerificationError",
    "WeftlineError",
    "__version__",
    "diff",
    "from_openvino",
    "from_torch",
    "load",
    "load_problem",
    "plan",
    "profile",
    "report",
    "run",
    "schedule",
    "shape",
    "simulate",
    "sweep",
    "sweep_plans",
    "verify",
]

_LAZY = {
    "Blocks": "weftline.problem",
    "Cluster": "weftline.cluster",
    "Graph": "weftline.graph",
    "Plan": "weftline.plans",
    "Problem": "weftline.problem",
    "Profile": "weftline.cost",
    "Schedule": "weftline.plans.schedule",
}


def load(path: Path | str, *, shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({})) -> Graph | Problem:
    """Read a model file of any known format: a Graph, or a Problem where the file holds costs too.

    `shapes` sets inputs with symbolic dimensions: {"input": (1, 3, 224, 224)}.
    """
    from weftline.importers import ImportOptions
    from weftline.problem import read_model

    return read_model(path, ImportOptions(shapes=shapes))


def from_openvino(model: Any, *, name: str = "") -> Graph:
    """The graph of an `openvino.Model`: the same that its saved IR gives."""
    from weftline.importers.openvino.live import graph_of_openvino

    return graph_of_openvino(model, name)


def from_torch(module: Any, inputs: Any, *, name: str = "") -> Graph:
    """The graph of a `torch.nn.Module` for example inputs: a tensor, a tuple of them, or keyword arguments as a dict.

    Its plans are by estimated costs, and are exported by module names. To run one, export the module to ONNX first.
    """
    from weftline.importers.torch import graph_of_torch

    return graph_of_torch(module, inputs, name)


def load_problem(
    path: Path | str,
    *,
    cluster: Cluster | None = None,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    without: Collection[str] = (),
    **rules: object,
) -> Problem:
    """Read a model or problem file as the command line does, with everything that may be said about it.

    `rules` are objective, runtime, transfers, communication, memory, stages (for files with accelerators: how many);
    `without` drops limits: cpus, memory, together.
    """
    from weftline.importers import ImportOptions
    from weftline.problem import load_problem

    options = ImportOptions(shapes=shapes)
    return load_problem(path, cluster=cluster, rules=rules, without=without, options=options)[0]


def plan(
    model: Graph | Problem,
    cluster: Cluster | None = None,
    *,
    objective: Literal["latency", "throughput"] | None = None,
    runtime: Literal["parallel", "sequential"] | None = None,
    transfers: Literal["per-tensor", "per-edge"] | None = None,
    communication: Literal["added", "overlapped"] | None = None,
    memory: Literal["dynamic", "static"] | None = None,
    stages: int | None = None,
    costs: Profile | Path | str | None = None,
    coarsen: Literal["none", "gcof", "oracle", "chains", "coplace"] = "none",
    model_file: Path | str | None = None,
    reward: Literal["simulated", "measured"] = "simulated",
    measurements: int | None = None,
    runtimes: Mapping[str, str] = MappingProxyType({}),
    solver: str = "auto",
    gap: float | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    settings: Mapping[str, str] = MappingProxyType({}),
    on_event: Callable[[Event], None] | None = None,
) -> Plan:
    """Decide where everything runs, and how far that can be from the best possible plan.

    A Graph needs a cluster; a Problem has its own devices. What is not given keeps the problem's rules or the defaults
    (latency, parallel, per-tensor, added, dynamic). `time_limit` is in seconds. A throughput search stops within 0.01 %
    of the bound unless another gap is asked for, and after 60 s unless time or work is limited.

    `costs` are measured times (`wl.profile`, or the file it was saved to) of a Graph on the cluster; kernels that ran
    as one are not cut.

    `coarsen` joins ops before a search for latency: gcof and oracle as backends fuse them (no plan cuts a fused
    kernel), chains and coplace only to make the search smaller. The oracle reads `model_file`, the ONNX file of the
    graph; where it fails, a warning says why, and gcof takes its place. `settings` are the solver's own, as after
    `--set`: {"preset": "paper"}.

    `reward="measured"` runs up to `measurements` candidates (60) of `model_file` (OpenVINO IR or ONNX) by OpenVINO, in
    turns with one device; the plan is the best measured. `runtimes` says what a device is: {"gpu": "openvino:CPU2"}.
    """
    from weftline.ask import make_plan
    from weftline.reduce import coarsened

    if reward not in ("simulated", "measured"):
        raise UsageError(f"a reward is simulated or measured, not {reward!r:.40}")
    if reward == "simulated" and (runtimes or measurements is not None):
        raise UsageError("measurements and runtimes are for reward='measured'")
    if reward == "measured" and runtime is None and objective != "throughput":
        runtime = "sequential"  # what OpenVINO's HETERO does

    rules = {
        "objective": objective,
        "runtime": runtime,
        "transfers": transfers,
        "communication": communication,
        "memory": memory,
        "stages": stages,
    }
    grouped = coarsened(_problem(model, cluster, rules, costs), coarsen, model=model_file)
    if grouped.note:
        warnings.warn(grouped.note, stacklevel=2)
    smaller: dict[str, Any] = {} if grouped.group is None else {"coarsen": grouped.group}
    asked: dict[str, Any] = {
        "solver": solver,
        "gap": gap,
        "time_limit": time_limit,
        "work_limit": work_limit,
        "seed": seed,
        "settings": settings,
        "on_event": on_event,
        **smaller,
    }
    if reward != "measured":
        return make_plan(grouped.problem, **asked)
    if model_file is None:
        raise UsageError("measured rewards need model_file, the IR or ONNX file of the graph")
    from weftline.run.openvino.reward import openvino_backend
    from weftline.run.planned_model import check_same_model

    check_same_model(grouped.problem.graph, model_file)
    with openvino_backend(
        grouped.problem, model_file, runtimes=runtimes, measurements=measurements, seed=seed
    ) as backend:
        return make_plan(grouped.problem, backend=backend, **asked)


def sweep(
    model: Graph | Problem | Path | str,
    cluster: Cluster | None = None,
    *,
    stages: str | Sequence[int] = "auto",
    communication: Literal["added", "overlapped"] | None = None,
    memory: Literal["dynamic", "static"] | None = None,
    solver: str = "auto",
    gap: float | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    on_event: Callable[[Event], None] | None = None,
) -> Sweep:
    """Plan the pipeline for several numbers of stages: which is best, and what would one more device bring?

    `stages` is "auto", "1..8", "1,2,4,8" or the numbers. A path is read as by the command line: in a problem file with
    accelerators, the number of stages replaces their number. The limits are for the whole sweep.
    """
    from weftline.ask import stage_problems, sweep_stages

    def load(number: int | None) -> Problem:
        rules: dict[str, object] = {"objective": "throughput", "communication": communication, "memory": memory}
        if isinstance(model, Path | str):
            from weftline.problem import load_problem

            return load_problem(model, cluster=cluster, rules={**rules, "stages": number})[0]
        return _problem(model, cluster, {**rules, "stages": number})

    return sweep_stages(
        stage_problems(load, stages),
        solver=solver,
        gap=gap,
        time_limit=time_limit,
        work_limit=work_limit,
        seed=seed,
        on_event=on_event,
    )


def profile(
    model: Path | str,
    cluster: Cluster,
    *,
    shapes: Mapping[str, tuple[int, ...]] = MappingProxyType({}),
    runtimes: Mapping[str, str] = MappingProxyType({}),
    repeats: int = 30,
    cache: bool = True,
    seed: int = 0,
    channel: Literal["memory", "gloo"] = "memory",
) -> Profile:
    """Measure every op of a model on every device of a cluster, by ONNX Runtime or OpenVINO on this machine.

    `runtimes` says what stands for a device here: {"gpu": "ort:CPUExecutionProvider:2-3"}. With `cache`, what was
    measured before for the same question is given back. `channel` is what links are measured over: shared memory, or
    gloo for plans that are run over torch.distributed.
    """
    from weftline.measure.profile import profile_model

    return profile_model(
        model,
        cluster,
        shapes=shapes,
        runtimes=runtimes,
        repeats=repeats,
        cache=cache,
        seed=seed,
        channel=channel,
    )


def sweep_plans(
    models: Sequence[Path | str],
    folder: Path | str,
    *,
    clusters: Sequence[Path | str] = (),
    objectives: Sequence[Literal["latency", "throughput"]] = ("latency",),
    stages: Sequence[int] = (),
    solvers: Sequence[str] = ("auto",),
    seeds: Sequence[int] = (0,),
    gap: float | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    jobs: int | None = None,
    engine: Literal["local", "ray"] = "local",
    address: str | None = None,
    on_row: Callable[[Row, int, int], None] | None = None,
) -> PlanSweep:
    """Plan every combination in parallel, into a folder that keeps what is finished; started again, it goes on.

    Models are files or `zoo:NAME:SIZE`, clusters are files or presets. The limits are for each search. An error of one
    question is a row. `on_row` hears each new row, how many are finished, and how many are asked.
    """
    from weftline.grid.grid import sweep_plans
    from weftline.grid.questions import Wanted

    wanted = Wanted(
        models=tuple(map(str, models)),
        clusters=tuple(map(str, clusters)),
        objectives=tuple(objectives),
        stages=tuple(stages),
        solvers=tuple(solvers),
        seeds=tuple(seeds),
        gap=gap,
        time_limit=time_limit,
        work_limit=work_limit,
    )
    return sweep_plans(wanted, folder, jobs=jobs, engine=engine, address=address, on_row=on_row)


def _problem(
    model: Graph | Problem,
    cluster: Cluster | None,
    rules: Mapping[str, object],
    costs: Profile | Path | str | None = None,
) -> Problem:
    """A Graph on a cluster, or a Problem, under the rules that are asked."""
    from weftline.cluster import Cluster
    from weftline.cost import load_profile
    from weftline.graph import Graph
    from weftline.problem import Problem, asked_rules, build_problem

    if not isinstance(model, Graph | Problem) or not isinstance(cluster, Cluster | None):
        raise UsageError("plan takes a Graph or Problem (wl.load) and a Cluster (wl.Cluster.load or .preset)")
    if isinstance(model, Problem):
        if cluster is not None:
            raise UsageError("a Problem has its own devices; leave the cluster out")
        if costs is not None:
            raise UsageError("a Problem has its own costs; leave those that were profiled out")
        return model.with_rules(asked_rules(rules, model.rules))
    if cluster is None:
        raise UsageError("a Graph needs a cluster, such as Cluster.preset('laptop')")
    if isinstance(costs, Path | str):
        costs = load_profile(costs)
    return build_problem(model, cluster, rules=asked_rules(rules), costs=costs)


def shape(name: str, devices: int, *, train: bool = True) -> Blocks:
    """The blocks of one micro-batch in a named placement: vshape, xshape, mshape, nnshape, kshape, ..."""
    from weftline.schedule.shapes import make_shape

    return make_shape(name, devices, train=train)


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
    solver: str = "auto",
    gap: float | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    robust: Noise | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Schedule:
    """Decide the order of many micro-batches on the devices of their blocks.

    The question is Blocks (`wl.shape`), a throughput Plan, or a blocks.json file. `train`, `split_backward` and
    `recompute` say how the stages of a plan become blocks. `memory` limits every device. Without limits of time or work
    the search ends when nothing becomes better, after 60 s at the latest.
    """
    from weftline.ask.scheduling import make_schedule
    from weftline.plans import Plan, plan_result
    from weftline.problem import read_blocks
    from weftline.schedule.pipeline_blocks import pipeline_blocks
    from weftline.simulate import Loads

    if isinstance(question, Plan):
        problem, loads = plan_result(question)
        if not isinstance(loads, Loads):
            raise UsageError("a schedule needs a throughput plan")
        question = pipeline_blocks(problem, loads, train=train, split=split_backward, recompute=recompute)
    elif isinstance(question, Path | str):
        question = read_blocks(question)
    return make_schedule(
        question if memory is None else question.with_memory(memory),
        micro_batches,
        solver=solver,
        device_span=objective == "device-span",
        arrivals=arrivals,
        gap=gap,
        time_limit=time_limit,
        work_limit=work_limit,
        seed=seed,
        robust=robust,
        on_event=on_event,
    )


def simulate(plan: Plan | Schedule) -> Timeline | Loads | Timetable:
    """Run the decisions of a plan or schedule through the simulator again."""
    from weftline.plans import Plan, plan_result

    return plan_result(plan)[1] if isinstance(plan, Plan) else plan.timetable()


def verify(plan: Plan | Schedule | Path | str) -> Verdict | ScheduleVerdict:
    """Check a plan or schedule (or its file) with the independent checker; `VerificationError` if it does not hold."""
    from weftline.certify import verify_file
    from weftline.certify.run import verify_bytes
    from weftline.plans import Plan
    from weftline.plans.plan import plan_to_json
    from weftline.plans.schedule import Schedule, schedule_to_json

    if isinstance(plan, Schedule):
        return verify_bytes(schedule_to_json(plan))
    return verify_bytes(plan_to_json(plan)) if isinstance(plan, Plan) else verify_file(plan)


def run(
    plan: Plan,
    *,
    model: Path | str,
    inputs: Mapping[str, NDArray[Any]] | None = None,
    runtimes: Mapping[str, str] = MappingProxyType({}),
    requests: int = 100,
    seed: int = 0,
    timeout: float = 60.0,
    baselines: bool = True,
    on_event: Callable[[str], None] | None = None,
) -> LocalResult:
    """Run a plan for real: a process of ONNX Runtime for each device; `model` is the ONNX file it was made for.

    `runtimes` says what stands for a device here: {"gpu0": "ort:CUDAExecutionProvider:0"}. The result has measured
    beside predicted times and baselines; its `check` insists on the outputs of the unsplit model.
    """
    from weftline.run.local.run import run_local

    return run_local(
        plan,
        model=model,
        inputs=inputs,
        runtimes=runtimes,
        requests=requests,
        seed=seed,
        timeout=timeout,
        baselines=baselines,
        on_event=on_event,
    )


def report(
    answer: Plan | Schedule | Path | str,
    output: Path | str | None = None,
    *,
    run: LocalResult | Mapping[str, Any] | Path | str | None = None,
    sensitivity: float | None = None,
    on_event: Callable[[str], None] | None = None,
) -> bytes:
    """A plan or schedule as one HTML page that needs no network; written to `output` if that is given.

    `run` is what `wl.run` returned or `weftline run --json` printed: measured stands beside predicted then.
    `sensitivity` is a number of seconds: with them the plan is solved again with one thing better at a time.
    """
    from weftline.files import write_atomically
    from weftline.plans import Plan
    from weftline.report.html.html import load_answer, report_html
    from weftline.report.html.run import find_run
    from weftline.report.html.sensitivity import ask

    found = load_answer(answer) if isinstance(answer, Path | str) else answer
    measured = None if run is None else find_run(run)
    if sensitivity is not None and (not isinstance(found, Plan) or not sensitivity > 0):
        raise UsageError("sensitivity is a number of seconds above 0, for plans")
    helps = ask(found, sensitivity, on_event) if isinstance(found, Plan) and sensitivity else []
    page = report_html(found, run=measured, helps=helps)
    if output is not None:
        write_atomically(output, page)
    return page


def diff(a: Plan, b: Plan) -> Difference:
    """What differs between two plans."""
    from weftline.plans import diff_plans

    return diff_plans(a, b)


def __getattr__(name: str) -> object:
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'weftline' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


class _CallableRoom(ModuleType):
    """A room that can be called: it has the name of a verb."""

    def __call__(self, *arguments: object, **options: object) -> object:
        return _VERBS[self.__name__](*arguments, **options)


class _Facade(ModuleType):
    """Keeps `weftline.plan(...)` working once the room `weftline.plan` has been imported and taken the name."""

    def __setattr__(self, name: str, value: object) -> None:
        if isinstance(value, ModuleType) and value.__name__ in _VERBS:
            value.__class__ = _CallableRoom
        super().__setattr__(name, value)


_VERBS: dict[str, Callable[..., object]] = {
    "weftline.run": run,
    "weftline.report": report,
    "weftline.schedule": schedule,
    "weftline.simulate": simulate,
}


sys.modules[__name__].__class__ = _Facade
