"""Values that mean something other than themselves, one value for each meaning."""

from __future__ import annotations

__all__ = ["NEVER", "NOBODY"]

NOBODY = -1
"""In place of an index: no op, no device, no tensor."""
NEVER = 2**62
"""In place of a time: it does not happen, or costs more than anything can."""
