"""The one line that comes first where the answer is not to split."""

from __future__ import annotations

import json
from dataclasses import replace

import msgspec
import pytest
from tests.certify.base_plans import latency_plan, throughput_plan

from weftline.ask.planning import make_plan
from weftline.certify.check import Refusal, check_plan
from weftline.plans import Plan
from weftline.plans.advice import advise, advised, copies_words, cost_error
from weftline.plans.plan import MeasuredFile, load_plan, save_plan
from weftline.plans.summary import better_baseline
from weftline.testing.generate import Feed, problem_of

LATENCY = msgspec.json.decode(json.dumps(latency_plan()).encode(), type=Plan)
THROUGHPUT = msgspec.json.decode(json.dumps(throughput_plan()).encode(), type=Plan)


def _with(plan: Plan, source: str = "analytic roofline (rates: datasheet)", **fields: object) -> Plan:
    problem = msgspec.structs.replace(plan.problem, cost_source=source)
    return msgspec.structs.replace(plan, problem=problem, **fields)


@pytest.mark.parametrize(
    ("source", "single", "words"),
    [
        (
            "analytic roofline",
            66,
            "alone: splitting gains 1.5%, less than the estimates are off (about 5%).",
        ),
        ("analytic roofline", 70, ""),
        ("profiled: onnxruntime, spread 3.0%, links too", 66, "less than the measured times vary (about 3%)."),
        ("profiled: onnxruntime, spread 1.0%, links too", 66, ""),
        ("times of the file", 66, ""),
        ("times of the file", 65, "alone: this split is not faster."),
        ("analytic roofline", None, ""),
    ],
)
def test_a_gain_below_the_error_of_the_costs(source: str, single: int | None, words: str) -> None:
    """Tests that a small gain is called what it is: by estimates, by measured times, and not at all by given times."""
    assert LATENCY.value_ns == 65
    said = advise(_with(LATENCY, source, baselines={"single-device": single}))
    assert said.endswith(words) if words else said == ""


def test_the_device_is_named() -> None:
    """Tests that the device on which the whole model takes so long is named, and a plan on one device says so."""
    time = LATENCY.load_problem().cost.time
    for d, device in enumerate(LATENCY.problem.devices):
        if (time[:, d] >= 0).all():
            whole = int(time[:, d].sum())
            plan = _with(LATENCY, value_ns=whole - 1, baselines={"single-device": whole})
            assert advise(plan).startswith(f"Use {device.id} alone: splitting gains")
            alone = _with(LATENCY, placement=dict.fromkeys(LATENCY.placement, device.id))
            assert advise(alone) == f"Use {device.id} alone: no split that was found is faster."


def test_copies_come_first() -> None:
    """Tests that whole copies that beat a pipeline are said first, with their number."""
    value = THROUGHPUT.value_ns
    plan = _with(THROUGHPUT, baselines={"replicas": value - 1, "single-device": value})
    assert advise(plan).startswith(
        "Run a whole copy of the model on each of the 2 fastest devices that can hold it instead: "
        f"{value - 1} ns per input"
    )
    assert "copy" not in advise(_with(THROUGHPUT, baselines={"replicas": value}))


def test_copies_are_on_as_many_devices_as_stages() -> None:
    """Tests that with a number of stages below that of devices the sentence counts, and one copy is none."""
    problem = problem_of([[10] * 4] * 2, [Feed(0, (1,), 50)], objective="throughput")
    for stages, where in ((4, "each device instead"), (3, "each of the 3 fastest devices that can hold it instead")):
        few = replace(problem, rules=msgspec.structs.replace(problem.rules, stages=stages))
        plan = make_plan(few, solver="even-split", work_limit=1)
        assert advise(plan).startswith(f"Run a whole copy of the model on {where}: ")
        assert better_baseline(plan).startswith("Whole copies would give more, an input every ")
        assert f"({copies_words(plan)})" in better_baseline(plan)
    small = problem_of([[10] * 2] * 2, [Feed(0, (1,), 50)], objective="throughput", weights=[4, 4], capacity=[8, 7])
    plan = make_plan(small, solver="even-split", work_limit=1)
    assert copies_words(plan) == ""
    assert advise(plan).startswith("Use ")


def test_measured_plans() -> None:
    """Tests that measurements decide where there are some."""
    found = MeasuredFile("x", 3, 0, LATENCY.problem.devices[0].id, 0.98, 0.05, 5, 0.1, 0.1)
    assert "less than the runs vary (5.0%)" in advise(_with(LATENCY, measured=found))
    assert advise(_with(LATENCY, measured=msgspec.structs.replace(found, ratio=0.8))) == ""
    assert "is not faster" in advise(_with(LATENCY, measured=msgspec.structs.replace(found, ratio=1.2)))


def test_advice_in_a_file(tmp_path: object) -> None:
    """Tests that a plan with advice is read and accepted by the checker, and that only text is."""
    from pathlib import Path

    path = Path(str(tmp_path)) / "plan.json"
    given = latency_plan()
    given["baselines"] = {"single-device": 65}
    plan = advised(msgspec.json.decode(json.dumps(given).encode(), type=Plan))
    assert plan.advice
    save_plan(plan, path)
    assert load_plan(path).advice == plan.advice
    check_plan(json.loads(path.read_text()))
    with pytest.raises(Refusal, match="advice must be text"):
        check_plan({**json.loads(path.read_text()), "advice": 3})
    none = _with(LATENCY, baselines={})
    assert advised(none) is none


def test_error_of_costs() -> None:
    """Tests what counts as an error of the costs."""
    assert cost_error(_with(LATENCY, "analytic roofline")) == 0.05
    assert cost_error(_with(LATENCY, "profiled: x, spread 12.5%, links too")) == 0.125
    assert cost_error(_with(LATENCY, "profiled: x")) == 0.0
