"""What must happen before anything that takes time: no telemetry, and a Ctrl-C that ends the program with one word."""

from __future__ import annotations

import os
import signal
import sys

__all__ = ["PROGRAM", "leave"]


def leave(number: int, frame: object) -> None:
    """The handler of Ctrl-C until the command line is loaded: half-done imports would turn it into tracebacks."""
    os.write(2, b"interrupted\n")
    os._exit(130)


def _is_program() -> bool:
    """Whether this process is the command line; a library changes no handler."""
    name = os.path.basename(sys.argv[0]) if getattr(sys, "argv", None) else ""  # noqa: PTH119
    module = sys.orig_argv[sys.orig_argv.index("-m") + 1 :][:1] if name == "-m" and "-m" in sys.orig_argv else []
    return name.removesuffix(".exe") == "weftline" or module == ["weftline"]


# Recent versions of ONNX Runtime send events to their maker, unless this is set before they are imported.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
PROGRAM = _is_program()
if PROGRAM:
    try:  # noqa: SIM105  (contextlib takes time to load)
        signal.signal(signal.SIGINT, leave)
    except ValueError:  # not in the main thread
        pass
