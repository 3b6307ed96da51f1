"""What fusion-aware coarsening is worth: the same model planned without it, with it, and with other ways to coarsen.

In: models of the zoo, presets, seconds. Out: one row per model, preset and method. Every plan is costed twice on the
whole graph: with no op fused, and with the kernels that ONNX Runtime really fuses, as far as the plan leaves them whole
on one device. Simplified: a plan that is costed again keeps its placement, and the best of three orders.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np

from benchmarks.measure import Searched, say, searched
from benchmarks.render import pivot
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, verdict
from benchmarks.sections.placement import PRESETS, every_model
from benchmarks.stats import geometric_mean, grouped, is_late, kept, mean_of
from weftline.ask.questions import lower_bounds
from weftline.cluster import Cluster
from weftline.graph.arrays import Indices
from weftline.latency import solvers
from weftline.latency.prepare import prepare
from weftline.problem import Problem, load_problem
from weftline.reduce import METHODS, Fusion, coarsened, costed_with_fusion, fuse, fused_problem
from weftline.search import Search
from weftline.simulate import Timeline
from weftline.units import format_time
from weftline.zoo import build, save

__all__ = ["ALONE", "ORACLE", "SECTION", "WAYS", "FusedModel", "cost_again", "kernels_cut"]

ORACLE = "oracle"
ALONE = "single device"
WAYS = ("none", ORACLE, "gcof", "chains", "coplace", ALONE)
"""Ways to coarsen; the last one is no search: everything on the best device, fused."""
NEAR = 0.01
SAME = 0.0001
SIZES: dict[str, Row] = {
    "tiny": {"size": "small", "models": ["unet"], "presets": ["laptop"], "time_limit": 0.3},
    "quick": {"size": "full", "models": ["resnet50", "bert"], "presets": ["laptop", "four-unequal"], "time_limit": 3.0},
    "full": {"size": "full", "models": None, "presets": list(PRESETS), "time_limit": 10.0},
}


def _complete(settings: Row, asked: Namespace) -> Row:
    return {**every_model(settings, asked), "ways": list(WAYS)}


class FusedModel:
    """One model on one preset, with what ONNX Runtime fuses there; nothing is computed before it is needed."""

    def __init__(self, path: Path, preset: str) -> None:
        self._path, self._preset = path, preset

    @cached_property
    def problem(self) -> Problem:
        """Without fusion."""
        return load_problem(self._path, cluster=Cluster.preset(self._preset), rules={"objective": "latency"})[0]

    @cached_property
    def oracle(self) -> Fusion:
        """What the backend fuses."""
        return fuse(self.problem, ORACLE, model=self._path)

    @cached_property
    def fused(self) -> Problem:
        """With fusion."""
        return fused_problem(self.problem, self.oracle)

    def coarsened(self, way: str) -> tuple[Problem, Indices | None, int, str]:
        """What is searched: a problem, the groups to begin with, the number of things to place, a note."""
        if way == ALONE:
            return self.fused, None, self.oracle.count, self.oracle.note
        found = coarsened(self.problem, way, model=self._path)
        label = np.asarray(found.small.group) if found.group is None else found.group
        return found.small, found.group, len(np.unique(label)), found.note

    def with_fusion(self, timeline: Timeline) -> int | None:
        """The latency of a plan if every kernel that it leaves whole is fused."""
        return cost_again(costed_with_fusion(self.problem, self.fused, self.oracle, timeline.placement), timeline)


def cost_again(problem: Problem, timeline: Timeline) -> int | None:
    """The placement under other times, in the order of its timeline or the default one; None if it breaks a limit."""
    search = Search(problem)
    search.offer(timeline.placement, actions=timeline.actions(problem.graph.arrays.producer))
    search.offer(timeline.placement, order=timeline.order)
    search.offer(timeline.placement)
    return None if search.best is None else int(search.best.value)


def kernels_cut(fusion: Fusion, placement: Indices) -> int:
    """Groups of ops that would be fused but stand on several devices."""
    low = np.full(fusion.count, np.iinfo(np.int32).max, np.int32)
    high = np.full(fusion.count, -1, np.int32)
    np.minimum.at(low, fusion.group, placement)
    np.maximum.at(high, fusion.group, placement)
    return int((low != high).sum())


def measure(settings: Row, collect: Collector) -> None:
    """All rows, model by model."""
    prepare()
    for model in settings["models"]:
        with _model_file(model, settings["size"]) as path:
            for preset in settings["presets"]:
                say(f"fusion: {model} on {preset}")
                asked = FusedModel(path, preset)
                for way in settings["ways"]:
                    key = {"model": model, "preset": preset, "instance": f"{model} on {preset}", "way": way}
                    collect.measure(key, partial(_row, asked, way, settings["time_limit"]))


@contextmanager
def _model_file(model: str, size: str) -> Iterator[Path]:
    """The model without weights as a file, which the oracle wants to see."""
    with TemporaryDirectory(prefix="weftline-fusion-") as folder:
        path = Path(folder) / f"{model}.onnx"
        save(build(model, size=size, weights=False), path)
        yield path


def _row(asked: FusedModel, way: str, time_limit: float) -> Row:
    n = len(asked.problem.graph.ops)
    begun = perf_counter()
    problem, group, count, note = asked.coarsened(way)
    spent = perf_counter() - begun if way in METHODS else 0.0
    solver = solvers()["single-device" if way == ALONE else "auto"]
    bound = lower_bounds(problem)[0]
    done = searched(problem, solver, time_limit=time_limit, bound=bound, group=group)
    return {
        "ops": n,
        "to_place": count,
        "coarsen_seconds": round(spent, 4),
        "coarsen_note": note,
        "time_limit": time_limit,
        "seconds": done.seconds,
        "near_seconds": done.seconds_within(NEAR),
        "note": done.note,
        **_values(asked, done),
    }


def _values(asked: FusedModel, done: Searched) -> Row:
    best, bound = done.search.best, done.search.bound
    if not isinstance(best, Timeline):
        return {"value_ns": None, "fine_ns": None, "fused_ns": None}
    return {
        "value_ns": int(best.value),
        "bound_ns": 0 if bound is None else int(bound.value),
        "bound_by": "" if bound is None else bound.by,
        "stopped_by": done.search.stopped_by or "done",
        "fine_ns": cost_again(asked.problem, best),
        "fused_ns": asked.with_fusion(best),
        "cut": kernels_cut(asked.oracle, best.placement),
        "kernels": int((np.bincount(asked.oracle.group) > 1).sum()),
    }


def _values_of(run: Run, way: str, field: str) -> dict[str, int]:
    return {row["instance"]: row[field] for row in run.of(way=way) if row[field]}


def _mean(run: Run, field: str, against: str, way: str) -> float | None:
    mine, other = _values_of(run, way, field), _values_of(run, against, field)
    return mean_of(mine[name] / other[name] for name in mine if name in other)


def _wins(run: Run, way: str) -> int:
    count = 0
    for mine in grouped(run.rows, "instance").values():
        values = {row["way"]: row["fused_ns"] for row in mine if row["fused_ns"] is not None}
        count += way in values and values[way] == min(values.values())
    return count


def _bound_ratio(row: Row) -> float:
    return max(1e-9, row["bound_ns"] / row["value_ns"]) if row["value_ns"] else 1.0


def _way_columns(run: Run) -> list[Column[str]]:
    """What is said of one way to coarsen."""

    def of(what: Callable[[list[Row]], object]) -> Callable[[str], object]:
        return lambda way: what(mine) if (mine := kept(run.of(way=way))) else None

    def near(rows: list[Row]) -> float | None:
        found = [row["near_seconds"] for row in rows if row["near_seconds"] is not None]
        return median(found) if found else None

    return [
        Column("coarsened by", str),
        Column("solved", lambda way: f"{len(kept(run.of(way=way)))}/{len(run.of(way=way))}"),
        Column("to place / ops", of(lambda rows: geometric_mean(r["to_place"] / r["ops"] for r in rows)), ".2f"),
        Column("fused / oracle's", partial(_mean, run, "fused_ns", ORACLE), ".4f"),
        Column("best fused or equal", of(lambda rows: _wins(run, rows[0]["way"]))),
        Column("unfused / none's", partial(_mean, run, "fine_ns", "none"), ".4f"),
        Column("bound / its own value", of(lambda rows: geometric_mean(map(_bound_ratio, rows))), ".4f"),
        Column("kernels cut", of(lambda rows: f"{sum(r['cut'] for r in rows)} of {sum(r['kernels'] for r in rows)}")),
        Column("median s until near", of(near), ".2f"),
        Column("median s", of(lambda rows: median(row["seconds"] for row in rows)), ".2f"),
        Column("median s to coarsen", of(lambda rows: median(row["coarsen_seconds"] for row in rows)), ".2f"),
    ]


def _verdicts(run: Run, most: int | None = None) -> Iterator[str]:
    oracle = _values_of(run, ORACLE, "fused_ns")
    for way, what in (("none", "no coarsening"), (ALONE, "the best single device")):
        other = _values_of(run, way, "fused_ns")
        both = [name for name in oracle if name in other]
        lost = [f"{name} {oracle[name] / other[name] - 1:.2%}" for name in both if other[name] < oracle[name]]
        won = sum(other[name] > oracle[name] * (1 + SAME) for name in both)
        shown = lost if most is None or len(lost) <= most else [*lost[:most], f"{len(lost) - most} more"]
        yield f"*oracle* against {what}: better by more than 0.01 % on {won} of {len(both)}, " + (
            f"**worse on {len(lost)}**: {', '.join(shown)}." if lost else "worse on none."
        )
    late = [f"{row['instance']}, {row['way']} ({row['seconds']:.1f} s)" for row in run.rows if is_late(row)]
    notes = dict.fromkeys(f"{row['instance']}, {row['way']}: {row['note']}" for row in run.rows if row["note"])
    fell_back = [f"{row['instance']}: {row['coarsen_note']}" for row in run.of(way=ORACLE) if row["coarsen_note"]]
    yield from verdict("More than 2 s over the time limit", late, most=most)
    yield from verdict("No plan", list(notes), most=most)
    yield from verdict("Of the oracle", fell_back, most=most)


def _matrix(field: str, against: str, run: Run) -> Iterator[str]:
    def cell(row: Row, line: object) -> str:
        value, base = row[field], line.get(against, {}).get(field)  # type: ignore[attr-defined]
        if value is None:
            return "-"
        if row["way"] == against or not base:
            return format_time(value)
        return f"**{value / base:.4f}**" if value < base else f"{value / base:.4f}"

    yield pivot("instance", run.rows, "instance", _ways(run), lambda row: row["way"], cell)


def _ways(run: Run) -> dict[str, str]:
    return {way: way for way in grouped(run.rows, "way")}


def _search(run: Run) -> Iterator[str]:
    ways = {way: way for way in _ways(run) if way != ALONE}
    name = partial(str.format, "{0[instance]} ({0[ops]} ops)")
    yield pivot("instance", run.rows, name, ways, lambda row: row["way"], _search_cell)


def _search_cell(row: Row, _: object) -> str:
    if row["value_ns"] is None:
        return "-"
    near = "-" if row["near_seconds"] is None else f"{row['near_seconds']:.2f}"
    coarsen = f" (+ {row['coarsen_seconds']:.2f})" if row["coarsen_seconds"] else ""
    return f"{row['to_place']}, {row['cut']} cut, {near} / {row['seconds']:.1f} s{coarsen}"


BY_WAY: Table[str] = Table(_way_columns, _ways)
SECTION = Section(
    name="fusion",
    title="Placement with and without fusion-aware coarsening",
    chapter="latency",
    asked="Is it worth to plan with the kernels that ONNX Runtime fuses (*oracle*) instead of single ops (*none*)? "
    "`auto`, at most {time_limit:g} s; *fused / oracle's* above 1 means that *oracle* is better.",
    sizes=SIZES,
    measure=measure,
    screen=(Table(lambda run: _way_columns(run)[:5] + _way_columns(run)[6:8], _ways),),
    losses=partial(_verdicts, most=3),
    blocks=(
        "Each model is planned by `auto` in six ways: on the graph as it is (*none*), with groups that ONNX Runtime "
        "fuses (*oracle*), with fusion rules (*gcof*), with chains or co-placed ops as a first coarse search "
        "(*chains*, *coplace*), and on the best single device; seed 0. Two values make the plans comparable, both of "
        "the placement on the whole graph: *fused*, where each kernel that ONNX Runtime would fuse and that the plan "
        "leaves on one device has its fused time, and a kernel that is cut pays for its ops one by one; and "
        "*unfused*, where every op runs by itself. A plan that is costed again may keep its order or take the "
        "default one. *Near* is when a search first had a value within 1 % of its last. Fused times are modelled, "
        "not measured.",
        BY_WAY,
        _verdicts,
        "Fused value: of *oracle* as it is, of the others / *oracle*'s (above 1: *oracle* is better).",
        partial(_matrix, "fused_ns", ORACLE),
        "Unfused value: of *none* as it is, of the others / *none*'s.",
        partial(_matrix, "fine_ns", "none"),
        "Search: things to place, kernels cut, seconds until near / in all (and to coarsen).",
        _search,
    ),
    complete=_complete,
)
