"""vllm: VLLM_PP_LAYER_PARTITION, the number of layers of each pipeline rank.

In: a plan that keeps layers whole and in a row. Out: `vllm.env` (the variable), `vllm.args` (the number of ranks) and
`stages.json`. vLLM runs the embedding on the first rank, final norm and head on the last; other plans are refused.
Simplified: rank r is the r-th device in the order of the layers; which GPU that is, the user says to vLLM.
"""

from __future__ import annotations

from pathlib import Path

from weftline.errors import InputError
from weftline.export.exporter import ExportOptions, PlanExporter
from weftline.export.layers import Layers, check_fits, layers_of, run_lengths
from weftline.export.stages_file import write_stages
from weftline.files import write_atomically
from weftline.plans.plan import Plan

__all__ = ["PLAN_EXPORTER", "check_partition", "vllm_partition"]

TARGET = "vllm"


def vllm_partition(plan: Plan) -> tuple[Layers, list[tuple[str, int]]]:
    """The layers, and (device, how many of them) of each rank."""
    layers = layers_of(plan, TARGET)
    stages = run_lengths(layers.devices, TARGET)
    check_fits(stages[0][0], layers.embedding, "the embedding", TARGET)
    check_fits(stages[-1][0], layers.head, "final norm and head", TARGET)
    return layers, stages


def check_partition(text: str, *, layers: int, ranks: int) -> list[int]:
    """vLLM's own rules: whole numbers, one for each rank, all layers in all."""
    words = text.split(",")
    if not all(word.isascii() and word.isdigit() and int(word) >= 1 for word in words):
        raise InputError(f"{text[:80]!r} is not a list of numbers of layers")
    counts = [int(word) for word in words]
    if len(counts) != ranks or sum(counts) != layers:
        raise InputError(f"{text[:80]!r} is not for {layers} layers on {ranks} ranks")
    return counts


def _export(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    layers, stages = vllm_partition(plan)
    text = ",".join(str(count) for _, count in stages)
    check_partition(text, layers=layers.number, ranks=len(stages))
    files = [folder / "vllm.env", folder / "vllm.args"]
    write_atomically(files[0], f"VLLM_PP_LAYER_PARTITION={text}\n".encode())
    write_atomically(files[1], f"--pipeline-parallel-size {len(stages)}\n".encode())
    return [*files, write_stages(folder / "stages.json", layers, stages)]


PLAN_EXPORTER = PlanExporter(TARGET, "VLLM_PP_LAYER_PARTITION, for layers kept whole and in a row", _export)
