"""Plans for human eyes: terminal tables, a Markdown summary, and traces for Perfetto or chrome://tracing.

In: a Plan (and its simulation). Out: rich renderables or bytes. Simplified: a pipeline's trace shows a few inputs in
steady state.
"""

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
