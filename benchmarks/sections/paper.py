"""Pipelines on k equal devices: the experiment of Archer et al. on models that need no download.

In: the zoo at full size, the light models inside the onnx package, the published graphs of Tarnawski et al. without
CPUs, memory limits and colours. Out: one row per instance and k. Simplified: analytic costs of one class of GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from pathlib import Path
from statistics import mean

from benchmarks.instances import FLAT, data_folder, flat_cluster
from benchmarks.measure import plan_row, say
from benchmarks.render import pivot
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields
from benchmarks.stats import (
    CLOSED,
    grouped,
    is_closed,
    kept,
    mean_of,
    misses,
    not_closed,
    ratio,
    scores,
    simple_ratio,
)
from weftline.graph import Graph
from weftline.importers import read_file
from weftline.problem import Problem, asked_rules, build_problem, load_problem
from weftline.zoo import architectures, zoo_graph

__all__ = ["SECTION", "SHARED", "closed_factor", "paper_instances", "shared_graph"]

SHARED = ("layer_bert24", "layer_gnmt", "layer_resnet50", "op_bert_l-3", "op_bert_l-6", "op_resnet50")
DROPPED = ("cpus", "memory", "together")
QUICK = ("bert", "inception-v3", "unet", "light squeezenet", "light shufflenet", "layer_resnet50", "op_bert_l-3")
GOALS = {2: 0.99, 4: 0.99, 8: 0.99, 16: 0.99, 32: 0.97, 64: 0.97}
GROUPS = {"zoo": "the zoo at full size", "light": "the light models of the onnx package", "shared": "msr-fiddle's"}
SIZES: dict[str, Row] = {
    "tiny": {"stages": [2], "time_limit": 1.0, "only": ["light bvlc_alexnet"]},
    "quick": {"stages": [4, 16], "time_limit": 6.0, "only": list(QUICK)},
    "full": {"stages": [2, 4, 8, 16, 32, 64], "time_limit": 60.0, "only": None},
}


def paper_instances() -> dict[str, tuple[str, Callable[[int], Problem]]]:
    """Name -> its group, and how its problem with k stages is made; files that are absent are left out."""
    found: dict[str, tuple[str, Callable[[int], Problem]]] = {}
    for name in architectures():
        found[name] = ("zoo", partial(_on_flat, partial(zoo_graph, name)))
    for path in _light_models():
        name = path.stem.replace("light_", "light ")
        found[name] = ("light", partial(_on_flat, partial(_read, path)))
    for name in SHARED:
        if (path := data_folder() / "fiddle" / "throughput" / f"{name}_inference.json").is_file():
            found[name] = ("shared", partial(shared_graph, path))
    return found


def measure(settings: Row, collect: Collector) -> None:
    """All rows, k by k."""
    chosen = {n: one for n, one in paper_instances().items() if settings["only"] is None or n in settings["only"]}
    for stages in settings["stages"]:
        for name, (group, make) in chosen.items():

            def row(make: Callable[[int], Problem] = make, stages: int = stages) -> Row:
                return plan_row(make(stages), time_limit=settings["time_limit"])

            say(f"paper: {name}, k = {stages}")
            collect.measure({"group": group, "instance": name, "stages": stages}, row)


def shared_graph(path: Path, stages: int) -> Problem:
    """A published graph as the plain partition problem."""
    return load_problem(path, rules={"objective": "throughput", "stages": stages}, without=DROPPED)[0]


def _on_flat(graph: Callable[[], Graph], stages: int) -> Problem:
    return build_problem(graph(), flat_cluster(stages), rules=asked_rules({"objective": "throughput"}))


@cache
def _read(path: Path) -> Graph:
    return read_file(path).graph


def _light_models() -> list[Path]:
    import onnx

    return sorted((Path(onnx.__file__).parent / "backend" / "test" / "data" / "light").glob("light_*.onnx"))


def closed_factor(simple: float, best: float) -> float | None:
    """By which the gap was closed; None where what is left is below the gap at which searches stop."""
    return None if 1 - best < CLOSED else (1 - simple) / (1 - best)


def _by_stages(run: Run) -> list[Row]:
    """One line per k."""
    found = []
    for stages, rows in grouped(run.rows, "stages").items():
        solved, goal = kept(rows), GOALS.get(stages, 0.99)
        best, simple = mean_of(map(ratio, solved)), mean_of(map(simple_ratio, solved))
        line: Row = {"k": stages, "count": len(rows), "solved": len(solved), "goal": goal, "simple": simple}
        line |= {"best": best, "seconds": [row["seconds"] for row in rows]}
        if best is not None and simple is not None:
            worst = min(solved, key=lambda row: ratio(row) or 0.0)
            factor = closed_factor(simple, best)
            under = sum((ratio(row) or 0.0) < goal for row in solved)
            proved = sum(is_closed(row) and row["proof"] == "proved" for row in solved)
            line |= {
                "factor": "all of it" if factor is None else f"{factor:,.1f}x",
                "worst": f"{ratio(worst):.4f} ({worst['instance']})",
                "under": under,
                "reached": f">= {goal}: {'reached' if best >= goal else 'missed'}, {under} of {len(solved)} below",
                "closed": f"{sum(map(is_closed, solved))} ({proved} proved)",
            }
        found.append(line)
    return found


def _losses(run: Run) -> Iterator[str]:
    for line in _by_stages(run):
        if line["best"] is not None and line["best"] < line["goal"]:
            yield f"**Goal missed at k = {line['k']}:** mean {line['best']:.4f} is below {line['goal']}."
    below = [f"{line['under']} at k = {line['k']}" for line in _by_stages(run) if line.get("under")]
    if below:
        yield f"Single instances below the goal of bound / value: {', '.join(below)}."
    yield from not_closed(run)
    yield from misses(run.rows, most=3)


def _by_group(run: Run) -> list[Column[Row]]:
    groups = dict.fromkeys(row["group"] for row in run.rows)

    def cell(group: str, of: Callable[[Row], float | None], line: Row) -> float | None:
        return mean_of(of(row) for row in kept(run.of(group=group, stages=line["k"])))

    return [
        Column("k", "k"),
        *(
            Column(f"{group}: {what}", partial(cell, group, of), form)
            for group in groups
            for what, of, form in (("simple", simple_ratio, ".4f"), ("best", ratio, ".5f"))
        ),
    ]


def _who(run: Run) -> Iterator[str]:
    counts = {group: len({row["instance"] for row in rows}) for group, rows in grouped(run.rows, "group").items()}
    yield f"Models: {', '.join(f'{GROUPS[group]} ({count})' for group, count in counts.items())}."


def _matrix(run: Run) -> Iterator[str]:
    stages = {k: f"k = {k}" for k in grouped(run.rows, "stages")}
    ops = {row["instance"]: row["ops"] for row in run.rows}
    rows = sorted(run.rows, key=lambda row: str(row["instance"]))
    yield "Best bound / value, and seconds; **bold** where the goal for k is missed."
    yield pivot("instance", rows, lambda r: f"{r['instance']} ({ops[r['instance']]} ops)", stages, _stages, _cell)


def _stages(row: Row) -> int:
    return int(row["stages"])


def _cell(row: Row, _: object) -> str:
    found = ratio(row)
    if found is None:
        return "**none**"
    text = f"{found:.4f}" if found < 1 else "1"
    bold = "**" if found < GOALS.get(row["stages"], 0.99) else ""
    return f"{bold}{text}{bold} {row['seconds']:.1f} s"


SECTION = Section(
    name="paper",
    title="Pipelines on equal devices: the paper's experiment",
    chapter="throughput",
    asked="Cut a model into k stages on k equal GPUs so that the slowest stage is short (Archer et al.); at most "
    "{time_limit:g} s. The goal is bound / value of 0.99 (0.97 from k = 32 on).",
    sizes=SIZES,
    measure=measure,
    screen=(scores("k", "stages"),),
    losses=_losses,
    blocks=(
        _who,
        f"The first two groups are costed for k copies of the GPU of the preset {FLAT} with its NVLink between all "
        "pairs, memory unlimited; the graphs of msr-fiddle have costs of their own and are taken without CPUs, memory "
        "limits and colours. *Simple* = max(W / k, what a single op must cost) / value; *best* = the best lower bound "
        "that the same search found / value, both as geometric means; the factor is (1 - simple) / (1 - best), by "
        "which the optimality gap was closed. Archer et al. report .4598, .9452 and 9.855 at k = 16 on 369 production "
        "models of their own; models and costs differ (here even the simple bound is nearer), so this is a goal and "
        "not a comparison. *Closed* counts instances whose value and bound agree to 0.01 %, the default gap. Default "
        "settings, seed 0; seconds are the whole call of `make_plan`, kernels compiled before.",
        Table(
            (
                Column("k", "k"),
                Column("instances", lambda line: line["count"] if line["solved"] == line["count"] else _part(line)),
                *fields("simple:.4f | best:.5f | gap closed by=factor | worst best=worst | goal=reached | closed"),
                Column("mean s", lambda line: mean(line["seconds"]), ".1f"),
                Column("max s", lambda line: max(line["seconds"]), ".1f"),
            ),
            _by_stages,
        ),
        Table(_by_group, _by_stages),
        lambda run: misses(run.rows),
        _matrix,
    ),
    warm=True,
)


def _part(line: Row) -> str:
    return f"{line['solved']}/{line['count']}"
