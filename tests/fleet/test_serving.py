"""Tests of Little's law, of lanes through stages, and of the ranking of layouts of Helix's cluster of 24 nodes."""

from __future__ import annotations

from collections import Counter
from functools import cache
from itertools import combinations, pairwise
from math import exp

import pytest
from msgspec.structs import replace
from tests.fleet.helix_layouts import (
    HELIX_RULES,
    STAGES,
    Layout,
    helix_latencies,
    helix_problem,
    helix_profile,
    stage_layout,
    their_layout,
)

from weftline.errors import InfeasibleError
from weftline.fleet.serving import (
    ServingRow,
    crossed_lanes,
    little_estimate,
    prepare,
    rank_layouts,
    serve_front,
    stage_lanes,
)
from weftline.problem.layers import DevicePool, LayerInstance, LayerLane, LayerProblem, LayerUnit
from weftline.problem.serving import ServingProfile, ServingRules, ServingUnit, fixed_requests, sample_requests
from weftline.simulate.serving import simulate_serving

TWIN = {
    "theirs": 249.0,
    "chain": 220.5,
    "S20": 241.5,
    "S14": 282.7,
    "S12": 264.9,
    "S11": 254.5,
    "S9": 229.5,
    "kp1": 293.6,
}
"""Offline tokens per second that a copy of Helix's simulator gave (specification, section 6.2)."""
TWIN_ONLINE = {
    "theirs": (141.5, 2.49),
    "chain": (127.6, 2.83),
    "S20": (140.1, 2.52),
    "S14": (146.5, 2.24),
    "S12": (148.7, 2.08),
    "S11": (150.6, 1.89),
    "S9": (151.2, 1.58),
    "kp1": (149.1, 1.87),
}
"""The same online: tokens per second, mean time to the first token in seconds."""
PREDICTED = {"S9": 254, "S14": 269, "chain": 237, "kp1": 300}
"""By Little's law there (section 6.3)."""


def _small(copies: int = 1) -> tuple[LayerProblem, ServingProfile]:
    """One layer, equal devices: 1 ms for a token of a prompt, 10 ms for one that decodes, room for 100 tokens."""
    unit = ServingUnit("d", ((0, 0), (100, 10**8)), ((0, 0), (1, 10**7), (9, 10**7)), (100, 100), (1, 1))
    problem = LayerProblem("p", 2, (DevicePool("d", copies),), (LayerUnit("d", 0, (5_000, 1_000)),))
    return problem, ServingProfile("m", 2, (unit,), 15, 5)


PLAIN = ServingRules(layer_percent=100, instance_percent=100, pause_ns=0, hop_ns=0)


def _bisected(resident: int, prompt: float, decode: float, work: float, output: float, width: float) -> float:
    """The same law, written down once more: seconds -> tokens per second."""
    low, high = 0.0, output / work
    for _ in range(200):
        rate = (low + high) / 2
        busy = rate / output * work
        waits = prompt * (1 + busy / (2 * (1 - busy)))
        lane = rate / output / width
        trip = waits - (1 - exp(-lane * (waits - decode))) / lane
        low, high = (rate, high) if rate * trip <= resident else (low, rate)
    return low


def test_little_by_hand() -> None:
    """Tests ways, residents and the rate of one device, and of two side by side."""
    problem, profile = _small(2)
    asked = fixed_requests(10, 15, 5)
    alone = Layout((LayerInstance(0, (0,), 0, 2),), (LayerLane(7, ((0, 0, 2),)),))
    found = little_estimate(problem, alone, profile, asked, PLAIN)
    # Two layers: 30 ms for the prompt and 20 ms for a token; 100 // (15 + 5) requests have room.
    assert (found.prompt_way_ns, found.decode_way_ns, found.resident) == (50_000_000, 20_000_000, 5)
    assert found.rate == pytest.approx(10**6 * _bisected(5, 0.05, 0.02, 0.03, 5, 1), rel=1e-7)
    assert found.rate * found.round_trip_ns == pytest.approx(5 * 10**15, rel=1e-6)
    assert found.busy == pytest.approx(found.rate / 10**6 / 5 * 0.03)
    instances = (*alone.instances, LayerInstance(0, (1,), 0, 2))
    wide = Layout(instances, (LayerLane(7, ((0, 0, 2),)), LayerLane(7, ((1, 0, 2),))))
    found = little_estimate(problem, wide, profile, asked, PLAIN)
    assert found.rate == pytest.approx(10**6 * _bisected(10, 0.05, 0.02, 0.015, 5, 2), rel=1e-7)


