"""Splits of language models over two unequal devices, run by llama.cpp itself: ours, --fit's, the even one.

In: models of the catalogue, llama.cpp (WEFTLINE_LLAMACPP). Out: one row for each model: tokens per second of each
split, as medians. Devices are two servers of llama.cpp's RPC on loopback, each with one thread on a core of its own;
beside the second one a process keeps its core busy. The speed of each is measured with the whole model on it, and the
plan is made from these two numbers. Neither may hold more than `share` of the model, or nobody would split it.
Simplified: weights are zeros, which take as long as others; --fit is told nothing of the share, as it counts memory
that is really free.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.measure import say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.stats import geometric_mean
from weftline.ask.fit_build import FitTask, build_fit_problem
from weftline.ask.fit_devices import FitMachine
from weftline.cost.llm import CostClass, LlmDevice, LlmSettings
from weftline.errors import InputError
from weftline.fleet.fit import cost_segments, rows_split, solve_fit
from weftline.importers.llm import LanguageModel, read_language_model
from weftline.plans.launch import LlamaCppLaunch, llamacpp_line
from weftline.problem.fit import FitProblem
from weftline.testing.gguf import write_gguf_header
from weftline.testing.llamacpp import (
    LlamaCppPrograms,
    assigned_devices,
    find_llamacpp,
    free_ports,
    generated,
    rpc_servers,
    started_server,
)

__all__ = ["SECTION"]

CONTEXT_TOKENS = 512
LARGEST_BANDWIDTH = 10**13
ENOUGH_BYTES = 10**13
LOOPBACK_LATENCY_NS, LOOPBACK_BANDWIDTH = 50_000, 2 * 10**9
PLANNED, EVEN, FITTED = "plan", "even split", "--fit"
DEVICE_NAMES = ("RPC0", "RPC1")
MODELS = [["qwen2.5-0.5b", "q8_0"], ["llama-3.2-1b", "q4_0"], ["qwen3-0.6b", "q8_0"]]
SIZES: dict[str, Row] = {
    "tiny": {"models": [["smollm2-135m", "q4_0"]], "tokens": 4, "repeats": 1, "share": 0.7},
    "quick": {"models": MODELS[:1], "tokens": 24, "repeats": 3, "share": 0.7},
    "full": {"models": MODELS, "tokens": 32, "repeats": 5, "share": 0.7},
}


def measure(settings: Row, collect: Collector) -> None:
    """All rows; none where llama.cpp is absent."""
    try:
        programs = find_llamacpp()
    except InputError as error:
        say(f"llamacpp: {error}")
        return
    cores = sorted(os.sched_getaffinity(0))[:2]
    with (
        TemporaryDirectory(prefix="weftline-llamacpp-") as folder,
        rpc_servers(programs, 2, cores=cores) as servers,
        _busy_core(cores[-1]),
    ):
        for name, quantisation in settings["models"]:
            say(f"llamacpp: {name} {quantisation}")
            file = Path(folder) / "model.gguf"
            model = read_language_model(name, quantisation)
            write_gguf_header(file, model)
            row = partial(_row, settings, programs, servers, model, file)
            collect.measure({"model": f"{name} {quantisation}"}, row)


def _spin() -> None:
    while True:
        pass


@contextmanager
def _busy_core(core: int) -> Iterator[None]:
    """Somebody else's work on a core."""
    process = multiprocessing.get_context("fork").Process(target=_spin, daemon=True)
    process.start()
    assert process.pid
    os.sched_setaffinity(process.pid, {core})
    try:
        yield
    finally:
        process.kill()
        process.join()


