"""Graph -> smaller graph and back.

In: a Problem. Out: `Pieces` (the parts a pipeline can be cut into) and coarser ones, each of which says how a placement
is lifted back and what happens to a lower bound. Simplified: contraction of chains serves the search alone, it keeps no
bound.
"""

from weftline.coarsen.chains import contract_chains
from weftline.coarsen.pieces import Pieces, make_pieces, merge
from weftline.coarsen.reduce import reduce_exactly
from weftline.coarsen.threshold import contract_uncuttable

__all__ = ["Pieces", "contract_chains", "contract_uncuttable", "make_pieces", "merge", "reduce_exactly"]
