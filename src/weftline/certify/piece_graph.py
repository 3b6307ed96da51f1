"""The pieces that a pipeline is cut into, and fewer of them with the same answer.

In: the embedded problem. Out: a graph of pieces (work, tensors, order) such that a plan with all loads below T gives a
pipeline of the graph with all loads below T. So "the graph has none" proves "the problem has no plan below T".
Simplified (each makes plans cheaper only): a piece takes its least time over the devices, a tensor its least transfer
over all pairs of devices; activations, tied weights and, where it is not asked for, all memory are ignored.

Words. f(S) of a set S of pieces = its work + every tensor that enters S or leaves S, each once. A pipeline is a chain
of ideals {} = I_0 <= I_1 <= ... <= I_k = all pieces (an ideal holds all predecessors of what it holds); its loads are
f(I_j - I_(j-1)). Pieces that lie on a cycle of forward edges share a stage and are joined.

Reductions: the smaller graph has a pipeline below T iff the larger one has, for every T and k. u in stage A, v in
B > A.
R0  u has no work and no tensors: leave it out, its predecessors before its successors. (It goes to the last stage of
    its predecessors; no load changes.)
R1  v is u's only successor and the only reader of all that u makes, and w(u) + what u reads and v does not <= what u
    makes: join them. (Move u to B. B gains w(u) and what v did not read, loses what u makes. A loses w(u) and what u
    makes, gains at most the tensors made in A that u reads; those that v reads left A before. Both changes are <= 0.
    A tensor from elsewhere leaves its stage before and after. u's predecessors are in stages <= A.)
R2  u is v's only predecessor and makes all that v reads, and w(v) + what v makes <= what u makes for v alone: join
    them. (Move v to A. A gains w(v) and what v makes, loses what u made for v alone. B loses w(v) and what u made for
    v alone, gains at most what v makes. v's successors are in stages >= B.)
With limits of memory, a piece that moves or goes holds no weights, so no stage holds more.

Contraction below T: every pipeline below T keeps m and r together. x = the tensors between m and r.
C1  w(m) + x >= T or w(r) + x >= T: apart, the stage of m pays at least w(m) + x, that of r at least w(r) + x.
C2  W + 2 x > k (T - 1): apart, each tensor of x leaves one stage and enters another, and all loads sum to k (T - 1).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from weftline.certify.problem import MAX_NUMBER, PlanProblem, group_times, groups_of, need

__all__ = ["PieceGraph", "contract", "read_pieces", "reduce_graph"]

MOST_NEW_EDGES = 400
"""Edges that one R0 may add: a piece between so many others stays."""


class PieceGraph:
    """Pieces by number (the least op they hold), and the tensors with a price between them."""

    def __init__(self) -> None:
        self.work: dict[int, int] = {}
        self.weight: dict[int, int] = {}
        """Bytes that count against a limit of memory; all 0 where memory is ignored."""
        self.before: dict[int, set[int]] = {}
        self.after: dict[int, set[int]] = {}
        self.made: dict[int, set[int]] = {}
        self.read: dict[int, set[int]] = {}
        self.cost: dict[int, int] = {}
        self.maker: dict[int, int] = {}
        self.readers: dict[int, set[int]] = {}
        self.joined: dict[int, int] = {}
        """What was joined -> into what; what was left out is in no table any more."""

    def add_group(self, problem: PlanProblem, group: list[int], size: int) -> None:
        """A new piece of ops that share a device."""
        times = [t for t in group_times(problem, group) if t >= 0]
        need(bool(times), "witness", "a set of ops can run nowhere")
        self.add(group[0], min(times), size)

    def price_of(self, lengths: list[int]) -> int:
        """Of a tensor with these transfers between different devices."""
        return min((x for x in lengths if x >= 0), default=MAX_NUMBER)

    def may_move(self, piece: int, to: int) -> bool:
        """May a reduction put one to where the other one is?"""
        return self.weight[piece] == 0

    def moved_work(self, piece: int) -> int:
        """What a piece that moves takes at most."""
        return self.work[piece]

    def add(self, piece: int, work: int, weight: int) -> None:
        """A new piece without neighbours."""
        self.work[piece], self.weight[piece] = work, weight
        for table in (self.before, self.after, self.made, self.read):
            table[piece] = set()

    def piece_of(self, op: int) -> int:
        """The piece that holds what this number was once the name of."""
        while op in self.joined:
            op = self.joined[op]
        return op

    def neighbours(self, piece: int) -> set[int]:
        """Pieces whose reductions may change when this one does."""
        makers = {self.maker[t] for t in self.read[piece]}
        readers = (self.readers[t] for t in self.made[piece])
        return self.before[piece] | self.after[piece] | makers.union(*readers)

    def sum_of(self, tensors: Iterable[int]) -> int:
        """Their transfers."""
        return sum(self.cost[t] for t in tensors)

    def between(self, a: int, b: int) -> int:
        """Transfers of the tensors that one makes and the other reads."""
        return self.sum_of(self.made[a] & self.read[b]) + self.sum_of(self.made[b] & self.read[a])

    def order(self, a: int, b: int) -> None:
        """a is not in a later stage than b."""
        if a != b:
            self.after[a].add(b)
            self.before[b].add(a)

    def join(self, a: int, b: int) -> int:
        """Make one piece of two -> its number, the smaller one."""
        if a == b:
            return a
        a, b = min(a, b), max(a, b)
        self.work[a] += self.work.pop(b)
        self.weight[a] += self.weight.pop(b)
        for t in self.made.pop(b):
            self.maker[t] = a
            self.made[a].add(t)
        for t in self.read.pop(b):
            self.readers[t].discard(b)
            self.readers[t].add(a)
            self.read[a].add(t)
        for t in self.made[a] & self.read[a]:
            self.readers[t].discard(a)
            self.read[a].discard(t)
            if not self.readers[t]:
                self.made[a].discard(t)
                del self.cost[t], self.maker[t], self.readers[t]
        self._detach(b, a)
        self.joined[b] = a
        return a

    def leave_out(self, piece: int) -> None:
        """A piece without work and tensors; its predecessors stay before its successors."""
        for a in self.before[piece]:
            for b in self.after[piece]:
                self.order(a, b)
        self._detach(piece, piece)
        for table in (self.work, self.weight, self.made, self.read):
            del table[piece]

    def _detach(self, piece: int, heir: int) -> None:
        before, after = self.before.pop(piece), self.after.pop(piece)
        for a in before:
            self.after[a].discard(piece)
            if heir not in (a, piece):
                self.order(a, heir)
        for b in after:
            self.before[b].discard(piece)
            if heir not in (b, piece):
                self.order(heir, b)


def read_pieces(problem: PlanProblem, graph: PieceGraph, *, memory: bool = False) -> None:
    """Put the pieces of a problem without hosts into an empty graph."""
    added = problem.rule("objective", "throughput") and problem.rule("communication", "added")
    need(added, "witness", "a pipeline is bounded for throughput with added communication alone")
    need(not any(problem.host), "witness", "ops on a host device are in no stage")
    k = len(problem.ids)
    piece: dict[int, int] = {}
    static = problem.rule("memory", "static")
    for group in groups_of(problem):
        size = sum(problem.weight[op] + (problem.workspace[op] if static else 0) for op in group) if memory else 0
        graph.add_group(problem, group, size)
        piece.update(dict.fromkeys(group, group[0]))
    least: dict[int, int] = {}  # of each distinct row of transfer times
    for row in {id(row): row for row in problem.transfer}.values():
        least[id(row)] = graph.price_of([x for i, x in enumerate(row) if i % (k + 1)])
    for t, maker in enumerate(problem.producer):
        if maker < 0:
            continue
        home, cost = piece[maker], least[id(problem.transfer[t])]
        readers = {piece[op] for op in problem.consumers[t]} - {home}
        if cost > 0 and readers:
            graph.cost[t], graph.maker[t], graph.readers[t] = cost, home, readers
            graph.made[home].add(t)
            for reader in readers:
                graph.read[reader].add(t)
        for op in problem.consumers[t]:
            if problem.forward[maker] and problem.forward[op]:
                graph.order(home, piece[op])
    join_cycles(graph)


def join_cycles(graph: PieceGraph) -> None:
    """Join what lies on a cycle of the order, by Tarjan's depth-first search."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    open_ones: set[int] = set()
    cycles: list[list[int]] = []
    for root in list(graph.work):
        if root in number:
            continue
        path = [(root, iter(list(graph.after[root])))]
        number[root] = low[root] = len(number)
        stack.append(root)
        open_ones.add(root)
        while path:
            v, rest = path[-1]
            for w in rest:
                if w not in number:
                    number[w] = low[w] = len(number)
                    stack.append(w)
                    open_ones.add(w)
                    path.append((w, iter(list(graph.after[w]))))
                    break
                if w in open_ones:
                    low[v] = min(low[v], number[w])
            else:
                path.pop()
                if path:
                    low[path[-1][0]] = min(low[path[-1][0]], low[v])
                if low[v] == number[v]:
                    found = stack[stack.index(v) :] if stack[-1] != v else [v]
                    del stack[-len(found) :]
                    open_ones.difference_update(found)
                    if len(found) > 1:
                        cycles.append(found)
    for members in cycles:
        first = members[0]
        for other in members[1:]:
            first = graph.join(first, other)


