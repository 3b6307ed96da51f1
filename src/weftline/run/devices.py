"""From devices of a cluster to sessions of ONNX Runtime: provider, its options, cores and threads; segments on them.

In: the `runtime` of devices: `ort:CPUExecutionProvider` (one core of its own, one thread),
`ort:CPUExecutionProvider:2-3` (these cores, as many threads), `ort:CUDAExecutionProvider:0` (a device id); a split
model. Out: an `OrtDevice` for each, sessions of its segments bound to its cores, and `Pace`, which keeps its speed. A
provider that is not there, or does not start, is an error. ONNX Runtime refuses weights outside of the model's folder,
and onnx those with a hard link there; so where weights were left beside the original model, it is told that folder. It
maps the files: no copy, however large they are. Simplified: devices without cores of their own take those that no other
device names, in turns; if there are more devices than cores, they share; one request at a time.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
from numpy.typing import NDArray

from weftline.cluster import Device
from weftline.errors import InputError, UsageError, WeftlineError
from weftline.run.split.manifest import Manifest

__all__ = [
    "OrtDevice",
    "Pace",
    "SegmentRefused",
    "SegmentSession",
    "bind_cores",
    "open_segment",
    "open_segments",
    "open_session",
    "ort_devices",
    "tell_weights_folder",
]

CPU = "CPUExecutionProvider"
MAX_CORE = 4096

_RUNTIME = re.compile(r"ort:(?P<provider>[A-Za-z]+ExecutionProvider)(?::(?P<rest>[0-9,-]{1,200}))?")
_CORES = re.compile(r"\d{1,4}(-\d{1,4})?(,\d{1,4}(-\d{1,4})?)*")


class OrtDevice(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a device runs by ONNX Runtime."""

    runtime: str
    provider: str
    options: dict[str, str]
    """Of the provider."""
    cores: tuple[int, ...]
    """The process is bound to these."""
    threads: int
    own: bool
    """The runtime names the cores."""
    plain: bool = False
    """Without optimisations of the graph: every node is a kernel of its own."""


def ort_devices(devices: Sequence[Device], runtimes: Mapping[str, str] = MappingProxyType({})) -> dict[str, OrtDevice]:
    """Device id -> how it runs; `runtimes` (device id -> runtime) comes before what the cluster says."""
    ids = [device.id for device in devices]
    for id in runtimes:
        if id not in ids:
            raise UsageError(f"a runtime is given for {id[:64]!r}; the devices are {', '.join(ids[:16])}")
    parsed = {device.id: _parse(device.id, runtimes.get(device.id, device.runtime)) for device in devices}
    here = _cores_here()
    named = {core for _, _, cores in parsed.values() for core in cores}
    if missing := sorted(named - set(here)):
        raise InputError(f"core {missing[0]} is not there for this process", hint=f"it has {_ranges(here)}")
    free = [core for core in here if core not in named] or list(here)
    found: dict[str, OrtDevice] = {}
    given = 0
    for device in devices:
        runtime, match, cores = parsed[device.id]
        own = bool(cores)
        if not own:
            cores, given = (free[given % len(free)],), given + 1
        options = {} if match["provider"] == CPU or not match["rest"] else {"device_id": match["rest"]}
        found[device.id] = OrtDevice(runtime, match["provider"], options, cores, len(cores), own)
    return found


def _parse(id: str, runtime: str) -> tuple[str, re.Match[str], tuple[int, ...]]:
    match = _RUNTIME.fullmatch(runtime)
    if match is None:
        said = f"its runtime is {runtime[:60]!r}" if runtime else "it has no runtime"
        raise InputError(
            f"device {id!r} cannot be run by ONNX Runtime: {said}",
            hint=f'give it one such as runtime = "ort:{CPU}", or --runtime {id}=ort:{CPU}',
        )
    rest = match["rest"]
    if match["provider"] == CPU and rest:
        return runtime, match, _read_cores(id, rest)
    if rest and not re.fullmatch(r"\d{1,4}", rest):
        raise InputError(f"device {id!r}: {runtime[:60]!r} names no device number", hint=f"write it like {runtime}:0")
    return runtime, match, ()


def _read_cores(id: str, text: str) -> tuple[int, ...]:
    """`0,2-3` -> (0, 2, 3)."""
    cores: set[int] = set()
    if _CORES.fullmatch(text):
        for part in text.split(","):
            first, _, last = part.partition("-")
            cores.update(range(int(first), min(int(last or first), MAX_CORE) + 1))
    if not cores:
        raise InputError(f"device {id!r}: {text[:60]!r} names no cores", hint=f"write them like ort:{CPU}:0,2-3")
    return tuple(sorted(cores))


def _cores_here() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def _ranges(cores: Sequence[int]) -> str:
    return ", ".join(map(str, cores[:32])) + (" ..." if len(cores) > 32 else "")


