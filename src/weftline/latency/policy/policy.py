"""`policy`: one network, trained once on thousands of small graphs, places a graph it has never seen in milliseconds.

In: a Search. Out: one offer, the best simulated of: what the network says (one decode, samples around it, its argmax),
decodes with noise around cPEFT, HEFT, cPEFT, greedy and every single device; so it is never worse than any of them.
Half of the decodes look back at the best ones (see `place.look_back`). With `decodes` = 1 it is one decode of what the
network says, mended by one such look, or the best single device where that is better. Where activations overflow, room
is left and everything is decoded again; where no op order fits, simple heuristics are asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.decoder import FAILED, Decoder
from weftline.latency.list.memory_left import ATTEMPTS, may_stop, offer_plan, overflow
from weftline.latency.list.memory_left import Candidate as Plan
from weftline.latency.policy.features import Seen, see
from weftline.latency.policy.file import read_arrays
from weftline.latency.policy.network import Lean, Said, Weights, ask, shapes
from weftline.latency.policy.order import Orders
from weftline.latency.policy.samples import Mender, Samples, lean_row, untold
from weftline.latency.policy.settings import read_path, read_whole
from weftline.problem import Problem
from weftline.search import Search, Solver, best_of
from weftline.simulate import Timeline
from weftline.simulate.batch import evaluate

__all__ = [
    "DECODES",
    "SHIPPED",
    "SOLVER",
    "Policy",
    "asked_weights",
    "load_weights",
    "offer_plans",
    "offer_policy",
    "prepare",
]

SHIPPED = Path(__file__).with_name("policy.safetensors")
DECODES, RANDOM = 64, 32
"""Samples around what the network says, unless asked for another number; samples around cPEFT."""
MOST_DECODES = 4096
MOST_ROWS = 250_000
"""Ops x devices; for more, the network would take longer than a search may overrun its limit."""
SIMPLE = ("cpeft", "heft", "greedy", "even-split", "round-robin")


def load_weights(path: Path | str) -> Weights:
    """Raises `InputError` on a file that does not hold weights of this network."""
    return read_arrays(path, shapes())[0]


@cache
def _shipped() -> Weights:
    return load_weights(SHIPPED)


def asked_weights(options: Mapping[str, str]) -> Weights:
    """Those of the setting `weights`, or those that come with weftline."""
    path = read_path(options, "weights")
    return _shipped() if path is None else load_weights(path)


@dataclass(eq=False)
class Policy:
    """What the network says about one problem, and the plans that follow from it."""

    problem: Problem
    seen: Seen
    said: Said
    decoder: Decoder = field(init=False)
    orders: Orders = field(init=False)

    def __post_init__(self) -> None:
        self.decoder, self.orders = Decoder(self.problem, "the policy"), Orders(self.problem)

    @staticmethod
    def of(problem: Problem, weights: Weights) -> Policy | None:
        """None where memory or links leave some op without a device, so that there is nothing to look at."""
        seen = see(problem)
        return None if seen is None else Policy(problem, seen, ask(weights, seen))

    def decode(self, lean: Lean, capacity: Ints | None = None) -> Plan:
        """One decode. Raises `InfeasibleError` where an op finds no device."""
        bias, lam, kappa, power = (part[0] for part in lean_row(self.seen, lean))
        order = self.orders.order(float(power))
        timeline = self.decoder.decode(order, bias, float(lam), float(kappa), capacity=capacity)
        return Plan(timeline.placement, timeline=timeline)

    def decoded(self, leans: Sequence[Lean], capacity: Ints | None = None) -> list[tuple[Timeline, Lean]]:
        """Those decodes that find a device for every op."""
        found = []
        for lean in leans:
            with suppress(InfeasibleError):
                timeline = self.decode(lean, capacity).timeline
                if timeline is not None:
                    found.append((timeline, lean))
        return found

    def argmax(self) -> Indices:
        """The likeliest device of every op; ops that must stay together decide together."""
        group = self.problem.group
        votes = np.zeros((int(group.max()) + 1, self.seen.possible.shape[1]))
        np.add.at(votes, group, np.where(self.seen.possible, self.said.logits, -1e9))
        placement: Indices = votes.argmax(axis=1)[group].astype(np.int32)
        return placement


def offer_policy(search: Search, weights: Weights, decodes: int) -> list[Timeline]:
    """Offer the best plan -> see `offer_plans`. Raises `InfeasibleError` if there is none."""
    problem = search.problem
    others: list[Timeline] = []
    reasons: tuple[str, ...] = ()
    if problem.cost.time.size <= MOST_ROWS:
        policy = Policy.of(problem, weights)
        if policy is not None:
            others = offer_plans(search, policy, decodes)
    else:
        search.tell(f"more than {MOST_ROWS} pairs of op and device: heuristics instead of the network")
    if search.best is None and not search.is_over:
        reasons = _ask_others(search)
    if search.best is None:
        raise InfeasibleError("the policy found no plan within the limits", conflicts=(*reasons, *search.refused))
    return others


def offer_plans(search: Search, policy: Policy, decodes: int) -> list[Timeline]:
    """The best of all decodes -> other good plans, from which a search may begin, too.

    Where activations overflow a device, leave that much room there and decode again.
    """
    capacity = search.problem.capacity.copy()
    for _ in range(ATTEMPTS):
        plans, others = _best(search, policy, decodes, capacity)
        for plan in plans:
            if may_stop(search) or offer_plan(search, plan) is not None:
                return others
        if search.is_over:
            break
        try:
            above = overflow(search, policy.decode(policy.said.one, capacity).placement)
        except InfeasibleError:
            break
        if not above.any():
            break
        capacity -= above
    return []


def _best(search: Search, policy: Policy, decodes: int, capacity: Ints) -> tuple[list[Plan], list[Timeline]]:
    """The best of single devices and the like, of decodes, and of mended decodes, best first; all that were mended."""
    problem, random = search.problem, np.random.default_rng(search.seed)
    samples = Samples(problem, policy.seen, policy.decoder, policy.orders, capacity)
    mender = Mender(problem, policy.seen, policy.decoder, capacity)
    one = policy.said.one
    samples.try_one(one)
    if decodes > 1:

        def over() -> bool:
            return search.stopped_by == "time"

        plain, wide = untold(policy.seen), (decodes + 1) // 2
        for lean in (plain, replace(plain, lam=0.0), policy.said.many):
            samples.try_one(lean)
        if problem.rules.runtime == "sequential":  # there are no late starts to look back at
            samples.draw(policy.said.many, wide, decodes - wide, random, over)
            samples.draw(plain, RANDOM // 2, RANDOM // 2, random, over)
        else:
            samples.draw(policy.said.many, wide, 0, random, over)
            samples.draw(plain, RANDOM, 0, random, over)
            starts = [one, *(lean for _, lean in samples.pool if lean is not one)]
            mender.mend(policy.decoded(starts, capacity), decodes - wide, random, over)
    else:
        for timeline, lean in policy.decoded([one], capacity):
            mender.mend_one(timeline, lean)
    placement, least = _best_placement(problem, policy, decodes)
    found = [] if placement is None else [(least, Plan(placement))]
    if samples.best is not None:
        found.append((samples.value, policy.decode(samples.best, capacity)))
    best = mender.best
    if best is not None:
        found.append((best.value, Plan(best.placement, timeline=best)))
    return [plan for _, plan in sorted(found, key=lambda entry: entry[0])], mender.ends


def _best_placement(problem: Problem, policy: Policy, decodes: int) -> tuple[Indices | None, int]:
    """The best of single devices and, with more than one decode, of greedy and argmax; its value or FAILED."""
    k = len(problem.devices)
    rows = policy.seen.simple[:k] if decodes == 1 else np.stack([*policy.seen.simple[: k + 1], policy.argmax()])
    rows = rows[_can_run(problem, rows)]
    if not len(rows):
        return None, FAILED
    limited = any(device.capacity is not None for device in problem.devices)
    found = evaluate(problem, rows, memory=limited)
    value = (
        found.value if found.peak is None else np.where((found.peak <= problem.capacity).all(1), found.value, FAILED)
    )
    best = int(value.argmin())
    return (rows[best], int(value[best])) if value[best] < FAILED else (None, FAILED)


def _can_run(problem: Problem, rows: Indices) -> Indices:
    """Numbers of the placements whose devices can run their ops. (Links: their value says it.)"""
    times = np.take_along_axis(problem.cost.time[None], rows[:, :, None].astype(np.int64), axis=2)
    return np.flatnonzero((times >= 0).all(axis=(1, 2))).astype(np.int32)


def _ask_others(search: Search) -> tuple[str, ...]:
    """Where memory or links are so tight that decoding fails -> why the others failed."""
    from weftline.latency import solvers

    reasons = best_of(search, solvers(), SIMPLE)
    if search.best is None and not search.is_over:
        search.run(solvers()["pack"])
    return reasons


def _solve(search: Search) -> None:
    options = search.options
    offer_policy(search, asked_weights(options), read_whole(options, "decodes", DECODES, 1, MOST_DECODES))


@cache
def prepare() -> None:
    """Kernels of the features, and the weights, on a tiny problem."""
    from weftline.latency.policy.train.instances import fresh_problem

    _solve(Search(fresh_problem(np.random.default_rng(0), 2, 30)))


SOLVER = Solver(
    "policy",
    "a network trained on other graphs: its best of 64 decodes in milliseconds (decodes=1: one)",
    _solve,
    options=("decodes", "weights"),
    learned=True,
    prepare=prepare,
)
