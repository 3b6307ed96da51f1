"""Tests of compute buffers: MiB that llama-fit-params (build 11669) printed for header-only models of 8 layers."""

from __future__ import annotations

import msgspec
import pytest
from tests.cost.llm.models import LLAMA_8B, llama

from weftline.cost.llm import LlmEngine, LlmSettings, Position, buffers_are_exact, compute_buffer, host_buffer
from weftline.importers.llm import AttentionKind, LanguageModel

ONE_MIB = 1 << 20
AT_32K = LlmSettings(context=32768)
QWEN2_7B = llama("qwen2.5-7b", 8, 3584, 28, 4, 18944, 152064)
MOE_30B = llama("qwen3-30b-a3b", 8, 2048, 32, 4, 768, 151936, experts=128, used=8)


def gemma2() -> LanguageModel:
    """Gemma 2 27B, every other layer with a window of 4096."""
    plain = llama("gemma-2-27b", 8, 4608, 32, 16, 36864, 256000)
    sliding = [
        msgspec.structs.replace(layer, attention=AttentionKind.SLIDING, window=4096, key_length=128, value_length=128)
        for layer in plain.layers
    ]
    both = [sliding[at] if at % 2 == 0 else layer for at, layer in enumerate(plain.layers)]
    return msgspec.structs.replace(plain, layers=tuple(both))


FIRST, MIDDLE, LAST = Position.FIRST, Position.MIDDLE, Position.LAST


@pytest.mark.parametrize(
    ("model", "overlapped", "behind_host", "host", "host_layers"),
    [
        (LLAMA_8B, (340, 300, 450), (132, 258), 208, 156),
        (QWEN2_7B, (351, 316, 488), (157, 304), 198, 178),
        (MOE_30B, (264, 244, 460), (112, 300), 168, 120),
        (gemma2(), (505, 460, 727), (270, 509), 236, 297),
    ],
    ids=lambda value: value.name if isinstance(value, LanguageModel) else None,
)
def test_several_devices(
    model: LanguageModel,
    overlapped: tuple[int, int, int],
    behind_host: tuple[int, int],
    host: int,
    host_layers: int,
) -> None:
    """Tests three devices with all layers, two behind layers on the host, and the host itself, at 32k."""
    found = [compute_buffer(model, AT_32K, place) / ONE_MIB for place in (FIRST, MIDDLE, LAST)]
    assert found == pytest.approx(overlapped, abs=2)
    found = [compute_buffer(model, AT_32K, place, host_layers=True) / ONE_MIB for place in (FIRST, LAST)]
    assert found == pytest.approx(behind_host, abs=5)
    assert host_buffer(model, AT_32K, 3) / ONE_MIB == pytest.approx(host, abs=2)
    assert host_buffer(model, AT_32K, 1, host_layers=True) / ONE_MIB == pytest.approx(host_layers, abs=2)


def test_weights_elsewhere_stop_the_overlap_of_devices() -> None:
    """Tests -ot: 8B on three devices needs 148, 132 and 258 MiB then, and the host 76."""
    found = [compute_buffer(LLAMA_8B, AT_32K, place, pipelined=False) / ONE_MIB for place in (FIRST, MIDDLE, LAST)]
    assert found == pytest.approx([148, 132, 258], abs=1)
    assert host_buffer(LLAMA_8B, AT_32K, 3, moved=True) / ONE_MIB == pytest.approx(76, abs=1)


def test_masks_are_of_the_layers_that_a_device_holds() -> None:
    """Tests a device with sliding layers alone: 4 copies of a mask over 4608 cells, not over 32,768 as well."""
    model = gemma2()
    both = compute_buffer(model, AT_32K, FIRST, layers=[0, 1])
    sliding = compute_buffer(model, AT_32K, FIRST, layers=[0, 2])
    assert both - sliding == 512 * 4 * 2 * 32768


def test_requests_share_the_mask_of_one_stream() -> None:
    """Tests four slots of 8192: 290 MiB, as with one slot of that size."""
    four = LlmSettings(context=8192, concurrency=4)
    assert compute_buffer(LLAMA_8B, four) / ONE_MIB == pytest.approx(290, abs=1)
    assert compute_buffer(LLAMA_8B, four) == compute_buffer(LLAMA_8B, LlmSettings(context=8192))


def test_short_contexts_need_no_whole_micro_batch() -> None:
    """Tests a context of 256: no more tokens than cells are computed at once."""
    small, usual = LlmSettings(context=256), LlmSettings(context=512)
    assert compute_buffer(LLAMA_8B, small) * 2 < compute_buffer(LLAMA_8B, usual)


def test_more_context_never_needs_less() -> None:
    """Tests that every buffer grows with the context, for every position and engine."""
    for engine in LlmEngine:
        for place in Position:
            sizes = [
                compute_buffer(LLAMA_8B, LlmSettings(context=context, engine=engine, flash_attention=flash), place)
                for flash in (True, False)
                for context in (1, 255, 257, 4096, 131072)
            ]
            assert sizes[:5] == sorted(sizes[:5])
            assert sizes[5:] == sorted(sizes[5:])


def test_what_is_an_estimate_is_said() -> None:
    """Tests which models the closed forms were met for within 1 MiB."""
    assert buffers_are_exact(LLAMA_8B, AT_32K)
    assert not buffers_are_exact(MOE_30B, AT_32K)
    assert not buffers_are_exact(gemma2(), AT_32K)
    assert not buffers_are_exact(LLAMA_8B, LlmSettings(engine=LlmEngine.VLLM))
    assert not buffers_are_exact(LLAMA_8B, LlmSettings(flash_attention=False))
