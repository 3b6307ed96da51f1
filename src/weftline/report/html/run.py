"""What a run measured, beside what the plan predicts.

In: the JSON that `weftline run --json` printed, of any engine; it is a file like any other, so every field is checked.
Out: `RunTable`: words and rows for the page.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, is_dataclass
from pathlib import Path
from typing import Annotated, Any

import msgspec

from weftline.errors import InputError, UsageError
from weftline.files import other_kind, read_limited
from weftline.plans import Plan
from weftline.report.html.pack import short_name
from weftline.run.result import RunResult, in_ns

__all__ = ["RunRow", "RunTable", "check_run", "find_run", "read_run", "run_table"]

MOST_BYTES = 64 << 20
RUN = "what `weftline run --json` prints"
MOST_ROWS = 200


@dataclass(frozen=True)
class RunRow:
    """One thing that was both predicted and measured; times in ns."""

    name: str
    measured_ns: int
    predicted_ns: int | None = None
    note: str = ""

    @property
    def ratio(self) -> float | None:
        """Measured over predicted."""
        return self.measured_ns / self.predicted_ns if self.predicted_ns else None


@dataclass(frozen=True)
class RunTable:
    """One run."""

    engine: str
    whole: RunRow
    devices: tuple[RunRow, ...]
    baselines: tuple[RunRow, ...]
    words: tuple[str, ...]
    """What else is worth knowing."""
    objective: str = ""


Ns = Annotated[int, msgspec.Meta(ge=0, le=2**60)]
Share = Annotated[float, msgspec.Meta(ge=0, le=1e9)]


class _Device(msgspec.Struct, frozen=True):
    device: str
    compute_ns: Ns | None = None
    predicted_compute_ns: Ns | None = None
    utilisation: Share | None = None


class _Rank(msgspec.Struct, frozen=True):
    device: str
    busy_ns: Ns | None = None


class _Run(msgspec.Struct, frozen=True):
    """The fields of all engines that a reader can use; others are left alone."""

    engine: str
    objective: str = ""
    requests: Ns | None = None
    rounds: Ns | None = None
    steps: Ns | None = None
    measured_ns: Ns | None = None
    predicted_ns: Ns | None = None
    latency_ns: Ns | None = None
    latency_p95_ns: Ns | None = None
    devices: list[_Device] | dict[str, str] = msgspec.field(default_factory=list)
    ranks: list[_Rank] = msgspec.field(default_factory=list)
    baselines: dict[str, Ns] = msgspec.field(default_factory=dict)
    reference: str = ""
    reference_measured_ns: Ns | None = None
    reference_predicted_ns: Ns | None = None
    max_output_difference: float | None = None
    max_gradient_difference: float | None = None
    notes: list[str] = msgspec.field(default_factory=list)


def read_run(path: Path | str) -> RunTable:
    """A file that `weftline run --json > FILE` wrote."""
    data = read_limited(path, MOST_BYTES)
    try:
        return run_table(msgspec.json.decode(data))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(other_kind(data, RUN) or f"not {RUN}: {error}", where=str(path)) from error
    except InputError as error:
        raise InputError(other_kind(data, RUN) or error.what, where=str(path)) from error


def find_run(run: Any) -> RunTable:
    """From a file, from the object in it, or from what a run returned."""
    if isinstance(run, Path | str):
        return read_run(run)
    if isinstance(run, Mapping):
        return run_table(dict(run))
    if isinstance(run, RunResult):
        return run_table(msgspec.to_builtins(run.to_json()))
    if is_dataclass(run) and not isinstance(run, type):
        return run_table(msgspec.to_builtins(asdict(run)))
    raise UsageError("a run is a file, a mapping, or what wl.run returned")


def run_table(found: dict[str, Any]) -> RunTable:
    """The same from the decoded object."""
    try:
        run = msgspec.convert(in_ns(found), _Run)
    except msgspec.ValidationError as error:
        raise InputError(f"not {RUN}: {error}") from error
    what = {"throughput": "period", "latency": "latency"}.get(run.objective, "one step" if run.steps else "latency")
    if run.measured_ns is None:
        raise InputError(f"not {RUN}: no measured time")
    rows = [*(run.devices if isinstance(run.devices, list) else ()), *run.ranks][:MOST_ROWS]
    baselines = [RunRow(short_name(name, 60), value) for name, value in list(run.baselines.items())[:MOST_ROWS]]
    if run.reference and run.reference_measured_ns is not None:
        name = f"all on {short_name(run.reference, 60)}"
        baselines.append(RunRow(name, run.reference_measured_ns, run.reference_predicted_ns))
    return RunTable(
        engine=short_name(run.engine, 40),
        whole=RunRow(what, run.measured_ns, run.predicted_ns),
        devices=tuple(filter(None, map(_device, rows))),
        baselines=tuple(baselines),
        words=tuple(_words(run)),
        objective=run.objective,
    )


def check_run(run: RunTable, plan: Plan) -> None:
    """Refuse the run of another plan, as far as it can be seen."""
    known = {short_name(id, 64) for id in plan.devices}
    stranger = next((row.name for row in run.devices if row.name not in known), None)
    why = ""
    if run.objective and run.objective != plan.objective:
        why = f"it ran for {short_name(run.objective, 40)}, the plan is for {plan.objective}"
    elif run.engine == "local" and run.whole.predicted_ns != plan.value_ns:
        why = "what was predicted there is not this plan's value"
    elif stranger is not None:
        why = f"the plan has no device {stranger!r}"
    if why:
        raise InputError(f"not a run of this plan: {why}", hint="run the plan again with --json")


def _device(row: _Device | _Rank) -> RunRow | None:
    if isinstance(row, _Rank):
        return None if row.busy_ns is None else RunRow(short_name(row.device, 64), row.busy_ns)
    if row.compute_ns is None:
        return None
    note = "" if row.utilisation is None else f"busy {row.utilisation:.0%}"
    return RunRow(short_name(row.device, 64), row.compute_ns, row.predicted_compute_ns, note)


def _words(run: _Run) -> list[str]:
    words = []
    for count, what in ((run.requests, "requests"), (run.rounds, "rounds"), (run.steps, "steps")):
        if count is not None:
            words.append(f"{count} {what} were timed.")
    if run.max_output_difference is not None:
        words.append(f"Outputs differ from the unsplit model by at most {run.max_output_difference:.2e} (relative).")
    if run.max_gradient_difference is not None:
        words.append(f"Gradients differ from one process by at most {run.max_gradient_difference:.2e}.")
    return words + [short_name(note, 300) for note in run.notes[:10]]
