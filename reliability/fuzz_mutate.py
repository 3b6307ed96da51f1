"""Mutations of valid files: of bytes, of tokens of a text, of JSON trees, of protobuf messages, of packed headers.

In: a valid file, its form, and dice with a fixed seed. Out: other bytes, the same for the same dice. Simplified: no
coverage is measured; what a form needs to get past its first checks (lengths, checksums) is packed again.
"""

from __future__ import annotations

import io
import json
import re
import zipfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from random import Random
from typing import Any

__all__ = ["FORMS", "mutate"]

NUMBERS: tuple[int, ...] = (
    0,
    -1,
    1,
    2,
    3,
    7,
    64,
    127,
    128,
    255,
    256,
    1024,
    4096,
    65535,
    2**20,
    2**31 - 1,
    2**31,
    2**32,
    2**53,
)
NUMBERS += (2**60, 2**62, 2**63 - 1, 2**63, 2**64, 2**64 - 1, -(2**31), -(2**63), -(2**63) - 1, 10**30, 10**400)
REALS = ("0.5", "-0.0", "1e-320", "1e308", "1e309", "-1e309", "NaN", "Infinity", "-Infinity", "1.0000000000000002")
WORDS: tuple[str, ...] = (
    "",
    " ",
    "\0",
    "a\0b",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "a" * 300,
    "a" * 70_000,
    "\n",
    '"',
    "'",
    "\\",
)
WORDS += (
    "<script>alert(1)</script>",
    "=1+1",
    "\ud7ff\ue000",
    "é",
    "\U0001f600",
    "\u202e",
    "%s%n",
    "${x}",
    "null",
    "true",
)
WORDS += (
    "d0",
    "0",
    "-1",
    "1e9999",
    "NaN",
    "*",
    "**",
    "[",
    "{",
    "]",
    "}}",
    "((((",
    "#",
    "//",
    ",",
    ":",
    "24 GiB",
    "9" * 5000,
)
TOKENS = re.compile(rb"[0-9]+\.[0-9]+|[0-9]+|[A-Za-z_][A-Za-z0-9_]*|\s+|.", re.DOTALL)
MOST = 400_000
"""Bytes of an input: repeated mutations must not make them grow without end."""
MOST_PLACES = 3000


def mutate(data: bytes, form: str, others: Sequence[bytes], dice: Random) -> bytes:
    """One input; `others` are valid files to splice with."""
    changed = FORMS[form](data, others, dice)
    if dice.random() < 0.1:
        changed = _bytes(changed, others, dice)
    return changed[:MOST]


def _times(dice: Random) -> int:
    return dice.choice((1, 1, 1, 1, 2, 2, 3, 5, 9))


def _number(dice: Random) -> int:
    return dice.choice(NUMBERS) if dice.random() < 0.7 else dice.randint(-300, 300)


