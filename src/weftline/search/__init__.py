"""How every solver is called: a budget, a seed, a place to offer candidates, and why a search ended.

In: a Problem. Out: the best candidate so far, costed by the one simulator, and the best bound. Simplified: solvers
never report a value of their own.
"""

from weftline.search.bound import Bound
from weftline.search.parameters import check_names, read_parameters
from weftline.search.search import (
    SINGLE_DEVICE,
    Budget,
    Event,
    Search,
    Solver,
    alarm,
    best_of,
    find_solver,
    load_solvers,
)
from weftline.search.termination import Termination

__all__ = [
    "SINGLE_DEVICE",
    "Bound",
    "Budget",
    "Event",
    "Search",
    "Solver",
    "Termination",
    "alarm",
    "best_of",
    "check_names",
    "find_solver",
    "load_solvers",
    "read_parameters",
]
