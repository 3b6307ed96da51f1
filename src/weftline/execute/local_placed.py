"""Does what is about to run stand where the plan says?

In: a plan, its problem, the folder of its segments. Out: what stands elsewhere, in words. The files are read again,
node by node, so a mistake of splitting shows, too. Simplified: constants may stand anywhere, they are no ops of a plan.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from weftline.execute.manifest import Manifest

if TYPE_CHECKING:
    from weftline.plan import Plan
    from weftline.problem import Problem

__all__ = ["misplaced"]


def misplaced(plan: Plan, problem: Problem, manifest: Manifest, folder: Path) -> tuple[str, ...]:
    """Ops that are listed or stored on another device than the plan's, or nowhere."""
    from weftline.importers.onnx_load import load_model

    listed = {op: segment.device for segment in manifest.segments for op in segment.ops}
    wrong = [
        f"op {op[:80]!r} is on {listed.get(op, 'no device')!r}, planned on {device!r}"
        for op, device in plan.placement.items()
        if listed.get(op) != device
    ]
    names = [op.name for op in problem.graph.ops]
    maker = {tensor.name: names[tensor.producer] for tensor in problem.graph.tensors if tensor.producer >= 0}
    for segment in manifest.segments:
        for node in load_model(folder / segment.file).graph.node:
            for op in {maker[name] for name in node.output if name in maker}:
                if plan.placement.get(op) != segment.device:
                    wrong.append(f"op {op[:80]!r} is in the file of {segment.device!r}")
    return tuple(wrong)
