"""`weftline verify`: does a plan hold what it says?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weftline.cli.output import JsonFlag, print_json, show

__all__ = ["verify"]


def verify(
    plan: Annotated[Path, typer.Argument(metavar="PLAN|SCHEDULE", help="A plan or schedule file.")],
    json: JsonFlag = False,
) -> None:
    """Check that a plan holds what it says.

    Re-computes value, limits and proved bounds in a process that imports no solver.

    Exit code 0 only if everything holds, 6 if something does not, 3 if the file cannot be read.
    """
    from weftline.certify import ScheduleVerdict, verify_file
    from weftline.units import format_time

    verdict = verify_file(plan)
    if json:
        print_json({"ok": True, **verdict._asdict()})
        return
    if isinstance(verdict, ScheduleVerdict):
        proved = f"proved bound {verdict.proved_bound}, of the period {verdict.proved_period_bound}"
        show(f"{plan}: holds. {verdict.objective} {verdict.value}, {proved}.")
        show(f"re-computed: {', '.join(verdict.checks)}")
        return
    value, bound = format_time(verdict.value_ns), format_time(verdict.proved_bound_ns)
    what = "period" if verdict.objective == "throughput" else verdict.objective
    show(f"{plan}: holds. {what} {value}, proved bound {bound}.")
    if verdict.bound_ns > verdict.proved_bound_ns:
        show(f"The plan's own bound {format_time(verdict.bound_ns)} is a claim, which was not checked.")
    show(f"re-computed: {', '.join(verdict.checks)}")