class SegmentRefused(InputError):
    """ONNX Runtime cannot load a segment."""


WEIGHTS_FOLDER = "session.model_external_initializers_file_folder_path"


def open_session(folder: Path, manifest: Manifest, number: int, options: Any, providers: Sequence[Any]) -> Any:
    """The session of one segment; `options` are onnxruntime's SessionOptions."""
    import onnxruntime

    tell_weights_folder(manifest, options)
    path = folder / manifest.segments[number].file
    try:
        return onnxruntime.InferenceSession(str(path), options, providers=list(providers))
    except Exception as error:  # onnxruntime has a type for each of its codes
        raise SegmentRefused(f"ONNX Runtime cannot load it: {str(error)[:500]}", where=str(path)) from error


def tell_weights_folder(manifest: Manifest, options: Any) -> None:
    """Say in the options of a session where the weights are, if not beside its segment."""
    if manifest.weights_folder:
        options.add_session_config_entry(WEIGHTS_FOLDER, manifest.weights_folder)


SPIN_NS = 200_000
"""The end of a stretch is waited for awake: sleeping ends a little late."""


def bind_cores(cores: Sequence[int]) -> None:
    """Bind this thread, and those that it starts, where the system can."""
    if cores and hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, cores)


class Pace:
    """A device of a certain speed: what it computes takes 1 / speed of its time.

    Where one thread does all of it, only its own time is stretched, and not what others took of its core meanwhile.
    """

    def __init__(self, device: OrtDevice, speed: float) -> None:
        self._speed, self._alone = speed, device.provider == CPU and device.threads == 1
        self._begun = self._worked = 0

    def begin(self) -> None:
        """Now it computes."""
        self._begun, self._worked = time.perf_counter_ns(), time.thread_time_ns()

    def end(self) -> int:
        """It is done: wait for as long as its speed says -> ns since it began."""
        taken = time.perf_counter_ns() - self._begun
        if self._speed == 1:
            return taken
        worked = min(time.thread_time_ns() - self._worked, taken) if self._alone else taken
        end = self._begun + taken + round(worked * (1 / self._speed - 1))
        left = end - time.perf_counter_ns()
        if left > SPIN_NS:
            time.sleep((left - SPIN_NS) / 1e9)
        while time.perf_counter_ns() < end:
            pass
        return time.perf_counter_ns() - self._begun


def open_segment(folder: Path, manifest: Manifest, number: int, how: OrtDevice) -> Any:
    """The session of a segment, on the device's own provider or not at all."""
    import onnxruntime

    there = onnxruntime.get_available_providers()
    if how.provider not in there:
        hint = f"it has {', '.join(there)}; to try the plan on cores: --runtime DEVICE=ort:{CPU}"
        raise InputError(f"{how.provider} is not part of the installed onnxruntime", hint=hint)
    options = _options(how.threads, how.plain)
    if how.provider != CPU:  # an op that the provider cannot run is an error, not one for the CPU
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    session = open_session(folder, manifest, number, options, [(how.provider, how.options)])
    if session.get_providers()[0] != how.provider:
        raise InputError(f"{how.provider} did not start; ONNX Runtime would use {session.get_providers()[0]}")
    session.disable_fallback()
    return session


class SegmentSession:
    """A segment that is run with arrays of its own."""

    def __init__(self, session: Any, inputs: Sequence[str], outputs: Sequence[str], pace: Pace) -> None:
        self._session, self.inputs, self.outputs, self._pace = session, tuple(inputs), list(outputs), pace

    def run(self, feeds: Mapping[str, NDArray[Any]]) -> tuple[list[NDArray[Any]], int]:
        """Outputs, and how long it took: 1 / speed times what it took here."""
        self._pace.begin()
        try:
            found = self._session.run(self.outputs, {name: feeds[name] for name in self.inputs})
        except Exception as error:  # onnxruntime has a type for each of its codes
            raise WeftlineError(f"ONNX Runtime failed: {str(error)[:500]}") from error
        return found, self._pace.end()


def open_segments(
    folder: Path, manifest: Manifest, device: str, how: OrtDevice, speed: float
) -> dict[int, SegmentSession]:
    """Number -> segment, for those of one device, in their order; those of one file share their session."""
    mine = [segment for segment in manifest.segments if segment.device == device]
    files = {segment.file: segment.number for segment in mine}
    opened = {file: open_segment(folder, manifest, number, how) for file, number in files.items()}
    return {
        segment.number: SegmentSession(opened[segment.file], segment.inputs, segment.outputs, Pace(how, speed))
        for segment in mine
    }


def _options(threads: int, plain: bool) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    levels = onnxruntime.GraphOptimizationLevel
    options.graph_optimization_level = levels.ORT_DISABLE_ALL if plain else levels.ORT_ENABLE_ALL
    options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.log_severity_level = 3
    return options
