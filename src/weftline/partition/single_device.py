"""One stage: everything on one device, the best of all devices."""

from __future__ import annotations

from weftline.place.single_device import SOLVER

__all__ = ["SOLVER"]
