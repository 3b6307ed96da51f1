"""Plans for human eyes: the verb `report` (one HTML page), terminal tables, a Markdown summary, and traces
for Perfetto or chrome://tracing.

In: a Plan, fleet plan or Schedule (and its simulation), and what was measured. Out: bytes or rich renderables.
Simplified: a pipeline's trace shows a few inputs in steady state.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftline.arguments import a_function, a_path, seconds
from weftline.errors import UsageError
from weftline.lazy import lazy_names

if TYPE_CHECKING:
    from weftline.plans import Plan
    from weftline.plans.fit import FitPlan
    from weftline.plans.fleet import AnyFleet
    from weftline.plans.schedule import Schedule
    from weftline.report.sweep import sweep_curve, sweep_table, sweep_words
    from weftline.report.tables import comparison_table, device_table, placement_table, plan_markdown, stage_table
    from weftline.report.trace import trace_json
    from weftline.run.local.run import LocalResult

__all__ = [
    "comparison_table",
    "device_table",
    "placement_table",
    "plan_markdown",
    "report",
    "stage_table",
    "sweep_curve",
    "sweep_table",
    "sweep_words",
    "trace_json",
]

__getattr__ = lazy_names(
    __name__,
    {
        "comparison_table": "weftline.report.tables",
        "device_table": "weftline.report.tables",
        "placement_table": "weftline.report.tables",
        "plan_markdown": "weftline.report.tables",
        "stage_table": "weftline.report.tables",
        "sweep_curve": "weftline.report.sweep",
        "sweep_table": "weftline.report.sweep",
        "sweep_words": "weftline.report.sweep",
        "trace_json": "weftline.report.trace",
    },
)


def report(
    answer: Plan | Schedule | AnyFleet | FitPlan | Path | str,
    output: Path | str | None = None,
    *,
    run: LocalResult | Mapping[str, Any] | Path | str | None = None,
    sensitivity: float | str | None = None,
    on_event: Callable[[str], None] | None = None,
) -> bytes:
    """A plan, fleet plan or schedule as one HTML page that needs no network; written to `output` if that is given.

    `run` is what `wl.run` returned or `weftline run --json` printed: measured stands beside predicted then.
    `sensitivity` is a number of seconds, or text like "10s": with them the plan is solved again with one thing
    better at a time.
    """
    from weftline.ask.look import read_answer, read_fit
    from weftline.files import check_writable, protected, write_atomically
    from weftline.plans import Plan
    from weftline.report.html import report_html
    from weftline.report.html.run import find_run
    from weftline.report.html.sensitivity import ask

    fitted, limit, file = read_fit(answer), seconds(sensitivity, "sensitivity"), None
    found = read_answer(answer) if fitted is None else fitted  # type: ignore[arg-type]
    if output is not None:
        file = a_path(output, "output")
        with protected([one for one in (answer, run) if isinstance(one, Path | str)]):
            check_writable(file)
    measured = None if run is None else find_run(run)
    if limit is not None and (not isinstance(found, Plan) or not limit > 0):
        raise UsageError("sensitivity is a number of seconds above 0, for plans")
    helps = ask(found, limit, a_function(on_event, "on_event")) if isinstance(found, Plan) and limit else []
    page = report_html(found, run=measured, helps=helps)
    if file is not None:
        write_atomically(file, page)
    return page
