"""Protocol-buffer text form -> nested messages, for a schema of the fields that are wanted; all others are skipped.

In: text such as `node { name: "a" id: 1 output_info { size: 50 } }`. Out: `Message` values, field -> all it was given.
Simplified: wanted scalars are whole numbers and strings; unknown fields may be anything the text form allows (nested
messages in {} or <>, lists, floats, enums, extension names) and are checked only as far as finding their end needs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from weftline.errors import InputError

__all__ = ["Message", "Schema", "parse_protobuf_text"]

MAX_DEPTH = 64
MAX_DIGITS = 40

Schema: TypeAlias = Mapping[str, "type[int] | type[str] | Schema"]

_TOKEN = re.compile(
    r"""(?:[ \t\r\n\f\v]++|\#[^\n]*+)*+(?:
        (?P<mark>[{}<>\[\]:;,])
      | (?P<name>-?[A-Za-z_][A-Za-z0-9_]*+)
      | (?P<number>[+-]?(?:0[xX][0-9a-fA-F]++|\d++(?:\.\d*+)?+(?:[eE][+-]?\d++)?+|\.\d++(?:[eE][+-]?\d++)?+)[fF]?+)
      | (?P<string>"(?:[^"\\\n]++|\\[^\n])*+"|'(?:[^'\\\n]++|\\[^\n])*+')
      | (?P<end>\Z)
    )""",
    re.VERBOSE | re.ASCII,
)
_EXTENSION = re.compile(r"[A-Za-z0-9_./\s-]{1,1000}\]")
_ESCAPE = re.compile(r"\\(?:([0-7]{1,3})|[xX]([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}
_CLOSING = {"{": "}", "<": ">"}


@dataclass(frozen=True, slots=True)
class Message:
    """One message: where it starts in the text, and the wanted fields in it."""

    position: int
    numbers: dict[str, list[int]] = field(default_factory=dict)
    strings: dict[str, list[str]] = field(default_factory=dict)
    messages: dict[str, list[Message]] = field(default_factory=dict)


def parse_protobuf_text(text: str, schema: Schema) -> Message:
    """The fields of the outermost message."""
    return _Parser(text).message(schema, "", 0)


class _Parser:
    """One token of look-ahead: `kind`, `value` and `start` describe it."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.end = 0
        self.advance()

    def advance(self) -> None:
        match = _TOKEN.match(self.text, self.end)
        if match is None or match.lastgroup is None:
            self.start = self.end
            raise self.error("an unexpected character or a string that does not end", after=True)
        self.kind, self.value = match.lastgroup, match[match.lastgroup]
        self.start, self.end = match.start(match.lastgroup), match.end()

    def error(self, what: str, *, after: bool = False) -> InputError:
        line = self.text.count("\n", 0, self.start) + 1
        return InputError(f"{what}{' after this place' if after else ''}", where=f"line {line}")

    def shown(self) -> str:
        return "the end of the file" if self.kind == "end" else repr(self.value[:40])

    def take(self, value: str) -> bool:
        if self.kind == "mark" and self.value == value:
            self.advance()
            return True
        return False

    def message(self, schema: Schema, closing: str, depth: int) -> Message:
        """Fields up to the closing mark (or the end of the text), which is consumed."""
        if depth > MAX_DEPTH:
            raise self.error(f"messages are nested more than {MAX_DEPTH} deep")
        message = Message(self.start)
        while not (self.kind == "end" and not closing) and not (closing and self.take(closing)):
            name = self.field_name()
            self.values(message, name, schema.get(name), depth)
            if not self.take(","):
                self.take(";")
        return message

    def field_name(self) -> str:
        if self.kind == "name" and not self.value.startswith("-"):
            name = self.value
            self.advance()
            return name
        if self.kind == "mark" and self.value == "[":
            match = _EXTENSION.match(self.text, self.end)
            if match is None:
                raise self.error("an extension name that does not end")
            self.end = match.end()
            self.advance()
            return ""
        raise self.error(f"a field name was expected, not {self.shown()}")

    def values(self, message: Message, name: str, wanted: type[int] | type[str] | Schema | None, depth: int) -> None:
        """What follows a field name: a message, a scalar, or a list of either in []."""
        colon = self.take(":")
        if self.take("["):
            if self.take("]"):
                return
            while True:
                self.value_of(message, name, wanted, depth, colon)
                if self.take("]"):
                    return
                if not self.take(","):
                    raise self.error(f"',' or ']' was expected in a list, not {self.shown()}")
        self.value_of(message, name, wanted, depth, colon)

    def value_of(
        self, message: Message, name: str, wanted: type[int] | type[str] | Schema | None, depth: int, colon: bool
    ) -> None:
        if self.kind == "mark" and self.value in _CLOSING:
            if wanted is int or wanted is str:
                raise self.error(f"{name} is a message where a {_WORD[wanted]} is expected")
            closing = _CLOSING[self.value]
            self.advance()
            inner = self.message(wanted if isinstance(wanted, Mapping) else {}, closing, depth + 1)
            if wanted is not None:
                message.messages.setdefault(name, []).append(inner)
            return
        if not colon or self.kind in ("mark", "end"):
            raise self.error(f"a value of {name or 'a field'} was expected, not {self.shown()}")
        self.scalar(message, name, wanted)

    def scalar(self, message: Message, name: str, wanted: type[int] | type[str] | Schema | None) -> None:
        if wanted is None:
            kind = self.kind
            self.advance()
            while kind == "string" and self.kind == "string":
                self.advance()
        elif wanted is int:
            message.numbers.setdefault(name, []).append(self.whole_number(name))
            self.advance()
        elif wanted is str:
            message.strings.setdefault(name, []).append(self.string(name))
        else:
            raise self.error(f"{name} is {self.shown()} where a message is expected")

    def whole_number(self, name: str) -> int:
        digits = self.value.lstrip("+-")
        if self.kind != "number" or len(digits) > MAX_DIGITS:
            raise self.error(f"{name} is {self.shown()} where a whole number is expected")
        octal = len(digits) > 1 and digits[0] == "0" and digits.isdigit()
        try:
            size = int(digits, 8 if octal else 16 if digits[:2] in ("0x", "0X") else 10)
        except ValueError as error:
            raise self.error(f"{name} is {self.shown()} where a whole number is expected") from error
        return -size if self.value.startswith("-") else size

    def string(self, name: str) -> str:
        """One string, or several that stand side by side and count as one."""
        if self.kind != "string":
            raise self.error(f"{name} is {self.shown()} where a string in quotes is expected")
        parts: list[str] = []
        while self.kind == "string":
            parts.append(_unescape(self.value[1:-1]))
            self.advance()
        return "".join(parts)


_WORD = {int: "whole number", str: "string"}


def _unescape(text: str) -> str:
    """Undo C escapes. Octal and hexadecimal ones are bytes of UTF-8; what is not UTF-8 becomes U+FFFD."""
    if "\\" not in text:
        return text
    pieces: list[bytes] = []
    last = 0
    for match in _ESCAPE.finditer(text):
        pieces.append(text[last : match.start()].encode())
        octal, hexadecimal, short, long, letter = match.groups()
        if octal or hexadecimal:
            pieces.append(bytes([int(octal or hexadecimal, 8 if octal else 16) & 0xFF]))
        elif short or long:
            code = int(short or long, 16)
            valid = code < 0xD800 or 0xDFFF < code <= 0x10FFFF
            pieces.append(chr(code if valid else 0xFFFD).encode())
        else:
            pieces.append(_LETTERS.get(letter, letter).encode())
        last = match.end()
    pieces.append(text[last:].encode())
    return b"".join(pieces).decode("utf-8", "replace")
