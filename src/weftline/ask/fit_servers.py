"""Several servers instead of one, and groups of cards in a row: what many requests at once make worth asking.

In: a task for many requests, how one server is planned. Out: for the best division of the cards among servers, each
with its share of the requests, their rates and plans; of one server the front of rate and first token over the number
of groups in a row. Simplified: equal cards are not told apart; requests are shared in proportion to the rates that
servers have with equal shares; nothing is proved of divisions, so they are compared by the rates of their plans.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product
from time import monotonic
from typing import Any

import msgspec

from weftline.ask.fit_assemble import prompt_ns
from weftline.ask.fit_build import FitTask
from weftline.ask.fit_devices import FitMachine
from weftline.ask.fit_launch import fit_launches
from weftline.errors import InfeasibleError
from weftline.problem.fit import FitAnswer, FitProblem
from weftline.units import format_time

__all__ = [
    "FitDepth",
    "FitServer",
    "Solved",
    "best_servers",
    "depth_front",
    "divisions",
    "front_answer",
    "servers_answer",
]

MOST_DIVIDED = 8
"""Cards: of more only equal servers are asked."""
SEARCH_SECONDS = 1.5
MOST_DIVISIONS = 2000
LEAST_GAIN = 1.05
"""Less than this is less than the estimates can tell."""

Solved = tuple[FitTask, FitProblem, FitAnswer]
Solve = Callable[[FitTask], Solved]
Counts = tuple[int, ...]
"""Cards of each kind."""


class FitServer(msgspec.Struct, frozen=True):
    """One of several servers."""

    solved: Solved
    requests: int
    number: int

    @property
    def rate(self) -> float:
        """Tokens per second of all its requests."""
        _, problem, answer = self.solved
        return problem.tokens_per_second(answer.value_ns)


class FitDepth(msgspec.Struct, frozen=True):
    """One server with so many groups in a row."""

    groups: int
    tokens_per_second: float
    first_token_ns: int
    """Of a prompt as long as what is in the cache."""


def depth_front(found: Sequence[Solved]) -> tuple[FitDepth, ...]:
    """A point for each number of groups in a row for which there is a plan."""
    return tuple(
        FitDepth(
            groups=len(answer.segments),
            tokens_per_second=problem.tokens_per_second(answer.value_ns),
            first_token_ns=prompt_ns(task, problem, answer.segments, task.settings.timed_at),
        )
        for task, problem, answer in found
    )


def divisions(counts: Counts, most: int) -> list[tuple[Counts, ...]]:
    """Ways to divide cards among 2 to `most` servers, each with at least one: those that leave few cards out first."""
    if sum(counts) > MOST_DIVIDED:
        every = [servers for servers in range(2, most + 1) if all(count % servers == 0 for count in counts)]
        return [(tuple(count // servers for count in counts),) * servers for servers in every]
    found = [one for one in islice(_divided(counts, most, counts), MOST_DIVISIONS) if len(one) > 1]
    return sorted(found, key=lambda one: (-sum(map(sum, one)), len(one)))


def _divided(left: Counts, most: int, largest: Counts) -> Iterator[tuple[Counts, ...]]:
    """One to `most` servers, none before a smaller one."""
    for first in product(*(range(count, -1, -1) for count in left)):
        if not sum(first) or first > largest:
            continue
        yield (first,)
        if most > 1:
            rest = tuple(a - b for a, b in zip(left, first, strict=True))
            yield from ((first, *others) for others in _divided(rest, most - 1, first))


def best_servers(task: FitTask, solve: Solve, rate: float) -> tuple[FitServer, ...]:
    """The division that gives most, if it gives more than one server with this rate; empty for none."""
    search = _Search(task, solve)
    best: tuple[FitServer, ...] = ()
    requests = task.settings.concurrency
    for division in divisions(tuple(map(len, search.pools)), min(requests, sum(map(len, search.pools)))):
        if monotonic() > search.until:
            break
        found = search.servers(division)
        if (total := sum(server.rate for server in found)) > rate * LEAST_GAIN:
            best, rate = found, total / LEAST_GAIN
    return best


class _Search:
    """Plans of groups of cards, each solved once."""

    def __init__(self, task: FitTask, solve: Solve) -> None:
        self.task, self.solve, self.until = task, solve, monotonic() + SEARCH_SECONDS
        cards: dict[object, list[int]] = {}
        for number, device in enumerate(task.machine.cards):
            cards.setdefault(msgspec.structs.replace(device, id=""), []).append(number)
        self.pools = list(cards.values())
        self.known: dict[tuple[Counts, int], float] = {}

    def servers(self, division: Sequence[Counts]) -> tuple[FitServer, ...]:
        """Servers on the cards of a division, with requests in proportion to their rates; empty where one has no
        plan."""
        asked = self.task.settings.concurrency
        even = -(-asked // len(division))
        rates = [self._rate(part, even) for part in division]
        if not all(rates):
            return ()
        shares = _shares(asked, rates)
        taken, found = [0] * len(self.pools), []
        for number, (part, share) in enumerate(zip(division, shares, strict=True)):
            held = [
                card for kind, pool in enumerate(self.pools) for card in pool[taken[kind] : taken[kind] + part[kind]]
            ]
            taken = [a + b for a, b in zip(taken, part, strict=True)]
            solved = self._solved(held, share)
            if solved is None:
                return ()
            found.append(FitServer(solved, share, number))
        return tuple(found)

    def _rate(self, part: Counts, requests: int) -> float:
        key = (part, requests)
        if key not in self.known:
            cards = [card for kind, pool in enumerate(self.pools) for card in pool[: part[kind]]]
            solved = self._solved(cards, requests)
            self.known[key] = FitServer(solved, requests, 0).rate if solved else 0.0
        return self.known[key]

    def _solved(self, cards: Sequence[int], requests: int) -> Solved | None:
        machine, settings = self.task.machine, self.task.settings
        mine = FitMachine(
            devices=tuple(machine.cards[card] for card in sorted(cards)),
            accelerators=tuple(machine.accelerators[card] for card in sorted(cards)),
            notes=machine.notes,
            neighbours=machine.cards,
        )
        asked = msgspec.structs.replace(settings, concurrency=requests)
        try:
            return self.solve(msgspec.structs.replace(self.task, machine=mine, settings=asked))
        except InfeasibleError:
            return None


def _shares(requests: int, rates: Sequence[float]) -> list[int]:
    """Whole requests in proportion to rates, at least one each."""
    total, spare = sum(rates), requests - len(rates)
    exact = [spare * rate / total for rate in rates]
    shares = [int(part) for part in exact]
    left = sorted(range(len(rates)), key=lambda number: shares[number] - exact[number])
    for number in left[: spare - sum(shares)]:
        shares[number] += 1
    return [share + 1 for share in shares]


def front_answer(front: Sequence[FitDepth]) -> dict[str, Any]:
    """The front as numbers and as a sentence."""
    points = [
        f"{point.groups} in a row {point.tokens_per_second:,.0f} tokens/s, first token "
        f"{format_time(point.first_token_ns)}"
        for point in front
    ]
    return {
        "depths": [msgspec.structs.asdict(point) for point in front],
        "depths_words": f"by groups of cards: {'; '.join(points)}",
    }


def servers_answer(found: Sequence[FitServer]) -> dict[str, Any]:
    """Servers with their cards, requests, rates and commands; nothing for none."""
    if not found:
        return {}
    servers = [_as_json(server) for server in found]
    total = sum(server.rate for server in found)
    cards = ", ".join(f"{'+'.join(one['devices'])} with {one['requests']}" for one in servers)
    return {
        "servers": servers,
        "servers_tokens_per_second": total,
        "servers_words": f"{len(found)} servers give more, {total:,.0f} tokens per second together: {cards} of the "
        "requests, which a router before them shares in these numbers (commands below)",
    }


def _as_json(server: FitServer) -> dict[str, Any]:
    task, problem, answer = server.solved
    used = [problem.devices[number].id for segment in answer.segments for number in segment.devices]
    launch = fit_launches(task, problem, answer.segments, server.number)
    return {
        "devices": used,
        "requests": server.requests,
        "tokens_per_second": server.rate,
        "command": [line.shell() for line in launch],
    }
