"""What the server and its worker processes say to each other: one JSON object per line.

In: a `Task`, the first line a worker reads. Out: `Said`, any number of times, which `Teller` writes; the last one has
an answer or an error. Paths in a task are the server's own, inside its private folder; labels are what people see
instead of them.
"""

from __future__ import annotations

from pathlib import Path
from threading import Event as Flag
from threading import Lock, Thread
from typing import IO, Any, Literal

import msgspec

__all__ = [
    "CardsTask",
    "CheckTask",
    "ChoicesTask",
    "CompareTask",
    "FileTask",
    "ModelFile",
    "NamedTask",
    "PlanTask",
    "Row",
    "Said",
    "ScheduleTask",
    "SearchTask",
    "Task",
    "Teller",
]

Row = tuple[float, int | None, int | None]
"""Seconds of the search, value, bound: in ns, or in the units of a named shape."""


class ModelFile(msgspec.Struct, frozen=True):
    """A model: an uploaded file, or one of the zoo that the worker writes there first."""

    path: str
    label: str
    zoo: str = ""
    size: str = ""
    weights: bool = True
    """False: the file only names its weights. It can be planned, not cut."""


class PlanTask(msgspec.Struct, frozen=True, tag="plan", kw_only=True):
    """Plan a model."""

    model: ModelFile
    cluster: str | None
    """TOML text; None for files that hold their own devices."""
    cluster_name: str
    """A preset's, or one that no other text has; as a file it is NAME.toml."""
    objective: Literal["latency", "throughput"]
    stages: int | None
    solver: str
    seconds: float
    gap: float | None
    seed: int
    shapes: tuple[str, ...]
    dims: tuple[str, ...] = ()
    argv: tuple[str, ...]
    output: str

    @property
    def stem(self) -> str:
        """How files of the answer are called."""
        return Path(self.model.label).stem or "model"

    def about(self) -> dict[str, Any]:
        """What a page shows of the question."""
        return {
            "kind": "plan",
            "model": self.model.label,
            "cluster": self.cluster_name,
            "own_cluster": f"{self.cluster_name}.toml" in self.argv,
            "title": f"{self.model.label} on {self.cluster_name}" if self.cluster_name else self.model.label,
            "stages": self.stages,
        }


class ScheduleTask(msgspec.Struct, frozen=True, tag="schedule", kw_only=True):
    """Order the micro-batches of a named shape, or of a plan."""

    label: str
    """What people call it."""
    stem: str
    """How files of the answer are called."""
    shape: str = ""
    devices: int = 0
    """Of the shape."""
    plan: str = ""
    """Or the file of a throughput plan."""
    micro_batches: int | None
    memory: str
    """As after `--memory`; empty: no limits but those of the plan."""
    train: bool
    split_backward: bool = False
    recompute: bool = False
    objective: Literal["makespan", "device-span"]
    solver: str
    seconds: float
    gap: float | None
    seed: int
    argv: tuple[str, ...]
    output: str

    def about(self) -> dict[str, Any]:
        """What a page shows of the question."""
        words = [
            "training" if self.train else "inference",
            "recompute" if self.recompute else "",
            "split backward" if self.split_backward else "",
            f"{self.micro_batches} micro-batches" if self.micro_batches else "",
            f"memory {self.memory}" if self.memory else "",
        ]
        return {
            "kind": "schedule",
            "title": self.label,
            "in_ns": bool(self.plan),
            "words": [word for word in words if word],
        }


SearchTask = PlanTask | ScheduleTask


class FileTask(msgspec.Struct, frozen=True, tag="file", kw_only=True):
    """Make a file from a plan or schedule."""

    plan: str
    what: Literal["report", "trace", "export"]
    target: str
    """Of an export."""
    model: ModelFile | None
    output: str


class CompareTask(msgspec.Struct, frozen=True, tag="compare"):
    """Compare two plans, or two schedules."""

    first: str
    second: str


class CheckTask(msgspec.Struct, frozen=True, tag="check"):
    """Read a cluster."""

    text: str


class ChoicesTask(msgspec.Struct, frozen=True, tag="choices"):
    """What this installation offers."""


class NamedTask(msgspec.Struct, frozen=True, tag="named"):
    """Make a cluster of devices by name."""

    gpus: tuple[str, ...] = ()
    cpus: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    ram: str = ""


class CardsTask(msgspec.Struct, frozen=True, tag="cards"):
    """Put a language model on cards by name."""

    model: str
    gpus: tuple[str, ...] = ()
    cpus: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    ram: str = ""
    quantisation: str = ""
    context: str = "8k"
    concurrency: int = 1
    engine: str = "llamacpp"
    want: str = ""


Task = PlanTask | ScheduleTask | FileTask | CompareTask | CheckTask | ChoicesTask | NamedTask | CardsTask


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a worker."""

    rows: tuple[Row, ...] = ()
    phase: str = ""
    """What a search does before it searches: reading, loading, compiling."""
    note: str = ""
    answer: dict[str, Any] | None = None
    error: str = ""
    kind: str = ""
    """Name of the error; `Stopped` where there was no plan yet."""


BEAT_SECONDS = 0.1
"""Seconds between two lines of progress."""
MOST_ROWS = 200
"""In one line; a search that finds more within a beat is told in its last ones."""
COMPILING = "compiling"


class Teller:
    """Writes lines; progress at most once in a beat."""

    def __init__(self, answers: IO[bytes]) -> None:
        self._answers, self._lock, self._over = answers, Lock(), Flag()
        self._rows: list[Row] = []
        self._phase = self._note = ""
        self._last: tuple[int | None, int | None] = (None, None)
        self._told = ("", "")
        Thread(target=self._beats, daemon=True).start()

    def hear(self, event: Any) -> None:
        """An event of the search, from any thread."""
        with self._lock:
            if event.solver and (event.value, event.bound) != self._last:
                self._last = (event.value, event.bound)
                self._rows = [*self._rows[-MOST_ROWS:], (round(event.seconds, 4), event.value, event.bound)]
                self._turn("searching")
            elif not event.solver and event.message.startswith(COMPILING):
                self._turn(COMPILING)
            if event.message:
                self._note = event.message[:200]

    def begin(self, phase: str, note: str) -> None:
        """Something begins that takes a while, and is not the search yet."""
        with self._lock:
            self._turn(phase)
            self._note = note

    def _turn(self, phase: str) -> None:
        """Another phase; what was said about the one before it is over."""
        if phase != self._phase:
            self._phase, self._note = phase, ""

    def end(self, said: Said) -> None:
        """The last line."""
        self._over.set()
        self._flush()
        self._say(said)

    def _beats(self) -> None:
        while not self._over.wait(BEAT_SECONDS):
            self._flush()

    def _flush(self) -> None:
        with self._lock:
            said = Said(tuple(self._rows), self._phase, self._note)
            new = said.rows or (said.phase, said.note) != self._told
            self._rows, self._told = [], (said.phase, said.note)
        if new:
            self._say(said)

    def _say(self, said: Said) -> None:
        with self._lock:
            self._answers.write(msgspec.json.encode(said) + b"\n")
            self._answers.flush()
