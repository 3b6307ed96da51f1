"""OpenVINO IR and live `openvino.Model` objects; `openvino_module` is `import openvino`, with errors in our words.

In: an IR file (XML) or a model in memory. Out: a Graph, the same from both. Simplified: weights are not read, only
their sizes. While it loads, OpenVINO would report its use over the network from a process that it forks; planning and
measuring must do neither, so that part is left out of this process.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from weftline.errors import MissingExtra

__all__ = ["last_line", "openvino_module"]

_REPORTING = "openvino_telemetry"


def openvino_module() -> Any:
    """The package OpenVINO."""
    if "openvino" in sys.modules:
        return sys.modules["openvino"]
    withhold = _REPORTING not in sys.modules
    if withhold:
        sys.modules[_REPORTING] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        return import_module("openvino")
    except ImportError as error:
        raise MissingExtra("openvino", "openvino") from error
    finally:
        if withhold:
            del sys.modules[_REPORTING]


def last_line(error: Exception) -> str:
    """What OpenVINO says in the end; before that stand places in its own source."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
