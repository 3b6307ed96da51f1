"""Segments as ONNX Runtime runs them on a device: sessions on its provider, bound to its cores, at its speed.

In: a split model, an `OrtDevice`, a speed. Out: sessions, and `Stretched`, which runs them and says how long it took.
A provider that is not there is an error. Simplified: one request at a time, inputs and outputs in main memory.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from weftline.errors import InputError, WeftlineError
from weftline.execute.manifest import Manifest
from weftline.execute.ort_devices import OrtDevice
from weftline.execute.segment_session import open_session

__all__ = ["SegmentRun", "bind_cores", "open_segments", "session_options"]

SPIN_NS = 200_000
"""The end of a stretched run is waited for by looking at the clock: sleeping may last longer than asked."""


def session_options(threads: int) -> Any:
    """Options of a new session."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.log_severity_level = 3
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    return options


def bind_cores(cores: Sequence[int]) -> None:
    """Bind this thread, and those that it starts, where the system can."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


class SegmentRun:
    """A segment that can be run."""

    def __init__(self, session: Any, inputs: Sequence[str], outputs: Sequence[str], speed: float) -> None:
        self._session, self.inputs, self.outputs, self._speed = session, tuple(inputs), list(outputs), speed

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> tuple[list[NDArray[Any]], int]:
        """Outputs, and how long it took: 1 / speed times what it took here."""
        begin = time.perf_counter_ns()
        try:
            found = self._session.run(self.outputs, {name: feeds[name] for name in self.inputs})
        except Exception as error:  # onnxruntime has a type for each of its codes
            raise WeftlineError(f"ONNX Runtime failed: {str(error)[:500]}") from error
        end = time.perf_counter_ns()
        if self._speed < 1:
            end = begin + round((end - begin) / self._speed)
            _wait_until(end)
        return found, time.perf_counter_ns() - begin


def open_segments(folder: Path, manifest: Manifest, device: str, how: OrtDevice, speed: float) -> dict[int, SegmentRun]:
    """Number -> segment, for those of one device, in their order."""
    import onnxruntime

    there = onnxruntime.get_available_providers()
    if how.provider not in there:
        raise InputError(
            f"device {device!r}: {how.provider} is not available", hint=f"this ONNX Runtime has {', '.join(there)}"
        )
    found = {}
    for segment in manifest.segments:
        if segment.device == device:
            provider = (how.provider, how.options) if how.options else how.provider
            session = open_session(folder, manifest, segment.number, session_options(how.threads), [provider])
            if session.get_providers()[0] != how.provider:
                raise InputError(f"device {device!r}: {how.provider} does not start on this machine")
            found[segment.number] = SegmentRun(session, segment.inputs, segment.outputs, speed)
    return found


def _wait_until(end: int) -> None:
    rest = end - time.perf_counter_ns() - SPIN_NS
    if rest > 0:
        time.sleep(rest / 1e9)
    while time.perf_counter_ns() < end:
        pass
