"""A temporary folder that no crash leaves behind for long.

In: nothing. Out: a folder that is removed at the end. Its owner holds a lock in it, which the system drops when the
owner dies, however it dies: the next run removes every folder whose lock nobody holds.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["PREFIX", "run_folder", "sweep"]

PREFIX = "weftline-local-"
_NEW = ".weftline-local-"
_LOCK = "lock"
OLD = 3600.0
"""Seconds after which a folder counts as forgotten that has not even got its lock."""


@contextmanager
def run_folder() -> Iterator[Path]:
    """A folder for the files of one run; it may be removed before the end."""
    root = Path(tempfile.gettempdir())
    sweep(root)
    new = Path(tempfile.mkdtemp(prefix=_NEW, dir=root))
    descriptor = os.open(new / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    _locked(descriptor)
    folder = new.with_name(PREFIX + new.name.removeprefix(_NEW))  # whoever sees this name finds the lock held
    new.rename(folder)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(descriptor)


def sweep(root: Path) -> None:
    """Remove folders of this user whose owners are gone."""
    for folder in [*root.glob(f"{PREFIX}*"), *root.glob(f"{_NEW}*")]:
        with suppress(OSError):
            about = folder.lstat()
            if folder.is_symlink() or not folder.is_dir() or about.st_uid != os.getuid():
                continue
            if folder.name.startswith(_NEW) and time.time() - about.st_mtime < OLD:
                continue
            descriptor = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
            try:
                if _locked(descriptor):
                    shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(descriptor)


def _locked(descriptor: int) -> bool:
    import fcntl

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
