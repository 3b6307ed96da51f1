"""Tests that served requests take what was worked out by hand, and that kernel and slow reference agree exactly."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import NamedTuple

import numpy as np
import pytest
from msgspec.structs import replace

from weftline.errors import InfeasibleError, InputError, UsageError
from weftline.problem.layers import DevicePool, LayerInstance, LayerLane, LayerProblem, LayerUnit
from weftline.problem.serving import Requests, ServingProfile, ServingRules, ServingUnit, fixed_requests
from weftline.simulate.kernels.serving import run_serving
from weftline.simulate.serving import ServingRun, Spread, serving_tables, simulate_serving, token_room
from weftline.simulate.serving_reference import reference_serving

NOW = ServingRules(
    layer_percent=100, instance_percent=100, prompts_at_once=0, pause_ns=0, hop_ns=10, warm_up_ns=0, duration_ns=10**9
)
"""Measured from the start, nothing kept back."""


class Layout(NamedTuple):
    """What is to be served."""

    instances: tuple[LayerInstance, ...]
    lanes: tuple[LayerLane, ...]


def straight(top: int, per: int) -> tuple[tuple[int, int], ...]:
    """A table on one straight line."""
    return ((0, 0), (top, top * per))


def one_pool(layers: int, count: int, *, room: int = 10_000, prompts: int = 1) -> tuple[LayerProblem, ServingProfile]:
    """Equal devices that need 10 ns for a layer of a prompt token, and 100 for a layer of each token that decodes."""
    unit = LayerUnit("d", 0, (1,) * layers)
    own = ServingUnit("d", straight(100, 10), straight(10, 100), (room,) * layers, (prompts,) * layers)
    return LayerProblem("p", layers, (DevicePool("d", count),), (unit,)), ServingProfile("m", layers, (own,), 5, 5)


def chain(*cuts: int) -> Layout:
    """One lane through devices 0, 1 ..."""
    spans = list(pairwise(cuts))
    instances = tuple(LayerInstance(0, (device,), *span) for device, span in enumerate(spans))
    return Layout(instances, (LayerLane(1, tuple((i, *span) for i, span in enumerate(spans))),))


def test_one_request_by_hand() -> None:
    """Tests a prompt of 3 tokens and 2 more on 2 + 1 layers: links of 10 ns, 60 + 30 ns for the prompt."""
    problem, profile = one_pool(3, 2)
    run = simulate_serving(problem, chain(0, 2, 3), profile, fixed_requests(1, 3, 2), NOW, drain=True)
    # Prompt: 10 + 2 * 30 + 10 + 30 + 10 = 120. Token: 10 + 2 * 100 + 10 + 100 + 10 = 330.
    assert run.first == Spread(120, 120, 120)
    assert run.token == Spread(330, 330, 330)
    assert (run.measured_ns, run.prompts, run.tokens, run.resident) == (120 + 2 * 330, 1, 2, 1)
    assert run.busy == (Fraction(60 + 2 * 200, 780), Fraction(30 + 2 * 100, 780))
    assert run.rate == 2 * 10**15 // 780


def test_links_and_copies_by_hand() -> None:
    """Tests that a link sends one message after another, and that tokens are copied where they enter an instance."""
    problem, profile = one_pool(2, 2)
    linked = replace(problem, links=((-1, 0, 10**12), (0, 1, 20 * 10**6 * 10**6), (1, -2, 10**12)))
    rules = replace(NOW, copy_ns=7, latencies=((0, 1, 500),))
    run = simulate_serving(linked, chain(0, 1, 2), profile, fixed_requests(2, 4, 1), rules, drain=True)
    # The link into device 0 carries 1e12 / 1e6 tokens per second: 1,000 ns for each. 0 -> 1: 50 ns for each.
    # First prompt: 4,000 + 10, then 40 + 28, then 200 + 500, then 40 + 28, then 4,000 + 10.
    assert run.first.p50_ns in (8_856, 12_856)
    # The second one waits for both ends of the way: there 4,000 behind the first, then back 4,000 behind it.
    assert run.first.p95_ns == 12_856
    assert run.first.mean_ns == (8_856 + 12_856) // 2


def test_a_decode_travels_with_a_prompt() -> None:
    """Tests a convoy: a token that meets a prompt waits for all of it on every instance behind."""
    problem, profile = one_pool(2, 2, prompts=1)
    requests = Requests(((1, 2), (100, 1)), (0, 200))
    run = simulate_serving(problem, chain(0, 1, 2), profile, requests, NOW, drain=True)
    # Request 0: prompt until 10 + 10 + 10 + 10 + 10 = 50. Its token is on device 0 at 60..160, on device 1 at 170..270.
    # The long prompt is on device 0 from 210 to 1,210. The second token comes at 290, waits until 1,210, is done at
    # 1,310 and comes to device 1 at 1,320, where the prompt is until 2,220: it is done at 2,320 and back at 2,330.
    assert run.token.p95_ns == 2_330 - 280
    assert run.first == Spread((50 + 2_030) // 2, 2_030, 2_030)


def test_a_batch_takes_what_waits() -> None:
    """Tests that decodes share a batch, that prompts wait for each other, and that more fit where the profile says."""
    for prompts, slowest, tokens in ((1, 420, 300), (2, 320, 300)):
        problem, profile = one_pool(1, 1, prompts=prompts)
        run = simulate_serving(problem, chain(0, 1), profile, fixed_requests(3, 10, 1), NOW, drain=True)
        assert run.first.p95_ns == slowest
        assert run.token.p95_ns == tokens
    # All are there at 10. Request 0 works until 110 and is back at 120, its token is there again at 130.
    # One by one: request 1 until 210, then request 2 with the token of request 0 until 410, both back at 420.
    # Two at once: requests 1 and 2 until 310, back at 320; only then the token, until 410, back at 420.


def test_room_lets_them_in() -> None:
    """Tests that a request waits, with all behind it, until there is room for its prompt and a mean answer."""
    problem, profile = one_pool(1, 1, room=30)
    requests = fixed_requests(3, 9, 1)
    run = simulate_serving(problem, chain(0, 1), profile, requests, NOW, drain=True)
    assert run.resident == 3
    tight = replace(profile, units=(replace(profile.units[0], room=(29,)),))
    run = simulate_serving(problem, chain(0, 1), tight, requests, NOW, drain=True)
    assert run.resident == 2
    none = replace(profile, units=(replace(profile.units[0], room=(9,)),))
    with pytest.raises(InfeasibleError, match="request 0, with a prompt of 9 tokens, has room on no lane"):
        simulate_serving(problem, chain(0, 1), none, requests, NOW, drain=True)


def test_marks_keep_room_back() -> None:
    """Tests that both high-water marks are kept: of the model's layers, and of each instance."""
    problem, profile = one_pool(1, 2, room=100)
    instances = (LayerInstance(0, (0,), 0, 1), LayerInstance(0, (1,), 0, 1))
    both = Layout(instances, (LayerLane(1, ((0, 0, 1),)), LayerLane(1, ((1, 0, 1),))))
    asked = fixed_requests(40, 9, 1)
    assert token_room(problem, both, profile) == ([100, 100], 200)
    for layer, instance, most in ((100, 100, 20), (50, 100, 10), (100, 40, 8), (99, 99, 18)):
        rules = replace(NOW, layer_percent=layer, instance_percent=instance)
        assert simulate_serving(problem, both, profile, asked, rules, drain=True).resident == most


