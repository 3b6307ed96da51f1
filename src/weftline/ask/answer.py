"""From a request to its answer: the one path that the face, the command line, the pages and the grid take.

In: a request. Out: `resolve` gives the Problem (or Blocks) with the sha256 of every file that was read; `answer` gives
the plan or schedule. Everything heavy is imported when it is needed. Simplified: a model of the zoo is built into a
folder that lives as long as the process.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from hashlib import sha256
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import msgspec

from weftline.arguments import a_path, several
from weftline.ask.micro_batches import ResolvedBlocks, answer_schedule
from weftline.ask.request import ClusterText, PlanRequest, ScheduleRequest, a_stage_count, import_options
from weftline.errors import InputError, UsageError, near
from weftline.files import run_folder

if TYPE_CHECKING:
    from weftline.ask.device_sweep import DeviceSweep
    from weftline.ask.stages import Sweep
    from weftline.cluster import Cluster
    from weftline.cost import Profile
    from weftline.graph.arrays import Indices
    from weftline.plans import Plan
    from weftline.plans.fleet import FleetPlan
    from weftline.plans.schedule import Schedule
    from weftline.problem import Problem
    from weftline.search import Event

__all__ = [
    "NOTE_MARK",
    "Resolved",
    "answer",
    "answer_devices",
    "answer_one",
    "answer_stages",
    "find_cluster",
    "find_devices",
    "model_path",
    "resolve",
]


NOTE_MARK = "note: "
"""Of what is no warning."""


@dataclass(frozen=True)
class Resolved:
    """The problem of a request."""

    request: PlanRequest
    problem: Problem
    group: Indices | None
    """The group of each op, where grouping only makes the search smaller."""
    file: Path | None
    """Of the model."""
    inputs: dict[str, str]
    """Role -> sha256 of every file that was read."""


def resolve(request: PlanRequest, *, say: Callable[[str], None] | None = None) -> Resolved:
    """Read everything that a request names; `say` hears warnings, and notes, which begin with NOTE_MARK."""
    from weftline.graph import Graph
    from weftline.graph.stack import layer_words
    from weftline.plans.summary import guess_words
    from weftline.problem import Problem
    from weftline.problem.feasible import keep_layers
    from weftline.problem.load import needs_cluster
    from weftline.reduce import coarsened
    from weftline.zoo import ZOO

    if not isinstance(request, PlanRequest):
        raise UsageError("resolve takes a PlanRequest")
    speak = say or (lambda text: None)
    inputs: dict[str, str] = {}
    cluster = _named_cluster(request, inputs, speak) or _read_cluster(request.cluster, inputs, speak)
    costs = _read_costs(request, inputs)
    file = None if request.model_file is None else a_path(request.model_file, "model_file")
    if isinstance(request.model, Graph | Problem):
        problem = _from_objects(request, cluster, costs, speak)
    elif isinstance(request.model, Path | str):
        if cluster is None and str(request.model).startswith(ZOO):
            raise UsageError(needs_cluster(request.model))
        file = model_path(request.model)
        problem, inputs["model"] = _from_file(request, file, cluster, costs, speak)
    else:
        raise UsageError("plan takes a Graph or Problem (wl.load), or a file, and a Cluster (Cluster.load or .preset)")
    if request.strict and (words := guess_words(problem.graph)):
        raise InputError(words, where=str(file or problem.graph.name), hint="leave --strict out to plan with guesses")
    if request.keep:
        problem = keep_layers(problem)
        speak(f"{NOTE_MARK}kept whole: {layer_words(problem.graph)}")
    grouped = coarsened(problem, request.coarsen, model=file)
    if grouped.note:
        speak(grouped.note)
    known = {**inputs, **request.inputs}
    roles: tuple[str, ...] = ("model", "cluster", "costs")
    ordered = {role: known[role] for role in roles if role in known}
    return Resolved(request, grouped.small, grouped.group, file, ordered)


@overload
def answer(
    asked: PlanRequest | Resolved,
    *,
    start: Indices | None = None,
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Plan | FleetPlan: ...


@overload
def answer(
    asked: ScheduleRequest | ResolvedBlocks,
    *,
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Schedule: ...


def answer(
    asked: PlanRequest | Resolved | ScheduleRequest | ResolvedBlocks,
    *,
    start: Indices | None = None,
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Plan | FleetPlan | Schedule:
    """The plan or schedule of a request. `start` is a placement that the search begins with; `say` hears warnings.

    Where throughput is asked for, it is a fleet plan, unless something in the request means one pipeline.
    """
    from weftline.ask.fleets import answer_fleet, is_for_fleet

    if isinstance(asked, ScheduleRequest | ResolvedBlocks):
        return answer_schedule(asked, begun=begun, on_event=on_event)
    if not isinstance(asked, PlanRequest | Resolved):
        raise UsageError("answer takes a PlanRequest or ScheduleRequest; a GridRequest is for wl.sweep")
    found = resolve(asked, say=say) if isinstance(asked, PlanRequest) else asked
    if is_for_fleet(found):
        return answer_fleet(found, start=start, begun=begun, on_event=on_event)
    return answer_one(found, start=start, begun=begun, on_event=on_event)


def answer_one(
    asked: PlanRequest | Resolved,
    *,
    start: Indices | None = None,
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Plan:
    """As `answer`, but always one placement: of a request for throughput one pipeline."""
    from weftline.ask.planning import make_plan

    found = resolve(asked, say=say) if isinstance(asked, PlanRequest) else asked
    if words := found.request.fleet_words:
        raise UsageError(f"{words} asks for the rate of the whole cluster, here is one pipeline; leave it out")
    with _backend(found) as backend:
        return make_plan(
            found.problem,
            **found.request.limits,
            start=start,
            coarsen=found.group,
            proof=None if found.request.proof is None else float(found.request.proof),
            settings=found.request.settings,
            inputs=found.inputs,
            begun=begun,
            backend=backend,
            on_event=on_event,
        )


def answer_stages(
    request: PlanRequest,
    counts: str | Sequence[int],
    *,
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> Sweep:
    """The pipelines of a request for several numbers of stages; its limits are for all of them together."""
    from weftline.ask.stage_counts import stage_problems
    from weftline.ask.stages import sweep_stages

    inputs: dict[str, str] = {}

    def load(number: int | None) -> Problem:
        found = resolve(replace(request, stages=number), say=None if inputs else say)
        inputs.update(found.inputs)
        return found.problem

    numbers = counts if isinstance(counts, str) else several(counts, "stages", a_stage_count, '"1..8" or [1, 2, 4]')
    problems = stage_problems(load, numbers)
    return sweep_stages(problems, **request.limits, inputs=inputs, begun=begun, on_event=on_event)


def answer_devices(
    request: PlanRequest,
    counts: str | Sequence[int] = "auto",
    *,
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
    say: Callable[[str], None] | None = None,
) -> DeviceSweep:
    """The rate of the whole cluster for several numbers of its devices; the limits are for all of them together."""
    from weftline.ask.device_sweep import sweep_devices
    from weftline.ask.fleets import is_for_fleet

    found = resolve(replace(request, copies="auto"), say=say)
    is_for_fleet(found)  # raises where it cannot be asked
    return sweep_devices(
        found.problem,
        counts,
        **request.limits,
        most_depth=request.max_depth,
        most_latency=request.latency_limit_ns,
        most_copies=request.most_copies,
        settings=request.settings,
        inputs=found.inputs,
        begun=begun,
        on_event=on_event,
    )


def find_cluster(word: str) -> tuple[Cluster, str]:
    """A preset's name or a TOML file -> the cluster and the sha256 of its text."""
    from weftline.cluster import Cluster, preset_names, preset_text
    from weftline.cluster.toml import read_cluster

    if word in preset_names():
        return Cluster.preset(word), sha256(preset_text(word).encode()).hexdigest()
    path = a_path(word, "cluster")
    if not path.exists():
        raise InputError(
            f"neither a cluster file nor a preset{near(word, preset_names())}",
            where=word,
            hint=f"the presets are {', '.join(preset_names())}; for other devices: cluster show two-gpus > mine.toml",
        )
    return read_cluster(path)


