"""`weftline plan` of layers on devices with tables: files of ours, of Helix, what is printed, what is refused."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.data import present
from typer.testing import CliRunner

from weftline.ask.layers import answer_layers, read_layer_problem
from weftline.ask.request import PlanRequest
from weftline.certify import Refusal
from weftline.certify.check_layers import check_layer_plan
from weftline.cli.main import app
from weftline.errors import WeftlineError
from weftline.plans.layers import LayerPlan, load_layer_plan

Json = dict[str, Any]

OWN: Json = {
    "format": "weftline-layers",
    "version": 1,
    "layers": 6,
    "pools": [{"name": "large", "count": 2}, {"name": "small", "count": 2, "names": ["left", "right"]}],
    "units": [
        {"name": "large", "pool": 0, "rates": [900000000, 700000000, 500000000, 400000000, 300000000, 200000000]},
        {"name": "small", "pool": 1, "rates": [500000000, 250000000, 120000000]},
    ],
}
HELIX: Json = {
    "name": "two-kinds",
    "layers": 4,
    "nodes": ["fast", "slow", "fast"],
    "kinds": {"fast": [90.5, 60.25, 30.0], "slow": [40.0, 20.0]},
    "links": [
        [a, b, 70.0, 1.0]
        for a in ("source", 0, 1, 2)
        for b in ("sink", 0, 1, 2)
        if a != b and (a, b) != ("source", "sink")
    ],
}


def _write(tmp_path: Path, form: object, name: str = "cluster.json") -> str:
    path = tmp_path / name
    path.write_text(form if isinstance(form, str) else json.dumps(form))
    return str(path)


def _weftline(*words: str) -> tuple[int, str]:
    """Exit code, and what is said on stdout or as the error."""
    done = CliRunner().invoke(app, list(words))
    if isinstance(done.exception, WeftlineError):
        return done.exception.exit_code, str(done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done.exit_code, done.stdout


@pytest.mark.parametrize("form", [OWN, HELIX], ids=["own", "helix"])
def test_plan_and_verify(form: Json, tmp_path: Path) -> None:
    """Tests the file, what `--json` prints, and that verify accepts it, refuses a lie and cannot read a ruin."""
    source, plan = _write(tmp_path, form), tmp_path / "plan.json"
    code, said = _weftline("plan", source, "--work", "60", "-o", str(plan), "--json")
    assert code == 0
    printed = json.loads(said)
    assert printed == json.loads(plan.read_text())
    assert printed["rate"] <= printed["rate_bound"]
    assert printed["proof"] == "proved"
    assert printed["gap"] == pytest.approx((printed["rate_bound"] - printed["rate"]) / printed["rate_bound"])
    assert printed["depth"] == max(len(lane["hops"]) for lane in printed["lanes"])
    assert sum(lane["rate"] for lane in printed["lanes"]) == round(printed["rate"] * 10**6)
    assert {"single-device", "replicas", "even-split", "pipeline", "separate-pipelines"} <= printed["baselines"].keys()
    assert all(rate is None or rate <= printed["rate"] for rate in printed["baselines"].values())
    assert [point["depth"] for point in printed["front"]] == sorted(point["depth"] for point in printed["front"])
    assert printed["front"][-1]["rate"] == printed["rate"]
    for one in printed["instances"]:
        assert one["node"] == one["devices"][0]
        assert 0 <= one["first"] < one["last"] <= form["layers"]
    assert load_layer_plan(plan).placed()
    assert _weftline("verify", str(plan))[0] == 0
    printed["lanes"][0]["rate"] += 10**9
    plan.write_text(json.dumps(printed))
    assert _weftline("verify", str(plan))[0] == 6
    plan.write_text(json.dumps(printed)[:-40])
    assert _weftline("verify", str(plan))[0] == 3


def test_a_limit_of_depth_is_kept(tmp_path: Path) -> None:
    """Tests `--max-depth`: fewer instances in a row, never a higher rate, and the limit is in the file."""
    source, rates = _write(tmp_path, OWN), []
    for depth in (1, 2, 4):
        code, said = _weftline("plan", source, "--max-depth", str(depth), "--work", "60", "--json")
        assert code == 0
        printed = json.loads(said)
        assert printed["depth"] <= depth == printed["problem"]["max_depth"]
        rates.append(printed["rate"])
    assert rates == sorted(rates)
    assert rates[0] == 400.0  # two copies on the large ones
    assert rates[0] < rates[-1]


@pytest.mark.parametrize("form", [OWN, HELIX], ids=["own", "helix"])
def test_a_limit_of_copies_is_kept(form: Json, tmp_path: Path) -> None:
    """Tests `--copies N`: no layer is held more often, 1 is a single pipeline, and a lie about the limit is refused."""
    source, plan, rates = _write(tmp_path, form), tmp_path / "plan.json", []
    for copies in ("1", "2", "auto"):
        code, said = _weftline("plan", source, "--copies", copies, "--work", "60", "-o", str(plan), "--json")
        assert code == 0
        printed = json.loads(said)
        most = max(
            sum(one["first"] <= layer < one["last"] for one in printed["instances"]) for layer in range(form["layers"])
        )
        assert _weftline("verify", str(plan))[0] == 0
        rates.append(printed["rate"])
        if copies == "auto":
            assert "max_copies" not in printed["problem"]
            break
        assert most <= int(copies) == printed["problem"]["max_copies"]
        if copies == "1":
            assert len(printed["lanes"]) == 1
        elif most > 1:
            with pytest.raises(Refusal, match="too many instances hold a layer"):
                check_layer_plan(_rehashed({**printed, "problem": {**printed["problem"], "max_copies": most - 1}}))
    assert rates == sorted(rates)
    assert rates[0] < rates[-1] or form is HELIX  # there one pipeline is the best


def _rehashed(plan: Json) -> Json:
    text = json.dumps(plan["problem"], sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return {**plan, "provenance": {**plan["provenance"], "problem_sha256": sha256(text.encode()).hexdigest()}}


def test_a_terminal_reads_stages_and_the_front(tmp_path: Path) -> None:
    """Tests the words for people."""
    code, said = _weftline("plan", _write(tmp_path, OWN), "--work", "60")
    assert code == 0
    assert "6 layers on" in said
    assert "depth      rate  no deployment above" in said


WRONG: dict[str, tuple[object, str]] = {
    "not json": ('{"format": "weftline-layers", ', "cannot be read"),
    "a rate that is none": (json.dumps(OWN).replace("900000000", "NaN", 1), "cannot be read"),
    "negative": (json.dumps(OWN).replace("900000000", "-9", 1), "out of range"),
    "huge": (json.dumps(OWN).replace("900000000", "9" * 30, 1), "out of range"),
    "too large together": ({**OWN, "pools": [{"name": "large", "count": 10**7}]}, "devices"),
    "no layers": ({**OWN, "layers": 0}, "0 layers"),
    "an unknown pool": ({**OWN, "units": [{"name": "x", "pool": 9, "rates": [1]}]}, "of no pool"),
    "two names": ({**OWN, "pools": [{"name": "a", "count": 2, "names": ["x", "x"]}] * 2}, "one name"),
    "an unknown node": ({**OWN, "links": [[0, 9, 5]]}, "joins no two devices"),
    "a link twice": ({**OWN, "links": [[0, 1, 5], [0, 1, 6]]}, "stands twice"),
    "a field more": ({**OWN, "speed": 1}, "speed"),
    "another version": ({**OWN, "version": 2}, "version 1"),
    "helix, an unknown node": ({**HELIX, "links": [["source", 7, 1.0, 1.0]]}, "joins no two nodes"),
    "helix, negative": ({**HELIX, "kinds": {**HELIX["kinds"], "slow": [-1.0]}}, "are none"),
    "helix, no table": ({**HELIX, "nodes": ["fast", "unknown"]}, "has no table"),
    "helix, not a number": (json.dumps(HELIX).replace("90.5", "NaN"), "cannot be read"),
    "helix, huge": (json.dumps(HELIX).replace("90.5", "1e300"), "are none"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_files_are_one_sentence(name: str, tmp_path: Path) -> None:
    """Tests that a file that cannot be is exit 3 and one line that names it."""
    form, words = WRONG[name]
    code, said = _weftline("plan", _write(tmp_path, form), "--work", "5")
    assert code == 3
    assert "cluster.json" in said
    assert words in said
    assert len(said.splitlines()) == 1


def _plan(name: str, **limits: object) -> LayerPlan:
    read = read_layer_problem(present(f"helix/{name}.json"))
    assert read is not None
    found = answer_layers(PlanRequest(model=read[0].name, **limits), *read)  # type: ignore[arg-type]
    check_layer_plan(msgspec.to_builtins(found))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rate"),
    [
        ("single24", 2045.64),
        ("quality10", 286.59),
        ("single_30b_a100", 1044.53),
        ("single_30b_l4", 252.65),
        ("single_30b_t4", 397.69),
    ],
)
def test_published_instances_are_closed(name: str, rate: float) -> None:
    """Tests that these instances of Helix are solved, and proved to 0.01 %."""
    found = _plan(name, time_limit=60.0)
    assert found.rate == pytest.approx(rate, abs=0.01)
    assert found.proof == "proved"
    assert found.gap <= 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("name", "least"), [("het42_pruned", 5441.0), ("geo24_pruned", 1754.0)])
def test_published_instances_with_links(name: str, least: float) -> None:
    """Tests that what is reached where links limit is not lost again."""
    found = _plan(name, time_limit=30.0)
    assert found.rate >= least
    assert found.rate_bound is not None
    assert found.rate <= found.rate_bound
