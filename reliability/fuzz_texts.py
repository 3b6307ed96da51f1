"""Seeds that are written by hand: an IR, cluster and sweep files, problem files, a profile, a manifest, rows."""

from __future__ import annotations

import json
from typing import Any

__all__ = [
    "AFFINITY",
    "CLUSTER",
    "FIDDLE",
    "IR",
    "IR_BODIES",
    "LANGUAGE_CONFIGS",
    "MANIFEST",
    "MOIRAI",
    "PROFILE",
    "ROWS",
    "SWEEPS",
]


def _port(number: int, dims: str, precision: str = "FP32") -> str:
    inner = "".join(f"<dim>{dim}</dim>" for dim in dims.split(",") if dim)
    return f'<port id="{number}" precision="{precision}">{inner}</port>'


def _layer(number: int, kind: str, into: list[str], out: list[str], data: str = "", more: str = "") -> str:
    count = len(into)
    inputs = f"<input>{''.join(_port(i, dims) for i, dims in enumerate(into))}</input>" if into else ""
    outputs = f"<output>{''.join(_port(count + i, dims) for i, dims in enumerate(out))}</output>" if out else ""
    head = f'<layer id="{number}" name="n{number}" type="{kind}" version="opset1">'
    return f"{head}{f'<data {data}/>' if data else ''}{inputs}{outputs}{more}</layer>"


def _net(layers: list[str], edges: list[tuple[int, int, int, int]]) -> str:
    rows = "".join(f'<edge from-layer="{a}" from-port="{p}" to-layer="{b}" to-port="{q}"/>' for a, p, b, q in edges)
    return (
        f'<?xml version="1.0"?><net name="m" version="11"><layers>{"".join(layers)}</layers><edges>{rows}</edges>'
        '<rt_info><info name="x" value="y"/></rt_info></net>'
    )


IR = _net(
    [
        _layer(0, "Parameter", [], ["1,3,8,8"], 'shape="1,3,8,8" element_type="f32"'),
        _layer(1, "Const", [], ["4,3,3,3"], 'element_type="f32" shape="4,3,3,3" offset="0" size="432"'),
        _layer(
            2,
            "Convolution",
            ["1,3,8,8", "4,3,3,3"],
            ["1,4,8,8"],
            'strides="1,1" dilations="1,1" pads_begin="1,1" pads_end="1,1" auto_pad="explicit"',
        ),
        _layer(3, "ReLU", ["1,4,8,8"], ["1,4,8,8"]),
        _layer(4, "Const", [], ["2"], 'element_type="i64" shape="2" offset="432" size="16"'),
        _layer(5, "Reshape", ["1,4,8,8", "2"], ["4,64"], 'special_zero="true"'),
        _layer(6, "MatMul", ["4,64", "4,64"], ["4,4"], 'transpose_a="false" transpose_b="true"'),
        _layer(7, "Result", ["4,4"], []),
    ],
    [(0, 0, 2, 0), (1, 0, 2, 1), (2, 2, 3, 0), (3, 1, 5, 0), (4, 0, 5, 1), (5, 2, 6, 0), (5, 2, 6, 1), (6, 2, 7, 0)],
)

_ENTRY = _layer(0, "Parameter", [], ["1,8"], 'shape="1,8" element_type="f32"')
_BODY = (
    f"<layers>{_ENTRY}{_layer(1, 'ReLU', ['1,8'], ['1,8'])}{_layer(2, 'Result', ['1,8'], [])}</layers>"
    '<edges><edge from-layer="0" from-port="0" to-layer="1" to-port="0"/>'
    '<edge from-layer="1" from-port="1" to-layer="2" to-port="0"/></edges>'
)
_LOOP = (
    '<port_map><input axis="0" external_port_id="0" internal_layer_id="0" start="0" end="-1" stride="1" part_size="1"/>'
    '<output axis="0" external_port_id="1" internal_layer_id="2" start="0" end="-1" stride="1" part_size="1"/>'
    f"</port_map><back_edges/><body>{_BODY}</body>"
)
IR_BODIES = _net(
    [
        _layer(0, "Parameter", [], ["5,8"], 'shape="5,8" element_type="f32"'),
        _layer(1, "TensorIterator", ["5,8"], ["5,8"], more=_LOOP),
        _layer(2, "Result", ["5,8"], []),
    ],
    [(0, 0, 1, 0), (1, 1, 2, 0)],
)

