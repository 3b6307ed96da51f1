"""No pipeline of unequal devices has all loads below T: states (devices used, ideal).

In: the embedded problem and {"kind": "unequal", "target": T}. Out: whether T is refuted. Simplified: weights count
where `memory` is true, activations never; backward ops that are read against the order and hosts are refused.

Let U = T - 1. A pipeline takes devices one after another; after some stages the devices D are used and the ideal I is
done. The next stage, on d, from I to J, costs its time on d, and for every tensor across I that it reads at least the
least transfer to d from a device of D, and for every tensor that it makes and that is read behind J at least the
least transfer from d to a device that is neither d nor in D. So the states that are reached by stages of at most U
hold those of all pipelines below T: 2^K sets of devices instead of K! orders. Devices that may change places (same
times, same memory, same transfers to and from all others) are used in the order of their numbers, so of such a kind
only the count of used ones matters. If no state holds all pieces, T is refuted.
Pairs: with E(I) and L(J) for these least transfers, a stage costs W_d(J) - W_d(I) + E(I) + L(J) less, for every
tensor across I and J, L and, if the stage does not read it, E. So all I with W_d(I) - E(I) >= W_d(J) + L(J) - U reach
J; others must share a tensor with it.
Ends: the devices left must take the rest. At integer prices y every piece costs at least its least y_d w_d there,
every tensor across J is paid once, and all of it is at most U times the sum of the prices. One device left: its exact
stage. Where states with all pieces are reached under least transfers, all chains to them are tried backwards with the
transfers that they really need; T is refuted if none of them stays within U. Reductions as in `piece_graph`, where
all links are alike, with the largest time of the piece that moves, if it can run wherever the other one can; R0
always. C1 over all pairs of devices."""

from __future__ import annotations

from typing import Any

from weftline.certify.allowance import Allowance
from weftline.certify.bound_pipeline import MOST_BYTES, Ideals, list_ideals
from weftline.certify.piece_graph import PieceGraph, join_cycles, read_pieces, reduce_graph
from weftline.certify.problem import NO_WAY, PlanProblem, flag, group_times, need

__all__ = ["States", "UnequalGraph", "refute_unequal", "twins"]

MOST_DEVICES = 8
PRICE_SCALE = 2**20


class UnequalGraph(PieceGraph):
    """Pieces with a time for each device, tensors with a transfer for each pair; `work` is the largest time."""

    def __init__(self, problem: PlanProblem, *, memory: bool) -> None:
        super().__init__()
        self.k = len(problem.ids)
        self.times: dict[int, list[int]] = {}
        self.rows: dict[int, list[int]] = {}
        need(all(problem.forward), "witness", "backward ops may read against the order")
        read_pieces(problem, self, memory=memory)
        for t in self.cost:
            self.rows[t] = [NO_WAY if x < 0 else x for x in problem.transfer[t]]
        off = [i for i in range(self.k * self.k) if i % (self.k + 1)]
        self.flat = all(len({row[i] for i in off}) == 1 for row in self.rows.values())

    def add_group(self, problem: PlanProblem, group: list[int], size: int) -> None:
        """A new piece with its times."""
        times = [NO_WAY if t < 0 else t for t in group_times(problem, group)]
        self.times[group[0]] = times
        self.add(group[0], max(times), size)

    def price_of(self, lengths: list[int]) -> int:
        """The largest one: a tensor counts if it costs anything anywhere."""
        return max((NO_WAY if x < 0 else x for x in lengths), default=NO_WAY)

    def join(self, a: int, b: int) -> int:
        """As for equal devices; times add up, too."""
        heir = super().join(a, b)
        if a != b:
            self.times[heir] = [min(NO_WAY, x + y) for x, y in zip(self.times[a], self.times[b], strict=True)]
            self.work[heir] = max(self.times[heir])
        return heir

    def may_move(self, piece: int, to: int) -> bool:
        """Links are alike, it holds no weights that count, and it can run wherever the other one can."""
        if self.weight[piece]:
            return False
        able = zip(self.times[piece], self.times[to], strict=True)
        return self.flat and all(mine < NO_WAY or other >= NO_WAY for mine, other in able)

    def moved_work(self, piece: int) -> int:
        """The largest time where it can run."""
        return max((t for t in self.times[piece] if t < NO_WAY), default=NO_WAY)

    def contract(self, target: int) -> bool:
        """Reduce, and join what no pipeline below the target separates -> False where that leaves none."""
        while True:
            reduce_graph(self)
            if any(min(times) >= target for times in self.times.values()):
                return False
            pairs = [
                (m, r)
                for m in self.work
                for r in sorted(set().union(*(self.readers[t] for t in self.made[m])))
                if not self._separable(m, r, target)
            ]
            if not pairs:
                return True
            for m, r in pairs:
                self.join(self.piece_of(m), self.piece_of(r))
            join_cycles(self)

    def _separable(self, m: int, r: int, target: int) -> bool:
        """C1: on some two devices both stages stay below the target."""
        shared = [self.rows[t] for t in self.made[m] & self.read[r]]
        for a in range(self.k):
            for b in range(self.k):
                x = sum(row[a * self.k + b] for row in shared)
                if a != b and max(self.times[m][a], self.times[r][b]) + x < target:
                    return True
        return False


