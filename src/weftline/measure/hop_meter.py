"""What a step from one worker to another costs beside moving bytes: waking up, starting a segment, telling the next.

In: two devices of this machine. Out: ns of one step: a chain of tiny ops goes to and fro between two workers of the
local engine, as segments of a plan do. Simplified: one request at a time; both directions are alike.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median

import numpy as np

from weftline.importers import read_file
from weftline.run.devices import OrtDevice
from weftline.run.local.engine import Engine, Seat
from weftline.run.local.layout import lay_out
from weftline.run.local.start import run_folder
from weftline.run.split.segments import parts_by_level
from weftline.run.split.split import split_model

__all__ = ["measure_hop"]

SEGMENTS, REQUESTS, WARM_UP = 16, 100, 20


def measure_hop(a: OrtDevice, b: OrtDevice) -> int:
    """Ns from the end of a segment on one device to where the next could have ended on the other, had it no work."""
    from onnx import TensorProto, helper

    names = [f"t{number}" for number in range(SEGMENTS + 1)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [16]) for name in (names[0], names[-1])]
    nodes = [helper.make_node("Tanh", [x], [y]) for x, y in pairwise(names)]
    made = helper.make_model(
        helper.make_graph(nodes, "hops", ends[:1], ends[1:]), opset_imports=[helper.make_opsetid("", 17)], ir_version=9
    )
    with run_folder() as folder:
        path = folder / "hops.onnx"
        path.write_bytes(made.SerializeToString())
        graph = read_file(path).graph
        parts = parts_by_level(graph, np.arange(SEGMENTS, dtype=np.int32) % 2)
        manifest = split_model(path, graph, parts, ("a", "b"), folder)
        feeds = [{names[0]: np.ones(16, np.float32)}]
        with Engine([(lay_out(manifest, str(folder), pipelined=False), {"a": Seat(a), "b": Seat(b)})]) as engine:
            engine.run([WARM_UP], feeds)
            found = engine.run([REQUESTS], feeds)[0]
    return round(median(found.latencies) / (SEGMENTS + 1))