def test_the_convoy_is_a_switch() -> None:
    """Tests that without it a token needs 1 / (1 - busy) times as long, so that more of them are made."""
    problem, profile = _small()
    asked = fixed_requests(10, 15, 5)
    alone = Layout((LayerInstance(0, (0,), 0, 2),), (LayerLane(7, ((0, 0, 2),)),))
    free = little_estimate(problem, alone, profile, asked, PLAIN, convoy=False)
    # D * 0.02 / (1 - D / 5 * 0.03) = 5  =>  D = 5 / (0.02 + 0.03).
    assert free.rate == pytest.approx(100 * 10**6, rel=1e-7)
    assert free.rate > little_estimate(problem, alone, profile, asked, PLAIN).rate
    tight = replace(profile, units=(replace(profile.units[0], room=(19, 19)),))
    with pytest.raises(InfeasibleError, match="no room for the caches"):
        little_estimate(problem, alone, tight, asked, PLAIN)


def test_stage_lanes() -> None:
    """Tests that every instance of a stage gets a share like its table rate, and what are no stages."""
    units = (LayerUnit("a", 0, (30, 10)), LayerUnit("b", 1, (90, 20)))
    problem = LayerProblem("p", 3, (DevicePool("a", 3), DevicePool("b", 2)), units)
    spans = [(0, 0, 0, 1), (0, 1, 0, 1), (1, 3, 0, 1), (1, 4, 1, 3), (0, 2, 1, 3)]
    instances = [LayerInstance(unit, (device,), first, last) for unit, device, first, last in spans]
    lanes = stage_lanes(problem, instances)
    served = Counter[int]()
    for lane in lanes:
        for i, _, _ in lane.hops:
            served[i] += lane.rate
    assert served == {0: 6, 1: 6, 2: 18, 3: 20, 4: 10}
    assert all(lane.hops[0][2] == lane.hops[1][1] == 1 for lane in lanes)
    for wrong in (instances[:3], [*instances, LayerInstance(0, (2,), 0, 2)], []):
        with pytest.raises(InfeasibleError, match="no stages one behind the other"):
            stage_lanes(problem, wrong)


@cache
def _cluster() -> tuple[LayerProblem, ServingProfile, dict[str, Layout]]:
    problem, number, file = helix_problem("single24")
    layouts = {"theirs": their_layout(problem, number, file)}
    layouts |= {name: stage_layout(problem, stages) for name, stages in STAGES.items()}
    return problem, helix_profile(problem), layouts


def _shares(layout: Layout) -> Counter[int]:
    served = Counter[int]()
    for lane in layout.lanes:
        for i, _, _ in lane.hops:
            served[i] += lane.rate
    return served


