"""After a search: bounds that the checker itself can repeat, beside those that were only claimed.

In: the problem as it stands in the plan, the plan's value, what is claimed and proved so far. Out: bounds with a
witness that the checker has accepted in this process. Simplified: a maker hands witnesses to the checker, and knows
nothing that the checker would have to believe.

A maker is a function of a `ProofTask` that calls `task.attempt` with witnesses of the form "no plan is below `target`".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic

import numpy as np

from weftline.ask.prove_blocks import grow_tree
from weftline.ask.prove_chains import prove_chain
from weftline.ask.prove_convex import convex_witness
from weftline.ask.prove_cuts import cut_trees, named_merges
from weftline.bounds import Bound
from weftline.certify import check
from weftline.certify.allowance import Allowance
from weftline.certify.chain_block import ChainBlock
from weftline.pipeline.reduce import memory_may_bind
from weftline.problem import Problem
from weftline.units import format_time

__all__ = ["MOST_PROOF_SECONDS", "ProofTask", "proof_seconds", "prove_more"]

MOST_PROOF_SECONDS = 10.0
"""Of all makers together, unless more is asked for."""
MAKER_SHARE, LATENCY_SHARE = 0.5, 0.9
"""Of the time for proofs; the rest is for the checker, which repeats what was found. It walks trees much faster than
they are made."""
MOST_OPS, MOST_UNEQUAL = 12_000, 8
"""Ops of a problem, and devices that differ, for which all pipelines may be few."""
CONVEX_SHARE = 0.6
"""Of the time that is left, for trees over convex sets."""
CONVEX_STEPS = (0.5, 0.8, 0.9, 0.95, 0.98, 1.0)
"""How far from what is proved to what is claimed their targets are, in turn."""
MOST_WHOLE, WHOLE_NODES = 40, 2_000
"""Ops of a graph that may be one block, and nodes of its tree."""
CLOSE_ENOUGH = 1e-4
"""Between two targets of a bisection."""


@dataclass
class ProofTask:
    """What is to be proved, and what has been."""

    problem: Problem
    form: check.PlanProblem
    value: int
    """Of the plan."""
    claimed: int
    """The best bound so far, proved or not."""
    proved: int
    seconds: float
    say: Callable[[str], None]
    notes: Mapping[str, Sequence[object]] = field(default_factory=dict)
    """What the search left, by the name of a bound."""
    found: list[Bound] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._begun = monotonic()

    @property
    def is_over(self) -> bool:
        """Nothing left to prove, or no time for it."""
        return self.proved >= self.value or self.left <= 0

    @property
    def left(self) -> float:
        """Seconds."""
        return self.seconds - (monotonic() - self._begun)

    def attempt(self, by: str, witness: dict[str, object]) -> bool:
        """Hand a witness to the checker; what it accepts is kept, if it is more than what was proved."""
        target = witness["target"]
        assert isinstance(target, int)
        self.say(f"proving that nothing is faster than {format_time(target)}")
        begun = monotonic()
        try:
            check.bound_of(self.form, witness, Allowance(max(0.0, self.left)))
        except check.Refusal:
            return False
        if target > self.proved:
            self.proved = target
            self.found = [Bound(target, by, witness, monotonic() - begun)]
        return True

    def best_target(self, refutes: Callable[[int], bool]) -> None:
        """The plan's own value, else what was claimed, else the largest target that can be refuted, by bisection."""
        self.bisect(self.first_refused((refutes,)), refutes)

    def first_refused(self, ways: Sequence[Callable[[int], bool]]) -> int:
        """Try the plan's own value and what was claimed in several ways -> the smaller one that none could refute."""
        high = self.value
        for target in (self.value, self.claimed):
            if not self.is_over and self.proved < target <= high:
                if any(not self.is_over and refutes(target) for refutes in ways):
                    break
                high = target
        return high

    def bisect(self, high: int, refutes: Callable[[int], bool], share: float = 1.0) -> None:
        """The largest target below one that cannot be refuted, in a share of the time that is left."""
        low, until = self.proved, monotonic() + share * self.left
        while not self.is_over and monotonic() < until and high - low > max(1, CLOSE_ENOUGH * high):
            middle = (low + high) // 2
            if refutes(middle):
                low = middle
            else:
                high = middle


def proof_seconds(asked: float | None, time_limit: float | None, work_limit: int | None) -> float:
    """What proofs may take; nothing under a limit of work, whose answers repeat byte by byte, unless asked."""
    if asked is not None:
        return asked
    if work_limit is not None:
        return 0.0
    return MOST_PROOF_SECONDS if time_limit is None else min(MOST_PROOF_SECONDS, time_limit)