def refute_unequal(problem: PlanProblem, witness: dict[str, Any], target: int, allowance: Allowance) -> bool:
    """True if no pipeline is below the target."""
    need(2 <= len(problem.ids) <= MOST_DEVICES, "witness", f"it is for 2 to {MOST_DEVICES} devices")
    memory = flag(witness, "memory")
    graph = UnequalGraph(problem, memory=memory)
    if not graph.contract(target):
        return True
    ideals = list_ideals(graph, allowance, separate=not graph.flat)
    limits = [MOST_BYTES if limit is None or not memory else limit for limit in problem.capacity]
    states = States(graph, ideals, limits, target - 1, allowance)
    return not states.reach_all(problem.stage_limit) or not states.has_chain(problem.stage_limit)


def twins(graph: UnequalGraph, limits: list[int]) -> list[int]:
    """Device -> those before it, as bits, that look like it: the two can change places and nothing else changes."""
    k, rows = graph.k, {tuple(row) for row in graph.rows.values()}

    def alike(a: int, b: int) -> bool:
        others = [x for x in range(k) if x not in (a, b)]
        return (
            limits[a] == limits[b]
            and all(times[a] == times[b] for times in graph.times.values())
            and all(row[a * k + b] == row[b * k + a] for row in rows)
            and all(
                row[a * k + x] == row[b * k + x] and row[x * k + a] == row[x * k + b] for row in rows for x in others
            )
        )

    return [sum(1 << a for a in range(d) if alike(a, d)) for d in range(k)]