def test_lanes_share_by_their_rates() -> None:
    """Tests that a lane with three times the rate gets three times the tokens."""
    problem, profile = one_pool(1, 2)
    instances = (LayerInstance(0, (0,), 0, 1), LayerInstance(0, (1,), 0, 1))
    lanes = (LayerLane(3_000, ((0, 0, 1),)), LayerLane(1_000, ((1, 0, 1),)))
    rules = replace(NOW, prompts_at_once=1)
    run = simulate_serving(problem, Layout(instances, lanes), profile, fixed_requests(400, 50, 1), rules, drain=True)
    assert abs(run.busy[0] / run.busy[1] - 3) < Fraction(1, 20)


def test_offline_ends_when_nobody_follows() -> None:
    """Tests that without `drain` nothing is measured after the last request has been let in."""
    problem, profile = one_pool(1, 1, room=40)
    run = simulate_serving(problem, chain(0, 1), profile, fixed_requests(50, 9, 4), NOW)
    whole = simulate_serving(problem, chain(0, 1), profile, fixed_requests(50, 9, 4), NOW, drain=True)
    assert run.measured_ns < whole.measured_ns
    assert (whole.prompts, whole.tokens) == (50, 200)
    with pytest.raises(InputError, match="before the warm-up was over"):
        simulate_serving(problem, chain(0, 1), profile, fixed_requests(50, 9, 4), replace(NOW, warm_up_ns=10**8))


