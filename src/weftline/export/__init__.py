"""Export: a plan or schedule in the form that other programs read; `Exporter` says what a target offers.

In: a plan, or the `Timetable` of a schedule. Out: text or files, held to strict rules of our own before they are
written. Simplified: what a target cannot express is refused with a sentence, never approximated.
"""

from weftline.export.exporter import (
    Exporter,
    ExportOptions,
    check_target,
    export,
    export_targets,
    plan_exporters,
    schedule_exporters,
    why_not,
)

__all__ = [
    "ExportOptions",
    "Exporter",
    "check_target",
    "export",
    "export_targets",
    "plan_exporters",
    "schedule_exporters",
    "why_not",
]
