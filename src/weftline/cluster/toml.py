"""TOML text <-> Cluster.

Reading names the place of every mistake: "cluster.toml: device[1].memroy: unknown field ...". `between` lists two or
more devices and makes every link among them, both ways; `from` and `to` (one id or a list each) make one-way links.
Every quantity is text with a unit. The text is hostile: size, depth and counts are limited.

Writing is canonical: fixed field order, defaults left out, exact quantities in the largest unit that fits. Neighbouring
links that one entry would make are written as that entry, so that reading gives the same links in the same order.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from hashlib import sha256
from itertools import combinations
from pathlib import Path

from weftline.cluster.model import Cluster, Device, Limits, Link, OpDevice, Rate
from weftline.cluster.rules import MAX_LINKS, check_cluster
from weftline.errors import InputError, near, no_such_file
from weftline.files import other_kind
from weftline.units import exact_bytes, exact_count, exact_time, parse_bandwidth, parse_bytes, parse_flops, parse_time

__all__ = ["MAX_FILE_BYTES", "parse_cluster", "read_cluster", "toml_document", "write_cluster"]

MAX_FILE_BYTES = 2**20
CLUSTER = "a cluster file"
_TOO_LARGE = "is larger than the limit of 1 MiB"
_HINT = "a cluster file is TOML text; see: weftline cluster show laptop"

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]{1,64}")
# tomllib needs time quadratic in the parts of a dotted key: hours for one megabyte of "a.a.a.a". We use no such keys.
_LONG_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){64}""")
_KINDS = {dict: "a table", list: "a list", str: "text", bool: "true or false", int: "a number", float: "a number"}


def read_cluster(path: Path) -> tuple[Cluster, str]:
    """Read and check a file, once -> (cluster, sha256 of what was read)."""
    where = str(path)
    try:
        if not path.is_file():
            raise InputError("not a file", where=where) if path.exists() else no_such_file(path)
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise InputError(other_kind(data, CLUSTER) or _TOO_LARGE, where=where, hint=_HINT)
        text = data.decode("utf-8-sig")
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or a path with a NUL
        other = other_kind(data, CLUSTER) if isinstance(error, UnicodeDecodeError) else ""
        raise InputError(other or f"cannot be read: {error}", where=where, hint=_HINT) from error
    name = path.stem if path.stem.isprintable() and len(path.stem) <= 64 else "cluster"
    try:
        return parse_cluster(text, where, name=name), sha256(data).hexdigest()
    except InputError as error:
        if other := other_kind(data, CLUSTER):
            raise InputError(other, where=where, hint=_HINT) from error
        raise


def parse_cluster(text: str, where: str, *, name: str = "cluster") -> Cluster:
    """Read and check text; `name` is used where the text gives none."""
    try:
        return _cluster(toml_document(text), name)
    except InputError as error:
        raise (error.at(where) if where else error) from error


def toml_document(text: str) -> dict[str, object]:
    """The tables of a text that may be hostile; `InputError` for what is no TOML, or would take too long to read."""
    if len(text) > MAX_FILE_BYTES:
        raise InputError(_TOO_LARGE, hint=_HINT)
    if _LONG_KEY.search(text):
        raise InputError("a key or a name has more than 64 parts with dots between them")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # tomllib's own, with line and column; a number with too many digits
        what = "nested too deeply" if isinstance(error, RecursionError) else error
        raise InputError(f"not valid TOML: {what}") from error


class _Table:
    """One TOML table: hands out its fields with the right type, and refuses fields that nobody knows."""

    def __init__(self, value: object, place: str, known: tuple[str, ...]) -> None:
        if not isinstance(value, dict):
            raise InputError(f"is {_kind(value)}, not a table", where=place)
        self.fields: dict[str, object] = value
        self.place = place
        for field in value:
            if field not in known:
                guess = near(field, known)
                shown = field if _BARE_KEY.fullmatch(field) else repr(field[:64])
                hint = "" if guess else f"known here: {', '.join(known)}"
                raise InputError(f"unknown field{guess}", where=self.at(shown), hint=hint)

    def at(self, field: str) -> str:
        """The place of a field."""
        return f"{self.place}.{field}" if self.place else field

    def __contains__(self, field: str) -> bool:
        return field in self.fields

    def text(self, field: str, default: str | None = None) -> str:
        """Text; without a default the field must be there."""
        if field not in self.fields and default is not None:
            return default
        return _text(self._required(field), self.at(field))

    def flag(self, field: str) -> bool:
        """True or false; false if missing."""
        value = self.fields.get(field, False)
        if not isinstance(value, bool):
            raise InputError(f"is {_kind(value)}, not true or false", where=self.at(field))
        return value

    def number(self, field: str, default: float) -> float:
        """A plain number."""
        value = self.fields.get(field, default)
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise InputError(f"is {_kind(value)}, not a number", where=self.at(field))
        return float(min(value, 2**60))  # whole numbers of a file may be larger than any float

    def quantity(self, field: str, parse: Callable[[str], int]) -> int:
        """A number with its unit."""
        value = self._required(field)
        if isinstance(value, int | float) and not isinstance(value, bool):
            value = f"{value:.6g}" if abs(value) < 2**60 else "a number without a unit"
        try:
            return parse(_text(value, ""))
        except InputError as error:
            raise InputError(error.what, where=self.at(field), hint=error.hint) from error

    def optional(self, field: str, parse: Callable[[str], int]) -> int | None:
        """A number with its unit, None if missing."""
        return self.quantity(field, parse) if field in self.fields else None

    def items(self, field: str) -> Iterator[tuple[str, object]]:
        """The members of a list with their places; none if missing."""
        return _items(self.fields.get(field, []), self.at(field))

    def texts(self, field: str) -> list[str]:
        """A list of text, or one text alone."""
        value = self._required(field)
        return [value] if isinstance(value, str) else [_text(item, place) for place, item in self.items(field)]

    def _required(self, field: str) -> object:
        if field not in self.fields:
            raise InputError("is missing", where=self.at(field))
        return self.fields[field]


