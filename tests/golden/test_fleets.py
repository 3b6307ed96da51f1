"""Golden answers of `auto` and `exact` for whole clusters, under a limit of work: whole files, byte for byte.

`WEFTLINE_UPDATE_GOLDEN=1 make test TESTS=tests/golden/test_fleets.py WORKERS=1` writes fleets.json anew; the difference
belongs in the review.
"""

from __future__ import annotations

import json
import os
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

import weftline as wl
from weftline.ask.fleets import make_fleet
from weftline.ask.layers import make_layer_plan
from weftline.plans.fleet import fleet_to_json
from weftline.plans.layers import layer_plan_to_json
from weftline.problem import asked_rules, build_problem
from weftline.problem.layers import DevicePool, LayerProblem, LayerUnit
from weftline.testing import random_layers
from weftline.zoo import zoo_graph

FILE = Path(__file__).with_name("fleets.json")
OPS = [("bert", "two-gpus"), ("resnet50", "laptop"), ("moe", "two-gpus")]
LAYERS = {
    "pools": LayerProblem(
        "pools",
        24,
        (DevicePool("large", 3), DevicePool("small", 6)),
        (
            LayerUnit("large", 0, tuple(9_000_000_000 // (k + 2) for k in range(12))),
            LayerUnit("small", 1, tuple(4_000_000_000 // (k + 1) for k in range(6))),
            LayerUnit("two-small", 1, tuple(7_500_000_000 // (k + 1) for k in range(8)), 2),
        ),
    ),
    "partial": random_layers(3, "partial"),
    "links": random_layers(5, "links-depth"),
    "groups": random_layers(6, "groups-depth"),
}
CASES = [f"ops/{model}/{cluster}" for model, cluster in OPS] + [
    f"{solver}/{name}" for name in LAYERS for solver in (("auto",) if name == "pools" else ("auto", "exact"))
]


def digest(case: str) -> dict[str, Any]:
    """The period, and the hash of the file without the version of the program that made it."""
    first, name, *rest = case.split("/")
    if first == "ops":
        rules = asked_rules({"objective": "throughput"})
        problem = build_problem(zoo_graph(name, size="small"), wl.Cluster.preset(rest[0]), rules=rules)
        data = fleet_to_json(make_fleet(problem, work_limit=60))
    else:
        data = layer_plan_to_json(make_layer_plan(LAYERS[name], solver=first, work_limit=40))
    fields = msgspec.json.decode(data)
    assert fields["seconds"] is None  # no clock in answers under a limit of work
    del fields["provenance"]["version"]
    return {"value": fields["value_ns"], "sha256": sha256(json.dumps(fields).encode()).hexdigest()}


@pytest.mark.parametrize("case", CASES)
def test_golden(case: str) -> None:
    """Tests that a fleet is answered as it was, to the byte."""
    answer = digest(case)
    if os.environ.get("WEFTLINE_UPDATE_GOLDEN"):
        kept = json.loads(FILE.read_text()) if FILE.exists() else {}
        FILE.write_text(json.dumps(kept | {case: answer}, indent=1, sort_keys=True) + "\n")
    assert answer == json.loads(FILE.read_text())[case]


def test_golden_names_exist() -> None:
    """Tests that the file holds no answers that nobody asks for."""
    assert sorted(json.loads(FILE.read_text())) == sorted(CASES)
