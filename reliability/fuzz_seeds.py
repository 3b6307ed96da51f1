"""The valid files that mutations begin with: small ones of every format, made by weftline itself or by hand.

In: the name of a format. Out: bytes, always the same. Simplified: files are small, so that many inputs fit in a run;
limits of size have tests of their own.
"""

from __future__ import annotations

import io
import json
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from reliability.fuzz_fleets import FLEET_SEEDS
from reliability.fuzz_texts import (
    AFFINITY,
    CLUSTER,
    FIDDLE,
    IR,
    IR_BODIES,
    LANGUAGE_CONFIGS,
    MANIFEST,
    MOIRAI,
    PROFILE,
    ROWS,
    SWEEPS,
)
from reliability.fuzz_xls import small_sheet

__all__ = ["SHAPES", "seeds"]

SHAPES = {"a": (2, 3), "b": (4,)}
"""Of the arrays in the seeds of safetensors files."""


@cache
def seeds(name: str) -> tuple[bytes, ...]:
    """Valid files of a format."""
    return tuple(_SEEDS[name]())


def _onnx() -> list[bytes]:
    from onnx import TensorProto, helper, numpy_helper

    from weftline.zoo import build

    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Add", ["state", "h"], ["next"]), helper.make_node("Identity", ["going"], ["go"])],
        "body",
        [value("i", TensorProto.INT64, []), value("going", TensorProto.BOOL, []), value("state", 1, None)],
        [value("go", TensorProto.BOOL, []), value("next", 1, None)],
    )
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["h0"], name="/layer.0/Conv", pads=[1, 1, 1, 1]),
        helper.make_node("Clip", ["h0", "", "high"], ["h1"]),
        helper.make_node("Shape", ["h1"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"], axis=0),
        helper.make_node("Concat", ["n", "minus"], ["target"], axis=0),
        helper.make_node("Reshape", ["h1", "target"], ["h"]),
        helper.make_node("Loop", ["trips", "", "h"], ["looped"], body=body),
        helper.make_node("Custom", ["looped"], ["c"], domain="foreign", level=3),
        helper.make_node("Einsum", ["c", "c"], ["y"], equation="ij,kj->ik"),
    ]
    weights = {
        "w": np.ones((4, 3, 3, 3), np.float32),
        "b": np.ones(4, np.float32),
        "high": np.float32(6),
        "zero": np.array([0]),
        "minus": np.array([-1]),
        "trips": np.array(3),
    }
    stored = [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", [value("x", 1, [2, 3, 8, 8])], [value("y", 1, None)], stored)
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("foreign", 1)]
    by_hand = helper.make_model(graph, producer_name="weftline", opset_imports=opset, ir_version=8)
    small = build("bert", size="small", weights=False, layers=1)
    return [by_hand.SerializeToString(deterministic=True), small.SerializeToString(deterministic=True)]


def _graphs() -> list[bytes]:
    from weftline.graph.build import graph_to_json
    from weftline.testing import SeededChooser, make_graph

    return [graph_to_json(make_graph(SeededChooser(seed), 8, training=seed == 2)) for seed in range(3)]


def _problems() -> list[bytes]:
    from weftline.problem.model import problem_to_json
    from weftline.testing import random_problem

    found = [random_problem(seed, objective, max_ops=7) for objective in ("latency", "throughput") for seed in (3, 5)]
    return [problem_to_json(problem) for problem in found]


def _regal() -> list[bytes]:
    from weftline.zoo.synthetic import synthetic, to_cost_graph_text

    return [to_cost_graph_text(synthetic(name, ops=6)).encode() for name in ("erdos_renyi", "block_model")]


def _plans() -> list[bytes]:
    from weftline.ask import make_plan
    from weftline.errors import InfeasibleError
    from weftline.plans.plan import plan_to_json
    from weftline.testing import random_problem

    kinds: list[tuple[Literal["latency", "throughput"], str]] = [
        ("latency", "parallel"),
        ("latency", "sequential"),
        ("throughput", "parallel"),
    ]
    made = []
    for objective, runtime in kinds:
        for seed in range(20):
            problem = random_problem(seed, objective, max_ops=7, runtime=runtime)
            try:
                found = make_plan(problem, solver="greedy", work_limit=20)
            except InfeasibleError:
                continue
            if len(problem.graph.ops) > 3 and len(set(found.placement.values())) > 1:
                made.append(plan_to_json(found))
                break
    return made


def _schedules() -> list[bytes]:
    from weftline.ask.scheduling import make_schedule
    from weftline.plans.schedule import schedule_to_json
    from weftline.schedule.make_blocks import make_shape

    cases = [("vshape", True, "1f1b"), ("xshape", False, "auto")]
    made = [make_schedule(make_shape(s, 2, train=t), 3, solver=by, work_limit=30) for s, t, by in cases]
    return [schedule_to_json(schedule) for schedule in made]


def _blocks() -> list[bytes]:
    from weftline.problem.blocks import blocks_to_file
    from weftline.schedule.make_blocks import make_shape

    return [json.dumps(blocks_to_file(make_shape(name, 2))).encode() for name in ("vshape", "nnshape", "xshape")]


def _npz() -> list[bytes]:
    out = io.BytesIO()
    np.savez(out, x=np.zeros((2, 3), np.float32), y=np.arange(4), z=np.array(True))
    small = io.BytesIO()
    np.savez_compressed(small, names=np.array(["a", "bc"]), x=np.ones((1, 1, 2), np.float16))
    return [out.getvalue(), small.getvalue()]


def _policy() -> list[bytes]:
    from weftline.latency.policy.network import write_arrays

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "p.safetensors"
        write_arrays(path, {name: np.ones(shape, np.float32) for name, shape in SHAPES.items()}, {"seed": "1"})
        return [path.read_bytes()]


def _checkpoint() -> list[bytes]:
    from weftline.papers.training import Checkpoint, Owner, write_checkpoint

    arrays: dict[str, np.ndarray[Any, Any]] = {"a": np.ones((2, 3), np.float32), "b": np.arange(4)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c.safetensors"
        write_checkpoint(path, Owner("s", "p", {"x": "1"}), Checkpoint(3, 40, arrays))
        return [path.read_bytes()]


def _sweep_json() -> list[bytes]:
    return [json.dumps({"version": 1, "models": ["zoo:bert:small", "m.onnx"], "seeds": [0, 1], "gap": "1%"}).encode()]


def _language(number: int) -> Any:
    """A small language model by one of the configurations."""
    from weftline.importers.llm.build import build_model
    from weftline.importers.llm.configuration import stack_from_config

    return build_model(stack_from_config(json.loads(LANGUAGE_CONFIGS[number]), name="m", source="config.json"))


def _gguf() -> list[bytes]:
    from weftline.importers.llm import requantised
    from weftline.testing import gguf_header

    made = [requantised(_language(number), "q8_0") for number in range(len(LANGUAGE_CONFIGS))]
    return [gguf_header(model, words=number == 0)[0] for number, model in enumerate(made)]


def _language_weights() -> list[bytes]:
    """Headers of one file each: a plain checkpoint, and one with the experts of a layer in three tensors."""
    model, found = _language(0), []
    names = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
    names |= {"output.weight": "lm_head.weight"}
    for _ in range(2):
        entries, end = {}, 0
        for tensor in model.tensors:
            begin, end = end, end + tensor.bytes
            plain = tensor.name.replace("blk.", "model.layers.").replace("attn_q.", "self_attn.q_proj.")
            name = names.get(tensor.name, plain)
            entries[name] = {"dtype": "BF16", "shape": tensor.shape[::-1], "data_offsets": [begin, end]}
        text = json.dumps({"__metadata__": {"format": "pt"}, **entries}).encode()
        found.append(len(text).to_bytes(8, "little") + text)
        model = _language(1)
    return found


def _language_index() -> list[bytes]:
    length = int.from_bytes(_language_weights()[0][:8], "little")
    header = json.loads(_language_weights()[0][8 : 8 + length])
    files = {name: "model.safetensors" for name in header if not name.startswith("__")}
    return [json.dumps({"metadata": {"total_size": 1}, "weight_map": files}).encode()]


_SEEDS: dict[str, Callable[[], list[bytes]]] = {
    "onnx": _onnx,
    "openvino": lambda: [IR.encode(), IR_BODIES.encode()],
    "msr-fiddle": lambda: [json.dumps(FIDDLE).encode()],
    **FLEET_SEEDS,
    "moirai": lambda: [json.dumps(MOIRAI).encode()],
    "moirai-xls": lambda: [small_sheet()],
    "regal": _regal,
    "graph": _graphs,
    "problem": _problems,
    "cluster": lambda: [text.encode() for text in CLUSTER],
    "plan": _plans,
    "schedule": _schedules,
    "blocks": _blocks,
    "costs": lambda: [json.dumps(PROFILE).encode()],
    "sweep": lambda: [text.encode() for text in SWEEPS],
    "sweep-json": _sweep_json,
    "rows": lambda: [b"".join(msgspec.json.encode(row) + b"\n" for row in ROWS)],
    "torch-csv": lambda: [b"0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n", b"0F0,0I0,0W0\n1F0,,1I0,1W0\n2F0,2B0\n"],
    "npz": _npz,
    "policy": _policy,
    "checkpoint": _checkpoint,
    "manifest": lambda: [json.dumps(MANIFEST).encode()],
    "affinity": lambda: [json.dumps(AFFINITY).encode()],
    "quantities": lambda: [b"24 GiB", b"9 us", b"12.3 GB/s", b"35 TFLOP/s", b"1.5 %", b"60s", b"0.25"],
    "gguf": _gguf,
    "llm-weights": _language_weights,
    "llm-index": _language_index,
    "llm-config": lambda: [text.encode() for text in LANGUAGE_CONFIGS],
    "external-data": lambda: [b"weights.bin", b"inner/weights.bin", b"../secret", b"/etc/passwd", b"link.bin"],
}
