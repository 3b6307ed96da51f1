"""Hypothesis strategies for clusters that keep every rule."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from weftline.cluster import Cluster, Device, Limits, Link, OpDevice, Rate
from weftline.units import MAX_QUANTITY

# No wall-clock limits: the machine may be busy with other things.
patient = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

ids = st.text("abcXYZ019_.:-", min_size=1, max_size=6)
sources = st.sampled_from(["", "measured", "datasheet", "guess"])
printable = st.text("aZ0 é漢=#[]{}'\"\\", max_size=8)
patterns = st.text(min_size=1, max_size=12)  # control characters, quotes and backslashes included
least_one = st.one_of(st.integers(1, MAX_QUANTITY), st.integers(1, 10**6).map(lambda n: n * 10**9))
least_zero = st.one_of(st.just(0), least_one)
rates = st.builds(
    Rate,
    fp32=least_one,
    fp16=least_zero,
    bandwidth=least_one,
    launch=least_zero,
    source=sources,
    int8=st.one_of(st.none(), least_one),
)


@st.composite
def devices(draw: st.DrawFn, id: str) -> Device:
    """One device with a given id."""
    memory = draw(st.one_of(st.none(), least_one, st.integers(1, 2**20).map(lambda n: n * 2**20)))
    reserve = draw(st.integers(0, memory - 1)) if memory is not None else 0
    return Device(
        id=id,
        kind=draw(printable),
        memory=memory,
        reserve=reserve,
        rate=draw(st.one_of(st.none(), rates)),
        runtime=draw(printable),
        host=draw(st.booleans()),
        memory_source=draw(sources),
    )


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    """A cluster of up to 6 devices; links often come in the runs that one entry of a file would make."""
    names = draw(st.lists(ids, min_size=1, max_size=6, unique=True))
    pairs = [(a, b) for a in names for b in names if a != b]
    both_ways, some = draw(st.tuples(st.booleans(), st.booleans()))
    if both_ways:
        pairs = [pair for i, a in enumerate(names) for b in names[i + 1 :] for pair in ((a, b), (b, a))]
    if pairs and some:
        pairs = draw(st.lists(st.sampled_from(pairs), unique=True))
    numbers = draw(st.lists(st.tuples(least_one, least_zero, printable, sources), min_size=1, max_size=2))
    links = [Link(a, b, *draw(st.sampled_from(numbers))) for a, b in pairs]
    pairings = st.lists(st.builds(OpDevice, op=patterns, device=st.sampled_from(names)), max_size=3).map(tuple)
    together = st.lists(st.lists(patterns, min_size=1, max_size=3).map(tuple), max_size=3).map(tuple)
    return Cluster(
        name=draw(printable),
        devices=tuple(draw(devices(name)) for name in names),
        links=tuple(links),
        limits=draw(st.builds(Limits, pin=pairings, together=together, forbid=pairings)),
    )
