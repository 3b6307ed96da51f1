"""PyTorch, imported when it is needed, on one thread: the networks are small, and one thread gives the same bytes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from weftline.errors import MissingExtra

__all__ = ["load_torch", "one_thread", "prepare_torch"]


def load_torch() -> Any:
    """The module, or an error that says what to install."""
    try:
        return import_module("torch")
    except ImportError as error:
        raise MissingExtra("torch", "torch") from error


def prepare_torch() -> None:
    """Import it before a clock runs."""
    load_torch()


@contextmanager
def one_thread() -> Iterator[None]:
    """Inside, PyTorch computes on one thread; afterwards on as many as before."""
    torch = load_torch()
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
