"""Clusters that users keep for the next time, and what edited ones are called.

In: texts that a worker has read and found good, under names of letters, digits and `_.-`. Out: files NAME.toml in a
folder of the user, whole or not at all, and labels: a name and the beginning of the digest of the text, so that two
variants never look alike. Simplified: what else lies in the folder (links, large files, other names) is not seen;
two servers that keep the same name at once keep one of the two texts.
"""

from __future__ import annotations

import os
import re
import stat
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from weftline.errors import InputError, UsageError
from weftline.files import read_limited, write_atomically
from weftline.ui.models import NotThere

__all__ = ["KeptClusters", "cluster_label", "data_folder"]

MOST_BYTES = 2**20
MOST_KEPT = 100
DIGEST_LETTERS = 6
LONGEST_STEM = 40
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,59}")


def data_folder() -> Path:
    """Where clusters are kept unless told otherwise; it may not exist yet."""
    given = os.environ.get("XDG_DATA_HOME", "")
    return (Path(given) if given.startswith("/") else Path("~/.local/share").expanduser()) / "weftline" / "clusters"


def cluster_label(name: str, text: str) -> str:
    """What a text is called that is no preset: fit for the name of a file on any system."""
    stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", name)[:LONGEST_STEM].strip("-._")
    return f"{stem or 'cluster'}-{sha256(text.encode()).hexdigest()[:DIGEST_LETTERS]}"


class KeptClusters:
    """A folder of cluster files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._names: list[str] | None = None

    @property
    def names(self) -> list[str]:
        """Of all that are kept, sorted; looked up at first, and after every change."""
        if self._names is None:
            self._names = sorted(self._look())[:MOST_KEPT]
        return self._names

    def find(self, name: str) -> str:
        """The text of one, or `NotThere`."""
        if name not in self.names:
            raise NotThere(name)
        try:
            return read_limited(self._path(name), MOST_BYTES).decode()
        except (InputError, UnicodeDecodeError) as error:
            self._names = None
            raise NotThere(name) from error

    def keep(self, name: str, text: str) -> None:
        """Write it, over an older one of that name."""
        if not _NAME.fullmatch(name) or name.endswith(".toml"):
            raise UsageError("a name has letters, digits and _ . -, begins with a letter or digit, up to 60 of them")
        if len(self.names) >= MOST_KEPT and name not in self.names:
            raise UsageError(f"{MOST_KEPT} clusters are kept at most; remove some")
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"cannot be kept: {error.strerror or error}", hint="download it instead") from error
        self._names = None
        write_atomically(self._path(name), text.encode())

    def remove(self, name: str) -> None:
        """Forget one, with its file."""
        if name not in self.names:
            raise NotThere(name)
        self._names = None
        with suppress(FileNotFoundError):
            self._path(name).unlink()

    def _path(self, name: str) -> Path:
        return self._folder / f"{name}.toml"

    def _look(self) -> list[str]:
        found = []
        with suppress(OSError):
            for entry in os.scandir(self._folder):
                stem, _, ending = entry.name.rpartition(".")
                about = entry.stat(follow_symlinks=False)
                plain = stat.S_ISREG(about.st_mode) and about.st_size <= MOST_BYTES
                if ending == "toml" and _NAME.fullmatch(stem) and plain:
                    found.append(stem)
        return found
