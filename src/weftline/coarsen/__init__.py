"""Graph -> smaller graph and back.

In: a Problem. Out: for pipelines `Pieces` (the parts a pipeline can be cut into) and coarser ones, each of which says
how a placement is lifted back and what happens to a lower bound; for latency `Fusion` (which ops are one kernel) with
the problem in which they are, and `Contracted`, a smaller problem for the search. Simplified: contraction for latency
keeps no bound.
"""

from weftline.coarsen.contract import Contracted, acyclic, contract
from weftline.coarsen.fusion import METHODS, Coarsened, Fusion, coarsened, costed_with_fusion, fuse, fused_problem
from weftline.coarsen.pieces import Pieces, make_pieces, merge
from weftline.coarsen.reduce import reduce_exactly
from weftline.coarsen.threshold import contract_uncuttable

__all__ = [
    "METHODS",
    "Coarsened",
    "Contracted",
    "Fusion",
    "Pieces",
    "acyclic",
    "coarsened",
    "contract",
    "contract_uncuttable",
    "costed_with_fusion",
    "fuse",
    "fused_problem",
    "make_pieces",
    "merge",
    "reduce_exactly",
]