def test_what_cannot_be_served() -> None:
    """Tests one sentence for each thing that makes no sense."""
    problem, profile = one_pool(2, 2)
    good = chain(0, 1, 2)
    asked = fixed_requests(2, 3, 2)
    hole = Layout(good.instances, (LayerLane(1, ((0, 0, 1),)),))
    alien = Layout(good.instances, (LayerLane(1, ((0, 0, 1), (7, 1, 2))),))
    for layout, words in ((hole, "lane 0 ends at layer 1 of 2"), (alien, "instance 7 does not hold")):
        with pytest.raises(UsageError, match=words):
            simulate_serving(problem, layout, profile, asked, NOW)
    with pytest.raises(InfeasibleError, match="no lane"):
        simulate_serving(problem, Layout(good.instances, ()), profile, asked, NOW)
    own, links = profile.units[0], ((-1, 0, 10**12), (0, 1, 10**5), (1, -2, 10**12))
    long = fixed_requests(2, 101, 2)
    wrong: list[tuple[str, LayerProblem, ServingProfile, Requests, ServingRules]] = [
        ("measured up to 100", problem, profile, long, NOW),
        (r"has no profile of 'd' \(it has e\)", problem, replace(profile, units=(replace(own, name="e"),)), asked, NOW),
        ("has 2 layers, 'm' has 3", problem, replace(profile, layers=3), asked, NOW),
        ("cannot hold 1 layers", problem, replace(profile, units=(replace(own, room=()),)), asked, NOW),
        ("link 0 -> 1", replace(problem, links=links), profile, asked, NOW),
        ("hop_ns is -1", problem, profile, asked, replace(NOW, hop_ns=-1)),
        ("high-water marks", problem, profile, asked, replace(NOW, layer_percent=0)),
        ("-1 prompts at once", problem, profile, asked, replace(NOW, prompts_at_once=-1)),
        ("reach too far", problem, replace(profile, units=(replace(own, decode=((0, 0), (2**27, 1))),)), asked, NOW),
        ("0 requests", problem, profile, Requests(()), NOW),
    ]
    for words, one, tables, requests, rules in wrong:
        with pytest.raises(InputError, match=words):
            simulate_serving(one, good, tables, requests, rules)
    for much, rules in ((500_000, replace(NOW, duration_ns=10**14)), (50_000, replace(NOW, copy_ns=10**13))):
        with pytest.raises(UsageError, match="so much cannot be simulated"):
            simulate_serving(problem, good, profile, fixed_requests(much, 3, 2), rules)