CLUSTER = (
    """version = 1
name = "two"
[[device]]
id = "gpu0"
kind = "gpu"
memory = "24 GiB"
reserve = "1 GiB"
rate = { fp32 = "35 TFLOP/s", fp16 = "71 TFLOP/s", bandwidth = "936 GB/s", launch = "5 us", source = "datasheet" }
runtime = "ort:CUDAExecutionProvider:0"
[[device]]
id = "cpu0"
kind = "cpu"
host = true
memory = "64 GiB"
rate = { fp32 = "1 TFLOP/s", bandwidth = "80 GB/s", launch = "1 us", source = "guess" }
[[link]]
between = ["gpu0", "cpu0"]
bandwidth = "12.3 GB/s"
latency = "9 us"
shared = "pcie0"
source = "measured"
[limits]
pin = [{ op = "op0", device = "gpu0" }]
together = [["op1", "op2"]]
forbid = [{ op = "*3*", device = "cpu0" }]
""",
    """version = 1
[[device]]
id = "a"
kind = "npu"
rate = { int8 = "4 TOP/s", fp32 = "1 TFLOP/s", bandwidth = "10 GB/s", launch = "1 us", source = "guess" }
speed = 0.5
[[device]]
id = "b"
kind = "npu"
rate = { fp32 = "1 TFLOP/s", bandwidth = "10 GB/s", launch = "1 us", source = "guess" }
[[link]]
from = "a"
to = "b"
bandwidth = "1 GB/s"
latency = "1 ms"
source = "guess"
[[link]]
from = "b"
to = "a"
bandwidth = "2 GB/s"
latency = "0 ns"
source = "guess"
""",
)

SWEEPS = (
    """version = 1
models = ["zoo:bert:small", "model.onnx"]
clusters = ["laptop", "mine.toml"]
objectives = ["latency", "throughput"]
stages = [1, 2, 4]
solvers = ["auto", "heft"]
seeds = [0, 1]
gap = "1%"
time = "60 s"
work = 100
""",
)

_NODE = {"supportedOnFpga": 1, "size": 100.5, "isBackwardNode": False}
FIDDLE: dict[str, Any] = {
    "maxFPGAs": 2,
    "maxCPUs": 1,
    "maxSizePerFPGA": 5000,
    "nodes": [
        {"id": 0, "cpuLatency": 3.5, "fpgaLatency": 1.25, "name": "a", **_NODE},
        {"id": 1, "cpuLatency": 2, "fpgaLatency": 1, "name": "b", "colorClass": 1, **_NODE},
        {"id": 5, "cpuLatency": 2, "fpgaLatency": 1, "colorClass": 1, **_NODE},
        {"id": 9, "cpuLatency": 1, "supportedOnFpga": 0, "size": 1, "isBackwardNode": True},
    ],
    "edges": [
        {"sourceId": 0, "destId": 1, "cost": 0.5},
        {"sourceId": 0, "destId": 5, "cost": 0.5},
        {"sourceId": 1, "destId": 9, "cost": 0.25},
        {"sourceId": 5, "destId": 9, "cost": 0},
    ],
}

_NEAR, _ZERO = [[0.0, 0.25926], [0.28772, 0.0]], [[0.0, 0.0], [0.0, 0.0]]
MOIRAI: dict[str, Any] = {
    "name": "small",
    "num_devices": 2,
    "device_mem": [14000, 16000],
    "ops": [
        {"id": 0, "time": [0.0, 0.0], "mem": 0, "virtual": True},
        {"id": 1, "time": [0.014, 0.044], "mem": 1000, "virtual": False},
        {"id": 4, "time": [8.0, 9.0], "mem": 4000},
        {"id": 9, "time": [1e-05, 2.0], "mem": 9000},
    ],
    "edges": [
        {"src": 0, "dst": 1, "comm_id": None, "comm": _ZERO},
        {"src": 1, "dst": 4, "comm_id": 2, "comm": _NEAR},
        {"src": 4, "dst": 9, "comm_id": 7, "comm": _NEAR},
    ],
}

