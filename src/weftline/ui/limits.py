"""How much the page may ask of this machine, and what it is told where there is nothing."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Limits", "NotThere"]


class NotThere(LookupError):
    """A request names something that is not there, or not any more."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """All of them; a request beyond one is refused with a sentence."""

    upload_bytes: int = 512 * 2**20
    """Of one model file."""
    stored_bytes: int = 4 * 2**30
    """Of all files together: models, plans, exports."""
    models: int = 20
    """Uploaded models that are kept."""
    plans: int = 50
    """Plans that are kept, queued or running."""
    running: int = 2
    """Searches at the same time; the others wait."""
    tasks: int = 2
    """Short works (a report, an export, a comparison) at the same time."""
    waiting: int = 64
    """Short works that may wait for their turn."""
    streams: int = 32
    """Pages that watch."""
    body_bytes: int = 2 * 2**20
    """Of a request that is no upload: a cluster file of 1 MiB fits in."""
    longest: float = 3600.0
    """Seconds that a search may be given."""
    grace: float = 300.0
    """Seconds beyond them for reading a model, compiling kernels once, and the certificate."""
    task_seconds: float = 300.0
    """For a short work."""
    memory_share: float = 0.8
    """Of this machine's memory, for one process."""
    away: float = 30.0
    """Seconds without any page that watches, after which searches are stopped; the best plans so far are kept."""
