"""The best plan of a FitProblem, with a bound that can be checked.

In: a FitProblem. Out: a FitAnswer. The dynamic program runs on costs with parts cut at will; what its best way holds is
costed with whole parts, and it runs again, until its best way holds whole parts only: then value and bound are one
number. Where the host's memory is short, its bytes get a price: the bound is then of the problem with prices, and the
value the best plan met on the way. Simplified: prices are tried, not solved for.
"""

from __future__ import annotations

import time

import msgspec

from weftline.errors import InfeasibleError
from weftline.fleet.fit.baselines import baseline_segments
from weftline.fleet.fit.evaluate import cost_segments, devices_for, fit_violations
from weftline.fleet.fit.paths import FitPath, cheapest_path
from weftline.fleet.fit.tables import TIME_SCALE, SegmentTables
from weftline.problem.fit import FitAnswer, FitObjective, FitProblem, FitRules, FitSegment, HostRows, check_fit_problem

__all__ = ["free_of_rules", "solve_fit"]

MOST_NODES = 4_000
"""Of one search for whole parts."""
SLACK_SHARE = 20_000
"""A search for whole parts may be short of the best by the whole cost divided by this."""
MOST_PRICES = 14
FIRST_PRICE = TIME_SCALE // 64
"""Of a byte of the host, where its memory is short: 1/64 ns."""


def solve_fit(
    problem: FitProblem, *, seconds: float = 2.0, baselines: bool = True, without_rules: bool = False
) -> FitAnswer:
    """The plan of least time per step; `InfeasibleError` if nothing fits. `without_rules` asks, too, what the rules of
    the engine cost.
    """
    search = _FitSearch(check_fit_problem(problem), seconds)
    if _least_bytes(problem) > sum(device.limit_bytes for device in problem.devices):
        raise InfeasibleError(_why_not(problem, shown=True))
    simple = baseline_segments(problem) if baselines else ()
    for _, segments in simple:
        search.offer(segments)
    search.run()
    if search.best is None:
        raise InfeasibleError(_why_not(problem, shown=search.shown))
    cost = cost_segments(problem, search.best)
    return FitAnswer(
        segments=search.best,
        value_ns=cost.value_ns,
        bound_ns=search.bound_ns,
        witness=search.witness,
        uses=cost.uses,
        pipelined=cost.pipelined,
        baselines=tuple((name, search.value_of(segments)) for name, segments in simple),
        free_ns=_free_ns(problem, search, seconds) if without_rules else None,
        seconds=time.monotonic() - search.begun,
    )


def free_of_rules(problem: FitProblem) -> FitProblem:
    """The same without what an engine cannot do: any rows and any parts may lie on the host, groups may be unlike."""
    if problem.objective is FitObjective.MAX:
        rules = FitRules(engine="any", host_rows=HostRows.NONE, exact_units=problem.rules.exact_units)
    elif problem.host_unit is None:
        rules = FitRules(engine="any", host_rows=HostRows.NONE)
    else:
        rules = FitRules(engine="any", host_rows=HostRows.ANY, moves=problem.parts)
    return msgspec.structs.replace(problem, rules=rules)


def _free_ns(problem: FitProblem, search: _FitSearch, seconds: float) -> int:
    free = _FitSearch(free_of_rules(problem), seconds)
    free.offer(search.best)
    free.run()
    return free.value_ns


class _FitSearch:
    """The best plan, the best bound, and what shows it."""

    def __init__(self, problem: FitProblem, seconds: float) -> None:
        self.problem, self.begun, self.seconds = problem, time.monotonic(), seconds
        self.best: tuple[FitSegment, ...] | None = None
        self.value_ns = 2**62
        self.bound_ns = problem.base_ns
        self.witness: dict[str, object] | None = {"kind": "fit-path", "price": 0, "claims": []}
        self.shown = False
        """That nothing fits."""
        self.host_used = 0
        """Bytes on the host of the last plan."""

    @property
    def over(self) -> bool:
        return time.monotonic() - self.begun > self.seconds

    def value_of(self, segments: tuple[FitSegment, ...] | None) -> int | None:
        """None where it does not fit, or breaks a rule."""
        if segments is None or fit_violations(self.problem, segments):
            return None
        return cost_segments(self.problem, segments).value_ns

    def offer(self, segments: tuple[FitSegment, ...] | None) -> bool:
        """Keep a plan if it fits and is better -> whether it fits."""
        value = self.value_of(segments)
        if value is not None and value < self.value_ns:
            self.best, self.value_ns = segments, value
        return value is not None

    def run(self) -> None:
        """Without a price first; with prices only if the host is too small for what comes out."""
        fits = self.with_price(0)
        if fits is None:
            self.shown = True
        if fits is not False or self.problem.host_unit is None:
            return
        low, high, price = 0, 0, FIRST_PRICE
        for _ in range(MOST_PRICES):
            if self.over or self.value_ns <= self.bound_ns:
                return
            fits = self.with_price(price)
            if fits is None:
                self.shown = True
                return
            low, high = (low, price) if fits else (price, high)
            price = (low + high) // 2 if high else 4 * price
            if high and high - low <= 1:
                return

    def with_price(self, price: int) -> bool | None:
        """Solve with a price -> whether the last plan fits the host; None if nothing fits at all."""
        problem, tables, fits = self.problem, SegmentTables(self.problem, price), False
        while True:
            path = cheapest_path(problem, tables)
            if path is None:
                return None
            self._bound(path, tables)
            todo = [choice for choice in path.choices if not tables.is_exact(choice)]
            for choice in todo:
                tables.make_exact(choice, MOST_NODES, int(path.cost) // SLACK_SHARE)
            if all(choice in tables.moved or tables.is_exact(choice) for choice in path.choices):
                fits = self.offer(self._segments(path, tables))
            if not todo or self.over or self.value_ns <= self.bound_ns:
                return fits

    def _bound(self, path: FitPath, tables: SegmentTables) -> None:
        """What a path shows: no plan costs less."""
        cost = int(path.cost) - tables.price * max(tables.room, 0)
        least = max(0, -(-cost // TIME_SCALE)) + self.problem.base_ns
        if least > self.bound_ns:
            self.bound_ns = least
            claims = [[*choice, least] for choice, least in sorted(tables.claims.items())]
            self.witness = {"kind": "fit-path", "price": tables.price, "claims": claims}

    def _segments(self, path: FitPath, tables: SegmentTables) -> tuple[FitSegment, ...]:
        devices = devices_for(self.problem, [choice[0] for choice in path.choices])
        return tuple(
            FitSegment(choice[0], mine, choice[2], choice[3], tables.moves(choice))
            for choice, mine in zip(path.choices, devices, strict=True)
        )


def _least_bytes(problem: FitProblem) -> int:
    """What all rows take together, each part where it takes least."""
    parts = range(len(problem.parts))
    kinds = range(len(problem.kinds))
    least = [sum(min(unit.bytes[kind][part] * unit.size for unit in problem.units) for part in parts) for kind in kinds]
    return sum(least[kind] for kind in problem.rows)


def _why_not(problem: FitProblem, *, shown: bool) -> str:
    """In words."""
    need = min(sum(sum(unit.bytes[kind]) * unit.size for kind in problem.rows) for unit in problem.units)
    have = sum(device.limit_bytes for device in problem.devices)
    words = (
        "no plan fits" if shown or need > have else "no plan was found that fits (it is not shown that there is none)"
    )
    return (
        f"{words}: weights and caches of {problem.name} take {need / 2**30:.1f} GiB, the devices have "
        f"{have / 2**30:.1f} GiB for them and for buffers"
    )