def _kind(value: object) -> str:
    return _KINDS.get(type(value), "a date or time")


def _text(value: object, place: str) -> str:
    if not isinstance(value, str):
        raise InputError(f"is {_kind(value)}, not text in quotes", where=place)
    return value


def _items(value: object, place: str) -> Iterator[tuple[str, object]]:
    if not isinstance(value, list):
        hint = f"write [[{place}]]" if place in ("device", "link") else ""
        raise InputError(f"is {_kind(value)}, not a list", where=place, hint=hint)
    for i, item in enumerate(value):
        yield f"{place}[{i}]", item


def _cluster(document: dict[str, object], name: str) -> Cluster:
    version = document.get("version")
    if type(version) is not int or version != 1:
        what = "is not a version that can be read" if "version" in document else "is missing"
        raise InputError(what, where="version", hint="write version = 1 on the first line")
    table = _Table(document, "", ("version", "name", "device", "link", "limits"))
    devices = tuple(_device(item, place) for place, item in table.items("device"))
    if not devices:
        raise InputError("is missing", where="device", hint="a cluster has at least one [[device]]")
    links: list[Link] = []
    places: list[tuple[str, str]] = []
    for place, item in table.items("link"):
        made, source_place, target_place = _links(item, place, MAX_LINKS - len(links))
        links += made
        places += [(source_place, target_place)] * len(made)
    limits = _limits(document["limits"]) if "limits" in document else Limits()
    cluster = Cluster(name=table.text("name", name), devices=devices, links=tuple(links), limits=limits)
    return check_cluster(cluster, places)


def _device(value: object, place: str) -> Device:
    known = ("id", "kind", "memory", "memory_source", "reserve", "rate", "runtime", "host", "speed")
    table = _Table(value, place, known)
    return Device(
        id=table.text("id"),
        kind=table.text("kind"),
        memory=table.optional("memory", parse_bytes),
        reserve=table.optional("reserve", parse_bytes) or 0,
        rate=_rate(table.fields["rate"], table.at("rate")) if "rate" in table else None,
        runtime=table.text("runtime", ""),
        host=table.flag("host"),
        memory_source=table.text("memory_source", ""),
        speed=table.number("speed", 1.0),
    )


def _rate(value: object, place: str) -> Rate:
    table = _Table(value, place, ("fp32", "fp16", "int8", "bandwidth", "launch", "source"))
    return Rate(
        fp32=table.quantity("fp32", parse_flops),
        fp16=table.optional("fp16", parse_flops) or 0,
        bandwidth=table.quantity("bandwidth", parse_bandwidth),
        launch=table.quantity("launch", parse_time),
        source=table.text("source", ""),
        int8=table.optional("int8", _parse_operations),
    )


def _parse_operations(text: str) -> int:
    # Data sheets write integer rates as "624 TOP/s": no floating point in them.
    return parse_flops(re.sub(r"(?<!FL)OP/s", "FLOP/s", text))


def _links(value: object, place: str, room: int) -> tuple[list[Link], str, str]:
    """The one-way links that one entry makes, and the places of their two ends; `room` is how many may still come."""
    table = _Table(value, place, ("between", "from", "to", "bandwidth", "latency", "shared", "source"))
    if "between" in table and ("from" in table or "to" in table):
        raise InputError("has 'between' and also 'from' or 'to'", where=place, hint="'between' already means both ways")
    if "between" in table:
        ids = table.texts("between")
        if len(ids) < 2:
            raise InputError("needs two devices or more", where=table.at("between"))
        pairs: Iterator[tuple[str, str]] = (pair for a, b in combinations(ids, 2) for pair in ((a, b), (b, a)))
        count, ends = len(ids) * (len(ids) - 1), ("between", "between")
    elif "from" in table or "to" in table:
        sources, targets = table.texts("from"), table.texts("to")
        pairs = ((source, target) for source in sources for target in targets)
        count, ends = len(sources) * len(targets), ("from", "to")
    else:
        raise InputError("does not say what it links", where=place, hint='write between = ["a", "b"], or from and to')
    if count > room:
        raise InputError(f"the cluster has more than {MAX_LINKS} links", where=place)
    bandwidth, latency = table.quantity("bandwidth", parse_bandwidth), table.quantity("latency", parse_time)
    shared, origin = table.text("shared", ""), table.text("source", "")
    made = [Link(source, target, bandwidth, latency, shared, origin) for source, target in pairs]
    return made, table.at(ends[0]), table.at(ends[1])


def _limits(value: object) -> Limits:
    table = _Table(value, "limits", ("pin", "together", "forbid", "block"))
    return Limits(
        pin=tuple(_op_device(item, place) for place, item in table.items("pin")),
        together=tuple(
            tuple(_text(pattern, inner) for inner, pattern in _items(item, place))
            for place, item in table.items("together")
        ),
        forbid=tuple(_op_device(item, place) for place, item in table.items("forbid")),
        block=tuple(table.texts("block")) if "block" in table else (),
    )


def _op_device(value: object, place: str) -> OpDevice:
    table = _Table(value, place, ("op", "device"))
    return OpDevice(op=table.text("op"), device=table.text("device"))


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
