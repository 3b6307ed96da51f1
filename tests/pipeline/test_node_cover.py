"""The node-cover bound against enumeration."""

from __future__ import annotations

import numpy as np
from tests.pipeline.test_convex_search import convex_sets, costs, equal_problem
from tests.pipeline.test_convex_set import holds

from weftline.pipeline.bounds import node_cover_bound
from weftline.pipeline.pieces import make_pieces


def test_the_dearest_of_the_cheapest() -> None:
    """Tests that the bound is the largest over pieces of the cheapest convex set with the piece, with a witness."""
    for seed in range(60):
        pieces = make_pieces(equal_problem(seed))
        sets = convex_sets(pieces)
        cost = costs(pieces, sets)
        exact = max(int(cost[sets[:, piece]].min()) for piece in range(len(pieces.time)))
        if not 0 < exact < 2**22:
            continue
        found: list[tuple[int, dict[str, object]]] = []
        met = node_cover_bound(
            pieces,
            3,
            lambda exact=exact: 2 * exact,  # type: ignore[misc]
            stop=np.zeros(1, np.int64),
            on_bound=lambda value, witness, found=found: found.append((value, witness)),  # type: ignore[misc]
        )
        assert found[-1][0] == exact
        assert all(holds(pieces, value, witness) for value, witness in found)
        assert all(members.any() for members in met)