def _bytes(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """Flips, holes, repeats, numbers of two to eight bytes, splices, cuts."""
    found = bytearray(data)
    for _ in range(_times(dice)):
        at, length = dice.randrange(len(found) + 1), dice.choice((1, 1, 2, 4, 8, 17, 64, 300))
        kind = dice.randrange(8)
        if kind == 0 and found:
            found[at % len(found)] ^= 1 << dice.randrange(8)
        elif kind == 1 and found:
            found[at % len(found)] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        elif kind == 2:
            del found[at : at + length]
        elif kind == 3:
            found[at:at] = dice.randbytes(length)
        elif kind == 4:
            found[at:at] = found[at : at + length] * dice.choice((1, 2, 50))
        elif kind == 5:
            width = dice.choice((2, 4, 8))
            found[at : at + width] = (_number(dice) % 2 ** (8 * width)).to_bytes(width, dice.choice(("little", "big")))
        elif kind == 6:
            other = dice.choice(others)
            found[at:] = other[dice.randrange(len(other) + 1) :]
        elif dice.random() < 0.3:
            del found[at:]
        if len(found) > MOST:
            break
    return bytes(found)


def _text(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """Tokens are dropped, doubled, exchanged, or replaced by others of their kind and by hostile ones."""
    parts = TOKENS.findall(data)
    for _ in range(_times(dice)):
        if not parts or sum(map(len, parts)) > MOST:
            break
        at, kind = dice.randrange(len(parts)), dice.randrange(7)
        if kind == 0:
            del parts[at : at + dice.choice((1, 1, 3, 30))]
        elif kind == 1:
            parts[at:at] = parts[at : at + dice.choice((1, 3, 30))] * dice.choice((1, 1, 2, 200))
        elif kind == 2:
            other = dice.randrange(len(parts))
            parts[at], parts[other] = parts[other], parts[at]
        elif kind == 3:
            parts[at] = dice.choice(parts)
        elif kind == 4 and (numbers := [i for i, part in enumerate(parts) if part[:1].isdigit()]):
            parts[dice.choice(numbers)] = (str(_number(dice)) if dice.random() < 0.8 else dice.choice(REALS)).encode()
        elif kind == 5 and (words := [i for i, part in enumerate(parts) if part[:1].isalpha()]):
            parts[dice.choice(words)] = dice.choice(WORDS).encode("utf-8", "surrogatepass")
        else:
            theirs = TOKENS.findall(dice.choice(others))
            start = dice.randrange(len(theirs) + 1)
            parts[at:at] = theirs[start : start + dice.choice((1, 5, 60))]
    return b"".join(parts)


class _Raw(float):
    """A number that is written as it stands."""

    def __new__(cls, text: str) -> _Raw:
        made = super().__new__(cls, 0.0)
        made.text = text  # type: ignore[attr-defined]
        return made

    def __repr__(self) -> str:
        return str(self.text)  # type: ignore[attr-defined]


def _json(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """Values of the tree are replaced, dropped, doubled, moved, nested; or the text is damaged."""
    if dice.random() < 0.15:
        return _text(data, others, dice)
    tree = json.loads(data)
    for _ in range(_times(dice)):
        places = list(_places(tree))
        if not 0 < len(places) < MOST_PLACES:
            break
        holder, key = dice.choice(places)
        _edit(holder, key, places, dice)
    text = _dump(tree)
    return text.encode("utf-8", "surrogatepass")


def _edit(holder: Any, key: Any, places: list[tuple[Any, Any]], dice: Random) -> None:
    value, kind = holder[key], dice.randrange(10)
    if kind == 0:
        del holder[key]
    elif kind == 1 and isinstance(holder, list):
        holder[key:key] = [value] * dice.choice((1, 2, 300))
    elif kind == 2:
        other, place = dice.choice(places)
        if (isinstance(other, dict) and place in other) or (isinstance(other, list) and place < len(other)):
            with suppress(RecursionError):
                holder[key] = json.loads(_dump(other[place]))
    elif kind == 3:
        deep: Any = value
        for _ in range(dice.choice((1, 2, 50, 3000))):
            deep = [deep] if dice.random() < 0.5 else {"a": deep}
        holder[key] = deep
    elif kind == 4 and isinstance(holder, dict):
        holder[dice.choice(WORDS)] = value
    elif isinstance(value, bool) or value is None:
        holder[key] = dice.choice((True, False, None, 0, 1, [], {}, "x"))
    elif isinstance(value, int | float) or kind == 5:
        near = value + dice.choice((-1, 1)) if isinstance(value, int) else 1
        holder[key] = dice.choice((_number(dice), _number(dice), near, _Raw(dice.choice(REALS))))
    elif isinstance(value, str):
        holder[key] = dice.choice(WORDS) if dice.random() < 0.7 else value[:1000] * dice.choice((2, 40))
    elif isinstance(value, list):
        holder[key] = dice.choice(([], value[::-1], value[:1], value * 2, {}, 0, [[]]))
    else:
        holder[key] = dice.choice(({}, [], None, "", 0, [value]))


def _places(tree: Any) -> Any:
    """Every (holder, key) of the tree; not by recursion, for trees become deep."""
    left = [tree]
    while left:
        holder = left.pop()
        for key in list(holder) if isinstance(holder, dict) else range(len(holder)) if isinstance(holder, list) else ():
            yield holder, key
            left.append(holder[key])


def _dump(tree: Any) -> str:
    """As json.dumps, but not by recursion, and with numbers that JSON does not have."""
    out: list[str] = []
    left: list[Any] = [tree]
    while left:
        item = left.pop()
        if isinstance(item, tuple):
            out.append(item[0])
        elif isinstance(item, dict):
            left.append(("}",))
            for number, (name, value) in enumerate(reversed(item.items())):
                left += (
                    [value, (f"{json.dumps(name)}:",)] if number == 0 else [(",",), value, (f"{json.dumps(name)}:",)]
                )
            left.append(("{",))
        elif isinstance(item, list):
            left.append(("]",))
            for number, value in enumerate(reversed(item)):
                left += [value] if number == 0 else [(",",), value]
            left.append(("[",))
        else:
            out.append(repr(item) if isinstance(item, _Raw) else json.dumps(item))
    return "".join(out)


def _lines(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """One JSON object a line."""
    lines = data.splitlines(keepends=True)
    at = dice.randrange(len(lines))
    if dice.random() < 0.2:
        return _bytes(data, others, dice)
    lines[at] = _json(lines[at], lines, dice) + b"\n"
    return b"".join(lines)


def _protobuf(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """Fields at any depth are dropped, doubled, exchanged or given other values; all lengths above are right again."""
    if dice.random() < 0.2:
        return _bytes(data, others, dice)
    for _ in range(_times(dice)):
        data = _message(data, dice, 0)
    return data


def _message(data: bytes, dice: Random, depth: int) -> bytes:
    fields = _fields(data)
    if not fields:
        return _bytes(data, [data or b"\0"], dice)
    at = dice.randrange(len(fields))
    number, wire, value = fields[at]
    inner = wire == 2 and isinstance(value, bytes) and _fields(value)
    if inner and dice.random() < 0.75 and depth < 12:
        fields[at] = (number, wire, _message(bytes(value), dice, depth + 1))
        return _join(fields)
    kind = dice.randrange(7)
    if kind == 0:
        del fields[at]
    elif kind == 1:
        fields[at:at] = [fields[at]] * dice.choice((1, 2, 40))
    elif kind == 2:
        other = dice.randrange(len(fields))
        fields[at], fields[other] = fields[other], fields[at]
    elif kind == 3:
        fields[at] = (dice.choice((number + 1, max(1, number - 1), dice.randrange(1, 30))), wire, value)
    elif kind == 4 and inner and depth < 12:
        for _ in range(dice.choice((1, 30, 120))):  # the message inside itself, again and again
            value = _join([*_fields(bytes(value)), (number, 2, value)])[:20_000]
        fields[at] = (number, wire, value)
    elif wire == 2:
        fields[at] = (number, wire, dice.choice(WORDS).encode() if dice.random() < 0.5 else dice.randbytes(9))
    elif wire == 0:
        fields[at] = (number, wire, _number(dice) % 2**64)
    else:
        fields[at] = (number, wire, dice.randbytes(len(value)))
    return _join(fields)


def _fields(data: bytes) -> list[tuple[int, int, Any]]:
    """Fields of a message; none if the bytes are no message."""
    found, at = [], 0
    value: int | bytes
    while at < len(data):
        key, at = _varint(data, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(data, at)
        elif wire in (1, 5):
            size = 8 if wire == 1 else 4
            value, at = data[at : at + size], at + size
        elif wire == 2:
            size, at = _varint(data, at)
            value, at = data[at : at + size], at + size
        else:
            return []
        if at > len(data) or not 1 <= number < 2**29:
            return []
        found.append((number, wire, value))
    return found


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(data) and shift < 70:
        value |= (data[at] & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 0x80:
            return value, at
    return 0, len(data) + 1


def _join(fields: list[tuple[int, int, Any]]) -> bytes:
    out = bytearray()
    for number, wire, value in fields:
        out += _as_varint(number << 3 | wire)
        if wire == 0:
            out += _as_varint(value)
        else:
            out += (_as_varint(len(value)) if wire == 2 else b"") + value
    return bytes(out)


def _as_varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _npz(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """Entries are damaged before they are packed again, so that checksums hold; or the archive itself is."""
    if dice.random() < 0.3:
        return _bytes(data, others, dice)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    at = dice.randrange(len(entries))
    name, content = entries[at]
    head = content[:128]
    other = _text(head, [head], dice) if dice.random() < 0.7 else _bytes(head, [head], dice)
    entries[at] = (dice.choice((name, name, name, "../x.npy", "", "a" * 900)), other + content[128:])
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", dice.choice((zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED))) as archive:
        for entry, stored in entries:
            archive.writestr(zipfile.ZipInfo(entry or "x"), stored)
    return out.getvalue()


def _safetensors(data: bytes, others: Sequence[bytes], dice: Random) -> bytes:
    """The header is another JSON tree, its length is right."""
    if dice.random() < 0.3:
        return _bytes(data, others, dice)
    length = int.from_bytes(data[:8], "little")
    header = _json(data[8 : 8 + length], [data[8 : 8 + length]], dice)
    return len(header).to_bytes(8, "little") + header + data[8 + length :]


FORMS: dict[str, Callable[[bytes, Sequence[bytes], Random], bytes]] = {
    "bytes": _bytes,
    "text": _text,
    "json": _json,
    "lines": _lines,
    "protobuf": _protobuf,
    "npz": _npz,
    "safetensors": _safetensors,
}
