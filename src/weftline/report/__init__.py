"""Plans for human eyes: terminal tables, a Markdown summary, and traces for Perfetto or chrome://tracing.

In: a Plan (and its simulation). Out: rich renderables or bytes. Simplified: a pipeline's trace shows a few inputs in
steady state.
"""

from weftline.report.markdown import plan_markdown
from weftline.report.tables import comparison_table, device_table, stage_table
from weftline.report.trace import trace_json

__all__ = ["comparison_table", "device_table", "plan_markdown", "stage_table", "trace_json"]