def _random_case(seed: int) -> tuple[LayerProblem, Layout, ServingProfile, Requests, ServingRules, bool]:
    """Up to four devices of two pools, whole and partial use, links, arrivals, small rooms."""
    random = Random(seed)
    layers = random.randint(1, 5)
    units, profiles = [], []
    for pool in range(2):
        tables = [
            [(0, random.randint(0, 3))] + [(x, random.randint(1, 400)) for x in sorted(random.sample(range(1, 40), 3))]
            for _ in range(2)
        ]
        tables[0].append((40, random.randint(1, 900)))
        rooms = tuple(random.randint(60, 300) for _ in range(layers))
        most = tuple(random.randint(1, 3) for _ in range(layers))
        units.append(LayerUnit(f"u{pool}", pool, (1,) * layers))
        profiles.append(ServingUnit(f"u{pool}", tuple(tables[0]), tuple(tables[1]), rooms, most))
    instances, lanes = [], []
    for device in range(4):
        first = 0 if device == 0 else random.randint(0, layers - 1)
        last = layers if device == 0 else random.randint(first + 1, layers)
        instances.append(LayerInstance(device // 2, (device,), first, last))
    for _ in range(random.randint(1, 4)):
        position, hops = 0, []
        while position < layers:
            fits = [i for i, one in enumerate(instances) if one.first <= position < one.last]
            i = random.choice(fits)
            end = random.randint(position + 1, instances[i].last)
            hops.append((i, position, end))
            position = end
        lanes.append(LayerLane(random.randint(1, 10**9), tuple(hops)))
    ends = range(-1, 4)
    links = tuple((a, b, random.randint(10**12, 10**15)) for a in ends for b in (*range(4), -2) if a != b)
    problem = LayerProblem(
        "p", layers, (DevicePool("u0", 2), DevicePool("u1", 2)), tuple(units), random.choice((links, None))
    )
    count = random.randint(1, 25)
    lengths = tuple((random.randint(1, 40), random.randint(1, 12)) for _ in range(count))
    late = tuple(sorted(random.randint(0, 20_000) for _ in range(count))) if random.random() < 0.5 else ()
    rules = ServingRules(
        layer_percent=random.randint(50, 100),
        instance_percent=random.randint(50, 100),
        prompts_at_once=random.randint(0, 4),
        pause_ns=random.choice((0, 0, 70)),
        hop_ns=random.choice((0, 5, 300)),
        copy_ns=random.choice((0, 0, 3)),
        warm_up_ns=random.choice((0, 0, 900)),
        duration_ns=random.choice((5_000, 10**8)),
    )
    profile = ServingProfile("m", layers, tuple(profiles), 5, 5)
    return problem, Layout(tuple(instances), tuple(lanes)), profile, Requests(lengths, late), rules, seed % 2 == 0


@pytest.mark.parametrize("chunk", range(4))
def test_kernel_and_reference_agree(chunk: int) -> None:
    """Tests 4 x 75 tiny clusters: every time of a token, all work, the end of the run, who never enters."""
    seen = [0, 0, 0]
    for seed in range(75 * chunk, 75 * chunk + 75):
        problem, layout, profile, requests, rules, drain = _random_case(seed)
        tables = serving_tables(problem, layout, profile, requests, rules, drain=drain)
        cap = 40 if seed % 5 == 0 else 1_000
        first, token, work = (np.zeros(size, np.int64) for size in (len(requests.lengths), cap, len(layout.instances)))
        counts = run_serving(tables, first, token, work).tolist()
        slow = reference_serving(tables, cap)
        firsts, tokens, peak, end, never = counts[6:]
        assert (firsts, tokens, peak, end, never) == (
            len(slow.first),
            len(slow.token),
            slow.peak,
            slow.end,
            slow.never,
        ), seed
        assert (first[:firsts].tolist(), token[:tokens].tolist()) == (slow.first, slow.token), seed
        assert work.tolist() == slow.work, seed
        seen = [seen[0] + tokens, seen[1] + bool(never), seen[2] + (tokens == cap)]
    assert seen[0] > 1_000
    assert seen[1] < 60
    assert seen[2] > 0


def test_spread() -> None:
    """Tests that percentiles are times that occurred, and that nothing measured is nothing."""
    assert Spread.of(np.arange(1, 101, dtype=np.int64)) == Spread(50, 51, 96)
    assert Spread.of(np.array([7], np.int64)) == Spread(7, 7, 7)
    assert Spread.of(np.zeros(0, np.int64)) == Spread()
    assert ServingRun(3 * 10**9, 0, 7, Spread(), Spread(), (), 0).rate == 7 * 10**6 // 3
