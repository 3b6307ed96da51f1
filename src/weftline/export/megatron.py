"""megatron: the string for --pipeline-model-parallel-layout of Megatron-LM.

In: a plan that keeps layers whole and in a row. Out: `megatron.args`, quoted as for a shell, and `stages.json`. E
(embedding) and L (output layer and loss) are written where the plan has them, also on a device of their own before the
first or after the last layer. Simplified: one stage for each device (no virtual stages), every layer is a decoder
layer.
"""

from __future__ import annotations

import re
from pathlib import Path

from weftline.errors import InputError
from weftline.export.exporter import ExportOptions, PlanExporter
from weftline.export.layers import Layers, layers_of, run_lengths
from weftline.export.stages_file import write_stages
from weftline.files import write_atomically
from weftline.plans.plan import Plan

__all__ = ["PLAN_EXPORTER", "megatron_layout", "read_layout"]

TARGET = "megatron"
_STAGE = re.compile(r"E?(?:t(?:\*[1-9]\d{0,5})?)?L?")


def megatron_layout(plan: Plan) -> tuple[str, Layers, list[tuple[str, int]]]:
    """The string, the layers, and (device, layers) of each stage."""
    layers = layers_of(plan, TARGET)
    # Embedding and head take part as layers of no length: the order of devices must hold with them.
    order = run_lengths([layers.embedding, *layers.devices, layers.head], TARGET)
    stages = [(device, layers.devices.count(device)) for device, _ in order]
    words = ["" if count == 0 else "t" if count == 1 else f"t*{count}" for _, count in stages]
    words[0] = f"E{words[0]}"
    words[-1] += "L"
    text = "|".join(words)
    if read_layout(text) != [count for _, count in stages]:
        raise InputError(f"the layout {text[:200]!r} does not say what it should")
    return text, layers, stages


def read_layout(text: str) -> list[int]:
    """The layers of each stage; strict: E first, L last, no other signs."""
    stages = text.split("|")
    if not text.startswith("E") or not text.endswith("L") or text.count("E") != 1 or text.count("L") != 1:
        raise InputError(f"a layout begins with E and ends with L, not {text[:80]!r}")
    for stage in stages:
        if not stage or not _STAGE.fullmatch(stage):
            raise InputError(f"{stage[:80]!r} is not a stage of a layout")
    counts = [re.search(r"t(?:\*(\d+))?", stage) for stage in stages]
    return [0 if found is None else int(found[1] or 1) for found in counts]


def _export(plan: Plan, folder: Path, options: ExportOptions) -> list[Path]:
    text, layers, stages = megatron_layout(plan)
    path = folder / "megatron.args"
    words = (
        f"--num-layers {layers.number}",
        f"--pipeline-model-parallel-size {len(stages)}",
        f"--pipeline-model-parallel-layout '{text}'",
    )
    write_atomically(path, ("\n".join(words) + "\n").encode())
    return [path, write_stages(folder / "stages.json", layers, stages)]


PLAN_EXPORTER = PlanExporter(TARGET, "--pipeline-model-parallel-layout, for layers kept whole and in a row", _export)
