"""Models that nobody here made, from packages of the Python index: each is imported, counted, planned, run, exported.

In: names of `benchmarks.models.collection`. Out: one row for each model: how far it came, and what went wrong. Every
model has a process of its own with limits of time and memory, so that none ends the section. A model whose packages are
not installed is a row that says so. Simplified: estimated costs, one shape for each model; times are not compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from tempfile import TemporaryFile
from time import perf_counter, sleep
from typing import Any

import psutil

from benchmarks.measure import ROOT, say
from benchmarks.models.collection import SOURCES
from benchmarks.models.source import missing
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from benchmarks.stats import grouped

__all__ = ["SECTION"]

INSTALL = "pip install 'weftline[models]' && pip install --no-deps -r benchmarks/models/packages.txt"
LIMITS: Row = {"limit": 2.0, "seconds": 240, "memory_gib": 8, "jobs": 2}
QUICK = (
    "silero-vad",
    "rapidocr-v4-reader",
    "magika",
    "onnx-shufflenet",
    "vision-faster-rcnn, legacy",
    "llama, open",
    "qwen2, dynamo",
    "vision-resnet18, QDQ",
    "bert, fused",
    "llama, genai int4",
    "timm-vit, IR fp16",
    "gpt2, live",
)
SIZES: dict[str, Row] = {
    "tiny": {"models": ["onnx-shufflenet"], **LIMITS, "limit": 0.5},
    "quick": {"models": list(QUICK), **LIMITS},
    "full": {"models": list(SOURCES), **LIMITS},
}
FAR = 0.12
"""Flops that are further off than this are called a loss."""


def measure(settings: Row, collect: Collector) -> None:
    """All models, some at a time; rows stand in the order of the names."""
    known = {row["model"] for row in collect.rows}
    with ThreadPoolExecutor(settings["jobs"]) as pool:
        found = {name: pool.submit(_row, name, settings) for name in settings["models"] if name not in known}
        for name, row in found.items():
            collect.measure({"model": name, "kind": SOURCES[name].kind}, row.result)


def _row(name: str, settings: Row) -> Row:
    gone = missing(SOURCES[name])
    if gone:
        return {"missing": gone, "failures": {}, "seconds": 0.0}
    say(f"models: {name}")
    begun = perf_counter()
    row = _judged(name, settings)
    row.pop("times", None)
    return {**row, "seconds": round(perf_counter() - begun, 1)}


def _judged(name: str, settings: Row) -> Row:
    """What the process of one model answers; one that takes too much time or memory is ended, with its children."""
    words = [sys.executable, "-m", "benchmarks.models.judge", name, str(settings["limit"])]
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}  # nothing is downloaded
    with TemporaryFile() as answer, TemporaryFile() as noise:
        process = psutil.Popen(words, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=answer, stderr=noise)
        ended = _watch(process, settings)
        answer.seek(0)
        text = answer.read()
        noise.seek(max(0, noise.seek(0, os.SEEK_END) - 400))
        last = noise.read().decode(errors="replace").strip().splitlines()[-1:]
    if ended or process.returncode:
        return {"failures": {"process": ended or f"exit status {process.returncode}: {''.join(last)[:200]}"}}
    row: Row = json.loads(text)
    return row


PATIENCE = 5
"""On a busy machine a model may take so many times its seconds."""


def _watch(process: Any, settings: Row) -> str:
    """Wait for the end -> why it was ended, if it was."""
    last = perf_counter() + PATIENCE * settings["seconds"]
    while process.poll() is None:
        family = _family(process)
        worked = sum(_worked(each) for each in family)
        late = worked > settings["seconds"] or perf_counter() > last
        if late or sum(_resident(each) for each in family) > settings["memory_gib"] * 2**30:
            for each in family:
                if each.is_running():
                    each.kill()
            process.wait()
            return f"ended after {settings['seconds']} s" if late else "ended: too much memory"
        sleep(0.2)
    return ""


def _worked(process: Any) -> float:
    """Seconds of work of a process and of its children that have ended."""
    try:
        return float(sum(process.cpu_times()[:4]))
    except psutil.Error:
        return 0.0


def _family(process: Any) -> list[Any]:
    try:
        return [process, *process.children(recursive=True)]
    except psutil.Error:
        return [process]


def _resident(process: Any) -> int:
    try:
        return int(process.memory_info().rss)
    except psutil.Error:
        return 0


def _came(run: Run, **wanted: object) -> list[Row]:
    """Rows whose packages are installed."""
    return [row for row in run.of(**wanted) if not row.get("missing")]


def _is_unsteady(row: Row) -> bool:
    """It ran, but ONNX Runtime alone is at least half as far from itself once its optimiser is off."""
    own = row.get("own_difference")
    return own is not None and not row.get("run") and bool(own >= row["difference"] / 2)


def _should_run(row: Row) -> bool:
    """ONNX Runtime alone runs it, and agrees with itself; or it is an IR, which OpenVINO runs."""
    if _is_unsteady(row):
        return False
    return bool(row.get("ort")) or (row["kind"] == "OpenVINO IR" and "make" not in row["failures"])


def _ratio(row: Row) -> float | None:
    """Our flops over those that were counted; None where nothing was, or where we say that we guess."""
    return row["flops"] / row["counted"] if row.get("counted") and row.get("flops") is not None else None


def _is_far(row: Row) -> bool:
    ratio = _ratio(row)
    return ratio is not None and abs(ratio - 1) > FAR


def _lines(run: Run) -> list[Row]:
    """One line per kind."""
    found = []
    for kind, rows in grouped(run.rows, "kind").items():
        mine = [row for row in rows if not row.get("missing")]
        should = [row for row in mine if _should_run(row)]
        ratios = [ratio for row in mine if not row.get("guessed") and (ratio := _ratio(row)) is not None]
        found.append(
            {
                "kind": kind,
                "models": len(mine),
                "not installed": len(rows) - len(mine),
                "planned": sum("proof" in row for row in mine),
                "verified": sum(bool(row.get("verify")) for row in mine),
                "ran": f"{sum(bool(row.get('run')) for row in should)} of {len(should)}" if should else None,
                "exported": sum(bool(row.get("export")) for row in mine),
                "flops": f"{min(ratios):.2f} to {max(ratios):.2f}" if ratios else None,
            }
        )
    return found


def _summary(run: Run) -> Iterator[str]:
    """One sentence for the screen."""
    came = _came(run)
    should = [row for row in came if _should_run(row)]
    ran = [row for row in should if row.get("run")]
    worst = max((row["difference"] for row in ran), default=0.0)
    kinds = len({row["kind"] for row in came})
    yield (
        f"{len(came)} models of {kinds} kinds: {sum('ops' in row for row in came)} imported, "
        f"{sum('proof' in row for row in came)} planned, {sum(bool(row.get('verify')) for row in came)} verified, "
        f"{sum(bool(row.get('export')) for row in came)} exported. **{len(ran)} of the {len(should)} that run unsplit "
        f"run on two workers**, with outputs that differ by at most {worst:.1e} (relative)."
    )


def _failures(run: Run) -> list[Row]:
    """One line per step that failed."""
    return [
        {"model": row["model"], "step": step, "why": why}
        for row in _came(run)
        for step, why in row["failures"].items()
        if step != "run" or not _is_unsteady(row)
    ]


def _losses(run: Run) -> Iterator[str]:
    failed = [f"{line['model']} ({line['step']}: {line['why'][:100]})" for line in _failures(run)]
    yield from verdict("Failed", failed, most=3)
    unsteady = [f"{row['model']} ({row['difference']:.0e})" for row in _came(run) if _is_unsteady(row)]
    what = "Ran, but not comparable: ONNX Runtime alone differs as much from itself once its optimiser is off"
    yield from verdict(what, unsteady)
    far = [row for row in _came(run) if _is_far(row)]
    told = [f"{row['model']} {_ratio(row):.2f}" for row in far if not row.get("guessed")]
    yield from verdict(f"Flops are more than {FAR:.0%} off (ours over counted)", told, most=12)
    guessed = [f"{row['model']} {_ratio(row):.2f}" for row in far if row.get("guessed")]
    yield from verdict("As far off, but called a guess by the importer", guessed, most=12)
    gone = sorted({name for row in run.rows for name in row.get("missing", ())})
    if gone:
        count = sum(bool(row.get("missing")) for row in run.rows)
        yield f"**Not installed:** {count} models need {', '.join(gone)}; `{INSTALL}`."


def _status(step: str, row: Row) -> str | None:
    if row.get("missing"):
        return f"not installed: {', '.join(row['missing'])}" if step == "import" else None
    if step in row["failures"]:
        return "**failed**"
    return {"verify": "yes", "run": "yes"}.get(step) if row.get(step) else None


def _imported(row: Row) -> str | None:
    if "ops" not in row:
        return _status("import", row) or "**failed**"
    return f"{row['ops']} ops" + (f", {row['guessed']} guessed" if row["guessed"] else "")


def _planned(row: Row) -> str | None:
    if "proof" not in row:
        return _status("plan", row)
    return f"gap {row['gap']:.1%}, {row['proof']}" + (", one worker" if row["alone"] else "")


def _ran(row: Row) -> str | None:
    if not row.get("run"):
        return _status("run", row)
    return f"{row['difference']:.0e}"


def _unsplit(row: Row) -> str | None:
    if row.get("missing") or "ort" not in row:
        return None
    return "yes" if row["ort"] else "no"


KINDS: Table[Row] = Table(
    fields("kind | models | not installed | planned | verified | ran | exported | flops over counted=flops"), _lines
)
SECTION = Section(
    name="models",
    title="Real models, from packages by name",
    chapter="real",
    asked="Models that nobody here made: does all that runs unsplit also run on two workers, with the same outputs?",
    sizes=SIZES,
    measure=measure,
    screen=(),
    losses=lambda run: (*_summary(run), *_losses(run)),
    blocks=(
        "Files inside packages of the Python index; random weights in architectures of timm, torchvision and "
        "transformers, exported by both exporters of torch, quantised and fused by ONNX Runtime, written by the "
        "builder of onnxruntime-genai, converted to OpenVINO IR, or live. Nothing of them is kept here. To have "
        f"all of them: `{INSTALL}`.",
        "A plan for throughput on two workers of this machine (OpenVINO and its HETERO: for latency), {limit:g} s of "
        "search, estimated costs. Where the best plan uses one worker, an even split is run instead (*one worker*). "
        "Live modules have no file that could run; their plans keep layers whole, and are exported for accelerate.",
        _summary,
        KINDS,
        _losses,
        Table(fields("model | step | why"), _failures, heading="What failed"),
        Table(
            (
                *fields("model | kind"),
                Column("import", _imported),
                Column("flops over counted", _ratio, ".3f"),
                Column("plan", _planned),
                Column("verify", partial(_status, "verify")),
                Column("runs unsplit", _unsplit),
                *fields("segments"),
                Column("run: difference", _ran),
                Column("files exported", "export"),
                Column("s", "seconds", ".0f"),
            ),
            heading="All models",
            text="*counted* is torch's own counter of flops for what is made of a module, and else a count of products "
            "and convolutions (Fourier transforms: n log n) by the shapes of a real run of ONNX Runtime, with the "
            "branches that it takes and the rounds of its loops. Ours has element-wise operations too, and so is some "
            "per cent larger; of a branch that is not known it counts the dearer one. "
            "*segments* are the files that the plan cuts the model into; OpenVINO cuts by itself.",
        ),
    ),
    limits=("limit",),
)
