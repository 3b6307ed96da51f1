"""Late starts, booking again and looking back."""

import numpy as np
import pytest

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Ints
from weftline.latency.list.decoder import Decoder
from weftline.latency.policy.forward_backward import booked_again, late_tails, link_use, look_back
from weftline.latency.policy.instances import fresh_problem
from weftline.problem import Problem
from weftline.simulate import Timeline, replay, violations
from weftline.simulate.tables import edge_readers, tables
from weftline.testing.generate import KINDS, placement_problems

SEEDS = range(8)


def _problem(seed: int) -> Problem:
    return fresh_problem(np.random.default_rng(seed), 2 + seed % 4, 60)


def _actions(problem: Problem, timeline: Timeline) -> Ints:
    return timeline.actions(problem.graph.arrays.producer)


@pytest.mark.parametrize("seed", SEEDS)
def test_tails_leave_time_for_what_follows(seed: int) -> None:
    """Tests that an op's late start is early enough for its own time, the transfer and the reader's late start."""
    problem = _problem(seed)
    table, timeline = tables(problem), Decoder(problem).decode()
    tail = late_tails(table, timeline.placement, timeline.end)
    ops = np.arange(len(tail))
    own = table.time[ops, timeline.placement]
    reader, maker = edge_readers(table), table.edge_maker.astype(np.int64)
    row = table.transfer_row[table.edge_tensor]
    length = table.transfer[row, timeline.placement[maker], timeline.placement[reader]]
    assert np.all(tail[maker] >= own[maker] + length + tail[reader])
    assert np.all(tail >= own)
    for device in range(table.time.shape[1]):  # one op at a time
        mine = ops[timeline.placement == device]
        mine = mine[np.argsort(tail[mine])]
        assert np.all(tail[mine][:-1] <= (tail - own)[mine][1:])


def test_a_chain_has_no_slack() -> None:
    """Tests that on one device the longest tail is the whole latency."""
    problem = _problem(0)
    timeline = Decoder(problem).decode()
    alone = np.zeros(len(timeline.end), np.int32)
    tail = late_tails(tables(problem), alone, timeline.end)
    assert tail.max() == tables(problem).time[:, 0].sum()


@pytest.mark.parametrize("seed", SEEDS)
def test_booked_again_is_never_later_and_can_be_replayed(seed: int) -> None:
    """Tests that the placement stays, and that the simulator agrees with the latency or finds less."""
    problem = _problem(seed)
    first = Decoder(problem).decode()
    again = booked_again(problem, first)
    assert np.array_equal(again.placement, first.placement)
    assert again.value <= first.value
    assert replay(problem, again.placement, _actions(problem, again)).value <= again.value


def test_booking_again_helps() -> None:
    """Tests that it finds something for many problems, and looks back for many more."""
    booked = looked = 0
    for seed in range(20):
        problem = _problem(200 + seed)
        decoder = Decoder(problem)
        first = decoder.decode()
        again = booked_again(problem, first)
        booked += again.value < first.value
        found: Timeline | None = again
        best = again.value
        for _ in range(4):
            found = None if found is None else look_back(problem, decoder, found)
            best = best if found is None else min(best, found.value)
        looked += best < again.value
    assert booked >= 5
    assert looked >= 8


@pytest.mark.parametrize("kind", KINDS)
def test_limits_are_kept(kind: str) -> None:
    """Tests weights, links and `together` sets of what looking back finds; activations are its caller's matter."""
    for problem in placement_problems(kind, 6, 5_000):
        decoder = Decoder(problem)
        try:
            found: Timeline | None = decoder.decode()
        except InfeasibleError:
            continue
        for _ in range(3):
            found = None if found is None else look_back(problem, decoder, found)
            if found is None:
                break
            if problem.rules.runtime == "parallel":
                result = replay(problem, found.placement, _actions(problem, found))
                assert result.value <= found.value
                if problem.rules.memory == "static":
                    assert not violations(problem, result)


def test_use_of_links() -> None:
    """Tests that the use is the busy time of a port or bus by the latency, and not more than all of it."""
    for seed in SEEDS:
        problem = _problem(seed)
        timeline = Decoder(problem).decode()
        use = link_use(tables(problem), timeline)
        assert np.all((use >= 0) & (use <= 1 + 1e-9))
        assert (use.max() > 0) == (len(timeline.transfers) > 0)
