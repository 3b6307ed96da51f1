"""The rate of a whole cluster that serves a language model: Helix's instances, and some that are made of them.

In: files of Helix (if present). Out: one row for each question: the rate, the proved bound, whether the checker accepts
the file, and what Helix's own mixed-integer program (Gurobi) said. Derived: clusters with all links, the front over the
depth, and 24 times as many devices.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from statistics import median_low
from typing import Any

import msgspec

from benchmarks.instances import data_folder
from benchmarks.measure import fleet_answer, say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.stats import best_known, busy_words, is_late, kept
from weftline.ask.layers import make_layer_plan
from weftline.fleet.layers import prepare
from weftline.problem.layers import DevicePool, LayerProblem, read_layers

__all__ = ["SECTION", "helix_file", "helix_problem"]

FILES = (
    "single24",
    "geo24_pruned",
    "het42_pruned",
    "quality10",
    "single_30b_a100",
    "single_30b_l4",
    "single_30b_t4",
)
"""Instances of Helix (ASPLOS 2025): clusters of 4 to 42 nodes, Llama 2 70B and Llama 30B."""
COMPLETED = {"geo24_full": "geo24_pruned", "het42_full": "het42_pruned"}
"""With the links that were left out of a file."""
CLOSE_SHARE = 0.01
"""The goal for a gap."""
BEHIND_SHARE = 1e-4
"""So much below the best known rate is behind it; some of those were published with few digits."""
LEAST_SHOWN = 10
"""Clusters with fewer nodes stand on the page alone."""
SIZES: dict[str, Row] = {
    "tiny": {
        "files": ["single_30b_a100", "quality10"],
        "completed": [],
        "depths": [],
        "many": 0,
        "many_depths": [],
        "time_limit": 1.0,
        "many_limit": 1.0,
    },
    "quick": {
        "files": [*FILES[:2], *FILES[4:]],
        "completed": ["het42_full"],
        "depths": [12, 24],
        "many": 6,
        "many_depths": [12],
        "time_limit": 5.0,
        "many_limit": 15.0,
    },
    "full": {
        "files": [*FILES],
        "completed": [*COMPLETED],
        "depths": [*range(9, 25)],
        "many": 24,
        "many_depths": [12, 16],
        "time_limit": 10.0,
        "many_limit": 30.0,
    },
}


def helix_file(name: str) -> dict[str, Any] | None:
    """What the file says; None where it is absent."""
    path = data_folder() / "helix" / f"{name}.json"
    return json.loads(path.read_bytes()) if path.is_file() else None


def helix_problem(name: str) -> LayerProblem | None:
    """The file as the planner reads it."""
    found = read_layers(data_folder() / "helix" / f"{name}.json")
    return None if found is None else found[0]


def measure(settings: Row, collect: Collector) -> None:
    """All rows."""
    prepare()
    short, long = settings["time_limit"], settings["many_limit"]
    for name in settings["files"]:
        _ask(collect, {"table": "file", "instance": name}, name, short)
    for name in settings["completed"]:
        _ask(collect, {"table": "all links", "instance": name}, COMPLETED[name], short)
    for depth in settings["depths"]:
        key = {"table": "depth", "instance": f"single24, at most {depth} in a row", "most_depth": depth}
        _ask(collect, key, "single24", short)
    for depth in settings["many_depths"]:
        many = settings["many"]
        key = {"table": "many", "instance": f"het42 x {many}, at most {depth} in a row"}
        _ask(collect, {**key, "most_depth": depth, "many": many}, "het42_pruned", long)


def _ask(collect: Collector, key: Row, file: str, time_limit: float) -> None:
    say(f"layers: {key['instance']}")
    collect.measure(key, partial(_row, key, file, time_limit))


def _row(key: Row, file: str, time_limit: float) -> Row:
    given, problem = helix_file(file), helix_problem(file)
    row: Row = {"time_limit": time_limit, "theirs": None, "devices": None, "layers": None}
    if given is None or problem is None:
        missing = f"{file}.json is not in the folder of files (WEFTLINE_DATA)"
        return {**row, "value_ns": None, "note": missing, "seconds": 0.0, "checked": False}
    if key["table"] == "all links":
        problem = _completed(problem, given, key["instance"])
    if key["table"] == "many":
        problem = _many(problem, key["many"])
    if "most_depth" in key:
        problem = msgspec.structs.replace(problem, max_depth=key["most_depth"])
    theirs = {name: given["theirs"][name] for name in ("value", "bound", "seconds")} if key["table"] == "file" else None
    row |= {"theirs": theirs, "devices": problem.offsets[-1], "layers": problem.layers}
    return {**row, **fleet_answer(lambda: make_layer_plan(problem, time_limit=time_limit))}


def _completed(problem: LayerProblem, given: dict[str, Any], name: str) -> LayerProblem:
    """Every link that is absent gets the median rate of those between the same two regions (of all, without regions).

    The ends of the model, where requests come from and go to, count as a region each.
    """
    regions = given.get("region") or [0] * problem.offsets[-1]
    region = {device: regions[int(node)] for device, node in enumerate(problem.device_names())}
    here = {(a, b): rate for a, b, rate in problem.links or ()}
    alike: dict[tuple[object, object], list[int]] = {}
    for (a, b), rate in here.items():
        alike.setdefault((region.get(a, a - 100), region.get(b, b - 100)), []).append(rate)
    devices = range(problem.offsets[-1])
    pairs = [(a, b) for a in (-1, *devices) for b in (-2, *devices) if a != b and (a, b) != (-1, -2)]
    links = []
    for a, b in pairs:
        found = alike.get((region.get(a, a - 100), region.get(b, b - 100)))
        if (rate := here.get((a, b), median_low(found) if found else 0)) > 0:
            links.append((a, b, rate))
    return msgspec.structs.replace(problem, name=name, links=tuple(links))


def _many(problem: LayerProblem, times: int) -> LayerProblem:
    """So many times the devices of every pool, and nothing that limits links."""
    pools = tuple(DevicePool(pool.name, pool.count * times) for pool in problem.pools)
    return msgspec.structs.replace(problem, name=f"{problem.name} x {times}", pools=pools, links=None)


def _rate(value_ns: int | None) -> float | None:
    return 1e9 / value_ns if value_ns else None


def _best(run: Run, row: Row) -> float | None:
    """The best rate known: ours, an earlier one, or Helix's."""
    theirs = (row["theirs"] or {}).get("value")
    return max(filter(None, (_rate(best_known(row, run.best)), row.get("rate"), theirs)), default=None)


