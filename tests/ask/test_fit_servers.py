"""Tests of several servers beside each other, and of the front over groups in a row."""

from __future__ import annotations

import pytest

import weftline as wl
from weftline.ask.fit_servers import divisions
from weftline.errors import InfeasibleError


def test_divisions_use_no_card_twice() -> None:
    """Tests that all divisions are made of what there is, that none stands twice, and that all cards come first."""
    found = divisions((2, 1), 3)
    assert found[0] in {((2, 0), (0, 1)), ((1, 1), (1, 0))}
    assert ((1, 0), (1, 0), (0, 1)) in found
    assert len(found) == len({tuple(sorted(one)) for one in found})
    for one in found:
        assert 2 <= len(one) <= 3
        assert all(sum(column) <= count for column, count in zip(zip(*one, strict=True), (2, 1), strict=True))
    assert divisions((1,), 4) == []
    assert divisions((12,), 5) == [((6,),) * 2, ((4,),) * 3, ((3,),) * 4]


def test_one_server_for_each_card() -> None:
    """Tests that cards that hold the model alone get servers of their own, each with its requests, card and port."""
    plan = wl.fit("llama-3.1-8b", quantisation="q8_0", gpus=["3x RTX 4090"], context="4k", concurrency=7)
    servers = plan.asked["servers"]
    assert sorted(server["devices"] for server in servers) == [["gpu0"], ["gpu1"], ["gpu2"]]
    assert sorted(server["requests"] for server in servers) == [2, 2, 3]
    assert plan.asked["servers_tokens_per_second"] == pytest.approx(sum(one["tokens_per_second"] for one in servers))
    assert plan.asked["servers_tokens_per_second"] > 1.05 * plan.rate
    for number, server in enumerate(servers):
        (line,) = server["command"]
        assert f"--device CUDA{server['devices'][0][-1]} " in line
        assert f"-np {server['requests']} " in line
        assert line.endswith(f"--port {8080 + number}")


def test_unequal_pairs_become_servers_of_vllm() -> None:
    """Tests that fast and slow cards stand in servers of their own, with fewer requests for the slow ones."""
    cards = ["2x A100 80GB", "2x Tesla V100 SXM2 32GB"]
    plan = wl.fit("llama-3.1-8b", gpus=cards, engine="vllm", concurrency=128, context="2k")
    fast, slow = sorted(plan.asked["servers"], key=lambda server: server["devices"][0])
    assert (fast["devices"], slow["devices"]) == (["gpu0", "gpu1"], ["gpu2", "gpu3"])
    assert fast["requests"] > slow["requests"] > 0
    assert fast["requests"] + slow["requests"] == 128
    assert "CUDA_VISIBLE_DEVICES=2,3" in slow["command"][0]
    assert [point["groups"] for point in plan.asked["depths"]] == [1, 2, 3, 4]
    assert max(point["tokens_per_second"] for point in plan.asked["depths"]) == pytest.approx(plan.rate)


def test_the_first_token_comes_in_time() -> None:
    """Tests that a limit of the first token chooses among numbers of groups, and that one that none keeps says so."""
    asked = {"gpus": ["2x A100 80GB", "2x Tesla V100 SXM2 32GB"], "engine": "vllm", "concurrency": 128, "context": "2k"}
    free = wl.fit("llama-3.1-8b", **asked)  # type: ignore[arg-type]
    quick = min(point["first_token_ns"] for point in free.asked["depths"])
    assert quick < free.first_token_ns
    kept = wl.fit("llama-3.1-8b", first_token=(quick + 1) / 1e9, **asked)  # type: ignore[arg-type]
    assert kept.first_token_ns == pytest.approx(quick, abs=2)
    assert kept.rate < free.rate
    with pytest.raises(InfeasibleError, match="first token in time"):
        wl.fit("llama-3.1-8b", first_token=quick / 2e9, **asked)  # type: ignore[arg-type]