def test_crossed_lanes_serve_the_same() -> None:
    """Tests that instances keep their shares, that no lane gets deeper, and that no link carries more than it can."""
    problem, _, layouts = _cluster()
    for name, layout in layouts.items():
        crossed = Layout(layout.instances, crossed_lanes(problem, layout))
        assert _shares(crossed) == _shares(layout), name
        assert max(len(lane.hops) for lane in crossed.lanes) <= max(len(lane.hops) for lane in layout.lanes)
        for lane in crossed.lanes:
            assert [first for _, first, _ in lane.hops] == [0, *(last for _, _, last in lane.hops[:-1])]
        assert crossed_lanes(problem, layout) == crossed.lanes
    assert len(crossed_lanes(problem, layouts["S14"])) > 20
    some = problem.links or ()
    used = _carried(layouts["S14"])
    tight = replace(problem, links=tuple((a, b, used[a, b] + 10**6) for a, b, _ in some if (a, b) in used))
    crossed = Layout(layouts["S14"].instances, crossed_lanes(tight, layouts["S14"]))
    assert crossed.lanes == layouts["S14"].lanes
    wide = replace(problem, links=tuple((a, b, 700 * 10**6) for a, b, _ in some))
    crossed = Layout(layouts["S14"].instances, crossed_lanes(wide, layouts["S14"]))
    assert len(crossed.lanes) > 20
    between = {link: rate for link, rate in _carried(crossed).items() if min(link) >= 0}
    assert all(rate <= max(700 * 10**6, used[link]) for link, rate in between.items())


def _carried(layout: Layout) -> Counter[tuple[int, int]]:
    found = Counter[tuple[int, int]]()
    for lane in layout.lanes:
        devices = [-1, *(layout.instances[i].devices[0] for i, _, _ in lane.hops), -2]
        for link in pairwise(devices):
            found[link] += lane.rate
    return found


def test_tables_of_the_layouts() -> None:
    """Tests that the rates by tables are those of the specification, Helix's own first."""
    expected = {"theirs": 1289.556, "S9": 952.107, "S11": 1212.177, "S12": 1392.635, "S14": 1515.706, "S20": 1754.382}
    expected |= {"chain": 2045.641, "kp1": 1063.405}
    found = {name: sum(lane.rate for lane in layout.lanes) / 10**6 for name, layout in _cluster()[2].items()}
    assert found == pytest.approx(expected, abs=0.001)


def _kendall(first: dict[str, float], second: dict[str, float]) -> float:
    pairs = list(combinations(first, 2))
    agree = sum(1 if (first[a] - first[b]) * (second[a] - second[b]) > 0 else -1 for a, b in pairs)
    return agree / len(pairs)


def _front(crossed: bool) -> dict[str, ServingRow]:
    problem, profile, layouts = _cluster()
    given = [Layout(one.instances, crossed_lanes(problem, one) if crossed else one.lanes) for one in layouts.values()]
    rows = serve_front(problem, given, profile, sample_requests(3_000, 0), HELIX_RULES)
    assert len(rows) == len(layouts)
    return {list(layouts)[row.layout]: row for row in rows}


def _rates(rows: dict[str, ServingRow]) -> dict[str, float]:
    found = {name: row.run.rate / 10**6 for name, row in rows.items() if row.run is not None}
    assert len(found) == len(rows)
    return found


def test_the_ranking_of_eight_layouts() -> None:
    """Tests both rankings against the rates of a copy of Helix's simulator, and what the front is there to show.

    The predictions of the specification have a Kendall correlation of 0.61 with the rates simulated there.
    """
    rows = _front(crossed=True)
    rates, little = _rates(rows), {name: row.convoy.rate / 10**6 for name, row in rows.items()}
    assert _kendall(little, TWIN) >= 0.75
    assert _kendall(rates, TWIN) >= 0.7
    assert _kendall(little, rates) >= 0.8
    for a, b in combinations(TWIN, 2):
        if abs(TWIN[a] - TWIN[b]) > 0.1 * min(TWIN[a], TWIN[b]):
            assert (TWIN[a] > TWIN[b]) == (rates[a] > rates[b]), (a, b)
    for name, rate in rates.items():
        assert rate == pytest.approx(TWIN[name], rel=0.15), name
    for name, rate in PREDICTED.items():
        assert little[name] == pytest.approx(rate, rel=0.03), name
    # The highest rate by tables is the deepest layout: the lowest rate when it is simulated, and the slowest.
    assert max(rows, key=lambda name: rows[name].table_rate) == "chain" == min(rates, key=rates.__getitem__)
    runs = {name: row.run for name, row in rows.items() if row.run is not None}
    assert max(runs, key=lambda name: runs[name].token.mean_ns) == "chain"
    assert max(runs, key=lambda name: runs[name].first.mean_ns) == "chain"
    assert {name for name, row in rows.items() if row.best} >= {"S9"}
    assert not rows["chain"].best
    assert [row.depth for row in rows.values()] == sorted(row.depth for row in rows.values())


