"""Cluster -> TOML text that `toml.py` reads back as the same cluster.

In: a Cluster that keeps every rule. Out: canonical text: fixed field order, defaults left out, exact quantities in the
largest unit that fits. Neighbouring links that one entry would make are written as that entry, so that reading gives
the same links in the same order. Simplified: comments are lost; what a catalogue gave is written out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations

from weftline.cluster.model import Cluster, Device, Limits, Link, Rate
from weftline.cluster.rules import check_cluster
from weftline.units import exact_bytes, exact_count, exact_time

__all__ = ["write_cluster"]


def write_cluster(cluster: Cluster) -> str:
    """The file's text. A cluster that breaks a rule raises `InputError`: its file could not be read."""
    check_cluster(cluster)
    blocks = [["version = 1", f"name = {_quote(cluster.name)}"]]
    blocks += [_write_device(device) for device in cluster.devices]
    blocks += [_write_link(ends, link) for ends, link in _entries(cluster.links)]
    if cluster.limits != Limits():
        blocks.append(_write_limits(cluster.limits))
    return "\n\n".join("\n".join(block) for block in blocks) + "\n"


def _write_device(device: Device) -> list[str]:
    fields = {
        "id": _quote(device.id),
        "kind": _quote(device.kind),
        "accelerator": _quote(device.accelerator) if device.accelerator else "",
        "memory": "" if device.memory is None else _quote(exact_bytes(device.memory)),
        "memory_source": _quote(device.memory_source) if device.memory_source else "",
        "reserve": _quote(exact_bytes(device.reserve)) if device.reserve else "",
        "rate": "" if device.rate is None else f"{{ {', '.join(_write_rate(device.rate))} }}",
        "runtime": _quote(device.runtime) if device.runtime else "",
        "host": "true" if device.host else "",
        "speed": "" if device.speed == 1 else repr(device.speed),
    }
    return ["[[device]]", *_filled(fields)]


def _write_rate(rate: Rate) -> list[str]:
    fields = {
        "fp32": _quote(exact_count(rate.fp32, "FLOP/s")),
        "fp16": "" if rate.fp16 == rate.fp32 else _quote(exact_count(rate.fp16, "FLOP/s")),
        "int8": "" if rate.int8 is None else _quote(exact_count(rate.int8, "OP/s")),
        "bandwidth": _quote(exact_count(rate.bandwidth, "B/s")),
        "launch": _quote(exact_time(rate.launch)),
        "source": _quote(rate.source) if rate.source else "",
    }
    return _filled(fields)


def _write_link(ends: str, link: Link) -> list[str]:
    fields = {
        "bandwidth": _quote(exact_count(link.bandwidth, "B/s")),
        "latency": _quote(exact_time(link.latency)),
        "shared": _quote(link.shared) if link.shared else "",
        "source": _quote(link.origin) if link.origin else "",
    }
    return ["[[link]]", ends, *_filled(fields)]


def _filled(fields: dict[str, str]) -> list[str]:
    return [f"{name} = {text}" for name, text in fields.items() if text]


def _write_limits(limits: Limits) -> list[str]:
    lines = ["[limits]"]
    together = [_quotes(patterns) for patterns in limits.together]
    pin, forbid = (
        [f"{{ op = {_quote(limit.op)}, device = {_quote(limit.device)} }}" for limit in group]
        for group in (limits.pin, limits.forbid)
    )
    block = [_quote(pattern) for pattern in limits.block]
    for field, items in (("pin", pin), ("together", together), ("forbid", forbid), ("block", block)):
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
