"""Would the costs have chosen the split that was measured to be best? Groups of measured.csv: one machine, several
splits.

In: rows of groups whose machine and splits are stated. Out: `Choice`s: of each split its measured rate and our
estimate. Simplified: where nobody says how full the cache was, it is half full, as `fit` assumes; where a host is not
named, its memory is assumed (`HOSTS`). What the costs know no plan for (`-sm tensor` of llama.cpp) has no estimate, so
it is never chosen.
"""

from __future__ import annotations

import csv
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import msgspec

from benchmarks.llm.rows import data_folder, measured_rows
from weftline.ask.fit_build import FitTask, build_fit_problem
from weftline.ask.fit_devices import FitMachine
from weftline.cluster.catalogue import find_accelerator
from weftline.cost.llm import LlmDevice, LlmEngine, LlmSettings, llm_device
from weftline.fleet.fit import cost_segments, rows_split
from weftline.fleet.fit.baselines import baseline_segments, shares_split
from weftline.importers.llm import LanguageModel, read_language_model
from weftline.problem.fit import FitProblem, FitSegment

__all__ = ["LAYERS_NS", "Choice", "Split", "choices"]

GIB = 1 << 30
HOSTS = {
    "unsloth-98": ("RTX 6000 Ada", "DDR5-4800", 94 * GIB),
    "unsloth-96": ("B200", "DDR5-4800 12 channel", 512 * GIB),
}
"""Groups by the begin of their names: card, memory of the host, how much of it."""
SPILLED_BLOCKS = 38
"""Of Llama 3.3 70B beside 38,016 MiB, by the older of two threads of one author; the newer one does not say."""
RECIPE, HALF = "q4_k_m", 2
UNKNOWN = 10**12
NEAR = 0.95
LAYERS_NS = 1
"""A split by layers where the machine is not known: any number, as it is the only one with an estimate."""
Line = dict[str, str]


@dataclass(frozen=True)
class Split:
    """One configuration of a machine."""

    name: str
    measured: float
    """Tokens per second; requests that come too late, where only latencies are known, as 1 / seconds."""
    estimated_ns: int | None
    """Of a step; None: no plan is like this."""


@dataclass(frozen=True)
class Choice:
    """One machine, model and depth."""

    group: str
    what: str
    splits: tuple[Split, ...]

    @property
    def chosen(self) -> Split:
        """What the costs rank first."""
        return min(self.splits, key=lambda one: UNKNOWN if one.estimated_ns is None else one.estimated_ns)

    @property
    def share(self) -> float:
        """The measured rate of the chosen one, of that of the best."""
        return self.chosen.measured / max(one.measured for one in self.splits)

    @property
    def is_good(self) -> bool:
        """Within 5 % of the best."""
        return self.share >= NEAR


def choices() -> list[Choice]:
    """All that can be compared: other splits of one machine first, then other numbers of equal cards."""
    with (data_folder() / "measured.csv").open(encoding="utf-8") as file:
        lines = list(csv.DictReader(file))
    return [*_spilled(lines), *_resident(lines), *_by_hand(lines), *_counts()]


def _problem(line: Line, card: LlmDevice, memory: LlmDevice, depth: int) -> tuple[LanguageModel, FitProblem]:
    model = read_language_model(line["model"], RECIPE)
    settings = LlmSettings(context=int(line["n_ctx"] or 32768), live=depth)
    return model, build_fit_problem(FitTask(model, FitMachine((card, memory), (), ()), settings))


def _host(group: str, free: int = 0) -> tuple[LlmDevice, LlmDevice]:
    name, memory, size = HOSTS[group[:10]]
    card = find_accelerator(name)
    return llm_device("gpu0", card, free or card.memory_bytes), llm_device("cpu0", find_accelerator(memory), size)


