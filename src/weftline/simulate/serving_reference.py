"""What serving a language model means, written to be obviously right rather than fast. Tests compare it exactly.

In: the tables that the kernel reads. Out: the same results. Plain Python integers, dictionaries and lists; nothing is
shared with the kernel but the input. Simplified: as in `simulate/serving.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush

from weftline.simulate.kernels.serving import ServingTables

__all__ = ["ReferenceServing", "reference_serving"]


@dataclass
class _Hop:
    instance: int
    enter: int
    leave: int
    layers: int
    link: int


@dataclass
class _Request:
    prompt: int
    output: int
    arrival: int
    lane: int = -1
    at: int = -1
    """Number of its hop on the lane; -1 before it sets out."""
    left: int | None = None
    """Tokens that are still to be made; None in its prompt."""
    since: int = 0

    @property
    def tokens(self) -> int:
        return self.prompt if self.left is None else 1


@dataclass
class ReferenceServing:
    """What happened."""

    first: list[int] = field(default_factory=list)
    token: list[int] = field(default_factory=list)
    work: list[int] = field(default_factory=list)
    peak: int = 0
    end: int = 0
    never: int = 0


class _Cluster:
    def __init__(self, t: ServingTables, most_tokens: int) -> None:
        self.warm, self.end, self.room, self.at_once = t.rules.tolist()[:4]
        self.expected, self.copy, self.drain, self.pause = t.rules.tolist()[4:]
        self.instances, self.sections, self.links = t.instance.tolist(), t.section.tolist(), t.link.tolist()
        self.prompt_ns, self.decode_ns, self.reach = t.prompt_ns.tolist(), t.decode_ns.tolist(), t.reach.tolist()
        rows = [_Hop(*row) for row in t.hop.tolist()]
        self.lanes = [(rows[first : first + count + 1], share) for first, count, share in t.lane.tolist()]
        self.requests = [_Request(*row) for row in t.asked.tolist()]
        self.events: list[tuple[int, int]] = []
        self.queue: list[list[int]] = [[] for _ in self.sections]
        self.batch: list[list[int]] = [[] for _ in self.instances]
        self.doing: list[tuple[int, int, int]] = [(0, 0, 0)] * len(self.instances)
        """Section, from, until."""
        self.inside: set[int] = set()
        self.load = [0] * len(self.lanes)
        self.free = [0] * len(self.links)
        self.entered, self.arrived, self.most_tokens = 0, 0, most_tokens
        self.result = ReferenceServing(work=[0] * len(self.instances))

    def taken(self, instance: int) -> int:
        """Layer tokens of an instance that requests inside have reserved."""
        return sum(
            (self.requests[r].prompt + self.expected) * hop.layers
            for r in self.inside
            for hop in self.lanes[self.requests[r].lane][0]
            if hop.instance == instance
        )

    def choose(self, r: int) -> int | None:
        need = self.requests[r].prompt + self.expected
        if sum(self.requests[i].prompt + self.expected for i in self.inside) + need > self.room:
            return None
        best = None
        for lane, (hops, share) in enumerate(self.lanes):
            on_hops = [hop for hop in hops if hop.instance >= 0]
            if all(self.taken(h.instance) + need * h.layers <= self.instances[h.instance][4] for h in on_hops):
                load = self.load[lane] + self.requests[r].prompt
                if best is None or load * self.lanes[best[1]][1] < best[0] * share:
                    best = load, lane
        return None if best is None else best[1]

    def admit(self, now: int) -> None:
        while self.entered < self.arrived:
            r = self.entered
            request = self.requests[r]
            prompts = sum(self.requests[i].left is None for i in self.inside)
            if self.at_once and prompts >= self.at_once:
                return
            lane = self.choose(r)
            if lane is None:
                if not self.inside:
                    self.result.never = r + 1
                return
            self.load[lane] += request.prompt
            self.inside.add(r)
            self.entered += 1
            self.result.peak = max(self.result.peak, len(self.inside))
            begin = now + self.pause
            request.lane, request.since = lane, begin if request.arrival < 0 else request.arrival
            if begin == now:
                self.send(r, 0, now)
            else:
                heappush(self.events, (begin, len(self.instances) + r))
            if request.arrival < 0 and self.entered == len(self.requests) and not self.drain:
                self.end = min(now, self.end)

    def send(self, r: int, hop: int, now: int) -> None:
        request = self.requests[r]
        request.at = hop
        link = self.lanes[request.lane][0][hop].link
        per_token, latency = self.links[link]
        self.free[link] = max(now, self.free[link]) + request.tokens * per_token // 1000
        heappush(self.events, (self.free[link] + latency, len(self.instances) + r))

    def arrive(self, r: int, now: int) -> None:
        request = self.requests[r]
        if request.at < 0 and request.lane >= 0:
            self.send(r, 0, now)
            return
        if request.at < 0:
            self.arrived += 1
            if r + 1 < len(self.requests):
                heappush(self.events, (self.requests[r + 1].arrival, len(self.instances) + r + 1))
            self.admit(now)
            return
        hop = self.lanes[request.lane][0][request.at]
        if hop.instance < 0:
            self.answer(r, now)
        else:
            self.queue[hop.enter].append(r)
            if not self.batch[hop.instance]:
                self.start(hop.instance, hop.enter, now)

    def start(self, i: int, section: int, now: int) -> None:
        unit, _, _, most_prompts, _ = self.instances[i]
        most_tokens, most_decodes = self.reach[unit]
        batch: list[int] = []
        for r in self.queue[section]:
            request = self.requests[r]
            prompts = [self.requests[b].prompt for b in batch if self.requests[b].left is None]
            if request.left is None:
                fits = len(prompts) < most_prompts and sum(prompts) + request.prompt <= most_tokens
            else:
                fits = len(batch) - len(prompts) < most_decodes
            batch += [r] if fits else []
        self.queue[section] = [r for r in self.queue[section] if r not in batch]
        tokens = sum(self.requests[r].prompt for r in batch if self.requests[r].left is None)
        decodes = sum(self.requests[r].left is not None for r in batch)
        entering = [r for r in batch if self.hop(r).enter == section]
        span = self.sections[section] * (self.prompt_ns[unit][tokens] + self.decode_ns[unit][decodes])
        span += self.copy * sum(self.requests[r].tokens for r in entering)
        self.batch[i], self.doing[i] = batch, (section, now, now + span)
        heappush(self.events, (now + span, i))

    def hop(self, r: int) -> _Hop:
        return self.lanes[self.requests[r].lane][0][self.requests[r].at]

    def finish(self, i: int, now: int) -> None:
        done, begin, _ = self.doing[i]
        self.result.work[i] += max(0, now - max(begin, self.warm))
        batch, self.batch[i] = self.batch[i], []
        for r in batch:
            if self.hop(r).leave == done:
                self.send(r, self.requests[r].at + 1, now)
            else:
                self.queue[done + 1].append(r)
        first, last = self.instances[i][1:3]
        for section in [*range(done + 1, last), *range(first, done + 1)]:
            if self.queue[section]:
                self.start(i, section, now)
                return

    def answer(self, r: int, now: int) -> None:
        request = self.requests[r]
        again = bool(self.at_once)
        if request.left is None:
            if now >= self.warm:
                self.result.first.append(now - request.since)
            request.left = request.output
        else:
            again = False
            if now >= self.warm:
                self.result.token.append(now - request.since)
                if len(self.result.token) == self.most_tokens:
                    self.end = now
            request.left -= 1
        if request.left:
            self.load[request.lane] += 1
            request.since = now
            self.send(r, 0, now)
        else:
            self.inside.remove(r)
            again = True
        if again:
            self.admit(now)


def reference_serving(t: ServingTables, most_tokens: int) -> ReferenceServing:
    """Event after event, in the order of time and then of number: instances first, then requests."""
    cluster = _Cluster(t, most_tokens)
    if cluster.requests[0].arrival < 0:
        cluster.arrived = len(cluster.requests)
        cluster.admit(0)
    else:
        cluster.events = [(cluster.requests[0].arrival, len(cluster.instances))]
    now = 0
    while cluster.events and not cluster.result.never and cluster.events[0][0] < cluster.end:
        now, slot = heappop(cluster.events)
        if slot < len(cluster.instances):
            cluster.finish(slot, now)
        else:
            cluster.arrive(slot - len(cluster.instances), now)
    end = cluster.end if cluster.events else min(now, cluster.end)
    for i, (_, begin, until) in enumerate(cluster.doing):
        if cluster.batch[i]:
            cluster.result.work[i] += max(0, min(until, max(end, cluster.warm)) - max(begin, cluster.warm))
    cluster.result.end = end
    return cluster.result
