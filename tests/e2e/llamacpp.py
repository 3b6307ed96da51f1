"""Where llama.cpp is."""

from __future__ import annotations

import os

import pytest

from weftline.errors import InputError
from weftline.testing.llamacpp import LlamaCppPrograms, find_llamacpp

__all__ = ["llamacpp"]


def llamacpp() -> LlamaCppPrograms:
    """Its programs; where they are missing, CI fails and others skip."""
    try:
        return find_llamacpp()
    except InputError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))
