"""Cluster -> canonical TOML: fixed field order, defaults left out, exact quantities in the largest unit that fits.

Neighbouring links that one `between` or one `from`/`to` entry would make are written as that entry, so that reading
gives the same links in the same order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from weftline.cluster.model import Cluster, Device, Limits, Link, Rate
from weftline.cluster.rules import check_cluster

__all__ = ["write_cluster"]

_DECIMAL = ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""))
_TIMES = ((9, "s"), (6, "ms"), (3, "us"), (0, "ns"))
_BINARY = ((2**50, "PiB"), (2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def write_cluster(cluster: Cluster) -> str:
    """The file's text. A cluster that breaks a rule raises `InputError`: its file could not be read."""
    check_cluster(cluster)
    blocks = [["version = 1", f"name = {_quote(cluster.name)}"]]
    blocks += [_device(device) for device in cluster.devices]
    blocks += [_link(ends, link) for ends, link in _entries(cluster.links)]
    if cluster.limits != Limits():
        blocks.append(_limits(cluster.limits))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _device(device: Device) -> list[str]:
    lines = ["[[device]]", f"id = {_quote(device.id)}", f"kind = {_quote(device.kind)}"]
    if device.memory is not None:
        lines.append(f"memory = {_size(device.memory)}")
    if device.memory_source:
        lines.append(f"memory_source = {_quote(device.memory_source)}")
    if device.reserve:
        lines.append(f"reserve = {_size(device.reserve)}")
    if device.rate is not None:
        lines.append(f"rate = {{ {', '.join(_rate(device.rate))} }}")
    if device.runtime:
        lines.append(f"runtime = {_quote(device.runtime)}")
    if device.host:
        lines.append("host = true")
    if device.speed != 1:
        lines.append(f"speed = {device.speed!r}")
    return lines


def _rate(rate: Rate) -> Iterator[str]:
    yield f"fp32 = {_exact(rate.fp32, _DECIMAL, 'FLOP/s')}"
    if rate.fp16 != rate.fp32:
        yield f"fp16 = {_exact(rate.fp16, _DECIMAL, 'FLOP/s')}"
    if rate.int8 is not None:
        yield f"int8 = {_exact(rate.int8, _DECIMAL, 'OP/s')}"
    yield f"bandwidth = {_exact(rate.bandwidth, _DECIMAL, 'B/s')}"
    yield f"launch = {_exact(rate.launch, _TIMES)}"
    if rate.source:
        yield f"source = {_quote(rate.source)}"


def _link(ends: str, link: Link) -> list[str]:
    lines = ["[[link]]", ends, f"bandwidth = {_exact(link.bandwidth, _DECIMAL, 'B/s')}"]
    lines.append(f"latency = {_exact(link.latency, _TIMES)}")
    if link.shared:
        lines.append(f"shared = {_quote(link.shared)}")
    if link.origin:
        lines.append(f"source = {_quote(link.origin)}")
    return lines


def _limits(limits: Limits) -> list[str]:
    lines = ["[limits]"]
    together = [_quotes(patterns) for patterns in limits.together]
    pin, forbid = (
        [f"{{ op = {_quote(limit.op)}, device = {_quote(limit.device)} }}" for limit in group]
        for group in (limits.pin, limits.forbid)
    )
    for field, items in (("pin", pin), ("together", together), ("forbid", forbid)):
        if items:
            lines += [f"{field} = [", *(f"  {item}," for item in items), "]"]
    return lines


def _entries(links: Sequence[Link]) -> Iterator[tuple[str, Link]]:
    """The ends of each entry as TOML, and one of its links for the rest."""
    start = 0
    while start < len(links):
        link = links[start]
        star = _star_at(links, start)
        if len(star) > 1:
            pairs = list(combinations(star[1:], 2))
            rest = start + 2 * (len(star) - 1)
            if all(_both_ways(links, rest + 2 * i, a, b, link) for i, (a, b) in enumerate(pairs)):
                yield f"between = {_quotes(star)}", link
                start = rest + 2 * len(pairs)
            else:
                for leaf in star[1:]:
                    yield f"between = {_quotes((link.source, leaf))}", link
                start = rest
        else:
            sources, targets = _product_at(links, start)
            yield f"from = {_one_or_list(sources)}\nto = {_one_or_list(targets)}", link
            start += len(sources) * len(targets)


def _star_at(links: Sequence[Link], start: int) -> list[str]:
    """[centre, leaf, leaf ...]: the run of links centre -> leaf, leaf -> centre with the same numbers."""
    like = links[start]
    star = [like.source]
    while (at := start + 2 * (len(star) - 1)) < len(links) and _both_ways(links, at, star[0], links[at].target, like):
        star.append(links[at].target)
    return star


def _both_ways(links: Sequence[Link], at: int, a: str, b: str, like: Link) -> bool:
    return at + 1 < len(links) and _is(links[at], a, b, like) and _is(links[at + 1], b, a, like)


def _product_at(links: Sequence[Link], start: int) -> tuple[list[str], list[str]]:
    """Sources and targets of the run of links that go from each source to every target, with the same numbers."""
    like = links[start]
    sources, targets = [like.source], [like.target]
    at = start + 1
    while at < len(links) and _is(links[at], like.source, links[at].target, like):
        targets.append(links[at].target)
        at += 1
    while at + len(targets) <= len(links):
        source = links[at].source
        if not all(_is(links[at + i], source, target, like) for i, target in enumerate(targets)):
            break
        sources.append(source)
        at += len(targets)
    return sources, targets


def _is(link: Link, source: str, target: str, like: Link) -> bool:
    return link == Link(source, target, like.bandwidth, like.latency, like.shared, like.origin)


def _one_or_list(ids: Sequence[str]) -> str:
    return _quote(ids[0]) if len(ids) == 1 else _quotes(ids)


def _quotes(texts: Sequence[str]) -> str:
    return f"[{', '.join(map(_quote, texts))}]"


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c >= " " and c != "\x7f" else f"\\u{ord(c):04x}" for c in escaped) + '"'


def _size(size: int) -> str:
    for factor, unit in _BINARY:
        if size >= factor and size % factor == 0:
            return f'"{size // factor} {unit}"'
    return _exact(size, _DECIMAL, "B")


def _exact(value: int, scale: Sequence[tuple[int, str]], unit: str = "") -> str:
    """All digits, in the largest unit that leaves something before the point: 12300000000 -> "12.3 GB/s"."""
    power, prefix = next((step for step in scale if value >= 10 ** step[0]), scale[-1])
    whole, part = divmod(value, 10**power)
    decimals = f"{part:0{power}d}".rstrip("0") if power else ""
    return f'"{whole}{"." if decimals else ""}{decimals} {prefix}{unit}"'