def model_path(model: Path | str) -> Path:
    """The model's file; one of the zoo is built, and removed when the process ends."""
    from weftline.zoo import ZOO

    if not (isinstance(model, Path | str) and str(model).startswith(ZOO)):
        return a_path(model, "model")
    if not _zoo_file(str(model)).exists():  # somebody has tidied the folder of temporary files
        _zoo_file.cache_clear()
    return _zoo_file(str(model))


@cache
def _zoo_file(name: str) -> Path:
    from atexit import register

    from weftline.zoo import build_named

    ending = ExitStack()
    register(ending.close)
    return build_named(name, ending.enter_context(run_folder()))


def find_devices(given: Cluster | Path | str | None) -> Cluster | None:
    """A cluster that may be given as an object, a file, or the name of a preset."""
    return _read_cluster(given, {}, lambda text: None)


def _named_cluster(request: PlanRequest, inputs: dict[str, str], say: Callable[[str], None]) -> Cluster | None:
    """The cluster of products by name; None where a request has none."""
    from weftline.cluster import cluster_from_options, devices_from_options

    if not request.names_devices:
        return None
    options = request.gpus, request.cpus, request.links, request.ram
    for note in devices_from_options(*options).notes:
        say(f"{NOTE_MARK}{note}")
    cluster = cluster_from_options(*options)
    inputs["cluster"] = sha256(cluster.to_toml().encode()).hexdigest()
    return cluster


