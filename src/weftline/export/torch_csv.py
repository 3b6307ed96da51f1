"""torch-csv: the file that `_PipelineScheduleRuntime._load_csv` of torch.distributed.pipelining reads.

In: a `Timetable`, or a file from elsewhere. Out: CSV, one row per rank and one cell per action; every file that is
written or read passes `schedule.lower_torch_rules`. Simplified: an order only, without times.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

from weftline.errors import InputError
from weftline.files import write_atomically
from weftline.schedule.lower_torch import torch_rows
from weftline.schedule.lower_torch_rules import TorchRows, check_torch_rows
from weftline.simulate import Timetable

__all__ = ["parse_torch_csv", "read_torch_csv", "torch_csv", "write_torch_csv"]

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
        if path.stat().st_size > MOST_BYTES:
            raise InputError(f"larger than {MOST_BYTES >> 20} MiB", where=str(path))
        text = path.read_bytes().decode("ascii")
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
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