def _row(settings: Row, programs: LlamaCppPrograms, servers: list[str], model: LanguageModel, file: Path) -> Row:
    rows = len(model.layers) + 1

    def run(counts: Sequence[int] | None) -> tuple[float, list[int]]:
        return _tokens_per_second(programs, servers, file, rows - 1, counts, settings["tokens"])

    alone = [median(run(split)[0] for _ in range(settings["repeats"])) for split in ((rows, 0), (0, rows))]
    problem = _problem(model, alone, settings["share"])
    planned = _counts(problem)
    splits: dict[str, Sequence[int] | None] = {
        PLANNED: planned,
        EVEN: (rows // 2, rows - rows // 2),
        FITTED: None,
    }
    found: dict[str, list[float]] = {name: [] for name in splits}
    layers = {}
    for _ in range(settings["repeats"]):
        for name, split in splits.items():
            rate, layers[name] = run(split)
            found[name].append(rate)
    predicted = 1e9 / cost_segments(problem, rows_split(problem, planned)).value_ns
    return {
        "alone": alone,
        "layers": layers,
        "rates": {name: median(rates) for name, rates in found.items()},
        "all_rates": found,
        "predicted": predicted,
    }


def _tokens_per_second(
    programs: LlamaCppPrograms,
    servers: list[str],
    file: Path,
    blocks: int,
    counts: Sequence[int] | None,
    tokens: int,
) -> tuple[float, list[int]]:
    """What llama-server reaches, and the layers that it says each device got; no split: all is left to --fit."""
    (port,) = free_ports(1)
    layers = tuple(counts) if counts else (blocks + 1, 0)
    plan = LlamaCppLaunch(str(file), blocks, DEVICE_NAMES, layers, CONTEXT_TOKENS, servers=tuple(servers), port=port)
    words = list(llamacpp_line(plan).program[1:])
    del words[words.index("--port") : words.index("--port") + 2]
    if counts is None:
        del words[words.index("-ngl") : words.index("-ngl") + 2]
        del words[words.index("--device") : words.index("--device") + 2]
    with started_server(programs, words, port, fit=counts is None) as log:
        generated(port, 2)
        rate = generated(port, tokens)[1]
        placed = assigned_devices(log)
    return rate, [placed.count(name) for name in DEVICE_NAMES]


def _problem(model: LanguageModel, alone: Sequence[float], share: float) -> FitProblem:
    """Two devices as fast as they were seen with the whole model, neither with room for more than a share of it."""
    settings = LlmSettings(CONTEXT_TOKENS, live=32)

    def problem(bandwidths: Sequence[int], limit: int = ENOUGH_BYTES) -> FitProblem:
        devices = tuple(
            LlmDevice(
                name,
                name,
                CostClass.CPU,
                limit,
                bandwidth,
                remote=True,
                network_bandwidth=LOOPBACK_BANDWIDTH,
                network_latency_ns=LOOPBACK_LATENCY_NS,
            )
            for name, bandwidth in zip(DEVICE_NAMES, bandwidths, strict=True)
        )
        return build_fit_problem(FitTask(model, FitMachine(devices, (), ()), settings))

    def bandwidth(number: int) -> int:
        """Of a device: the least with which it is as fast as it was seen."""
        low, high = 1, LARGEST_BANDWIDTH
        while high - low > low // 10_000:
            middle = (low + high) // 2
            asked = problem((middle, middle + 1))
            counts = [0, 0]
            counts[number] = len(model.layers) + 1
            fast = cost_segments(asked, rows_split(asked, counts)).value_ns * alone[number] <= 1e9
            low, high = (low, middle) if fast else (middle + 1, high)
        return high

    bandwidths = (bandwidth(0), bandwidth(1))
    unit = problem(bandwidths).units[0]
    size = sum(sum(unit.bytes[kind]) for kind in problem(bandwidths).rows)
    return problem(bandwidths, round(share * size) + max(unit.buffers.first, unit.buffers.last))


def _counts(problem: FitProblem) -> tuple[int, ...]:
    """Rows of each device in the best plan, as a split in the order of the devices."""
    held = [0, 0]
    for segment in solve_fit(problem).segments:
        held[segment.devices[0]] = segment.last - segment.first
    return tuple(held)


def _best_other(row: Row) -> float:
    rates: dict[str, float] = row["rates"]
    return max(rate for name, rate in rates.items() if name != PLANNED)


def _gain(run: Run) -> list[str]:
    ratios = [row["rates"][PLANNED] / _best_other(row) for row in run.rows]
    if not ratios:
        return []
    mean = geometric_mean(ratios)
    return [f"The planned split is {mean:.2f} times as fast as the better of both (least {min(ratios):.2f})."]


def _losses(run: Run) -> list[str]:
    slower = [
        f"{row['model']} {row['rates'][PLANNED] / _best_other(row) - 1:+.1%}"
        for row in run.rows
        if row["rates"][PLANNED] < _best_other(row)
    ]
    off = [
        f"{row['model']} {row['predicted'] / row['rates'][PLANNED] - 1:+.0%}"
        for row in run.rows
        if abs(row["predicted"] / row["rates"][PLANNED] - 1) > 0.15
    ]
    return [
        *verdict("Slower than another split", slower),
        *verdict("Predicted more than 15 % off", off),
    ]


def _rate(name: str, row: Row) -> str:
    return f"{row['rates'][name]:.1f} ({', '.join(map(str, row['layers'][name]))})"


COLUMNS: tuple[Column[Row], ...] = (
    *fields("model"),
    Column("alone on each", lambda row: ", ".join(f"{rate:.1f}" for rate in row["alone"])),
    *(Column(name, partial(_rate, name)) for name in (PLANNED, EVEN, FITTED)),
    Column("predicted", "predicted", ".1f"),
)

SECTION = Section(
    name="llamacpp",
    title="Language models on two unequal devices, run by llama.cpp",
    chapter="cards",
    asked="Tokens per second (rows on each device) of a split that was planned from the speed of each device alone, "
    "of the even one, and of what llama.cpp's own --fit does; two processes of one core each, one of which shares it.",
    sizes=SIZES,
    measure=measure,
    screen=(_gain,),
    losses=_losses,
    blocks=(
        Table(COLUMNS),
        "Medians of {repeats} runs of {tokens} tokens; neither device may hold more than {share:.0%} of the model.",
    ),
)