def prove_more(task: ProofTask) -> list[Bound]:
    """What all makers find, one after another."""
    task.seconds *= MAKER_SHARE
    for maker in MAKERS:
        if not task.is_over:
            maker(task)
    return task.found


def prove_pipelines(task: ProofTask) -> None:
    """Pipelines without hosts: by all ideals, and where devices differ by all sets of used devices too."""
    problem = task.problem
    if problem.rules.objective != "throughput" or problem.rules.communication != "added" or problem.host.any():
        return
    if len(problem.graph.ops) > MOST_OPS:
        return
    equal = _alike(problem) or not 2 <= len(problem.devices) <= MOST_UNEQUAL
    if equal and task.proved < task.claimed:
        _by_convex_sets(task)  # only where these were the best bound: then the ideals were too many
    ways = [partial(_by_ideals, task, "pipeline" if equal else "unequal", False)]
    if memory_may_bind(problem):
        ways.append(partial(_by_ideals, task, "pipeline" if equal else "unequal", True))
    if equal:
        ways.append(partial(_by_trees, task))
    high = task.first_refused(ways)
    for turn, way in enumerate(ways):
        task.bisect(high, way, 1 / (len(ways) - turn))


def _by_ideals(task: ProofTask, kind: str, memory: bool, target: int) -> bool:
    """The checker lists all of them."""
    asked: dict[str, object] = {"memory": True} if memory else {}
    return task.attempt("pipelines", {"kind": kind, **asked, "target": target})


def _by_trees(task: ProofTask, target: int) -> bool:
    """Where the ideals are too many."""
    merge = named_merges(task.form, target, lambda: task.is_over)
    named: dict[str, object] = {"target": target, **({"merge": merge} if merge else {})}
    if merge and task.attempt("pipelines", {"kind": "pipeline", **named}):
        return True
    trees = cut_trees(task.form, target, lambda: task.is_over, merge)
    return trees is not None and task.attempt("cuts", {"kind": "cut-trees", **named, "trees": trees})


def _by_convex_sets(task: ProofTask) -> None:
    """What the search claimed by weights of pieces, or a part of the way to it, as far as trees are small."""
    bound, ops, weights = task.notes.get("convex-set") or (0, (), ())
    if bound != task.claimed:
        return
    rows = [[int(op), int(pi)] for op, pi in zip(ops, weights, strict=True) if pi > 0]  # type: ignore[call-overload]
    low, until, best = task.proved, task.left * (1 - CONVEX_SHARE), None
    for part in CONVEX_STEPS:  # trees grow fast on the way up
        target = low + round(part * (task.claimed - low))
        witness = convex_witness(task.form, target, rows, lambda: task.left <= until)
        if witness is None:
            break
        best = witness
    if best is not None:
        task.attempt("convex-set", best)


def _alike(problem: Problem) -> bool:
    """Do times and transfers not depend on the devices?"""
    time, off = problem.cost.time, ~np.eye(len(problem.devices), dtype=np.bool_)
    sent = problem.cost.transfer[:, off]
    return bool((time == time[:, :1]).all() and (sent == sent[:, :1]).all())


def prove_latency(task: ProofTask) -> None:
    """The parallel runtime: blocks along a chain, and small graphs as one block."""
    problem = task.problem
    if problem.rules.objective != "latency" or problem.rules.runtime != "parallel":
        return
    task.seconds *= LATENCY_SHARE / MAKER_SHARE
    count = len(problem.graph.ops)
    if count <= MOST_WHOLE:
        _by_one_block(task, task.value)
    if not task.is_over and len(problem.devices) > 1 and count <= MOST_OPS:
        prove_chain(task)
    if not task.is_over and count <= MOST_WHOLE:
        task.best_target(lambda target: _by_one_block(task, target))


def _by_one_block(task: ProofTask, target: int) -> bool:
    """The whole graph."""
    ops = list(range(len(task.form.names)))
    tree = grow_tree(ChainBlock(task.form, ops), (None, None), target - 1, WHOLE_NODES, lambda: task.is_over)
    if tree is None:
        return False
    parts = [{"block": 0, "H": target - 1, "tree": tree}]
    return task.attempt("blocks", {"kind": "chain", "target": target, "ops": [], "blocks": [ops], "parts": parts})


MAKERS: tuple[Callable[[ProofTask], None], ...] = (prove_pipelines, prove_latency)
