"""The table of efficiency factors."""

from __future__ import annotations

import pytest

from weftline.cost.analytic import FREE_KINDS, efficiency

KINDS = ("MatMul", "Conv", "LSTM", "Softmax", "Gather", "TopK", "Attention", "NobodyKnows", "")


@pytest.mark.parametrize("kind", KINDS)
def test_factors_are_shares(kind: str) -> None:
    """Tests that every factor lies between 0 and 1, 0 excluded."""
    factors = efficiency(kind)
    assert 0 < factors.compute <= 1
    assert 0 < factors.memory <= 1


def test_order_of_magnitude() -> None:
    """Tests that dense products use a device better than recurrent loops and pointwise ops."""
    assert efficiency("Gemm").compute > efficiency("Add").compute > efficiency("TopK").compute
    assert efficiency("MatMul").compute > efficiency("LSTM").compute


def test_free_kinds_compute_nothing() -> None:
    """Tests that what moves data is not free."""
    assert "Reshape" in FREE_KINDS
    assert not FREE_KINDS & {"Transpose", "Cast", "Add", "MatMul", "Concat"}
