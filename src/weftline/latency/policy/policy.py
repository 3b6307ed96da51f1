"""`policy`: one network, trained once on thousands of small graphs, places a graph it has never seen in milliseconds.

In: a Search. Out: one offer, the best simulated of: what the network says (one decode, samples around it, its argmax),
decodes with noise around cPEFT, HEFT, cPEFT, greedy and every single device; so it is never worse than any of them.
Half of the decodes look back at the best ones (see `forward_backward`). With `decodes` = 1 it is one decode of what the
network says, mended by one such look, or the best single device where that is better. Where activations overflow, room
is left and everything is decoded again; where no op order fits, simple heuristics are asked.

`policy+polish`: the same, then annealing from there for the time that is left, never anything worse. With the setting
`steps` it makes so many steps from the plans of the policy alone, the first of them with whole clusters of ops that
send each other much, and a few looks back follow. Where transfers cost more than ops, no single move out of a device
pays, so that few steps of single ops end where they began. Clusters come from a few rounds of matching, the costliest
transfers (per work of the smaller end) first. Simplified: clusters do not look at memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.anneal import SOLVER as ANNEAL
from weftline.latency.anneal.anneal import anneal_from
from weftline.latency.anneal.annealer import PlacementAnnealer, Start
from weftline.latency.list.decoder import Decoder
from weftline.latency.list.favourites import clusters
from weftline.latency.list.memory_left import MOST_ATTEMPTS, may_stop, offer_plan, overflow
from weftline.latency.list.memory_left import Candidate as Plan
from weftline.latency.policy.features import Features, see
from weftline.latency.policy.forward_backward import Mender, booked_again, look_back
from weftline.latency.policy.network import DecoderBias, PolicyOutput, Weights, ask, read_arrays, shapes
from weftline.latency.policy.samples import Orders, Samples, bias_row, no_bias
from weftline.latency.policy.settings import read_path, read_whole
from weftline.problem import Problem
from weftline.search import Search, Solver, alarm, best_of
from weftline.simulate import Timeline
from weftline.simulate.latency import evaluate
from weftline.simulate.sentinels import NEVER
from weftline.simulate.tables import tables

__all__ = [
    "SHIPPED",
    "SOLVER_POLICY",
    "SOLVER_POLISH",
    "Policy",
    "PolicyParameters",
    "PolishParameters",
    "anneal_clusters",
    "asked_weights",
    "load_weights",
    "offer_plans",
    "offer_policy",
    "polish",
    "prepare",
]

SHIPPED = Path(__file__).with_name("policy.safetensors")
SIMPLE_SOLVERS = ("cpeft", "heft", "greedy", "even-split", "round-robin")


@dataclass(frozen=True)
class PolicyParameters:
    """Numbers of `policy`."""

    decodes: int = field(default=64, metadata={"least": 1, "most": 4096})
    """Samples around what the network says, and looks back at the best of them."""
    plain_decodes: int = 32
    """Samples around cPEFT."""
    most_rows: int = 250_000
    """Ops x devices; for more, the network would take longer than a search may overrun its limit."""


@dataclass(frozen=True)
class PolishParameters(PolicyParameters):
    """Numbers of `policy+polish`; the last four are for a given number of `steps`."""

    cluster_shares: int = field(default=16, metadata={"least": 1})
    """What is joined holds no more than one of so many parts of the work."""
    cluster_step_every: int = field(default=5, metadata={"least": 1})
    """One of so many steps moves clusters of ops,"""
    most_cluster_steps: int = 4_000
    """up to this number."""
    looks_back: int = 8
    """At what annealing found."""


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
    seen: Features
    output: PolicyOutput
    decoder: Decoder = field(init=False)
    orders: Orders = field(init=False)

    def __post_init__(self) -> None:
        self.decoder, self.orders = Decoder(self.problem, "the policy"), Orders(self.problem)

    @staticmethod
    def of(problem: Problem, weights: Weights) -> Policy | None:
        """None where memory or links leave some op without a device, so that there is nothing to look at."""
        seen = see(problem)
        return None if seen is None else Policy(problem, seen, ask(weights, seen))

    def decode(self, center: DecoderBias, capacity: Ints | None = None) -> Plan:
        """One decode. Raises `InfeasibleError` where an op finds no device."""
        bias, lam, kappa, power = (part[0] for part in bias_row(self.seen, center))
        order = self.orders.order(float(power))
        timeline = self.decoder.decode(order, bias, float(lam), float(kappa), capacity=capacity)
        return Plan(timeline.placement, timeline=timeline)

    def decoded(
        self, centers: Sequence[DecoderBias], capacity: Ints | None = None
    ) -> list[tuple[Timeline, DecoderBias]]:
        """Those decodes that find a device for every op."""
        found = []
        for center in centers:
            with suppress(InfeasibleError):
                timeline = self.decode(center, capacity).timeline
                if timeline is not None:
                    found.append((timeline, center))
        return found

    def argmax(self) -> Indices:
        """The likeliest device of every op; ops that must stay together decide together."""
        group = self.problem.group
        votes = np.zeros((int(group.max()) + 1, self.seen.possible.shape[1]))
        np.add.at(votes, group, np.where(self.seen.possible, self.output.logits, -1e9))
        placement: Indices = votes.argmax(axis=1)[group].astype(np.int32)
        return placement


def offer_policy(search: Search, weights: Weights, numbers: PolicyParameters = PolicyParameters()) -> list[Timeline]:
    """Offer the best plan -> see `offer_plans`. Raises `InfeasibleError` if there is none."""
    problem = search.problem
    others: list[Timeline] = []
    reasons: tuple[str, ...] = ()
    if problem.cost.time.size <= numbers.most_rows:
        policy = Policy.of(problem, weights)
        if policy is not None:
            others = offer_plans(search, policy, numbers)
    else:
        search.tell(f"more than {numbers.most_rows} pairs of op and device: heuristics instead of the network")
    if search.best is None and not search.is_over:
        reasons = _ask_others(search)
    if search.best is None:
        raise InfeasibleError("the policy found no plan within the limits", conflicts=(*reasons, *search.refused))
    return others


def offer_plans(search: Search, policy: Policy, numbers: PolicyParameters) -> list[Timeline]:
    """The best of all decodes -> other good plans, from which a search may begin, too.

    Where activations overflow a device, leave that much room there and decode again.
    """
    capacity = search.problem.capacity.copy()
    for _ in range(MOST_ATTEMPTS):
        plans, others = _best(search, policy, numbers, capacity)
        for plan in plans:
            if may_stop(search) or offer_plan(search, plan) is not None:
                return others
        if search.is_over:
            break
        try:
            above = overflow(search, policy.decode(policy.output.one, capacity).placement)
        except InfeasibleError:
            break
        if not above.any():
            break
        capacity -= above
    return []


def _best(
    search: Search, policy: Policy, numbers: PolicyParameters, capacity: Ints
) -> tuple[list[Plan], list[Timeline]]:
    """The best of single devices and the like, of decodes, and of mended decodes, best first; all that were mended."""
    problem, random = search.problem, np.random.default_rng(search.seed)
    decodes, plain_decodes = numbers.decodes, numbers.plain_decodes
    samples = Samples(problem, policy.seen, policy.decoder, policy.orders, capacity)
    mender = Mender(problem, policy.seen, policy.decoder, capacity)
    one = policy.output.one
    samples.try_one(one)
    if decodes > 1:

        def over() -> bool:
            return search.stopped_by == "time"

        plain, wide = no_bias(policy.seen), (decodes + 1) // 2
        for center in (plain, replace(plain, lam=0.0), policy.output.many):
            samples.try_one(center)
        if problem.rules.runtime == "sequential":  # there are no late starts to look back at
            samples.draw(policy.output.many, wide, decodes - wide, random, over)
            samples.draw(plain, plain_decodes // 2, plain_decodes // 2, random, over)
        else:
            samples.draw(policy.output.many, wide, 0, random, over)
            samples.draw(plain, plain_decodes, 0, random, over)
            starts = [one, *(center for _, center in samples.pool if center is not one)]
            mender.mend(policy.decoded(starts, capacity), decodes - wide, random, over)
    else:
        for timeline, center in policy.decoded([one], capacity):
            mender.mend_one(timeline, center)
    placement, least = _best_placement(problem, policy, decodes)
    found = [] if placement is None else [(least, Plan(placement))]
    if samples.best is not None:
        found.append((samples.value, policy.decode(samples.best, capacity)))
    best = mender.best
    if best is not None:
        found.append((best.value, Plan(best.placement, timeline=best)))
    return [plan for _, plan in sorted(found, key=lambda entry: entry[0])], mender.ends


def _best_placement(problem: Problem, policy: Policy, decodes: int) -> tuple[Indices | None, int]:
    """The best of single devices and, with more than one decode, of greedy and argmax; its value or NEVER."""
    k = len(problem.devices)
    rows = policy.seen.simple[:k] if decodes == 1 else np.stack([*policy.seen.simple[: k + 1], policy.argmax()])
    rows = rows[_can_run(problem, rows)]
    if not len(rows):
        return None, NEVER
    limited = any(device.capacity is not None for device in problem.devices)
    found = evaluate(problem, rows, memory=limited)
    value = found.value if found.peak is None else np.where((found.peak <= problem.capacity).all(1), found.value, NEVER)
    best = int(value.argmin())
    return (rows[best], int(value[best])) if value[best] < NEVER else (None, NEVER)


def _can_run(problem: Problem, rows: Indices) -> Indices:
    """Numbers of the placements whose devices can run their ops. (Links: their value says it.)"""
    times = np.take_along_axis(problem.cost.time[None], rows[:, :, None].astype(np.int64), axis=2)
    return np.flatnonzero((times >= 0).all(axis=(1, 2))).astype(np.int32)


def _ask_others(search: Search) -> tuple[str, ...]:
    """Where memory or links are so tight that decoding fails -> why the others failed."""
    from weftline.latency import solvers

    reasons = best_of(search, solvers(), SIMPLE_SOLVERS)
    if search.best is None and not search.is_over:
        search.run(solvers()["pack"])
    return reasons


def _solve(search: Search) -> None:
    offer_policy(search, asked_weights(search.options), search.parameters(PolicyParameters))


@cache
def prepare() -> None:
    """Kernels of the features, and the weights, on a tiny problem."""
    from weftline.latency.policy.instances import fresh_problem

    _solve(Search(fresh_problem(np.random.default_rng(0), 2, 30)))


SOLVER_POLICY = Solver(
    "policy",
    "a network trained on other graphs: its best of 64 decodes in milliseconds (decodes=1: one)",
    _solve,
    options=("weights",),
    parameters=PolicyParameters,
    learned=True,
    prepare=prepare,
)


def anneal_clusters(search: Search, placements: Iterable[Indices], steps: int, shares: int = 16) -> Start | None:
    """The best of so many steps, from single devices and from plans in which every cluster goes with its majority."""
    problem = search.problem
    group = clusters(problem, shares)
    n, k = problem.cost.time.shape
    starts: list[Start] = [(np.full(n, d, np.int32), None) for d in range(k) if (problem.cost.time[:, d] >= 0).all()]
    for placement in placements:
        votes = np.zeros((int(group.max()) + 1, k), np.int64)
        np.add.at(votes, (group, placement), 1)
        starts.append((votes.argmax(axis=1)[group].astype(np.int32), None))
    with alarm(search) as stop:
        annealer = PlacementAnnealer(
            tables(problem), capacity=problem.capacity, group=group, seed=search.seed, start=starts, cycle=steps
        )
        annealer.run(steps, stop)
    best = annealer.best
    return None if best is None else best[:2]


def polish(
    search: Search,
    steps: int,
    others: Sequence[Timeline] = (),
    numbers: PolishParameters = PolishParameters(),
) -> None:
    """So many steps of annealing from the best plan so far, or a better start among others; then some looks back.

    What is better is offered. (A plan with its gaps filled may be a worse start than another one is.)
    """
    best, problem = search.best, search.problem
    if not isinstance(best, Timeline) or search.is_over:
        return
    inner = Search(problem, seed=search.seed, time_limit=search.seconds_left)
    starts: list[Start] = [(each.placement, order) for each in (best, *others) for order in (each.order, None)]
    of_clusters = min(steps // numbers.cluster_step_every, numbers.most_cluster_steps)
    if of_clusters:
        first = anneal_clusters(
            inner, [each.placement for each in (best, *others)], of_clusters, numbers.cluster_shares
        )
        starts += [] if first is None else [first]
    anneal_from(inner, starts, steps=steps - of_clusters)
    decoder, now = Decoder(problem), inner.best
    if isinstance(now, Timeline):
        _offer(search, now)
        _offer(search, now := booked_again(problem, now))
    for _ in range(0 if problem.rules.runtime == "sequential" else numbers.looks_back):
        if not isinstance(now, Timeline) or search.is_over:
            return
        now = look_back(problem, decoder, now)
        if now is not None:
            _offer(search, now)


def _offer(search: Search, timeline: Timeline) -> None:
    if not search.is_over and (search.best is None or timeline.value < search.best.value):
        search.offer(timeline.placement, actions=timeline.actions(search.problem.graph.arrays.producer))


def _polish_solve(search: Search) -> None:
    options, numbers = search.options, search.parameters(PolishParameters)
    others = offer_policy(search, asked_weights(options), numbers)
    if search.is_over:
        return
    if "steps" in options:
        polish(search, read_whole(options, "steps", 1, 1, 10**8), others, numbers)
    else:
        ANNEAL.solve(search)


SOLVER_POLISH = Solver(
    "policy+polish",
    "the policy, then annealing from its plan for the time left",
    _polish_solve,
    options=("weights", "steps"),
    parameters=PolishParameters,
    learned=True,
    prepare=prepare,
)


SOLVERS = (SOLVER_POLICY, SOLVER_POLISH)