def _read_cluster(
    given: Cluster | ClusterText | Path | str | None, inputs: dict[str, str], say: Callable[[str], None]
) -> Cluster | None:
    from weftline.cluster import Cluster
    from weftline.cluster.rules import unlinked
    from weftline.cluster.toml import parse_cluster

    if isinstance(given, ClusterText):
        inputs["cluster"] = sha256(given.text.encode()).hexdigest()
        return parse_cluster(given.text, given.where, name=given.name)
    if not isinstance(given, Path | str):
        if not isinstance(given, Cluster | None):
            raise UsageError("a cluster is a Cluster (Cluster.load or .preset), a file, or the name of a preset")
        return given
    cluster, inputs["cluster"] = find_cluster(str(given))
    if missing := unlinked(cluster):
        say(f"no link between {', '.join(missing[:8])}, so no tensor can pass there")
    return cluster


def _read_costs(request: PlanRequest, inputs: dict[str, str]) -> Profile | None:
    from weftline.cost import Profile, read_profile

    if not isinstance(request.costs, Path | str):
        if not isinstance(request.costs, Profile | None):
            raise UsageError("costs are a Profile (wl.profile) or its file")
        return request.costs
    costs, inputs["costs"] = read_profile(request.costs)
    return costs


def _from_objects(
    request: PlanRequest, cluster: Cluster | None, costs: Profile | None, say: Callable[[str], None]
) -> Problem:
    """A Graph on a cluster, or a Problem, under the rules that are asked."""
    from weftline.problem import Problem, asked_rules, build_problem

    model = request.model
    if request.shapes or request.dims:
        raise UsageError("shapes and dims are for the file of a model; a Graph or Problem has its own")
    if isinstance(model, Problem):
        if request.without:
            raise UsageError("a Problem has its own devices; `without` is for a cluster")
        if cluster is not None:
            raise UsageError("a Problem has its own devices; leave the cluster out")
        if costs is not None:
            raise UsageError("a Problem has its own costs; leave those that were profiled out")
        return model.with_rules(asked_rules(request.rules, model.rules))
    if cluster is None:
        raise UsageError("a Graph needs a cluster, such as Cluster.preset('laptop')")
    rules = asked_rules(request.rules)
    source = _cluster_source(request)
    return build_problem(model, cluster, rules=rules, without=request.without, costs=costs, source=source, say=say)  # type: ignore[arg-type]


def _cluster_source(request: PlanRequest) -> str:
    """What errors about the cluster's limits call it: the user's own file, where there is one."""
    given = request.cluster
    if isinstance(given, ClusterText):
        return given.where
    return str(given) if isinstance(given, Path | str) and Path(given).is_file() else ""


def _from_file(
    request: PlanRequest, file: Path, cluster: Cluster | None, costs: Profile | None, say: Callable[[str], None]
) -> tuple[Problem, str]:
    from weftline.problem import load_problem

    options = import_options(request.shapes, request.dims)
    problem, digest = load_problem(
        file,
        cluster=cluster,
        rules=request.rules,
        without=request.without,
        options=options,
        costs=costs,
        source=_cluster_source(request),
        say=say,
    )
    if request.model_name and problem.graph.name == file.stem:  # formats without a name of their own take the file's
        problem = replace(problem, graph=msgspec.structs.replace(problem.graph, name=request.model_name))
    return problem, digest


def _backend(found: Resolved) -> AbstractContextManager[Any]:
    """What runs candidates for real, where rewards are measured."""
    request = found.request
    if request.reward != "measured":
        return nullcontext()
    if found.file is None:
        raise UsageError("measured rewards need model_file, the IR or ONNX file of the graph")
    if not isinstance(request.model, Path | str):
        import_module("weftline.run.inputs").check_same_model(found.problem.graph, found.file)
    backend = import_module("weftline.run.openvino.meter").openvino_backend  # a room behind this one
    return backend(  # type: ignore[no-any-return]
        found.problem, found.file, runtimes=request.runtimes, measurements=request.measurements, seed=request.seed
    )