def _spilled(lines: Sequence[Line]) -> Iterator[Choice]:
    """Weights of some blocks in the host's memory and all of the cache on the card (A), or what --fit does (B)."""
    pairs: dict[tuple[str, str], dict[str, Line]] = defaultdict(dict)
    for line in lines:
        if line["group"].startswith("unsloth-98"):
            pairs[line["group"], line["depth"]][line["split_detail"][0]] = line
    for (group, said), arms in pairs.items():
        if len(arms) < HALF:
            continue
        depth = int(said or int(arms["A"]["n_ctx"]) // HALF)
        free = re.search(r"(\d+) MiB free", arms["A"]["split_detail"])
        blocks = re.search(r"-ot (\d+)/", arms["A"]["split_detail"])
        assert free
        model, problem = _problem(arms["A"], *_host(group, int(free[1]) << 20), depth)
        moved = ("experts",) if any(layer.experts for layer in model.layers) else ("attention", "ffn")
        spilled = _with_moved(problem, moved, int(blocks[1]) if blocks else SPILLED_BLOCKS)
        rule = dict(baseline_segments(problem))["llamacpp-fit"]
        times = {
            "A": cost_segments(problem, spilled).value_ns,
            "B": cost_segments(problem, rule).value_ns if rule else None,
        }
        splits = [Split(name, float(line["decode_tps"]), times[name]) for name, line in sorted(arms.items())]
        where = f"{depth} tokens{'' if said else ' assumed'}, {free[1]} MiB free"
        yield Choice(group, f"{arms['A']['model']}, {where}", tuple(splits))


def _with_moved(problem: FitProblem, moved: Sequence[str], blocks: int) -> tuple[FitSegment, ...]:
    """All rows on the card, parts of the first blocks in the host's memory."""
    numbers = [number for number, part in enumerate(problem.parts) if part in moved]
    kinds = problem.units[0].ns
    away = tuple((row, part) for row in range(blocks) for part in numbers if kinds[problem.rows[row]][part])
    return (FitSegment(0, (0,), 0, len(problem.rows), away),)


def _resident(lines: Sequence[Line]) -> Iterator[Choice]:
    """All on the card, or all weights, or all of the cache on the host."""
    found = [line for line in lines if line["group"] == "unsloth-9675"]
    if not found:
        return
    _, problem = _problem(found[0], *_host("unsloth-9675"), int(found[0]["n_ctx"]) // HALF)
    splits = []
    for line in found:
        detail = line["split_detail"]
        moved = ("attention", "ffn") if detail.startswith("weights") else ("kv",) if detail.startswith("KV") else ()
        time = cost_segments(problem, _with_moved(problem, moved, problem.blocks)).value_ns
        splits.append(Split(detail, float(line["decode_tps"]), time))
    yield Choice("unsloth-9675", f"{found[0]['model']}, {int(found[0]['n_ctx']) // HALF} tokens assumed", tuple(splits))


def _by_hand(lines: Sequence[Line]) -> Iterator[Choice]:
    """Few rows, each group of its own kind."""
    groups: dict[str, list[Line]] = defaultdict(list)
    for line in lines:
        groups[line["group"]].append(line)
    for group, estimate in _ESTIMATES.items():
        by_depth: dict[str, list[Line]] = defaultdict(list)
        for line in groups.get(group, []):
            by_depth[line["depth"]].append(line)
        for depth, mine in by_depth.items():
            splits = [Split(f"{x['split']} {x['split_detail']}".strip(), _rate(x), estimate(x)) for x in mine]
            what = f"{mine[0]['model']}{f', {depth} tokens' if int(depth or 0) else ''}"
            yield Choice(group, what, tuple(splits))


def _rate(line: Line) -> float:
    latency = re.search(r"p90 latency ([\d.]+) s", line["note"])
    return float(line["decode_tps"]) if line["decode_tps"] else 1 / float(latency[1]) if latency else 0.0


def _layers_only(line: Line) -> int | None:
    """llama.cpp's tensor mode is not planned."""
    return None if line["split"] == "tensor" else LAYERS_NS


def _over_network(line: Line) -> int:
    """Two equal devices, or one: all layers on the first, or half of them behind a network."""
    name, model = ("DGX Spark GB10", "qwen3.6-27b") if "GB10" in line["devices"] else ("RTX 2060", "tinyllama-1.1b")
    product = find_accelerator(name)
    rate, latency = (2 * 10**9, 50_000) if "GB10" in line["devices"] else (125 * 10**6, 200_000)
    here = llm_device("gpu0", product, product.memory_bytes)
    far = llm_device(
        "gpu1", product, product.memory_bytes, remote=True, network_bandwidth=rate, network_latency_ns=latency
    )
    settings = LlmSettings(context=8192, live=256)
    problem = build_fit_problem(
        FitTask(read_language_model(model, "q4_k_m"), FitMachine((here, far), (), ()), settings)
    )
    rows = len(problem.rows)
    away = 0 if line["split"] == "none" else rows // 2 if "layer" in line["split"] else rows - 1
    far_trip = latency if "another host" in line["split_detail"] else 0
    return cost_segments(problem, rows_split(problem, [rows - away, away])).value_ns + far_trip


def _ranks(line: Line) -> int:
    """Groups of cards that share every matrix: four, or two in a row."""
    product = find_accelerator("A100 SXM4 40GB")
    cards = tuple(llm_device(f"gpu{n}", product, product.memory_bytes, peer_bandwidth=300 * 10**9) for n in range(4))
    settings = LlmSettings(context=2048, live=1024, concurrency=16, engine=LlmEngine.VLLM)
    stages = 2 if line["split"].startswith("PP2") else 1
    task = FitTask(
        read_language_model("llama-2-13b", "f16"),
        FitMachine(cards, (), ()),
        settings,
        4 // stages,
        stages if stages > 1 else 0,
    )
    problem = build_fit_problem(task)
    rows, unit = len(problem.rows), 0
    cuts = [0, rows] if stages == 1 else [0, rows // 2, rows]
    width = 4 // stages
    segments = tuple(
        FitSegment(unit, tuple(range(n * width, (n + 1) * width)), first, last)
        for n, (first, last) in enumerate(pairwise(cuts))
    )
    return cost_segments(problem, segments).value_ns


_ESTIMATES: dict[str, Callable[[Line], int | None]] = {
    "glm45air-rocm": _layers_only,
    "2x9070XT": _layers_only,
    "rpc-first": _over_network,
    "2xGB10-rpc": _over_network,
    "trt-13b": _ranks,
}


def _counts() -> Iterator[Choice]:
    """One request on other numbers of equal cards of a host, layers in equal parts."""
    found: dict[tuple[str, str, str, int], dict[int, Split]] = defaultdict(dict)
    for row in measured_rows():
        if row.grade != "A" or not row.decode_ns or "XiongjieDai" not in row.group:
            continue
        model = read_language_model(row.model, row.quant)
        settings = LlmSettings(context=2 * row.depth or 512, live=row.depth or 1)
        devices = tuple(
            msgspec.structs.replace(row.device, id=f"gpu{n}", memory_bytes=1 << 50) for n in range(row.cards)
        )
        problem = build_fit_problem(FitTask(model, FitMachine(devices, (), ()), settings))
        plan = rows_split(problem, shares_split([1] * row.cards, len(problem.rows)))
        time = cost_segments(problem, plan).value_ns
        key = (row.device.name, row.model, row.quant, row.depth)
        found[key][row.cards] = Split(f"{row.cards} cards", 1e9 / row.decode_ns, time)
    for (device, name, quant, depth), splits in found.items():
        if len(splits) > 1:
            yield Choice(f"cards: {device}", f"{name} {quant}, {depth} tokens", tuple(splits.values()))