def reduce_graph(graph: PieceGraph) -> None:
    """R0, R1 and R2, one step at a time, until nothing changes."""
    waiting = deque(sorted(graph.work))
    queued = set(waiting)
    while waiting:
        piece = waiting.popleft()
        queued.discard(piece)
        if piece not in graph.work:
            continue
        near = graph.neighbours(piece)
        if not _reduce_at(graph, piece):
            continue
        heir = graph.piece_of(piece)
        near |= {heir, *(graph.neighbours(heir) if heir in graph.work else ())}
        for other in sorted(near):
            if other in graph.work and other not in queued:
                queued.add(other)
                waiting.append(other)


def _reduce_at(graph: PieceGraph, u: int) -> bool:
    """One reduction that moves this piece, if there is one."""
    made, read, work = graph.made[u], graph.read[u], graph.moved_work(u)
    if not graph.work[u] and not graph.weight[u] and not made and not read:
        if len(graph.before[u]) * len(graph.after[u]) > MOST_NEW_EDGES:
            return False
        graph.leave_out(u)
        return True
    if len(graph.after[u]) == 1:
        (v,) = graph.after[u]
        alone = all(graph.readers[t] == {v} for t in made)
        if alone and graph.may_move(u, v) and work + graph.sum_of(read - graph.read[v]) <= graph.sum_of(made):
            graph.join(u, v)
            return True
    if len(graph.before[u]) == 1:
        (v,) = graph.before[u]
        if graph.may_move(u, v) and all(graph.maker[t] == v for t in read):
            for_it_alone = [t for t in read if len(graph.readers[t]) == 1]
            if work + graph.sum_of(made) <= graph.sum_of(for_it_alone):
                graph.join(u, v)
                return True
    return False


def contract(graph: PieceGraph, stages: int, target: int) -> bool:
    """Reduce and contract below the target -> False where that alone leaves no pipeline below it."""
    room = stages * (target - 1)
    while True:
        reduce_graph(graph)
        total = sum(graph.work.values())
        if total > room or max(graph.work.values(), default=0) >= target:
            return False
        pairs = []
        for m in graph.work:
            for r in sorted(set().union(*(graph.readers[t] for t in graph.made[m]))):
                x = graph.between(m, r)
                if max(graph.work[m], graph.work[r]) + x >= target or total + 2 * x > room:
                    pairs.append((m, r))
        if not pairs:
            return True
        for m, r in pairs:
            graph.join(graph.piece_of(m), graph.piece_of(r))
        join_cycles(graph)
