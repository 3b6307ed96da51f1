"""Every way to tamper with a plan that we could think of, each refused with a code and a sentence of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.certify.base_plans import Json, latency_plan, rehash, sequential_plan, throughput_plan

from weftline.certify import Refusal, check_plan

Edit = Callable[[Json], object]

A, B1, B2, B3, C, Z = range(6)
TA, TB1, TB2, TB3, TC = range(1, 6)


def _run(plan: Json, op: int, start: int, end: int) -> None:
    next(row for row in plan["timeline"]["ops"] if row[0] == op)[1:] = [start, end]


def _send(plan: Json, tensor: int, target: int) -> Json:
    return next(row for row in plan["timeline"]["transfers"] if (row[0], row[2]) == (tensor, target))


def _move(plan: Json, tensor: int, target: int, start: int, end: int) -> None:
    _send(plan, tensor, target)[4:] = [start, end]


def _problem(edit: Edit) -> Edit:
    """An edit of the embedded problem by a forger who knows how to hash."""

    def forge(plan: Json) -> None:
        edit(plan["problem"])
        rehash(plan)

    return forge


def _bus_twice(plan: Json) -> None:
    _move(plan, TB3, 0, 45, 49)
    _move(plan, TB1, 0, 29, 33)


def _lower_capacity(plan: Json) -> None:
    plan["problem"]["devices"][0]["capacity"] = plan["devices"]["d0"]["memory_limit"] = 50
    rehash(plan)


def _send_per_edge(plan: Json) -> None:
    plan["problem"]["rules"]["transfers"] = "per-edge"
    rehash(plan)


def _no_link(plan: Json) -> None:
    plan["problem"]["transfer_rows"][0][1] = -1
    plan["timeline"]["transfers"].pop(0)
    rehash(plan)


def _set(*path: object, to: object) -> Edit:
    """The edit that puts one value at one place."""

    def edit(plan: Json) -> None:
        for key in path[:-1]:
            plan = plan[key]
        plan[path[-1]] = to

    return edit


def _drop(*path: object) -> Edit:
    def edit(plan: Json) -> None:
        for key in path[:-1]:
            plan = plan[key]
        del plan[path[-1]]

    return edit


LATENCY: dict[str, tuple[Edit, str]] = {
    "op moved to another device": (_set("placement", "c", to="d2"), "op-duration"),
    "op on a device that does not exist": (_set("placement", "c", to="d9"), "unknown-device"),
    "op on a device that cannot run it": (_set("placement", "a", to="d2"), "forbidden"),
    "together set torn apart": (_set("placement", "b1", to="d2"), "together"),
    "op without a device": (_drop("placement", "c"), "missing-op"),
    "op that the graph does not have": (_set("placement", "ghost", to="d0"), "unknown-op"),
    "placement is a list": (_set("placement", to=["d0"] * 6), "missing-op"),
    "op missing in the timeline": (lambda p: p["timeline"]["ops"].pop(2), "never-runs"),
    "op twice in the timeline": (lambda p: p["timeline"]["ops"].append([A, 70, 80]), "runs-twice"),
    "op number that does not exist": (lambda p: p["timeline"]["ops"].append([6, 70, 80]), "range"),
    "op that takes less time": (lambda p: _run(p, Z, 55, 64), "op-duration"),
    "op at a negative time": (lambda p: _run(p, A, -1, 9), "negative"),
    "ops that overlap on a device": (lambda p: _run(p, B2, 28, 39), "overlap"),
    "op before its input arrives": (lambda p: _run(p, C, 29, 40), "starts-early"),
    "op that waits on purpose": (lambda p: _run(p, Z, 56, 66), "waits"),
    "transfer that waits on purpose": (lambda p: _move(p, TB1, 0, 35, 39), "waits"),
    "baseline below zero": (_set("baselines", to={"heft": -7}), "negative"),
    "baseline that is no time": (_set("baselines", to={"heft": "fast"}), "type"),
    "field that nobody knows": (_set("remark", to="trust me"), "fields"),
    "solver without a name": (_set("solver", to=None), "fields"),
    "seconds that are no time": (_set("seconds", to="soon"), "fields"),
    "seed that is no number": (_set("provenance", "seed", to="abc"), "type"),
    "timeline with another part": (_set("timeline", "remark", to=1), "fields"),
    "transfer removed": (lambda p: p["timeline"]["transfers"].pop(), "no-transfer"),
    "transfer too short": (lambda p: _move(p, TB1, 0, 34, 37), "transfer-duration"),
    "transfer before its producer ended": (lambda p: _move(p, TB1, 0, 28, 32), "sent-early"),
    "transfer from elsewhere": (lambda p: _send(p, TB1, 0).__setitem__(1, 2), "wrong-source"),
    "transfer of an input of the model": (lambda p: _send(p, TB1, 0).__setitem__(0, 0), "wrong-source"),
    "transfer to where nobody needs it": (lambda p: _send(p, TB1, 0).__setitem__(2, 2), "useless-transfer"),
    "transfer for one consumer": (lambda p: _send(p, TB1, 0).__setitem__(3, Z), "useless-transfer"),
    "transfer twice": (lambda p: p["timeline"]["transfers"].append([TB1, 1, 0, -1, 60, 64]), "sent-twice"),
    "transfer of a tensor that does not exist": (lambda p: _send(p, TB1, 0).__setitem__(0, 7), "range"),
    "transfer to a device that does not exist": (lambda p: _send(p, TB1, 0).__setitem__(2, 3), "range"),
    "send port used twice": (lambda p: _move(p, TA, 1, 12, 16), "send-port"),
    "receive port used twice": (lambda p: _move(p, TB1, 0, 31, 35), "receive-port"),
    "bus used twice": (_bus_twice, "bus"),
    "transfers per edge, but sent once": (_send_per_edge, "useless-transfer"),
    "value lowered": (_set("value_ns", to=60), "value"),
    "load of a device edited": (_set("devices", "d1", "load_ns", to=30), "device-load"),
    "memory of a device edited": (_set("devices", "d1", "memory_bytes", to=1), "device-memory-bytes"),
    "memory limit of a device edited": (_set("devices", "d1", "memory_limit", to=2**40), "device-memory-limit"),
    "memory limit of a device removed": (_set("devices", "d1", "memory_limit", to=None), "type"),
    "device left out": (_drop("devices", "d2"), "devices"),
    "memory exceeded": (_lower_capacity, "memory"),
    "proved bound raised": (_set("bounds", 1, "value_ns", to=41), "bound-unproved"),
    "claimed bound above the value": (_set("bounds", 0, "value_ns", to=66), "bound-too-high"),
    "bound of the plan raised": (_set("bound_ns", to=65), "best-bound"),
    "bound negative": (_set("bounds", 1, "value_ns", to=-1), "negative"),
    "claimed bound called proved": (_set("bounds", 0, "proof", to="proved"), "no-witness"),
    "proof of the plan upgraded": (_set("proof", to="proved"), "proof"),
    "unknown word for a proof": (_set("bounds", 0, "proof", to="certain"), "bound-proof"),
    "bound by somebody else": (_set("bound_by", to="path"), "bound-by"),
    "witness for another bound": (_set("bounds", 1, "witness", to={"kind": "path", "ops": [0, 3]}), "bound-unproved"),
    "witness that repeats an op": (_set("bounds", 3, "witness", "ops", to=[1, 1, 2]), "witness"),
    "witness of an unknown kind": (_set("bounds", 1, "witness", "kind", to="oath"), "witness-kind"),
    "witness of ops that need not share": (_set("bounds", 3, "witness", "ops", to=[1, 3]), "witness"),
    "witness without ops": (_set("bounds", 3, "witness", "ops", to=[]), "witness"),
    "witness weights all 0": (_set("bounds", 2, "witness", "weights", to=[0, 0, 0]), "witness"),
    "witness weight negative": (_set("bounds", 2, "witness", "weights", to=[1, -1, 1]), "negative"),
    "witness of work, runtime parallel": (_set("bounds", 2, "witness", to={"kind": "work"}), "witness"),
    "gap edited": (_set("gap", to=0.0), "gap"),
    "gap as text": (_set("gap", to="0"), "gap"),
    "objective swapped": (_set("objective", to="throughput"), "objective"),
    "stages in a latency plan": (_set("stages", to=[{"device": "d0"}]), "parts"),
    "timeline left out": (_set("timeline", to=None), "parts"),
    "hash edited": (_set("provenance", "problem_sha256", to="0" * 64), "hash"),
    "time changed without hashing": (_set("problem", "time_rows", 0, 0, to=1), "hash"),
    "time changed with hashing": (_problem(_set("time_rows", 0, 0, to=1)), "op-duration"),
    "link removed with hashing": (_problem(_set("transfer_rows", 0, 3, to=-1)), "transfer-duration"),
    "rule that does not exist": (_problem(_set("rules", "runtime", to="magic")), "rules"),
    "embedded problem of another format": (_problem(_set("format", to="other")), "problem"),
    "embedded problem of another version": (_problem(_set("version", to=2)), "range"),
    "two ops of one name": (_problem(_set("graph", "ops", 1, "name", to="a")), "problem"),
    "two devices of one id": (_problem(_set("devices", 1, "id", to="d0")), "problem"),
    "op before its producer": (_problem(_set("graph", "tensors", 5, "consumers", to=[0])), "problem"),
    "op in two together sets": (_problem(_set("together", to=[[1, 2], [2, 3]])), "problem"),
    "op twice in a together set": (_problem(_set("together", to=[[1, 1]])), "problem"),
    "tied weight of an op from the end": (_problem(_set("graph", "tied", 0, "ops", to=[-1, 0])), "negative"),
    "times for too few devices": (_problem(_set("time_rows", 0, to=[1, 1])), "problem"),
    "times for too few ops": (_problem(lambda p: p["time_row"].pop()), "problem"),
    "times row that does not exist": (_problem(_set("time_row", 0, to=99)), "range"),
    "transfers for too few tensors": (_problem(lambda p: p["transfer_row"].pop()), "problem"),
    "link on two buses": (_problem(lambda p: p["buses"].append([1, 0, "usb"])), "problem"),
    "absurd number": (_set("value_ns", to=10**30), "range"),
    "float instead of an integer": (_set("value_ns", to=65.0), "type"),
    "boolean instead of an integer": (lambda p: p["timeline"]["ops"][0].__setitem__(0, False), "type"),
    "float load": (_set("devices", "d1", "load_ns", to=33.0), "type"),
    "float consumer": (lambda p: _send(p, TB1, 0).__setitem__(3, -1.0), "type"),
    "text instead of a number": (_set("bound_ns", to="64"), "type"),
    "text instead of a list": (_set("timeline", "ops", to="none"), "type"),
    "host that is not true or false": (_problem(_set("devices", 0, "host", to=1)), "type"),
    "row with a number too many": (lambda p: p["timeline"]["ops"][0].append(0), "structure"),
    "field left out": (_drop("proof"), "fields"),
    "problem left out": (_drop("problem"), "structure"),
    "list where an object belongs": (_set("devices", to=[]), "devices"),
}

SEQUENTIAL: dict[str, tuple[Edit, str]] = {
    "sequential runtime overlaps": (lambda p: _run(p, 2, 12, 22), "sequential"),
    "op before its producer on the same device": (lambda p: _run(p, 2, 5, 15), "precedence"),
    "transfer over a link that does not exist": (_problem(_set("transfer_rows", 0, 1, to=-1)), "transfer-duration"),
    "neither link nor transfer": (_no_link, "link"),
}

THROUGHPUT: dict[str, tuple[Edit, str]] = {
    "cycle between stages": (_set("placement", "e", to="d0"), "cycle"),
    "no link between stages": (_problem(_set("transfer_rows", 0, 1, to=-1)), "link"),
    "stages in the wrong order": (lambda p: p["stages"].reverse(), "stage-order"),
    "stage left out": (lambda p: p["stages"].pop(), "stage-devices"),
    "more stages than allowed": (_problem(_set("rules", "stages", to=2)), "too-many-stages"),
    "negative number of stages": (_problem(_set("rules", "stages", to=-1)), "negative"),
    "load of a stage edited": (_set("stages", 1, "load_ns", to=29), "stage-load"),
    "ops of a stage edited": (_set("stages", 1, "ops", to=3), "stage-ops"),
    "compute of a stage edited": (_set("stages", 1, "compute_ns", to=21), "stage-compute"),
    "tensors that enter edited": (_set("stages", 1, "in_ns", to=3), "stage-in"),
    "tensors that leave edited": (_set("stages", 1, "out_ns", to=3), "stage-out"),
    "period lowered": (_set("value_ns", to=29), "value"),
    "timeline in a throughput plan": (_set("timeline", to={"ops": [], "transfers": []}), "parts"),
    "both objectives swapped": (
        lambda p: [p.update(objective="latency"), _problem(_set("rules", "objective", to="latency"))(p)],
        "parts",
    ),
    "op moved to another stage": (_set("placement", "d", to="d2"), "stage-ops"),
    "path as a witness": (_set("bounds", 1, "witness", to={"kind": "path", "ops": [0, 1]}), "witness"),
    "one stage needs too much": (_problem(_set("devices", 2, "capacity", to=41)), "memory"),
}

CASES = [
    pytest.param(base, edit, code, id=name)
    for base, table in ((latency_plan, LATENCY), (sequential_plan, SEQUENTIAL), (throughput_plan, THROUGHPUT))
    for name, (edit, code) in table.items()
]


@pytest.mark.parametrize("base", [latency_plan, sequential_plan, throughput_plan])
def test_base_plans_hold(base: Callable[[], Json]) -> None:
    """Tests that each plan is accepted before anybody touches it, so that a refusal comes from the tampering."""
    plan = base()
    verdict = check_plan(plan)
    assert verdict.value_ns == plan["value_ns"]
    assert 0 < verdict.proved_bound_ns < verdict.bound_ns == plan["bound_ns"]


@pytest.mark.parametrize(("base", "edit", "code"), CASES)
def test_tampering_is_refused(base: Callable[[], Json], edit: Edit, code: str) -> None:
    """Tests that each tampering turns the verdict, with the code that says what is wrong."""
    plan = base()
    edit(plan)
    with pytest.raises(Refusal) as refused:
        check_plan(plan)
    assert refused.value.code == code, str(refused.value)
    assert refused.value.exit_code == 6


def test_each_tampering_has_its_own_message() -> None:
    """Tests that no two kinds of tampering are answered by the same sentence, and that codes are many."""
    messages: dict[str, str] = {}
    codes = set()
    for case in CASES:
        base, edit, code = case.values
        plan = base()  # type: ignore[operator]
        edit(plan)  # type: ignore[operator]
        with pytest.raises(Refusal) as refused:
            check_plan(plan)
        message = str(refused.value)
        assert message not in messages, f"{case.id!r} and {messages[message]!r} are both told {message!r}"
        messages[message] = str(case.id)
        codes.add(code)
    assert len(messages) == len(CASES) > 100
    assert len(codes) >= 40
