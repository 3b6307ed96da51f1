"""A smaller problem and back.

In: a Problem. Out: a `Reduction`: `Coarsened` (with `Fusion`: which ops are one kernel), or `Contracted`, a smaller
problem for the search. Simplified: both keep no bound. Pieces of pipelines are reductions too, in `pipeline/`.
"""

from weftline.reduce.contract import Contracted, acyclic, contract
from weftline.reduce.fusion import METHODS, Coarsened, Fusion, coarsened, costed_with_fusion, fuse, fused_problem
from weftline.reduce.reduction import Composed, Reduction, compose

__all__ = [
    "METHODS",
    "Coarsened",
    "Composed",
    "Contracted",
    "Fusion",
    "Reduction",
    "acyclic",
    "coarsened",
    "compose",
    "contract",
    "costed_with_fusion",
    "fuse",
    "fused_problem",
]
