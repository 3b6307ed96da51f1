"""Tests that lines for vLLM and SGLang name the planned layers and GPUs, and that the impossible is refused."""

from __future__ import annotations

import random

import pytest

from weftline.errors import InputError, UsageError
from weftline.plans.launch import RankLaunch, check_partition, sglang_line, vllm_line

PLAN = RankLaunch(
    "org/model", (20, 12), (2, 3, 0, 1), 2, 16384, 8, 0.9, kv_type="fp8", quantisation="awq", offload_gib=4
)


def test_vllm_line() -> None:
    """Tests the whole line."""
    assert vllm_line(PLAN).shell() == (
        "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=2,3,0,1 VLLM_PP_LAYER_PARTITION=20,12 "
        "vllm serve org/model --tensor-parallel-size 2 --pipeline-parallel-size 2 --gpu-memory-utilization 0.9 "
        "--max-model-len 16384 --max-num-seqs 8 --kv-cache-dtype fp8 --quantization awq --cpu-offload-gb 4 --port 8000"
    )


def test_sglang_line() -> None:
    """Tests the whole line, and that one stage has no partition."""
    one = RankLaunch("org/model", (32,), (1,), context=4096, concurrency=2, memory_share=0.8799, port=30000)
    assert sglang_line(one).shell() == (
        "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=1 python -m sglang.launch_server --model-path org/model "
        "--tp-size 1 --pp-size 1 --mem-fraction-static 0.879 --context-length 4096 --max-running-requests 2 "
        "--port 30000"
    )
    two = RankLaunch("m", (20, 12), (0, 1), quantisation="fp8", kv_type="fp8_e5m2", offload_gib=2)
    assert "SGLANG_PP_LAYER_PARTITION=20,12 " in sglang_line(two).shell()
    assert "--kv-cache-dtype fp8_e5m2 --quantization fp8 --cpu-offload-gb 2" in sglang_line(two).shell()


def test_partitions_add_up() -> None:
    """Tests random partitions: as many numbers as stages, their sum the layers; the engines' rule takes them."""
    chance = random.Random(0)
    for _ in range(300):
        counts = tuple(chance.randint(1, 60) for _ in range(chance.randint(2, 8)))
        for line, name in ((vllm_line, "VLLM_PP_LAYER_PARTITION"), (sglang_line, "SGLANG_PP_LAYER_PARTITION")):
            text = dict(line(RankLaunch("m", counts, tuple(range(len(counts))))).environment)[name]
            assert check_partition(text, layers=sum(counts), ranks=len(counts)) == list(counts)


@pytest.mark.parametrize("text", ["", "1", "1,2,3", "2,2", "0,3", "1,-2", "1, 2", "²,1", "1.5,1.5"])
def test_other_partitions_are_refused(text: str) -> None:
    """Tests the engines' own rule."""
    with pytest.raises(InputError, match="is not"):
        check_partition(text, layers=3, ranks=2)


@pytest.mark.parametrize(
    ("launch", "says"),
    [
        (RankLaunch("m", (32, 0), (0, 1)), "no rank without layers"),
        (RankLaunch("m", (16, 16), (0, 1, 2)), "one GPU each"),
        (RankLaunch("m", (16, 16), (1, 1)), "one of them twice"),
        (RankLaunch("m", (32,), (0,), kv_type="q8_0"), "no KV cache of type 'q8_0'"),
        (RankLaunch("m", (32,), (0,), memory_share=1.5), "between 0 and 1"),
    ],
)
def test_what_engines_cannot_run(launch: RankLaunch, says: str) -> None:
    """Tests that no line is made of it."""
    for line in (vllm_line, sglang_line):
        with pytest.raises(UsageError, match=says):
            line(launch)
