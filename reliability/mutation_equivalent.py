"""Mutants of the sample that survive because nothing that can be observed differs, each with the reason."""

from __future__ import annotations

__all__ = ["EQUIVALENT"]

EQUIVALENT: dict[str, str] = {
    "weftline.bounds.labelling:318 priced_labellings: 4 -> 5": "a share of the time limit",
    "weftline.pipeline.convex.fronts:215 _row: 1 -> 0": "of two buffers one would do: it is written after it was read",
    "weftline.pipeline.convex.convex_set:129 begin: 1 -> 2": "where the search for targets begins, at 1 ns or at 2",
    "weftline.certify.bound_labelling:117 messages_witness: True -> False": "both rows have one number for each device",
    "weftline.simulate.kernels.latency:179 _slot: GtE -> Gt": "op 0 comes first, so it reads no tensor of another op",
    "weftline.latency.blocks.hub_search:280 begin: Lt -> LtE": "where the bound meets the best plan: work alone",
    "weftline.certify.check:132 _check_form: 0 -> -1": "numbers below 0 are refused one call before",
}
"""Beginning of a mutant's name -> why."""
