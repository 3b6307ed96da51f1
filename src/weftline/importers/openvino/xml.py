"""XML without surprises: no DTD, no entities, limits on size, depth and count.

In: the path of a file. Out: a tree of `Element`, without the parts that planning never looks at. Everything is read by
expat in one pass; the first thing that is not allowed ends it with an `InputError`. Nothing outside the file is opened.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NoReturn
from xml.parsers import expat

from weftline.errors import InputError
from weftline.files import read_limited

__all__ = ["Element", "read_xml"]

MAX_BYTES = 512 * 2**20
MAX_DEPTH = 160
"""Bodies within bodies: five levels each."""
MAX_ELEMENTS = 5_000_000
MAX_TEXT = 100
"""Characters of a text between tags; IR files hold only numbers there."""

_SKIPPED = frozenset({"rt_info", "meta_data", "quantization_parameters", "runtime_attributes"})


class Element:
    """One tag: its attributes, what stands in it, and its text."""

    __slots__ = ("attributes", "children", "tag", "text")

    def __init__(self, tag: str, attributes: dict[str, str]) -> None:
        self.tag, self.attributes = tag, attributes
        self.children: list[Element] = []
        self.text = ""

    def all(self, tag: str) -> Iterator[Element]:
        """The children with this tag."""
        return (child for child in self.children if child.tag == tag)

    def first(self, tag: str) -> Element | None:
        """The first child with this tag."""
        return next(self.all(tag), None)

    def inside(self, tag: str) -> list[Element]:
        """What stands in the first child with this tag."""
        found = self.first(tag)
        return found.children if found else []


def read_xml(path: Path) -> Element:
    """The root element of a file."""
    try:
        data = read_limited(path, MAX_BYTES)
    except InputError as error:
        raise InputError(error.what) from error  # whoever asked for the file names it
    reader = _Reader()
    try:
        reader.parser.Parse(data, True)
    except expat.ExpatError as error:
        raise InputError(
            f"not well-formed XML: {expat.ErrorString(error.code)}", where=f"line {error.lineno}"
        ) from error
    except (LookupError, ValueError) as error:  # of Python's codecs, which expat asks
        raise InputError(f"the encoding of the XML cannot be read: {str(error)[:200]}", where="line 1") from error
    if reader.root is None:
        raise InputError("there is no element in the file")
    return reader.root


class _Reader:
    def __init__(self) -> None:
        self.parser: Any = expat.ParserCreate()
        self.parser.buffer_text = True
        self.parser.StartElementHandler = self._start
        self.parser.EndElementHandler = self._end
        self.parser.CharacterDataHandler = self._text
        self.parser.StartDoctypeDeclHandler = self._refuse
        self.parser.EntityDeclHandler = self._refuse
        self.parser.ExternalEntityRefHandler = self._refuse
        self.root: Element | None = None
        self._open: list[Element] = []
        self._depth = self._count = 0
        self._skip_from = 0
        """Depth of the part that is passed over, 0 = none."""

    def _refuse(self, *_: object) -> NoReturn:
        raise InputError("a document type or an entity is declared", where=self._line(), hint="model files need none")

    def _line(self) -> str:
        return f"line {self.parser.CurrentLineNumber}"

    def _start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        self._count += 1
        if self._depth > MAX_DEPTH:
            raise InputError(f"elements are nested more than {MAX_DEPTH} deep", where=self._line())
        if self._count > MAX_ELEMENTS:
            raise InputError(f"there are more than {MAX_ELEMENTS} elements", where=self._line())
        if self._skip_from:
            return
        if tag in _SKIPPED:
            self._skip_from = self._depth
            return
        element = Element(tag, attributes)
        if self._open:
            self._open[-1].children.append(element)
        else:
            self.root = element
        self._open.append(element)

    def _end(self, tag: str) -> None:
        if not self._skip_from:
            self._open.pop()
        elif self._skip_from == self._depth:
            self._skip_from = 0
        self._depth -= 1

    def _text(self, text: str) -> None:
        if self._skip_from or not self._open or text.isspace():
            return
        element = self._open[-1]
        element.text += text
        if len(element.text) > MAX_TEXT:
            raise InputError(f"a text of more than {MAX_TEXT} characters", where=self._line())
