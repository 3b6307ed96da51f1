"""The process in which ONNX Runtime optimises a model: it may crash, hang or eat memory without harm to the caller.

In: the path of a model (weights may be placeholders), where the answer goes, the seconds it may use. Out: a JSON file:
the optimised graph as a list of [kind, names it reads, names it makes]. It is run as a file of its own and imports
nothing of weftline.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

__all__ = ["main", "reads_of"]

MAX_FILE_BYTES = 2**32


def main(model: str, answer: str, seconds: int) -> None:
    """Optimise as far as ORT_ENABLE_EXTENDED and write down what is left."""
    _limit(seconds)
    import onnx
    import onnxruntime

    optimised = Path(answer).with_name("optimised.onnx")
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
    options.optimized_model_filepath = str(optimised)
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 4
    # Nothing is run: without an arena, a plan of memory and packed weights, weights are never touched.
    options.enable_mem_pattern = options.enable_cpu_mem_arena = False
    options.add_session_config_entry("session.disable_prepacking", "1")
    # Two ops that compute the same are made one by it: that is no fusion, and weights may be placeholders here.
    without = ["CommonSubexpressionElimination"]
    onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"], disabled_optimizers=without)
    graph = onnx.load(optimised, load_external_data=False).graph
    rows = [[node.op_type, [*filter(None, reads_of(node))], [*filter(None, node.output)]] for node in graph.node]
    Path(answer).write_text(json.dumps(rows), encoding="utf-8")


def reads_of(node: Any) -> list[str]:
    """What a node reads; what its bodies take from outside counts too."""
    reads: list[str] = [*node.input]
    for attribute in node.attribute:
        for body in [attribute.g, *attribute.graphs]:
            given = {value.name for value in (*body.input, *body.initializer)}
            given.update(name for inner in body.node for name in inner.output)
            wanted = [name for inner in body.node for name in reads_of(inner)] + [value.name for value in body.output]
            reads += (name for name in wanted if name not in given)
    return reads


def _limit(seconds: int) -> None:
    try:
        import resource
    except ImportError:  # not on this system: the caller's own clock remains
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds + 5, seconds + 5))  # only if nobody waits for it any more
    resource.setrlimit(resource.RLIMIT_FSIZE, (MAX_FILE_BYTES, MAX_FILE_BYTES))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
