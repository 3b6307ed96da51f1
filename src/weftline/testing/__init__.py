"""For tests of weftline and of solvers that others write: generated problems, brute-force optima, the conformance suites.

In: a seed or a hypothesis strategy. Out: small graphs, clusters and problems with every option of the rules, and the exact
optimum of tiny ones. Simplified: generated numbers are small integers, so that ties and zeros happen often.
"""

from weftline.testing.brute_force import brute_force_latency, brute_force_throughput
from weftline.testing.generate import Chooser, SeededChooser, make_graph, make_placement, make_problem, random_problem

__all__ = [
    "Chooser",
    "SeededChooser",
    "brute_force_latency",
    "brute_force_throughput",
    "make_graph",
    "make_placement",
    "make_problem",
    "random_problem",
]
