"""A pytest plugin: one module of weftline is loaded with one change (`WEFTLINE_MUTANT=module:number`).

The file itself stays as it is, so compiled kernels of other modules stay valid.
"""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder, SourceLoader
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

from reliability.mutants import mutated
from reliability.results_file import ROOT

__all__: list[str] = []


class _Loader(SourceLoader):
    def __init__(self, path: Path, number: int) -> None:
        self._path, self._number = path, number

    def get_filename(self, fullname: str) -> str:
        return str(self._path)

    def get_data(self, path: str | bytes) -> bytes:
        return mutated(self._path.read_text(encoding="utf-8"), self._number).encode()

    def path_stats(self, path: str | bytes) -> dict[str, float]:
        raise OSError  # so that no bytecode is kept


class _Finder(MetaPathFinder):
    def __init__(self, name: str, number: int) -> None:
        self._name = name
        self._loader = _Loader(ROOT / "src" / f"{name.replace('.', '/')}.py", number)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        return importlib.util.spec_from_file_location(fullname, str(self._loader._path), loader=self._loader)


if os.environ.get("WEFTLINE_MUTANT"):
    module, number = os.environ["WEFTLINE_MUTANT"].split(":")
    assert module not in sys.modules, f"{module} is loaded already"
    sys.meta_path.insert(0, _Finder(module, int(number)))
