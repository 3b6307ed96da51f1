"""torch-csv: the file that `_PipelineScheduleRuntime._load_csv` of torch.distributed.pipelining reads.

In: a `Timetable`, or a file from elsewhere. Out: CSV, one row per rank and one cell per action; every file that is
written or read passes `check_torch_rows`. Simplified: an order only, without times.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

from weftline.errors import InputError
from weftline.export.exporter import Exporter
from weftline.files import read_limited, write_atomically
from weftline.schedule.lower.torch import TorchRows, check_torch_rows, torch_rows, torch_stages
from weftline.simulate import Timetable

__all__ = ["EXPORTERS", "parse_torch_csv", "read_torch_csv", "torch_csv", "write_torch_csv"]

MOST_BYTES = 64 * 2**20


def torch_csv(timetable: Timetable) -> str:
    """The text of the file (compute_only)."""
    return "".join(",".join(row) + "\n" for row in torch_rows(timetable))


def write_torch_csv(timetable: Timetable, path: Path | str) -> None:
    """Write the file whole or not at all."""
    write_atomically(path, torch_csv(timetable).encode("ascii"))


def read_torch_csv(path: Path | str, *, form: str = "compute_only", ranks: int | None = None) -> TorchRows:
    """Read a file from elsewhere, or say in which row and cell it is wrong."""
    path = Path(path)
    try:
        text = read_limited(path, MOST_BYTES).decode("ascii")
    except UnicodeDecodeError as error:
        raise InputError("is not plain ASCII text", where=str(path)) from error
    try:
        return parse_torch_csv(text, form=form, ranks=ranks)
    except InputError as error:
        raise error.at(str(path)) from None


def parse_torch_csv(text: str, *, form: str = "compute_only", ranks: int | None = None) -> TorchRows:
    """Check the text of a file; cells hold no spaces and no quotes."""
    try:
        rows = list(csv.reader(io.StringIO(text), strict=True))
    except csv.Error as error:
        raise InputError(f"is not CSV: {error}") from error
    if not rows:
        raise InputError("is empty; there is one row per rank")
    return check_torch_rows(rows, form=form, ranks=ranks)


def _export(timetable: Timetable, folder: Path) -> list[Path]:
    """schedule.csv, and stages.json: what each rank builds before it loads the schedule."""
    blocks = timetable.blocks
    devices = [device for device, lane in enumerate(blocks.devices) if not lane.link]
    stages = [
        {
            "stage": number,
            "rank": devices.index(stage.devices[0]),
            "device": blocks.devices[stage.devices[0]].id,
            "name": blocks.blocks[stage.forward].name,
            "split_backward": stage.weight >= 0,
        }
        for number, stage in enumerate(torch_stages(blocks))
    ]
    about = {"torch": "2.13.0", "format": "compute_only", "micro_batches": timetable.micro_batches, "stages": stages}
    files = [folder / "schedule.csv", folder / "stages.json"]
    write_torch_csv(timetable, files[0])
    write_atomically(files[1], (json.dumps(about, indent=1) + "\n").encode())
    return files


EXPORTERS = (
    Exporter(
        "torch-csv",
        "rows for torch.distributed.pipelining, one per rank, and the list of stages",
        _export,
        check=torch_rows,
    ),
)
