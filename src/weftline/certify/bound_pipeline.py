"""No pipeline has all loads below T: the chain of ideals, once more, in plain Python.

In: the embedded problem and {"kind": "pipeline", "target": T}; "merge" may name pairs that `merges` joins. Out: T, or a
`Refusal`. Simplified: see `piece_graph`.

Let U = T - 1. For an ideal I let W(I) be its work and X(I) the tensors with an end on both sides, cut(I) their sum.
Filter: stages before I hold W(I), and each tensor of X(I) is paid at least once before I (where it is made or read)
and once behind it. So a pipeline with I as the end of its stage j has W(I) + cut(I) <= j U and W - W(I) + cut(I) <=
(k - j) U.
Pairs: a stage from I to J costs W(J) - W(I) + cut(I) + cut(J) less, for every tensor in X(I) and in X(J), 2 c if
nobody in J - I makes or reads it, else c. (In X(I) alone or X(J) alone: it has an end in the stage and one outside,
and is paid once. In both: it is paid once if the stage holds an end of it, else never.)
Stages: I_0 = {}; J is reached with j stages if some I that was reached with j - 1, I inside J, has a stage to J that
costs at most U. All I with W(I) - cut(I) >= W(J) + cut(J) - U do, by the first sum; others need a tensor in common.
There is no pipeline below T iff the set of all pieces is not reached with k stages.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weftline.certify.allowance import Allowance
from weftline.certify.merges import contract_named
from weftline.certify.piece_graph import PieceGraph, read_pieces
from weftline.certify.problem import PlanProblem, flag

__all__ = ["Ideals", "chain_exists", "list_ideals", "refute_pipelines"]

MOST_BYTES = 2**200
"""Stands for no limit of memory."""
ENDLESS_STAGES = 2**62


class Ideals(NamedTuple):
    """All ideals, or some, by size; sets of pieces and of tensors as bits."""

    members: list[int]
    work: list[int]
    crossing: list[int]
    cut: list[int]
    weight: list[int]
    cost: list[int]
    """Of each tensor."""
    ends: list[int]
    """Tensor -> the pieces that make or read it."""
    tensors: list[list[int]]
    """Those of the problem that it stands for: with one maker and the same readers."""
    parent: list[int]
    added: list[int]
    """Ideal -> a smaller one, and the piece that it lacks."""


def refute_pipelines(problem: PlanProblem, witness: dict[str, Any], target: int, allowance: Allowance) -> bool:
    """True if no pipeline is below the target."""
    memory = flag(witness, "memory")
    graph = PieceGraph()
    read_pieces(problem, graph, memory=memory)
    if not contract_named(graph, problem, witness, target, allowance):
        return True
    limits = [MOST_BYTES if limit is None else limit for limit in problem.capacity]
    room = max(limits) if memory else MOST_BYTES
    ideals = list_ideals(graph, allowance)
    return not chain_exists(ideals, problem.stage_limit, target - 1, room, allowance)


def list_ideals(graph: PieceGraph, allowance: Allowance, *, separate: bool = False) -> Ideals:
    """Breadth first, from the empty one. `separate` keeps tensors apart that have one maker and the same readers."""
    number = {piece: i for i, piece in enumerate(graph.work)}
    together: dict[object, list[int]] = {}
    for t in graph.cost:
        key = t if separate else (graph.maker[t], frozenset(graph.readers[t]))
        together.setdefault(key, []).append(t)
    tensors = list(together.values())
    cost = [graph.sum_of(group) for group in tensors]
    ends = [
        1 << number[graph.maker[group[0]]] | sum(1 << number[reader] for reader in graph.readers[group[0]])
        for group in tensors
    ]
    needs = [sum(1 << number[other] for other in graph.before[piece]) for piece in graph.work]
    later = [[number[other] for other in graph.after[piece]] for piece in graph.work]
    works, weights = list(graph.work.values()), list(graph.weight.values())
    touched: list[list[int]] = [[t for t, mask in enumerate(ends) if mask >> v & 1] for v in range(len(works))]
    found = Ideals([0], [0], [0], [0], [0], cost, ends, tensors, [0], [0])
    seen = {0}
    ready = [sum(1 << v for v, need_of in enumerate(needs) if not need_of)]
    for i, held in enumerate(found.members):  # grows while it is read
        able = ready[i]
        while able:
            bit = able & -able
            able ^= bit
            grown = held | bit
            if grown in seen:
                continue
            seen.add(grown)
            allowance.spend("ideals")
            v = bit.bit_length() - 1
            crossing, cut = found.crossing[i], found.cut[i]
            for t in touched[v]:
                if ends[t] & ~grown:
                    cut += 0 if crossing >> t & 1 else cost[t]
                    crossing |= 1 << t
                elif crossing >> t & 1:
                    cut -= cost[t]
                    crossing ^= 1 << t
            found.members.append(grown)
            found.parent.append(i)
            found.added.append(v)
            found.work.append(found.work[i] + works[v])
            found.weight.append(found.weight[i] + weights[v])
            found.crossing.append(crossing)
            found.cut.append(cut)
            ready.append(ready[i] ^ bit | sum(1 << w for w in later[v] if not needs[w] & ~grown))
    return found


def chain_exists(ideals: Ideals, stages: int, most: int, room: int, allowance: Allowance) -> bool:
    """Is there a chain of so many stages of which none costs more than `most` or holds more than `room`?"""
    return _Chains(ideals, stages, most, room, allowance).found()


class _Chains:
    """Which ideals are reached with how many stages."""

    def __init__(self, ideals: Ideals, stages: int, most: int, room: int, allowance: Allowance) -> None:
        self.ideals, self.stages, self.most, self.room, self.allowance = ideals, stages, most, room, allowance
        self.sorted: list[tuple[int, int]] = []
        """(work - cut, ideal) of those that were reached last, the largest first."""
        self.sharing: dict[int, list[int]] = {}
        """Tensor -> those of them that it crosses, the largest work first."""

    def found(self) -> bool:
        """Stage by stage; whoever is reached needs no other way to it."""
        ideals, k = self.ideals, self.stages
        last = len(ideals.members) - 1
        if last == 0:
            return True
        total = ideals.work[last]
        least = [self._stages_of(w + c) for w, c in zip(ideals.work, ideals.cut, strict=True)]
        rest = [self._stages_of(total - w + c) for w, c in zip(ideals.work, ideals.cut, strict=True)]
        waiting = [i for i in range(1, last + 1) if least[i] + rest[i] <= k]
        self._start_from([0])
        for j in range(1, k + 1):
            reached: list[int] = []
            still: list[int] = []
            for i in waiting:
                (reached if least[i] <= j and self._is_reached(i) else still).append(i)
            if last in reached:
                return True
            waiting = still
            self._start_from([i for i in reached if rest[i] <= k - j])
            if not self.sorted:
                return False
        return False

    def _stages_of(self, load: int) -> int:
        """The least number of stages that pay so much."""
        if load == 0:
            return 0
        return -(-load // self.most) if self.most > 0 else ENDLESS_STAGES

    def _start_from(self, reached: list[int]) -> None:
        work, cut = self.ideals.work, self.ideals.cut
        self.sorted = sorted(((work[i] - cut[i], i) for i in reached), reverse=True)
        self.sharing = {}
        for i in sorted(reached, key=work.__getitem__, reverse=True):
            crossing = self.ideals.crossing[i]
            while crossing:
                bit = crossing & -crossing
                crossing ^= bit
                self.sharing.setdefault(bit, []).append(i)

    def _is_reached(self, j: int) -> bool:
        """Is there a stage to this ideal from one that was reached last?"""
        found, looks = self._look(j)
        self.allowance.spend("pairs", looks + 1)
        return found

    def _look(self, j: int) -> tuple[bool, int]:
        """The same, and at how many ideals it looked."""
        members, work, cut = self.ideals.members, self.ideals.work, self.ideals.cut
        outside, least = ~members[j], work[j] + cut[j] - self.most
        limit = self.ideals.weight[j] - self.room
        looks = 0
        for difference, i in self.sorted:
            if difference < least:
                break
            looks += 1
            if not members[i] & outside and self.ideals.weight[i] >= limit:
                return True, looks
        tried: set[int] = set()
        crossing, twice = self.ideals.crossing[j], 2 * cut[j]
        while crossing:
            bit = crossing & -crossing
            crossing ^= bit
            for i in self.sharing.get(bit, ()):
                if work[i] < work[j] - self.most:
                    break
                looks += 1
                if i in tried or members[i] & outside or work[i] - cut[i] + twice < least:
                    continue
                tried.add(i)
                if self._cost(i, j) <= self.most and self.ideals.weight[i] >= limit:
                    return True, looks
        return False, looks

    def _cost(self, i: int, j: int) -> int:
        """Of the stage from one ideal to a larger one."""
        ideals = self.ideals
        stage = ideals.members[j] & ~ideals.members[i]
        cost = ideals.work[j] - ideals.work[i] + ideals.cut[i] + ideals.cut[j]
        common = ideals.crossing[i] & ideals.crossing[j]
        while common:
            bit = common & -common
            common ^= bit
            t = bit.bit_length() - 1
            cost -= ideals.cost[t] if ideals.ends[t] & stage else 2 * ideals.cost[t]
        return cost