class States:
    """Ideals that are reached with a set of devices, given as bits."""

    def __init__(self, graph: UnequalGraph, ideals: Ideals, limits: list[int], most: int, allowance: Allowance) -> None:
        self.flat = graph.flat
        self.k, self.ideals, self.limits, self.most, self.allowance = graph.k, ideals, limits, most, allowance
        names = list(graph.work)
        self.work = [[0] for _ in range(self.k)]
        """Device -> ideal -> its time there."""
        for i, (parent, v) in enumerate(zip(ideals.parent, ideals.added, strict=True)):
            for d in range(self.k if i else 0):
                self.work[d].append(self.work[d][parent] + graph.times[names[v]][d])
        self.rows = [[sum(graph.rows[t][i] for t in group) for i in range(self.k**2)] for group in ideals.tensors]
        self.makers = [1 << names.index(graph.maker[group[0]]) for group in ideals.tensors]
        self.reached: dict[int, list[int]] = {0: [0]}
        self.last = len(ideals.members) - 1
        totals = [max(1, row[self.last]) for row in self.work]
        self.prices = [PRICE_SCALE * min(totals) // total + 1 for total in totals]
        self.twins = twins(graph, limits)
        self._rest: dict[int, list[int]] = {}
        self._times = [graph.times[name] for name in names]

    def least(self, row: list[int], sources: int, targets: int) -> int:
        """The least transfer from one of these devices to one of those; NO_WAY if there is none."""
        found = NO_WAY
        for a in range(self.k):
            for b in range(self.k):
                if sources >> a & 1 and targets >> b & 1 and a != b:
                    found = min(found, row[a * self.k + b])
        return found

    def reach_all(self, stages: int) -> bool:
        """Fill `reached` for all sets of devices, small ones first -> can all pieces be done?"""
        done = self.last == 0
        allowed: dict[int, list[bool]] = {}
        for used in sorted(range(1 << self.k), key=int.bit_count):
            if used.bit_count() >= stages or not self.reached.get(used):
                continue
            for d in range(self.k):
                if used >> d & 1 or self.twins[d] & ~used:
                    continue
                after = used | 1 << d
                if after not in allowed:
                    allowed[after] = self.last_allowed(after, stages)
                step = _Step(self, used, d, allowed[after])
                found = set(self.reached.get(after, ()))
                known = found | (self._reached_with_less(after) if self.flat else set())
                found |= {j for j in step.candidates if j not in known and step.reaches(j)}
                self.reached[after] = sorted(found)
                done = done or self.last in found
        return done

    def _reached_with_less(self, used: int) -> set[int]:
        """Where links are alike, whoever is reached with fewer devices needs no other way to it."""
        return {j for other, found in self.reached.items() if other & ~used == 0 and other != used for j in found}

    def last_allowed(self, after: int, stages: int) -> list[bool]:
        """Ideal -> may the devices that are left do the rest?"""
        left = ((1 << self.k) - 1) & ~after if after.bit_count() < stages else 0
        fits = [False] * (self.last + 1)
        fits[self.last] = True
        if not left:
            return fits
        devices = [d for d in range(self.k) if left >> d & 1]
        enter = [self.least(row, after, left) for row in self.rows]
        if len(devices) == 1:
            (d,) = devices
            total = self.work[d][self.last]
            for i in range(self.last):
                fits[i] = total - self.work[d][i] + self._sum(self.ideals.crossing[i], enter) <= self.most
            return fits
        rest = self.priced_rest(left, devices)
        room, least = self.most * sum(self.prices[d] for d in devices), min(self.prices[d] for d in devices)
        for i in range(self.last):
            fits[i] = rest[i] + least * self._sum(self.ideals.crossing[i], enter) <= room
        return fits

    def priced_rest(self, left: int, devices: list[int]) -> list[int]:
        """Ideal -> the least price of all that it does not hold."""
        if left not in self._rest:
            least = [min(self.prices[d] * times[d] for d in devices) for times in self._times]
            held = [0]
            for parent, v in zip(self.ideals.parent[1:], self.ideals.added[1:], strict=True):
                held.append(held[parent] + least[v])
            self._rest[left] = [held[-1] - x for x in held]
        return self._rest[left]

    def _sum(self, tensors: int, costs: list[int]) -> int:
        total = 0
        while tensors:
            bit = tensors & -tensors
            tensors ^= bit
            total += costs[bit.bit_length() - 1]
        return total

    # Chains that are reached under least transfers, with the transfers that they need.

    def has_chain(self, stages: int) -> bool:
        """Is there a chain to all pieces whose exact loads stay within `most`?"""
        ends = [used for used, found in self.reached.items() if found and found[-1] == self.last]
        return any(self._chain_to(used, self.last, []) for used in ends if used.bit_count() <= stages)

    def _chain_to(self, used: int, j: int, later: list[tuple[int, int, int]]) -> bool:
        """Stages of `later`: device, pieces, and what they pay as far as that is known."""
        if j == 0:
            return True
        for d in range(self.k):
            if not used >> d & 1:
                continue
            before = used & ~(1 << d)
            for i in self.reached.get(before, ()):
                self.allowance.spend("steps")
                if i == j or self.ideals.members[i] & ~self.ideals.members[j]:
                    continue
                stages = self._with_stage(before, d, i, j, later)
                if stages is not None and self._chain_to(before, i, stages):
                    return True
        return False

    def _with_stage(
        self, before: int, d: int, i: int, j: int, later: list[tuple[int, int, int]]
    ) -> list[tuple[int, int, int]] | None:
        """One more stage in front of the later ones; None where a load is too large."""
        ideals, k = self.ideals, self.k
        pieces = ideals.members[j] & ~ideals.members[i]
        load = self.work[d][j] - self.work[d][i]
        if load > self.most or ideals.weight[j] - ideals.weight[i] > self.limits[d]:
            return None
        pays = [known for _, _, known in later]
        for t, row in enumerate(self.rows):
            if self.makers[t] & pieces:
                targets = [n for n, (_, held, _) in enumerate(later) if ideals.ends[t] & held]
                load += max((row[d * k + later[n][0]] for n in targets), default=0)
                for n in targets:
                    pays[n] += row[d * k + later[n][0]]
            elif ideals.ends[t] & pieces:
                load += self.least(row, before, 1 << d)
        if load > self.most:
            return None
        # What later stages read from stages that are not known yet costs at least the least.
        for n, (e, held, _) in enumerate(later):
            waits = sum(
                self.least(row, before, 1 << e)
                for t, row in enumerate(self.rows)
                if ideals.ends[t] & held and self.makers[t] & ideals.members[i]
            )
            if pays[n] + waits > self.most:
                return None
        # What it reads itself is added when its makers are placed.
        mine = (
            self.work[d][j]
            - self.work[d][i]
            + sum(
                max((row[d * k + e] for e, held, _ in later if ideals.ends[t] & held), default=0)
                for t, row in enumerate(self.rows)
                if self.makers[t] & pieces
            )
        )
        return [(d, pieces, mine), *((e, held, paid) for (e, held, _), paid in zip(later, pays, strict=True))]


class _Step:
    """Stages on one device after some used ones."""

    def __init__(self, states: States, used: int, d: int, allowed: list[bool]) -> None:
        self.states, self.d = states, d
        left = ((1 << states.k) - 1) & ~(used | 1 << d)
        ideals = states.ideals
        self.enter = [states.least(row, used, 1 << d) for row in states.rows]
        self.leave = [states.least(row, 1 << d, left) for row in states.rows]
        work = states.work[d]
        self.enters = {i: states._sum(ideals.crossing[i], self.enter) for i in states.reached[used]}
        self.start = sorted(((work[i] - x, i) for i, x in self.enters.items()), reverse=True)
        self.sharing: dict[int, list[int]] = {}
        for i in sorted(self.enters, key=work.__getitem__, reverse=True):
            crossing = ideals.crossing[i]
            while crossing:
                bit = crossing & -crossing
                crossing ^= bit
                self.sharing.setdefault(bit, []).append(i)
        self.candidates = [j for j in range(1, states.last + 1) if allowed[j]]

    def reaches(self, j: int) -> bool:
        """Is there a stage to this ideal?"""
        found, looks = self._look(j)
        self.states.allowance.spend("pairs", looks + 1)
        return found

    def _look(self, j: int) -> tuple[bool, int]:
        """The same, and at how many ideals it looked."""
        states, ideals, work = self.states, self.states.ideals, self.states.work[self.d]
        outside, limit = ~ideals.members[j], ideals.weight[j] - states.limits[self.d]
        leaves = states._sum(ideals.crossing[j], self.leave)
        least = work[j] + leaves - states.most
        looks = 0
        for key, i in self.start:
            if key < least:
                break
            looks += 1
            if not ideals.members[i] & outside and ideals.weight[i] >= limit:
                return True, looks
        tried: set[int] = set()
        crossing = ideals.crossing[j]
        while crossing:
            bit = crossing & -crossing
            crossing ^= bit
            for i in self.sharing.get(bit, ()):
                if work[i] < work[j] - states.most:
                    break
                looks += 1
                if i in tried or ideals.members[i] & outside:
                    continue
                tried.add(i)
                if ideals.weight[i] >= limit and self._cost(i, j, leaves) <= states.most:
                    return True, looks
        return False, looks

    def _cost(self, i: int, j: int, leaves: int) -> int:
        ideals, work = self.states.ideals, self.states.work[self.d]
        stage = ideals.members[j] & ~ideals.members[i]
        cost = work[j] - work[i] + self.enters[i] + leaves
        common = ideals.crossing[i] & ideals.crossing[j]
        while common:
            bit = common & -common
            common ^= bit
            t = bit.bit_length() - 1
            cost -= self.leave[t] + (0 if ideals.ends[t] & stage else self.enter[t])
        return cost
