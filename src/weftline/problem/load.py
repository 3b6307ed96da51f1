"""The two ways to a Problem: a graph and a cluster, or a file that holds costs too."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import get_args, get_type_hints

import msgspec

from weftline.arguments import shown
from weftline.cluster import Cluster, Device
from weftline.cost import CostTable, Profile, analytic_costs, devices_of_file, expand_file_costs, profiled_costs
from weftline.errors import InputError, UsageError
from weftline.graph import Graph
from weftline.importers import FileCosts, Imported, ImportOptions, read_file
from weftline.problem.feasible import apply_limits, check_feasible, merge_together
from weftline.problem.model import PROBLEM_FORMAT, Problem, Rules, problem_from_json

__all__ = ["DROPPABLE", "asked_rules", "build_problem", "load_problem", "needs_cluster", "read_model"]

DROPPABLE = ("cpus", "memory", "together")
"""Limits of a problem that `without` can drop."""

ACCELERATOR = "accelerator"
MAX_STAGES = 4096
MAX_FILE_BYTES = 2 * 2**30

_OPTIONS = {name: get_args(hint) for name, hint in get_type_hints(Rules).items()}
_IRRELEVANT = {"latency": ("communication",), "throughput": ("runtime", "transfers")}


def load_problem(
    path: Path | str,
    *,
    cluster: Cluster | None = None,
    rules: Mapping[str, object] = MappingProxyType({}),
    without: Collection[str] = (),
    options: ImportOptions | None = None,
    costs: Profile | None = None,
    source: str = "",
    say: Callable[[str], None] | None = None,
) -> tuple[Problem, str]:
    """Read a model or problem file -> (problem, sha256 of the file).

    `rules` holds what is asked explicitly (fields of `Rules`); the file's own rules hold for the rest. `costs` are
    measured times of the model on the cluster. `source` is what errors call the cluster; `say` hears notes.
    """
    problem, digest = _problem_file(Path(path))
    if problem is not None:
        _refuse_dims(path, options)
        if costs is not None:
            raise UsageError(f"{path} holds its own devices and costs; leave the profiled costs out")
        if cluster is not None:
            raise UsageError(f"{path} holds its own devices and costs; leave the cluster out")
        problem = _without(problem, without, say)
        return check_feasible(problem.with_rules(_fit_stages(asked_rules(rules, problem.rules), problem))), digest
    imported = read_file(path, options)
    if imported.costs is None or (cluster is not None and any(op.flops for op in imported.graph.ops)):
        if cluster is None:
            raise UsageError(needs_cluster(path))
        if costs is not None and costs.model_sha256 != imported.sha256:
            raise InputError(
                f"the costs were profiled with another model file, {costs.model[:80]!r} "
                f"(sha256 {costs.model_sha256[:12]}..., this one has {imported.sha256[:12]}...)",
                where=str(path),
                hint="profile again with this file",
            )
        asked = asked_rules(rules)
        problem = build_problem(
            imported.graph, cluster, rules=asked, without=without, costs=costs, source=source, say=say
        )
        return problem, imported.sha256
    if costs is not None:
        raise UsageError(f"{path} holds its own costs ({imported.format}); leave the profiled costs out")
    if cluster is not None:
        raise UsageError(f"{path} holds its own devices and costs ({imported.format}); leave the cluster out")
    own = Rules(transfers=imported.costs.transfers, memory=imported.costs.memory)
    asked = asked_rules(rules, own)
    try:
        return _from_costs(imported, imported.costs, asked, without, say), imported.sha256
    except InputError as error:
        raise error.at(str(path)) from error


def read_model(path: Path | str, options: ImportOptions | None = None) -> Graph | Problem:
    """A Graph, or a Problem under its own rules where the file holds costs too."""
    problem, _ = _problem_file(Path(path))
    if problem is not None:
        _refuse_dims(path, options)
        return problem
    imported = read_file(path, options)
    if imported.costs is None:
        return imported.graph
    own = Rules(transfers=imported.costs.transfers, memory=imported.costs.memory)
    return _from_costs(imported, imported.costs, own, ())


def asked_rules(asked: Mapping[str, object], own: Rules | None = None) -> Rules:
    """`own` rules (or the defaults) with what is asked explicitly on top; None means not asked."""
    changes = {name: value for name, value in asked.items() if value is not None}
    for name, value in changes.items():
        options = _OPTIONS.get(name)
        if options and value not in options:
            raise UsageError(f"{name} is one of {', '.join(options)}, not {shown(value)}")
    merged = {**msgspec.structs.asdict(own or Rules()), **changes}
    try:
        rules = msgspec.convert(merged, Rules)
    except msgspec.ValidationError as error:
        raise UsageError(f"unknown rule: {error}") from error
    if not 0 <= rules.stages <= MAX_STAGES:
        raise UsageError(f"{rules.stages!s:.30} stages make no sense; ask for 1 to {MAX_STAGES}, or 0 for all devices")
    if rules.objective == "latency" and "stages" not in changes:
        rules = msgspec.structs.replace(rules, stages=0)  # the file's own stages are for its pipelines
    for name in _IRRELEVANT[rules.objective]:
        if name in changes:
            raise UsageError(f"{name} has no meaning for the objective {rules.objective}; leave it out")
    return rules


def build_problem(
    graph: Graph,
    cluster: Cluster,
    *,
    cost: CostTable | None = None,
    rules: Rules | None = None,
    without: Collection[str] = (),
    costs: Profile | None = None,
    source: str = "",
    say: Callable[[str], None] | None = None,
) -> Problem:
    """Cost a graph on a cluster, apply the cluster's limits, check feasibility.

    Times are those of a table that is given, or of a profile (throughput: with all devices busy; its kernels are not
    cut), else analytic. `source` is what errors call the cluster; `say` hears notes.
    """
    rules = rules or Rules()
    if cost is not None or costs is not None:
        graph = _known_costs(graph)
    kernels: Sequence[Sequence[int]] = ()
    if cost is None and costs is not None:
        cost, kernels = profiled_costs(graph, cluster, costs, busy=rules.objective == "throughput")
    cost = cost or analytic_costs(graph, cluster)
    limits = msgspec.structs.replace(cluster.limits, together=(), block=()) if "together" in without else cluster.limits
    try:
        cost, together = apply_limits(graph, cluster.index, cost, limits)
    except InputError as error:
        raise error.at(source or f"cluster {cluster.name!r}") from error
    buses = tuple((cluster.index[k.source], cluster.index[k.target], k.shared) for k in cluster.links if k.shared)
    together = merge_together([*together, *kernels])
    problem = Problem(graph, cluster.devices, cost, msgspec.structs.replace(rules, stages=0), together, buses)
    problem = _without(problem, without, say)
    return check_feasible(problem.with_rules(_fit_stages(rules, problem)))


def _known_costs(graph: Graph) -> Graph:
    """A time that somebody gives or measured takes the place of a guess."""
    if not graph.guessed:
        return graph
    ops = tuple(msgspec.structs.replace(op, guessed=False) if op.guessed else op for op in graph.ops)
    return msgspec.structs.replace(graph, ops=ops)


def needs_cluster(model: object) -> str:
    """What to say about a model for which no devices are given."""
    return (
        f"{model} holds no costs, so devices are needed. Try --gpu 'RTX 4090' --cpu DDR5-6000 --ram 64GB, or "
        "--cluster laptop; see: weftline cluster devices, weftline cluster presets"
    )


def _fit_stages(rules: Rules, problem: Problem) -> Rules:
    if rules.stages and rules.objective == "latency":
        raise UsageError("stages have no meaning for the objective latency: leave them out, or ask for throughput")
    if rules.stages > len(problem.devices):
        raise UsageError(f"{rules.stages} stages need {rules.stages} devices, there are {len(problem.devices)}")
    return rules


def _from_costs(
    imported: Imported,
    costs: FileCosts,
    rules: Rules,
    without: Collection[str],
    say: Callable[[str], None] | None = None,
) -> Problem:
    if rules.stages and any(group.kind == ACCELERATOR for group in costs.classes):
        classes = tuple(replace(g, count=rules.stages) if g.kind == ACCELERATOR else g for g in costs.classes)
        costs, rules = replace(costs, classes=classes), msgspec.structs.replace(rules, stages=0)
    devices, cost = devices_of_file(costs), expand_file_costs(costs)
    if not devices:
        raise InputError("the file has no device left", hint="ask for at least one stage")
    problem = Problem(imported.graph, devices, cost, msgspec.structs.replace(rules, stages=0), costs.together)
    problem = _without(problem, without, say)
    return check_feasible(problem.with_rules(_fit_stages(rules, problem)))


def _without(problem: Problem, without: Collection[str], say: Callable[[str], None] | None) -> Problem:
    unknown = set(without) - set(DROPPABLE)
    if unknown:
        raise UsageError(f"cannot drop {sorted(unknown)}; what can be dropped: {', '.join(DROPPABLE)}")
    if "together" in without:
        problem = replace(problem, together=())
    if "memory" in without:
        problem = replace(problem, devices=tuple(_unlimited(device) for device in problem.devices))
    if "cpus" in without:
        kinds = sorted({device.kind for device in problem.devices})
        if "cpu" not in kinds and "cpu" not in map(str.casefold, kinds):
            if say is not None:
                say(f"there is no CPU to leave out: the kinds of devices are {', '.join(kinds)[:200]}")
            return problem
        if "cpu" not in kinds:
            raise UsageError(f"no device is of the kind cpu: the kinds of devices are {', '.join(kinds)[:200]}")
        problem = _keep_devices(problem, [i for i, device in enumerate(problem.devices) if device.kind != "cpu"])
    return problem


def _unlimited(device: Device) -> Device:
    return msgspec.structs.replace(device, memory=None, reserve=0, memory_source="")


def _keep_devices(problem: Problem, keep: list[int]) -> Problem:
    if not keep:
        raise UsageError("without its CPUs the problem has no device left")
    position = {old: new for new, old in enumerate(keep)}
    cost = CostTable(
        problem.cost.time[:, keep],
        problem.cost.transfer[:, keep][:, :, keep],
        problem.cost.transfer_row,
        problem.cost.source,
    )
    return replace(
        problem,
        devices=tuple(problem.devices[i] for i in keep),
        cost=cost,
        buses=tuple(
            (position[a], position[b], name) for a, b, name in problem.buses if a in position and b in position
        ),
    )


def _refuse_dims(path: Path | str, options: ImportOptions | None) -> None:
    if options is not None and options.dims:
        raise UsageError(f"{path} has no named dimensions; leave {next(iter(options.dims))!r} out")


def _problem_file(path: Path) -> tuple[Problem | None, str]:
    """A file in our own problem form, or None; its hash."""
    try:
        if not path.is_file():
            return None, ""  # the importers say what is wrong with it
        with path.open("rb") as file:
            if f'"{PROBLEM_FORMAT}"'.encode() not in file.read(256):
                return None, ""
            if path.stat().st_size > MAX_FILE_BYTES:
                raise InputError("more than 2 GiB is not a problem", where=str(path))
            file.seek(0)
            data = file.read()
    except OSError:
        return None, ""  # the importers say what is wrong with it
    try:
        return problem_from_json(data), hashlib.sha256(data).hexdigest()
    except InputError as error:
        raise error.at(str(path)) from error
