"""Plans for human eyes: terminal tables, a Markdown summary, and traces for Perfetto or chrome://tracing.

In: a Plan (and its simulation). Out: rich renderables or bytes. Simplified: a pipeline's trace shows a few inputs in
steady state.
"""

from typing import TYPE_CHECKING

from weftline.lazy import lazy_names

if TYPE_CHECKING:
    from weftline.report.sweep import sweep_curve, sweep_table, sweep_words
    from weftline.report.tables import comparison_table, device_table, placement_table, plan_markdown, stage_table
    from weftline.report.trace import trace_json

__all__ = [
    "comparison_table",
    "device_table",
    "placement_table",
    "plan_markdown",
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
