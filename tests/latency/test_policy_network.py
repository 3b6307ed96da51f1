"""The policy's network: what it is before training, that numbering does not matter, and its two forms."""

from dataclasses import replace

import numpy as np
import pytest

from weftline.cost import CostTable
from weftline.graph import assemble
from weftline.latency.list.decoder import Decoder
from weftline.latency.policy import network as policy_network
from weftline.latency.policy.features import FEATURE_COUNT, see
from weftline.latency.policy.instances import fresh_problem
from weftline.latency.policy.network import DecoderBias, Weights, ask, first_weights, shapes
from weftline.latency.policy.policy import Policy
from weftline.latency.policy.samples import Orders
from weftline.latency.policy.train_network import batch_of, forward
from weftline.problem import Problem
from weftline.simulate.tables import default_order
from weftline.testing.generate import SeededChooser, make_order


def some_weights(seed: int = 0) -> Weights:
    """Weights with heads that say something."""
    random = np.random.default_rng(seed)
    return {name: (random.standard_normal(shape) * 0.15).astype(np.float32) for name, shape in shapes().items()}


def some_problem(seed: int, devices: int, ops: int = 40) -> Problem:
    """A problem of the training families that has something to see."""
    for each in range(seed, seed + 100):
        problem = fresh_problem(np.random.default_rng(each), devices, ops)
        if see(problem) is not None:
            return problem
    raise AssertionError("no problem")


@pytest.mark.parametrize("devices", [2, 3, 5])
def test_untrained_network_is_cpeft(devices: int) -> None:
    """Tests that heads at 0 give cPEFT's schedule, op by op, for one decode and for many."""
    for seed in range(3):
        problem = some_problem(100 * seed, devices)
        policy = Policy.of(problem, first_weights(seed))
        assert policy is not None
        plain = Decoder(problem).decode()
        for center in (policy.output.one, policy.output.many):
            timeline = policy.decode(center).timeline
            assert timeline is not None
            assert np.array_equal(timeline.placement, plain.placement)
            assert np.array_equal(timeline.start, plain.start)
        assert np.array_equal(policy.argmax(), plain.placement)


