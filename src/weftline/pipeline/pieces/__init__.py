"""The smallest parts that a pipeline can be cut into, and exact reductions of them.

In: a Problem. Out: `Pieces`, and a way back for placements and bounds. Simplified: memory of live activations is left
to the simulator.
"""

from weftline.pipeline.pieces.pieces import Pieces, make_pieces, merge
from weftline.pipeline.pieces.reduce import contract_uncuttable, reduce_exactly

__all__ = ["Pieces", "contract_uncuttable", "make_pieces", "merge", "reduce_exactly"]