PROFILE: dict[str, Any] = {
    "format": "weftline-costs",
    "version": 1,
    "model": "generated",
    "model_sha256": "0" * 64,
    "inputs": {},
    "backend": "onnxruntime",
    "backend_version": "1.20",
    "level": "all",
    "machine": "abacus",
    "made": "2026-01-01T00:00:00Z",
    "repeats": 30,
    "devices": [
        {
            "id": device,
            "runtime": "ort:CPUExecutionProvider",
            "speed": 1.0,
            "threads": 1,
            "alone_ns": 60,
            "busy_ns": 90,
            "spread": 0.05,
            "stolen": 0.0,
            "kernels_from": "all",
            "note": "",
            "kernels": [
                {"ops": [f"op{i}" for i in ops], "alone_ns": 10, "busy_ns": 15, "spread": 0.1}
                for ops in ((0,), (1, 2), (3,), (4,), (5,), (6,), (7,))
            ],
            "layouts": [{"tensor": "t1", "leave_ns": 3, "enter_ns": 4}],
        }
        for device in ("gpu0", "cpu0")
    ],
    "links": [{"source": "gpu0", "target": "cpu0", "latency_ns": 900, "bandwidth": 10**9}],
    "note": "",
}

MANIFEST: dict[str, Any] = {
    "format": "weftline-stages",
    "version": 1,
    "model": "m",
    "model_sha256": "0" * 64,
    "inputs": ["x"],
    "outputs": ["y"],
    "segments": [
        {"number": 0, "device": "a", "file": "s0.onnx", "ops": ["p"], "inputs": ["x"], "outputs": ["h"]},
        {"number": 1, "device": "b", "file": "s1.onnx", "ops": ["q"], "inputs": ["h"], "outputs": ["y"]},
    ],
    "tensors": [
        {"name": "x", "dtype": "float32", "shape": [1, 2], "source": -1, "targets": [0], "output": False},
        {"name": "h", "dtype": "float32", "shape": [1, 2], "source": 0, "targets": [1], "output": False},
        {"name": "y", "dtype": "float32", "shape": [1], "source": 1, "targets": [], "output": True},
    ],
}

AFFINITY = {"n2": "CPU", "n3": "GPU.0", "n5": "CPU"}

_ROW: dict[str, Any] = {
    "key": "0" * 16,
    "model": "m.onnx",
    "cluster": None,
    "objective": "latency",
    "stages": None,
    "solver": "auto",
    "seed": 0,
    "gap_limit": None,
    "time_limit": None,
    "work_limit": 10,
    "model_sha256": "",
    "cluster_sha256": "",
}
ROWS = (
    {**_ROW, "value_ns": 5, "bound_ns": 4, "gap": 0.2, "proof": "proved", "plan": "plans/x.json"},
    {**_ROW, "key": "1" * 16, "error": {"kind": "InputError", "text": "no", "exit_code": 3}},
)

_WIDTHS = {"hidden_size": 64, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 300, "head_dim": 32}
_EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
_LATENTS = {"kv_lora_rank": 32, "q_lora_rank": 32, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16}
_DEEPSEEK = {"n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 1, "num_nextn_predict_layers": 1}
_GPT_OSS = {"layer_types": ["full_attention"] * 4, "quantization_config": {"quant_method": "mxfp4"}}
LANGUAGE_CONFIGS = tuple(
    json.dumps({**_WIDTHS, "intermediate_size": 128, "num_hidden_layers": 4, "max_position_embeddings": 4096, **more})
    for more in (
        {"model_type": "llama", "torch_dtype": "bfloat16"},
        {"model_type": "qwen3_moe", **_EXPERTS, "mlp_only_layers": [1]},
        {"model_type": "qwen3_5_moe", **_EXPERTS, "full_attention_interval": 4, "mtp_num_hidden_layers": 1},
        {"model_type": "deepseek_v3", **_LATENTS, **_EXPERTS, **_DEEPSEEK},
        {"model_type": "gemma3", "text_config": {**_WIDTHS, "intermediate_size": 96, "num_hidden_layers": 3}},
        {"model_type": "gpt_oss", **_EXPERTS, **_GPT_OSS},
    )
)
"""Small config.json files."""