def _gap(row: Row) -> float | None:
    gap: float | None = row["gap"] if row.get("proof") == "proved" else None
    return gap


def _theirs(name: str, row: Row) -> float | None:
    found: float | None = row["theirs"] and row["theirs"][name]
    return found


def _asked(run: Run, *tables: str) -> list[Row]:
    return [row for row in run.rows if row["table"] in tables]


def _columns(run: Run) -> tuple[Column[Row], ...]:
    return (
        Column("question", "instance"),
        Column("devices", "devices", ",d"),
        Column("Helix's MILP", partial(_theirs, "value"), ",.1f"),
        Column("its bound", partial(_theirs, "bound"), ",.0f"),
        Column("s", partial(_theirs, "seconds"), ",.0f"),
        Column("best known", partial(_best, run), ",.1f"),
        Column("ours", lambda row: row.get("rate") or f"none: {row['note']}", _number),
        Column("proved bound", lambda row: None if _gap(row) is None else row["rate_bound"], ",.1f"),
        Column("gap", _gap, ".2%"),
        *fields("s=seconds:.1f | in a row=depth"),
    )


def _number(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:,.1f}"


def _depths(run: Run) -> Iterator[str]:
    points = [
        f"{row['most_depth']}: {row['rate']:,.0f} ({row['rate_bound']:,.0f})" for row in kept(_asked(run, "depth"))
    ]
    if points:
        yield f"single24 by the most devices in a row, rate (bound): {', '.join(points)}."


