"""Graph parsing, the placer, and REINFORCE's arithmetic."""

import numpy as np
import pytest

from weftline.latency.measured.trials import components
from weftline.papers.hsdag.network import (
    best_edges,
    convolved,
    describe_convolution,
    describe_parsing,
    make_links,
    parse,
)
from weftline.papers.training.placer import (
    Weights,
    advantages,
    common_devices,
    discounted_return,
    draw,
    log_probabilities,
    log_rewards,
    speed_rewards,
)
from weftline.simulate.latency import INFEASIBLE


def _random_graph(rng: np.random.Generator) -> tuple[int, np.ndarray, np.ndarray]:
    count = int(rng.integers(2, 20))
    pairs = [(u, v) for u in range(count) for v in range(u + 1, count) if rng.random() < 0.3]
    return count, np.array([u for u, _ in pairs], np.int64), np.array([v for _, v in pairs], np.int64)


def test_every_group_has_one_pair_that_chose_each_other() -> None:
    """Tests that groups along the best edges are trees around exactly one mutual pair, even where scores are equal."""
    rng = np.random.default_rng(1)
    for _ in range(50):
        count, a, b = _random_graph(rng)
        score = rng.integers(0, 3, len(a)).astype(np.float32)
        kept = best_edges(count, a, b, score)
        label = components(count, a[kept], b[kept])
        for group in np.unique(label):
            members = int((label == group).sum())
            assert int((label[a[kept]] == group).sum()) == members - 1
        assert all(
            members > 1 for node in range(count) if node in {*a, *b} for members in [(label == label[node]).sum()]
        )


def test_convolution_is_the_normalised_product() -> None:
    """Tests a convolution over edges against dense matrices."""
    rng = np.random.default_rng(2)
    count, a, b = _random_graph(rng)
    own = Weights(0)
    describe_convolution(own, "c", 5, 1)
    own.seal()
    x = own.torch.from_numpy(rng.standard_normal((count, 5)).astype(np.float32))
    adjacency = np.eye(count)
    adjacency[a, b] = adjacency[b, a] = 1.0
    root = 1.0 / np.sqrt(adjacency.sum(1))
    dense = root[:, None] * adjacency * root @ (x.numpy() @ own.tensor["c.0.weight"].detach().numpy())
    found = convolved(own, "c", x, make_links(own, count, a, b), 1).detach().numpy()
    assert found == pytest.approx(np.maximum(dense, 0.0), abs=1e-5)


@pytest.mark.parametrize("count_links", [True, False])
def test_parsing_reaches_the_scorer_with_its_gradient(count_links: bool) -> None:
    """Tests that groups are fewer than nodes, and that the scores of edges are learned."""
    rng = np.random.default_rng(3)
    count, a, b = _random_graph(rng)
    own = Weights(0)
    describe_parsing(own, "p", 8)
    own.seal()
    x = own.torch.from_numpy(rng.standard_normal((count, 8)).astype(np.float32))
    level = parse(own, "p", x, make_links(own, count, a, b), count_links=count_links)
    assert len(level.embedding) == level.group.max() + 1 < count
    gradient = own.torch.autograd.grad((level.embedding**2).sum(), own.tensor["p.score.0.weight"])[0]
    assert float(gradient.abs().sum()) > 0


def test_draws_keep_to_allowed_devices_and_their_probabilities() -> None:
    """Tests that closed devices are never drawn, and that frequencies follow the probabilities."""
    own = Weights(5)
    torch = own.torch
    allowed = np.array([[True, True, False], [True, True, True]])
    scores = torch.tensor([[0.0, 1.0, 9.0], [2.0, 0.0, 0.0]])
    likelihood = log_probabilities(own, scores, allowed)
    draws = draw(own, likelihood, 20_000)
    assert (draws.devices[:, 0] < 2).all()
    share = (draws.devices[:, 1] == 0).mean()
    assert share == pytest.approx(float(likelihood[1, 0].exp()), abs=0.02)
    first = draws.devices[0]
    assert float(draws.log_probability[0]) == pytest.approx(float(likelihood[0, first[0]] + likelihood[1, first[1]]))


def test_groups_without_a_common_device_may_try_any() -> None:
    """Tests the devices of a group whose nodes have none in common."""
    allowed = np.array([[True, False], [False, True], [True, True]])
    assert common_devices(allowed, np.array([0, 0, 1])).tolist() == [[True, True], [True, True]]
    assert common_devices(allowed, np.array([0, 1, 1])).tolist() == [[True, False], [False, True]]


def test_rewards_prefer_what_is_faster_and_what_runs() -> None:
    """Tests that both rewards fall with latency and are least where a limit is broken."""
    values = np.array([100, 50, INFEASIBLE, 200], np.int64)
    for rewards in (speed_rewards(values, 100.0), log_rewards(values, 100.0)):
        assert np.argsort(rewards).tolist() == [2, 3, 0, 1]
    assert speed_rewards(values, 100.0).tolist() == [1.0, 2.0, 0.0, 0.5]


def test_returns_and_advantages() -> None:
    """Tests the discount (the last reward counts whole) and the normalisation."""
    assert discounted_return(np.array([1.0, 2.0, 4.0]), 0.5) == 4.0 + 0.5 * 2.0 + 0.25 * 1.0
    gain = advantages(np.array([1.0, 2.0, 3.0]))
    assert gain.mean() == pytest.approx(0.0)
    assert gain.std() == pytest.approx(1.0)
    assert not advantages(np.array([2.0, 2.0])).any()


def test_adam_descends_to_the_least_squares() -> None:
    """Tests that the optimiser finds the minimum of a quadratic, and that a gradient is clipped."""
    own = Weights(0)
    own.linear("line", 1, 1)
    own.seal()
    x = own.torch.linspace(-1, 1, 16)[:, None]
    for _ in range(600):
        own.descend(own.gradient(((own.dense("line", x) - (3 * x + 1)) ** 2).mean()), 0.02, clip=1.0)
    assert float(own.tensor["line.weight"].detach()[0, 0]) == pytest.approx(3.0, abs=0.02)
    assert float(own.tensor["line.bias"].detach()[0]) == pytest.approx(1.0, abs=0.02)
