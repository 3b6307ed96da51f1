"""Written quantities <-> integers: "24 GiB" <-> bytes, "9 us" <-> nanoseconds, "12.3 GB/s" <-> bytes per second.

In: text with a unit (or, for durations on the command line, a bare number of seconds). Out: exact integers.
Arithmetic is rational, so "0.1 us" is 100 ns and never 99; what is smaller than one unit is rounded up for times.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from fractions import Fraction
from math import ceil, floor

from weftline.errors import InputError

__all__ = [
    "MAX_QUANTITY",
    "exact_bytes",
    "exact_count",
    "exact_time",
    "format_bytes",
    "format_name",
    "format_names",
    "format_time",
    "parse_bandwidth",
    "parse_bytes",
    "parse_duration",
    "parse_flops",
    "parse_ratio",
    "parse_time",
]

MAX_QUANTITY = 2**60
"""No single time (ns), size (bytes) or rate may be larger: sums over a graph must fit in 63 bits."""

_DECIMAL = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_BINARY = {"Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}
_POWERS = ((15, "P"), (12, "T"), (9, "G"), (6, "M"), (3, "k"), (0, ""))
_BYTES = {f"{prefix}B": Fraction(factor) for prefix, factor in {**_DECIMAL, **_BINARY}.items()}
_BITS = {f"{prefix}b": Fraction(factor, 8) for prefix, factor in {**_DECIMAL, **_BINARY}.items()}
_BITS |= {f"{prefix}bit": Fraction(factor, 8) for prefix, factor in {**_DECIMAL, **_BINARY}.items()}
_RATES = {f"{unit}/s": factor for unit, factor in {**_BYTES, **_BITS}.items()}
_TIMES = {"ns": 1, "us": 10**3, "µs": 10**3, "ms": 10**6, "s": 10**9, "min": 60 * 10**9, "h": 3600 * 10**9}
_NANOSECONDS = {unit: Fraction(factor) for unit, factor in _TIMES.items()}
_SYNONYMS = {
    **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("m", "mins", "minute", "minutes"), "min"),
    **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
}
_DURATIONS = {unit: _NANOSECONDS[unit] for unit in ("s", "min", "h", "ms", "us", "µs", "ns")}
_DURATIONS |= {word: _NANOSECONDS[unit] for word, unit in _SYNONYMS.items()}
_FLOPS = {f"{prefix}FLOP/s": Fraction(factor) for prefix, factor in _DECIMAL.items()}

_QUANTITY = re.compile(r"\s*([0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,2})?)\s*([A-Za-zµ]*(?:/s)?)\s*")


def _parse(text: str, units: dict[str, Fraction], what: str, example: str) -> Fraction:
    match = _QUANTITY.fullmatch(text) if len(text) <= 100 else None
    if match is None:
        raise InputError(f"{text[:60]!r} is not a {what}", hint=f"write it like {example!r}")
    number, unit = match.groups()
    if unit not in units:
        known = ", ".join(list(units)[:8])
        problem = f"unknown unit {unit!r}" if unit else "no unit"
        raise InputError(f"{problem} in {text!r} for a {what}", hint=f"write it like {example!r}; known: {known} ...")
    value = Fraction(number) * units[unit]
    if value > MAX_QUANTITY:
        raise InputError(f"{text!r} is absurdly large for a {what}", hint="the limit is 2^60")
    return value


def parse_bytes(text: str) -> int:
    """Bytes from "24 GiB", "100 MB", "64 B"."""
    return floor(_parse(text, _BYTES, "size", "24 GiB"))


def parse_bandwidth(text: str) -> int:
    """Bytes per second from "12.3 GB/s" or "100 Gb/s" (bits)."""
    rate = floor(_parse(text, _RATES, "bandwidth", "12.3 GB/s"))
    if rate < 1:
        raise InputError(f"{text!r} is not a bandwidth anything can be sent over", hint="use at least 1 B/s")
    return rate


def parse_time(text: str) -> int:
    """Nanoseconds from "9 us", "1.5 ms", "60 s"."""
    return ceil(_parse(text, _NANOSECONDS, "time", "9 us"))


def parse_duration(text: str) -> float:
    """Seconds from "60s", "10 sec", "1.5 min", or a bare number of seconds: how long somebody is ready to wait."""
    word = text.strip()
    if word.startswith("-"):
        raise InputError(f"{word[:60]!r} is negative", hint="write it like '60s' or '5min'")
    bare = re.fullmatch(r"[0-9.eE+]+", word)
    return float(_parse(f"{word} s" if bare else word, _DURATIONS, "time", "60s")) / 1e9


def parse_flops(text: str) -> int:
    """Floating-point operations per second from "35 TFLOP/s"."""
    rate = floor(_parse(text, _FLOPS, "compute rate", "35 TFLOP/s"))
    if rate < 1:
        raise InputError(f"{text!r} is not a compute rate", hint="use at least 1 FLOP/s")
    return rate


def parse_ratio(text: str) -> float:
    """A share from "1%" or "0.01"."""
    match = re.fullmatch(r"\s*([0-9]{1,9}(?:\.[0-9]{1,9})?)\s*(%?)\s*", text)
    if match is None:
        raise InputError(f"{text[:60]!r} is not a share", hint="write it like '1%' or '0.01'")
    value = float(match.group(1)) / (100 if match.group(2) else 1)
    if not 0 <= value <= 1:
        raise InputError(f"{text!r} is not between 0 and 1", hint="write it like '1%' or '0.01'")
    return value


def exact_bytes(size: int) -> str:
    """All digits: whole binary units where they fit, else decimal ones."""
    for prefix, factor in reversed(_BINARY.items()):
        if size >= factor and size % factor == 0:
            return f"{size // factor} {prefix}B"
    return exact_count(size, "B")


def exact_count(value: int, unit: str) -> str:
    """All digits, in the largest unit that leaves something before the point: 12300000000 -> "12.3 GB/s"."""
    return _exact(value, tuple((power, f"{prefix}{unit}") for power, prefix in _POWERS))


def exact_time(nanoseconds: int) -> str:
    """All digits: 1500 -> "1.5 us"."""
    return _exact(nanoseconds, ((9, "s"), (6, "ms"), (3, "us"), (0, "ns")))


def _exact(value: int, scale: tuple[tuple[int, str], ...]) -> str:
    power, unit = next((step for step in scale if value >= 10 ** step[0]), scale[-1])
    whole, part = divmod(value, 10**power)
    decimals = f"{part:0{power}d}".rstrip("0") if power else ""
    return f"{whole}{'.' if decimals else ''}{decimals} {unit}"


def format_name(name: str, *, keep: str = "") -> str:
    """A name from a file for human eyes: what is not printable (line breaks too, unless kept) becomes an escape."""
    if name.isprintable():
        return name
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape").decode() for c in name)


def format_names(names: Sequence[str], most: int = 6) -> str:
    """Several names in a sentence: 'a', 'b', 'c' and 4 more."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(f"'{format_name(name)}'" for name in names[:most]) + more


def format_time(nanoseconds: int) -> str:
    """Four significant digits and the unit a reader expects: 1278110000 -> "1.278 s"."""
    return _format(nanoseconds, ((10**9, "s"), (10**6, "ms"), (10**3, "us"), (1, "ns")))


def format_bytes(size: int) -> str:
    """Binary units: 25769803776 -> "24 GiB"."""
    return _format(size, ((2**40, "TiB"), (2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "B")))


def _format(value: int, scale: tuple[tuple[int, str], ...]) -> str:
    for factor, unit in scale:
        if abs(value) >= factor:
            if factor == 1:
                return f"{value} {unit}"
            return f"{value / factor:.4g} {unit}" if abs(value) < 9_999 * factor else f"{value // factor:,} {unit}"
    return f"{value} {scale[-1][1]}"
