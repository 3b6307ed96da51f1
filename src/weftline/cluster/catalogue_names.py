"""Names of products as people and tools write them, taken apart: "rtx4090", "4090" and "NVIDIA GeForce RTX 4090" are
one.

In: a name. Out: its words that count, its words that may be left out, and the size of memory in it; for memory systems
(DDR5-6000 dual channel) the bandwidth by arithmetic. Simplified: English words; the order of words counts.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from weftline.errors import InputError
from weftline.units import exact_count, parse_bytes

__all__ = ["ProductName", "memory_system", "read_name", "read_size"]

_NOISE = re.compile(
    "nvidia|geforce|amd|radeon|intel|apple|instinct|tesla|graphics|gpu|cpu|card|generation|edition|the|r|tm|c|"
    "core|cores|processor|memory|channels|bit"
)
"""Words that name nothing by themselves."""
_OPTIONAL = re.compile("rtx|gtx|rx|arc|pcie|sxm|dual|channel|ch|per|modded|unified")
"""Words that may be left out, but not replaced by another of them."""
_SYNONYMS = {"mobile": "laptop", "notebook": "laptop"}
_SIZE = re.compile(r"(?<![\w.])(\d{1,4}(?:\.\d)?)\s*(?:gib|gb|g)(?![a-z0-9])", re.IGNORECASE)
_WORD = re.compile(r"[a-z]+|\d+(?:\.\d+)?")
_APPLE_CORES = re.compile(r"\(?\b(\d{1,3})[ -]?(?:gpu[ -]?)?cores?(?: gpu)?\b\)?", re.IGNORECASE)
_MEMORY = re.compile(r"(?:lp)?ddr\s?(\d)x?[ -]?(\d{3,5})", re.IGNORECASE)
_CHANNELS = re.compile(r"(\d{1,2})[ -]?(?:ch\b|channels?\b)|\b(single|dual|quad|octa|hexa)\b", re.IGNORECASE)
_WIDTH = re.compile(r"(\d{2,4})[ -]?bits?\b", re.IGNORECASE)
_COUNTS = {"single": 1, "dual": 2, "quad": 4, "hexa": 6, "octa": 8}
_BYTES_PER_CHANNEL, _MOST_CHANNELS = 8, 24
_SLOWEST, _FASTEST = 400, 20_000
"""Transfers per second, in millions, of memory that exists."""


class ProductName(NamedTuple):
    """A name, taken apart."""

    words: tuple[str, ...]
    optional: frozenset[str]
    bytes: int | None
    """The memory that the name says: `12GB` in a name is 12 GiB, as vendors write it."""


def read_name(text: str) -> ProductName:
    """Take a name apart."""
    plain = text.casefold().replace("(r)", " ").replace("(tm)", " ").replace("®", " ").replace("™", " ")
    size = _SIZE.search(plain)
    plain = _SIZE.sub(" ", plain, count=1)
    plain = re.sub(r"sxm\d", "sxm", _APPLE_CORES.sub(r" \1 ", plain))
    words = [_SYNONYMS.get(word, word) for word in _WORD.findall(plain)]
    counted = [word for word in words if not _NOISE.fullmatch(word) and not _OPTIONAL.fullmatch(word)]
    optional = {word for word in words if _OPTIONAL.fullmatch(word)}
    if counted[:1] == ["m"]:  # of Apple's chips the number of GPU cores may be left out: M2 Ultra (76)
        optional |= {f"{word} cores" for word in counted[2:] if word.isdigit()}
        counted = [word for i, word in enumerate(counted) if i < 2 or not word.isdigit()]
    return ProductName(tuple(counted), frozenset(optional), None if size is None else int(float(size[1]) * 2**30))


def read_size(text: str, where: str) -> int:
    """Bytes of memory: "11GB", "11 GiB", "11g"; a unit is needed."""
    plain = text.strip()
    if short := re.fullmatch(r"([0-9.]+)\s*([kmgt])(i?)b?", plain, re.IGNORECASE):
        plain = f"{short[1]} {short[2].upper()}{short[3].lower()}B"
    try:
        size = parse_bytes(plain)
    except InputError as error:
        raise InputError(error.what, where=where, hint="write it like '11GB' or '11 GiB'") from error
    if size < 1:
        raise InputError("no memory at all", where=where, hint="write it like '11GB'")
    return size


def memory_system(text: str) -> tuple[str, int, str] | None:
    """Name, bytes/s and the arithmetic of a memory system such as "DDR5-6000 dual channel"; None if it is none.

    Two channels of 64 bits where nothing is said.
    """
    memory = _MEMORY.search(text)
    if memory is None or not _SLOWEST <= int(memory[2]) <= _FASTEST:
        return None
    rest = _MEMORY.sub(" ", text)
    width, channels = _WIDTH.search(rest), _CHANNELS.search(rest)
    count = 2
    if channels is not None:
        count = int(channels[1]) if channels[1] else _COUNTS[channels[2].casefold()]
    rest = _CHANNELS.sub(" ", _WIDTH.sub(" ", rest))
    words = _WORD.findall(rest.casefold())
    left = [word for word in words if not _NOISE.fullmatch(word) and word not in ("channel", "ram")]
    if left or not 1 <= count <= _MOST_CHANNELS:
        return None
    wide = int(width[1]) // 8 if width else count * _BYTES_PER_CHANNEL
    rate = wide * int(memory[2]) * 10**6
    low_power = "LP" if "lpddr" in text.casefold() else ""
    kind = f"{low_power}DDR{memory[1]}{'X' if re.search(r'ddr.?.?x', text, re.IGNORECASE) else ''}-{memory[2]}"
    how = f"{width[1]} bit" if width else f"{count} channel{'s' if count > 1 else ''}"
    return f"CPU {kind} {how}", rate, f"{wide} x {memory[2]} MB/s = {exact_count(rate, 'B/s')}"
