"""Hypothesis strategies: clusters that keep every rule of the TOML form, and the generated graphs and problems.

In: sizes and fixed rules. Out: strategies. Graphs and problems come from the one generator in `generate`, with
hypothesis as its chooser, so that a failing case shrinks. This is the only module of weftline that needs hypothesis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from weftline.cluster import Cluster, Device, Limits, Link, OpDevice, Rate
from weftline.graph import Graph
from weftline.graph.arrays import Indices
from weftline.problem import Problem
from weftline.testing.generate import Objective, make_graph, make_order, make_placement, make_problem
from weftline.units import MAX_QUANTITY

__all__ = ["DrawnChooser", "clusters", "devices", "graphs", "orders", "patient", "placements", "problems"]

T = TypeVar("T")

patient = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
"""No wall-clock limits (the machine may be busy with other things), and the same examples in every run."""


class DrawnChooser:
    """Choices that hypothesis makes, and can make simpler."""

    def __init__(self, draw: Callable[[st.SearchStrategy[int]], int]) -> None:
        self._draw = draw

    def integer(self, low: int, high: int) -> int:
        """A whole number in low..high."""
        return self._draw(st.integers(low, high))

    def pick(self, options: Sequence[T]) -> T:
        """One of the options."""
        return options[self._draw(st.integers(0, len(options) - 1))]


@st.composite
def graphs(draw: st.DrawFn, /, *, max_ops: int = 8, training: bool = False) -> Graph:
    """Graphs as `make_graph` makes them."""
    return make_graph(DrawnChooser(draw), max_ops, training=training)


@st.composite
def problems(
    draw: st.DrawFn,
    /,
    objective: Objective,
    *,
    max_ops: int = 8,
    max_devices: int = 3,
    limits: bool = True,
    **fixed: object,
) -> Problem:
    """Problems as `make_problem` makes them; `fixed` sets fields of `Rules`."""
    chooser = DrawnChooser(draw)
    return make_problem(chooser, objective, max_ops=max_ops, max_devices=max_devices, limits=limits, **fixed)


@st.composite
def placements(draw: st.DrawFn, /, problem: Problem) -> Indices:
    """Placements on devices that can run the ops; `together`, memory and links may be broken."""
    return make_placement(DrawnChooser(draw), problem)


@st.composite
def orders(draw: st.DrawFn, /, problem: Problem) -> Indices:
    """Topological orders of the ops."""
    return make_order(DrawnChooser(draw), problem)


_ids = st.text("abcXYZ019_.:-", min_size=1, max_size=6)
_sources = st.sampled_from(["", "measured", "datasheet", "guess"])
_printable = st.text("aZ0 é漢=#[]{}'\"\\", max_size=8)
_patterns = st.text(min_size=1, max_size=12)  # control characters, quotes and backslashes included
_least_one = st.one_of(st.integers(1, MAX_QUANTITY), st.integers(1, 10**6).map(lambda n: n * 10**9))
_least_zero = st.one_of(st.just(0), _least_one)
_rates = st.builds(
    Rate,
    fp32=_least_one,
    fp16=_least_zero,
    bandwidth=_least_one,
    launch=_least_zero,
    source=_sources,
    int8=st.one_of(st.none(), _least_one),
)


@st.composite
def devices(draw: st.DrawFn, /, id: str) -> Device:
    """One device with a given id."""
    memory = draw(st.one_of(st.none(), _least_one, st.integers(1, 2**20).map(lambda n: n * 2**20)))
    reserve = draw(st.integers(0, memory - 1)) if memory is not None else 0
    return Device(
        id=id,
        kind=draw(_printable),
        memory=memory,
        reserve=reserve,
        rate=draw(st.one_of(st.none(), _rates)),
        runtime=draw(_printable),
        host=draw(st.booleans()),
        memory_source=draw(_sources),
        speed=draw(st.one_of(st.just(1.0), st.floats(0.001, 1.0))),
    )


@st.composite
def clusters(draw: st.DrawFn, /) -> Cluster:
    """A cluster of up to 6 devices; links often come in the runs that one entry of a file would make."""
    names = draw(st.lists(_ids, min_size=1, max_size=6, unique=True))
    pairs = [(a, b) for a in names for b in names if a != b]
    both_ways, some = draw(st.tuples(st.booleans(), st.booleans()))
    if both_ways:
        pairs = [pair for i, a in enumerate(names) for b in names[i + 1 :] for pair in ((a, b), (b, a))]
    if pairs and some:
        pairs = draw(st.lists(st.sampled_from(pairs), unique=True))
    numbers = draw(st.lists(st.tuples(_least_one, _least_zero, _printable, _sources), min_size=1, max_size=2))
    links = [Link(a, b, *draw(st.sampled_from(numbers))) for a, b in pairs]
    pairings = st.lists(st.builds(OpDevice, op=_patterns, device=st.sampled_from(names)), max_size=3).map(tuple)
    together = st.lists(st.lists(_patterns, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple)
    return Cluster(
        name=draw(_printable),
        devices=tuple(draw(devices(name)) for name in names),
        links=tuple(links),
        limits=draw(st.builds(Limits, pin=pairings, together=together, forbid=pairings)),
    )
