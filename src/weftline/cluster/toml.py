"""TOML text -> Cluster; `toml_write.py` is the way back.

Reading names the place of every mistake: "cluster.toml: device[1].memroy: unknown field ...". `between` lists two or
more devices and makes every link among them, both ways; `from` and `to` (one id or a list each) make one-way links.
Every quantity is text with a unit. The text is hostile: size, depth and counts are limited.
A device that names its `accelerator` takes from the catalogue what the file leaves out.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator
from hashlib import sha256
from itertools import combinations
from pathlib import Path

from weftline.cluster.catalogue import Accelerator, find_accelerator
from weftline.cluster.catalogue_machines import catalogue_rate
from weftline.cluster.model import Cluster, Device, Limits, Link, OpDevice, Rate
from weftline.cluster.rules import MAX_LINKS, check_cluster
from weftline.errors import InputError, near, no_such_file
from weftline.files import other_kind
from weftline.units import parse_bandwidth, parse_bytes, parse_flops, parse_time

__all__ = ["MAX_FILE_BYTES", "parse_cluster", "read_cluster", "toml_document"]

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
    known = ("id", "kind", "memory", "memory_source", "reserve", "rate", "runtime", "host", "speed", "accelerator")
    table = _Table(value, place, known)
    product = _product(table) if "accelerator" in table else None
    memory, source = table.optional("memory", parse_bytes), table.text("memory_source", "")
    rate = _rate(table.fields["rate"], table.at("rate")) if "rate" in table else None
    if product is not None:
        if memory is None:
            memory, source = _memory(product, table), source or "datasheet"
        rate = rate or catalogue_rate(product)
    return Device(
        id=table.text("id"),
        kind=table.text("kind", *((product.kind,) if product else ())),
        memory=memory,
        reserve=table.optional("reserve", parse_bytes) or 0,
        rate=rate,
        runtime=table.text("runtime", ""),
        host=table.flag("host"),
        memory_source=source,
        speed=table.number("speed", 1.0),
        accelerator=product.name if product else "",
    )


def _product(table: _Table) -> Accelerator:
    try:
        return find_accelerator(table.text("accelerator"))
    except InputError as error:
        raise InputError(error.what, where=table.at("accelerator"), hint=error.hint) from error


def _memory(product: Accelerator, table: _Table) -> int:
    """Where the file names a product and no memory."""
    if product.memory_bytes == 0 or product.least_memory_bytes < product.memory_bytes:
        what = f"is missing: {product.name} is no size by itself"
        raise InputError(what, where=table.at("memory"), hint='write memory = "64 GiB"')
    return product.memory_bytes


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