@pytest.mark.parametrize(("seed", "devices", "ops"), [(0, 5, 211), (7, 3, 403), (40, 2, 777)])
def test_two_threads_say_the_same(seed: int, devices: int, ops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests graphs that are worth a second thread, to the last bit."""
    seen = see(some_problem(seed, devices, ops))
    assert seen is not None
    rows = seen.features.shape[0] * devices
    found = []
    for least in (1, rows + 1):
        monkeypatch.setattr(policy_network, "FOR_TWO", least)
        found.append(ask(some_weights(), seen))
    two, one = found
    assert rows % policy_network.ROWS_AT_ONCE
    assert np.array_equal(two.logits, one.logits)
    assert np.array_equal(two.one.bias, one.one.bias)


def test_some_weights_are_not_cpeft() -> None:
    """Tests that what the heads say changes the schedule."""
    problem = some_problem(1, 3)
    policy = Policy.of(problem, some_weights())
    assert policy is not None
    assert not np.array_equal(policy.decode(policy.output.one).placement, Decoder(problem).decode().placement)


def test_numbers_of_devices_do_not_matter() -> None:
    """Tests that other numbers of the devices give the same answer in other columns."""
    problem, turn = some_problem(3, 4), np.array([2, 0, 3, 1])
    cost = problem.cost
    transfer = np.ascontiguousarray(cost.transfer[:, turn][:, :, turn])
    turned = replace(
        problem,
        devices=tuple(problem.devices[d] for d in turn),
        cost=CostTable(np.ascontiguousarray(cost.time[:, turn]), transfer, cost.transfer_row),
        buses=tuple(
            (int(np.flatnonzero(turn == a)[0]), int(np.flatnonzero(turn == b)[0]), c) for a, b, c in problem.buses
        ),
    )
    first, second = (Policy.of(each, some_weights()) for each in (problem, turned))
    assert first is not None
    assert second is not None
    for one, other in ((first.output.one, second.output.one), (first.output.many, second.output.many)):
        assert np.allclose(one.bias[:, turn], other.bias, atol=1e-4)
        assert np.allclose([one.lam, one.kappa, one.power], [other.lam, other.kappa, other.power], atol=1e-4)
    assert np.array_equal(first.decode(first.output.one).placement, turn[second.decode(second.output.one).placement])


def test_numbers_of_ops_do_not_matter() -> None:
    """Tests that other numbers of the ops give the same answer in other rows."""
    problem = some_problem(5, 3)
    order = make_order(SeededChooser(1), problem)
    assert not np.array_equal(order, np.arange(len(order)))
    place = np.argsort(order)
    graph = problem.graph
    tensors = [
        type(t)(
            t.name,
            int(place[t.producer]),
            tuple(sorted(int(place[c]) for c in t.consumers)),
            t.bytes,
            t.shape,
            t.dtype,
            t.output,
        )
        for t in graph.tensors
    ]
    renumbered = replace(
        problem,
        graph=assemble("renumbered", [graph.ops[op] for op in order], tensors),
        cost=problem.cost.with_time(np.ascontiguousarray(problem.cost.time[order])),
    )
    first, second = (Policy.of(each, some_weights()) for each in (problem, renumbered))
    assert first is not None
    assert second is not None
    assert np.allclose(first.output.one.bias[order], second.output.one.bias, atol=1e-4)
    assert np.array_equal(first.decode(first.output.one).placement[order], second.decode(second.output.one).placement)


def test_features_have_no_scale() -> None:
    """Tests that all times multiplied by a number look the same."""
    problem = some_problem(7, 3)
    cost = CostTable(
        np.where(problem.cost.time < 0, -1, 1000 * problem.cost.time),
        1000 * problem.cost.transfer,
        problem.cost.transfer_row,
    )
    before, after = see(problem), see(replace(problem, cost=cost))
    assert before is not None
    assert after is not None
    assert before.features.shape[2] == FEATURE_COUNT
    assert np.allclose(before.features, after.features, atol=1e-3)
    assert np.abs(before.features).max() > 0.5


def test_torch_and_numpy_agree() -> None:
    """Tests that the network that is trained is the one that answers, for several graphs at once."""
    import torch

    seen = [each for seed in range(3) if (each := see(some_problem(seed, 3, 20 + 17 * seed))) is not None]
    learnt = some_weights(4)
    answers = forward({name: torch.from_numpy(array) for name, array in learnt.items()}, batch_of(seen))
    first = 0
    for graph, each in enumerate(seen):
        output, here = ask(learnt, each), slice(first, first + len(each.unit))
        first += len(each.unit)
        assert np.allclose(answers.logits[here].numpy(), output.logits, atol=1e-4)
        for i, center in enumerate((output.one, output.many)):
            bias = answers.op_bias[here, :, i] + answers.device_bias[graph, :, i]
            assert np.allclose(bias.numpy(), center.bias, atol=1e-4)
            weights = answers.weights[graph, i].numpy() + np.array([1, 0, 1])
            assert np.allclose(weights, [center.lam, center.kappa, center.power], atol=1e-4)
            assert np.abs(center.bias).max() > 0.05


def test_lean_is_in_units() -> None:
    """Tests that a bias of one op moves this op alone where nothing follows from it."""
    problem = some_problem(9, 2, 30)
    policy = Policy.of(problem, first_weights(0))
    assert policy is not None
    bias = np.zeros((len(policy.seen.unit), 2))
    last = int(np.flatnonzero(np.diff(policy.seen.edges.after_ptr) == 0)[-1])
    plain = policy.decode(DecoderBias(bias, 1.0, 0.0, 1.0)).placement
    bias[last, plain[last]] = 1e6
    assert policy.decode(DecoderBias(bias, 1.0, 0.0, 1.0)).placement[last] != plain[last]


def test_orders_are_topological() -> None:
    """Tests that every power gives an order in which ops follow what they read, and that 1 is the usual order."""
    problem = some_problem(13, 4, 80)
    orders = Orders(problem)
    assert np.array_equal(orders.order(1.0), default_order(problem))
    assert np.array_equal(orders.order(1.1), default_order(problem))
    seen = set()
    for power in (-9.0, -1.0, 0.0, 0.5, 2.0):
        order = orders.order(power)
        place = np.argsort(order)
        source, target, _ = problem.graph.arrays.edges()
        assert np.all(place[source] < place[target])
        seen.add(order.tobytes())
    assert len(seen) > 2