@pytest.mark.parametrize(
    ("name", "rate", "within"), [("single24", 252.1, 6), ("geo24_pruned", 98.0, 3), ("het42_pruned", 645.6, 4)]
)
def test_what_helix_published(name: str, rate: float, within: int) -> None:
    """Tests tokens per second of the layouts that Helix ships against its own simulator, within some percent."""
    problem, number, file = helix_problem(name)
    shipped = their_layout(problem, number, file)
    rules = replace(HELIX_RULES, latencies=helix_latencies(number, file))
    crossed = Layout(shipped.instances, crossed_lanes(problem, shipped))
    run = simulate_serving(problem, crossed, helix_profile(problem), sample_requests(6_000, 0), rules)
    assert run.rate / 10**6 == pytest.approx(rate, rel=within / 100)
    assert run.measured_ns == rules.duration_ns


def test_requests_that_arrive_as_they_do_there() -> None:
    """Tests rates and times to the first token of the eight layouts against the copy of Helix's simulator, online."""
    problem, profile, layouts = _cluster()
    asked = sample_requests(1_200, 0, per_second=0.66)
    rules = replace(HELIX_RULES, warm_up_ns=0, duration_ns=1_800 * 10**9, layer_percent=90, instance_percent=90)
    for name, layout in layouts.items():
        run = simulate_serving(problem, layout, profile, asked, rules)
        rate, first = TWIN_ONLINE[name]
        assert run.rate / 10**6 == pytest.approx(rate, rel=0.05), name
        assert run.first.mean_ns / 10**9 == pytest.approx(first, rel=0.1), name


def test_lanes_that_cross_break_convoys_up() -> None:
    """Tests that layouts with several instances in a stage gain by it, and that a chain cannot."""
    together, apart = _rates(_front(crossed=True)), _rates(_front(crossed=False))
    assert together["chain"] == apart["chain"]
    for name in ("S11", "S12", "S14", "kp1"):
        assert together[name] > 1.1 * apart[name], name
    for name, rate in apart.items():
        assert rate == pytest.approx(TWIN[name], rel=0.2), name


def test_only_the_best_of_the_ranking_are_simulated() -> None:
    """Tests the number of layouts that are simulated, those without room, and that the kernel can be made ready."""
    problem, profile = _small(2)
    prepare()
    asked = fixed_requests(40, 15, 5)
    alone = Layout((LayerInstance(0, (0,), 0, 2),), (LayerLane(7, ((0, 0, 2),)),))
    pair = (LayerInstance(0, (0,), 0, 1), LayerInstance(0, (1,), 1, 2))
    row = Layout(pair, (LayerLane(9, ((0, 0, 1), (1, 1, 2))),))
    rules = replace(PLAIN, warm_up_ns=0, duration_ns=10**9)
    rows = serve_front(problem, [row, alone], profile, asked, rules, simulated=1)
    assert [(one.layout, one.depth, one.table_rate) for one in rows] == [(1, 1, 7), (0, 2, 9)]
    ranked = rank_layouts(problem, [row, alone], profile, asked, rules)
    assert [one.run is not None for one in rows] == [ranked[0][0] == 1, ranked[0][0] == 0]
    best = next(one for one in rows if one.run is not None)
    assert best.run == simulate_serving(problem, [row, alone][best.layout], profile, asked, rules)
    assert best.best
    tight = replace(profile, units=(replace(profile.units[0], room=(100, 3)),))
    assert [one.layout for one in serve_front(problem, [row, alone], tight, asked, rules)] == [0]
    with pytest.raises(InfeasibleError, match="none of the layouts has room"):
        serve_front(problem, [alone], tight, asked, rules)
