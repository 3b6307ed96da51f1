"""One process as words: variables of its environment, a program, its arguments; and as one line of a shell.

In: words, which may hold anything but control characters. Out: a line that a POSIX shell reads as the same words.
Simplified: no line breaks inside a line; a name with a control character is refused.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence

import msgspec

from weftline.errors import InputError
from weftline.units import format_name

__all__ = ["LaunchLine", "quoted", "visible_gpus"]

_VARIABLE_CHARACTERS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")


class LaunchLine(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How one process is started."""

    program: tuple[str, ...]
    """The program and its arguments, as the process gets them."""
    environment: tuple[tuple[str, str], ...] = ()
    """Variables set before it."""
    note: str = ""
    """What the process is for, in words."""
    machine: str = ""
    """The device on whose machine it is started; empty: this one."""

    def shell(self) -> str:
        """One line for a POSIX shell."""
        variables = [f"{_variable(name)}={quoted(value)}" for name, value in self.environment]
        return " ".join([*variables, *map(quoted, self.program)])


def quoted(word: str) -> str:
    """A word as a shell reads it back; control characters, which hide what a line does, are refused."""
    if not word.isprintable():
        raise InputError(f"{format_name(word[:80])!r} has characters that cannot be printed in a command")
    return shlex.quote(word)


def _variable(name: str) -> str:
    if not name or name[0].isdigit() or not set(name) <= _VARIABLE_CHARACTERS:
        raise InputError(f"{name[:80]!r} is no name of a variable")
    return name


def visible_gpus(
    numbers: Sequence[int], variable: str = "CUDA_VISIBLE_DEVICES", *, by_bus: bool = True
) -> tuple[tuple[str, str], ...]:
    """Variables that show these GPUs in this order; `by_bus`: their numbers are those of nvidia-smi."""
    order = (("CUDA_DEVICE_ORDER", "PCI_BUS_ID"),) if by_bus and variable.startswith("CUDA") else ()
    return (*order, (variable, ",".join(map(str, numbers))))
