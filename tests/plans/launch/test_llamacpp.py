"""Tests that the words for llama.cpp mean the layers and tensors that were planned, by llama.cpp's own rules."""

from __future__ import annotations

import random
import re
import shlex

import numpy as np
import pytest

from weftline.errors import InputError, UsageError
from weftline.plans.launch import (
    LlamaCppLaunch,
    assigned_layers,
    llamacpp_line,
    offload_words,
    overridden_tensors,
    override_words,
)

KINDS = ("attn_q", "attn_output", "ffn_gate_inp", "ffn_gate_exps", "ffn_up_exps", "ffn_down_exps", "attn_norm")


def float32_rule(words: list[str], blocks: int) -> list[str]:
    """`load_tensors` of llama.cpp, read from its words: float shares, cumulated and divided, then upper_bound."""
    given = dict(zip(words[::2], words[1::2], strict=True))
    offloaded, devices = int(given["-ngl"]), given["--device"].split(",")
    splits = np.array([float(word) for word in given.get("-ts", "1").split(",")], np.float32)
    total = np.float32(0)
    for i, share in enumerate(splits):
        total += share
        splits[i] = total
    splits /= total
    start, active = max(blocks + 1 - offloaded, 0), min(offloaded, blocks + 1)
    found = ["CPU"] * start
    for layer in range(start, blocks + 1):
        place = np.float32(layer - start) / np.float32(active)
        found.append(devices[int(np.searchsorted(splits, place, side="right"))])
    return found


@pytest.mark.parametrize("seed", range(4))
def test_layer_counts_are_read_back(seed: int) -> None:
    """Tests that whole layers of random plans, some first ones on the CPU, are those that float32 shares give."""
    chance = random.Random(seed)
    for _ in range(500):
        blocks, count = chance.randint(1, 199), chance.randint(1, 8)
        left, layers = blocks + 1 - chance.choice([0, 0, chance.randint(0, blocks)]), []
        for n in range(count):
            layers.append(left if n == count - 1 else chance.randint(0, left))
            left -= layers[-1]
        devices = [f"CUDA{n}" for n in range(count)]
        planned = [name for name, held in zip(devices, layers, strict=True) for _ in range(held)]
        planned = ["CPU"] * (blocks + 1 - len(planned)) + planned
        words = offload_words(blocks, devices, layers)
        if len(set(planned) - {"CPU"}):
            assert float32_rule(words, blocks) == planned


def test_percent_would_be_wrong() -> None:
    """Tests that the rule sees what rounded shares break: the check is not one that passes whatever is written."""
    counts, wrong = 0, 0
    for first in range(1, 80):
        counts += 1
        percent = round(100 * first / 81)
        found = assigned_layers(80, 81, ["a", "b"], [percent, 100 - percent])
        wrong += found.count("a") != first
    assert wrong > counts // 4


def test_offload() -> None:
    """Tests the words for one card, several, none, and a card without layers."""
    assert offload_words(32, ["CUDA0"], [33]) == ["-ngl", "33", "--device", "CUDA0"]
    split = offload_words(32, ["CUDA1", "CUDA0"], [20, 13])
    assert split == ["-ngl", "33", "--device", "CUDA1,CUDA0", "-sm", "layer", "-ts", "20,13"]
    assert offload_words(32, ["CUDA0", "CUDA1"], [0, 10]) == ["-ngl", "10", "--device", "CUDA1"]
    assert offload_words(32, [], []) == ["-ngl", "0", "--device", "none"]
    with pytest.raises(UsageError, match="are not parts of 32 layers"):
        offload_words(32, ["CUDA0"], [34])


def names(blocks: int) -> list[str]:
    return ["token_embd.weight", *(f"blk.{n}.{kind}.weight" for n in range(blocks) for kind in KINDS), "output.weight"]


def experts(blocks: range) -> list[str]:
    return [f"blk.{n}.{kind}.weight" for n in blocks for kind in KINDS if "exps" in kind]


def test_experts_of_the_first_blocks_have_their_own_option() -> None:
    """Tests --n-cpu-moe, where that is exactly what moves; else patterns."""
    assert override_words([(name, "CPU") for name in experts(range(5))], names(12)) == ["--n-cpu-moe", "5"]
    later = override_words([(name, "CPU") for name in experts(range(1, 5))], names(12))
    assert later == ["-ot", r"^blk\.(1|2|3|4)\.(ffn_gate_exps\.weight|ffn_up_exps\.weight|ffn_down_exps\.weight)$=CPU"]
    partly = override_words([(name, "CPU") for name in experts(range(5))[1:]], names(12))
    assert partly[0] == "-ot"
    elsewhere = override_words([(name, "CUDA1") for name in experts(range(5))], names(12))
    assert elsewhere[0] == "-ot"


def test_patterns_move_what_was_planned() -> None:
    """Tests random sets of tensors: read as llama.cpp reads -ot, cut at commas, they are moved and nothing else is."""
    chance, tensors = random.Random(1), names(24)
    for _ in range(60):
        moved = [(name, chance.choice(["CPU", "CUDA1", "RPC0[h:50152]"])) for name in chance.sample(tensors, 30)]
        words = override_words(moved, tensors)
        rules = []
        for part in words[1].split(","):
            pattern, _, device = part.partition("=")
            rules.append((pattern, device))
        found = {name: next((d for p, d in rules if re.search(p, name)), None) for name in tensors}
        assert {name: device for name, device in found.items() if device} == dict(moved)
        assert overridden_tensors(rules, tensors) == dict(moved)


def test_no_pattern_for_what_cannot_be_named() -> None:
    """Tests that tensors which are not there, commas and odd buffers are refused."""
    with pytest.raises(InputError, match="no tensor"):
        override_words([("blk.99.attn_q.weight", "CPU")], names(12))
    with pytest.raises(InputError, match="cannot be named"):
        override_words([("a,b=CPU", "CPU")], ["a,b=CPU"])
    with pytest.raises(UsageError, match="no buffer type"):
        override_words([("output.weight", "CPU,x=y")], names(12))


def test_whole_line() -> None:
    """Tests all that a server is told, and that slots multiply the context."""
    line = llamacpp_line(
        LlamaCppLaunch(
            "my model's.gguf",
            32,
            ("CUDA0", "RPC0"),
            (20, 13),
            context=16000,
            slots=4,
            kv_type_k="q8_0",
            kv_type_v="q8_0",
            servers=("10.0.0.2:50052",),
            environment=(("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),),
        )
    )
    assert line.shell() == (
        "CUDA_DEVICE_ORDER=PCI_BUS_ID llama-server -m 'my model'\"'\"'s.gguf' --rpc 10.0.0.2:50052 -ngl 33 "
        "--device CUDA0,RPC0 -sm layer -ts 20,13 -c 64512 -np 4 -ctk q8_0 -ctv q8_0 -fa on --port 8080"
    )
    assert shlex.split(line.shell())[1:] == list(line.program)
    with pytest.raises(UsageError, match="flash attention"):
        llamacpp_line(LlamaCppLaunch("m.gguf", 32, kv_type_v="q4_0", flash_attention=False))