def _verdict(run: Run) -> Iterator[str]:
    rows = kept(run.rows)
    if not rows:
        return
    close, checked = sum(_is_close(row) for row in rows), sum(row["checked"] for row in rows)
    found = [(row["rate"] / value, row["instance"]) for row in rows if (value := _theirs("value", row))]
    against = f" Against Helix's {len(found)} values: " if found else ""
    against += ", ".join(f"{name} {round(factor - 1, 4) + 0.0:+.1%}" for factor, name in found) + "." * bool(found)
    yield (
        f"The proved gap is at most 1 % on **{close} of {len(rows)}** questions; the checker accepted {checked} of "
        f"{len(rows)} files.{against}"
    )


def _is_close(row: Row) -> bool:
    gap = _gap(row)
    return gap is not None and gap <= CLOSE_SHARE


def _losses(run: Run) -> Iterator[str]:
    rows = kept(run.rows)
    wide = [f"{row['instance']} {row['gap']:.1%}" for row in rows if not _is_close(row)]
    yield from verdict("More than 1 % from a proved bound", wide)
    behind = [
        f"{row['instance']} {row['rate'] / best - 1:.2%}"
        for row in rows
        if (best := _best(run, row)) and row["rate"] < best * (1 - BEHIND_SHARE)
    ]
    yield from verdict("Behind the best known rate", behind)
    yield from verdict(
        "More than 2 s over the limit", [f"{r['instance']} ({r['seconds']:.1f} s)" for r in rows if is_late(r)]
    )
    yield from verdict("Left out", sorted({row["note"] for row in run.rows if row["value_ns"] is None}))
    yield from verdict("Refused by the checker", [f"{r['instance']}: {r['note']}" for r in rows if not r["checked"]])


def _main_lines(run: Run) -> list[Row]:
    """What the screen shows: clusters of ten nodes and more."""
    return [row for row in _asked(run, "file", "all links", "many") if (row["devices"] or LEAST_SHOWN) >= LEAST_SHOWN]


SECTION = Section(
    name="layers",
    title="The rate of a whole cluster",
    chapter="throughput",
    asked="Serve Llama on Helix's clusters (ASPLOS 2025): which layers on which node, and which ways of requests, for "
    "the most tokens per second by their tables; at most {time_limit:g} s, {many_limit:g} s for {many} times the "
    "devices. Helix's MILP was solved by Gurobi.",
    sizes=SIZES,
    measure=measure,
    screen=(
        Table(_columns, _main_lines),
        lambda run: [" ".join([*_depths(run), *_verdict(run), *busy_words(run)])],
    ),
    losses=_losses,
    blocks=(
        busy_words,
        _verdict,
        "Rates are tokens per second, prompts and answers together. *best known*: ours, that of a prototype of this "
        "planner with its own linear and integer programs, or Helix's. *in a row*: devices on the longest way. All "
        "bounds are checked again from their witnesses.",
        Table(
            _columns,
            lambda run: _asked(run, "file"),
            "The clusters and tables of Helix's files, and what its own program found.",
            "Helix's files",
        ),
        Table(
            _columns,
            lambda run: _asked(run, "all links"),
            "The files above hold the links that Helix kept. Here every absent link is added, with the median rate of "
            "those between the same two regions: in het42 all are equal, so that it is Helix's complete cluster; of "
            "geo24 the true ones are not in the file, so that Helix's figures for its own complete cluster (952.1, "
            "bound 69,612, 2,901 s) answer a slightly different question and are not in the table.",
            "All links",
        ),
        Table(
            _columns,
            lambda run: _asked(run, "depth"),
            "single24 with `--max-depth`, each asked alone: fewer devices in a row mean less waiting for each token.",
            "Depth",
        ),
        Table(
            _columns,
            lambda run: _asked(run, "many"),
            "The seven kinds of het42 with {many} times as many devices and no limits of links.",
            "Many devices",
        ),
    ),
    limits=("time_limit", "many_limit"),
    long=False,
    unused=("baselines", "lanes", "bound_by"),
)
