"""Files of whole clusters and of language models on cards: small valid ones, and how readers of them are called.

In: nothing, or the path of an input. Out: bytes that are always the same; or nothing, or an exception. What was read is
used as well: simulated, explained, compared, drawn, given to a router, served.
"""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from weftline.certify.check_fit import check_fit_plan, read_fit_plan
from weftline.certify.check_fleet import check_fleet, read_fleet
from weftline.certify.check_layers import check_layer_plan, read_layer_plan

__all__ = [
    "FLEET_SEEDS",
    "read_checked_fit",
    "read_checked_fleet",
    "read_checked_layers",
    "read_fit",
    "read_layer_file",
    "read_profiles",
    "read_whole_fleet",
]

WORK = 40
LAYERS = 4
OWN: dict[str, Any] = {
    "format": "weftline-layers",
    "version": 1,
    "layers": LAYERS,
    "pools": [{"name": "large", "count": 2}, {"name": "small", "count": 2, "names": ["left", "right"]}],
    "units": [
        {"name": "large", "pool": 0, "rates": [900000000, 700000000, 500000000, 400000000]},
        {"name": "small", "pool": 1, "rates": [500000000, 250000000]},
    ],
}
HELIX: dict[str, Any] = {
    "name": "two-kinds",
    "layers": LAYERS,
    "nodes": ["fast", "slow"],
    "kinds": {"fast": [90.5, 60.25, 30.0], "slow": [40.0, 20.0]},
    "links": [[a, b, 70.0, 1.0] for a, b in (("source", 0), (0, 1), (1, 0), (0, "sink"), ("source", 1), (1, "sink"))],
}
SERVED: dict[str, Any] = {
    "max_layers": 2,
    "kv_tokens_per_layer": [9000, 4000],
    "prompt_ms_per_layer": [[0, 0.0], [40, 2.0], [80, 3.0]],
    "decode_ms_per_layer": [[0, 0.0], [2, 1.4], [10, 0.6]],
    "prompt_max_requests": [3, 1],
}
PROFILES = {
    "m": {"layers": LAYERS, "avg_input": 75, "avg_output": 24, "kinds": {"large": SERVED, "small": SERVED}},
}


def _dump(*values: object) -> list[bytes]:
    return [json.dumps(value).encode() for value in values]


def _fleets() -> list[bytes]:
    """Two lanes that share both devices, and whole copies."""
    from weftline.ask import make_fleet
    from weftline.plans.fleet import fleet_to_json
    from weftline.testing.generate import Feed, problem_of

    problem = problem_of([[900, 400], [300, 900], [500, 700]], [Feed(0, (1, 2), 40), Feed(1, (2,), 30)])
    problem = replace(problem, rules=msgspec.structs.replace(problem.rules, objective="throughput"))
    return [fleet_to_json(make_fleet(problem, solver=name, work_limit=WORK)) for name in ("auto", "replicas")]


def _layer_plans() -> list[bytes]:
    from weftline.ask.layers import make_layer_plan
    from weftline.plans.layers import layer_plan_to_json
    from weftline.testing import random_layers

    problems = [random_layers(3, "partial"), random_layers(5, "links-depth"), random_layers(6, "groups-depth")]
    return [layer_plan_to_json(make_layer_plan(problem, work_limit=WORK)) for problem in problems]


def _fits() -> list[bytes]:
    import weftline as wl
    from weftline.plans.fit import fit_plan_to_json

    one = wl.fit("qwen2.5-0.5b", gpus=["RTX 4090"], context=2048)
    two = wl.fit("qwen2.5-14b", gpus=["RTX 3060 12GB", "RTX 3050 8GB"], quantisation="q6_k", context=4096)
    return [fit_plan_to_json(plan) for plan in (one, two)]


FLEET_SEEDS = {
    "fleet": _fleets,
    "layers": lambda: _dump(OWN, HELIX),
    "layer-plan": _layer_plans,
    "fit-plan": _fits,
    "profiles": lambda: _dump(PROFILES),
}
"""Name of a format -> its seeds."""


def read_whole_fleet(path: Path) -> None:
    """Load, simulate, explain, compare, draw, hand over to a router."""
    from weftline.export.router import router_of
    from weftline.plans.fleet import load_fleet
    from weftline.plans.fleet_diff import diff_fleets
    from weftline.plans.fleet_result import same_fleet, simulate_fleet

    found = load_fleet(path)
    honest = same_fleet(found, simulate_fleet(found))
    found.summary()
    diff_fleets(found, found)
    if honest:  # a router believes no other
        router_of(found)


def read_layer_file(path: Path) -> None:
    """Layers on devices in a format that is found by content."""
    from weftline.errors import InputError
    from weftline.problem.layers import layers_hash, read_layers

    found = read_layers(path)
    if found is None:
        raise InputError("no format of layers", where=path.name)
    layers_hash(found[0])


@cache
def _served() -> Any:
    from weftline.ask.layers import make_layer_plan
    from weftline.problem.layers import DevicePool, LayerProblem, LayerUnit

    pools = (DevicePool("large", 1), DevicePool("small", 2))
    units = (LayerUnit("large", 0, (900, 700)), LayerUnit("small", 1, (500, 250)))
    return make_layer_plan(LayerProblem("m", LAYERS, pools, units), work_limit=WORK)


def read_profiles(path: Path) -> None:
    """Read profiles, and serve some requests by the one that fits."""
    from weftline.problem.serving import ServingRules, fixed_requests, profile_for, read_serving
    from weftline.simulate.layers import simulate_layers
    from weftline.simulate.serving import simulate_serving

    plan = _served()
    profile = profile_for(plan.problem, read_serving(path))
    layout = simulate_layers(plan.problem, plan.placed(), plan.lanes)
    simulate_serving(plan.problem, layout, profile, fixed_requests(3, 20, 4), ServingRules(warm_up_ns=0), drain=True)


def read_fit(path: Path) -> None:
    """Load, and say what is printed, explained and shown of it."""
    from weftline.ask.fit_story import explain_fit
    from weftline.plans.fit import load_fit_plan

    found = load_fit_plan(path)
    found.summary()
    explain_fit(found)
    found._repr_html_()


def read_checked_fleet(path: Path) -> None:
    """By the checker alone."""
    check_fleet(read_fleet(str(path)))


def read_checked_layers(path: Path) -> None:
    """By the checker alone."""
    check_layer_plan(read_layer_plan(str(path)))


def read_checked_fit(path: Path) -> None:
    """By the checker alone."""
    check_fit_plan(read_fit_plan(str(path)))
