"""A smaller problem and back.

In: a Problem. Out: `Fusion` (which ops are one kernel) with the problem in which they are, and `Contracted`, a smaller
problem for the search. Simplified: contraction for latency keeps no bound. Pieces of pipelines are in `pipeline/`.
"""

from weftline.reduce.contract import Contracted, acyclic, contract
from weftline.reduce.fusion.fusion import METHODS, Coarsened, Fusion, coarsened, costed_with_fusion, fuse, fused_problem

__all__ = [
    "METHODS",
    "Coarsened",
    "Contracted",
    "Fusion",
    "acyclic",
    "coarsened",
    "contract",
    "costed_with_fusion",
    "fuse",
    "fused_problem",
]
