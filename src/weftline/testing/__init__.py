"""For tests of weftline and of solvers that others write: generated problems, brute-force optima, conformance suites.

In: a seed or a hypothesis strategy. Out: small graphs, clusters and problems with every option of the rules, and the
exact optimum of tiny ones. Simplified: generated numbers are small integers, so that ties and zeros happen often.
"""

from typing import TYPE_CHECKING

from weftline.lazy import lazy_names

if TYPE_CHECKING:
    from weftline.testing.conformance import brute_force_latency, brute_force_throughput, check_solver
    from weftline.testing.fleets import best_layer_rate, check_fleet_solver, check_layer_solver, random_layers
    from weftline.testing.generate import (
        Chooser,
        SeededChooser,
        make_graph,
        make_order,
        make_placement,
        make_problem,
        random_problem,
    )
    from weftline.testing.gguf import gguf_header, write_gguf_header
    from weftline.testing.schedules import block_dags, brute_force_schedule, check_scheduler, make_blocks, random_blocks
    from weftline.testing.strategies import DrawnChooser, clusters, graphs, orders, placements, problems

__all__ = [
    "Chooser",
    "DrawnChooser",
    "SeededChooser",
    "best_layer_rate",
    "block_dags",
    "brute_force_latency",
    "brute_force_schedule",
    "brute_force_throughput",
    "check_fleet_solver",
    "check_layer_solver",
    "check_scheduler",
    "check_solver",
    "clusters",
    "gguf_header",
    "graphs",
    "make_blocks",
    "make_graph",
    "make_order",
    "make_placement",
    "make_problem",
    "orders",
    "placements",
    "problems",
    "random_blocks",
    "random_layers",
    "random_problem",
    "write_gguf_header",
]

_MODULES = {
    "conformance": ("brute_force_latency", "brute_force_throughput", "check_solver"),
    "fleets": ("best_layer_rate", "check_fleet_solver", "check_layer_solver", "random_layers"),
    "gguf": ("gguf_header", "write_gguf_header"),
    "generate": (
        "Chooser",
        "SeededChooser",
        "make_graph",
        "make_order",
        "make_placement",
        "make_problem",
        "random_problem",
    ),
    "schedules": ("block_dags", "brute_force_schedule", "check_scheduler", "make_blocks", "random_blocks"),
    "strategies": ("DrawnChooser", "clusters", "graphs", "orders", "placements", "problems"),
}

__getattr__ = lazy_names(
    __name__, {name: f"weftline.testing.{module}" for module, names in _MODULES.items() for name in names}
)
"""Names are loaded on first use: only the strategies need hypothesis."""
