"""Export: a plan or schedule in the form that other programs read; `Exporter` says what a target offers.

In: a plan, or the `Timetable` of a schedule. Out: text or files, held to strict rules of our own before they are
written. Simplified: what a target cannot express is refused with a sentence, never approximated.
"""

from typing import TYPE_CHECKING

from weftline.export.exporter import (
    Exporter,
    ExportOptions,
    check_target,
    export,
    export_targets,
    fleet_exporters,
    plan_exporters,
    schedule_exporters,
    why_not,
)
from weftline.lazy import lazy_names

if TYPE_CHECKING:
    from weftline.export.picture import picture_of, to_png, to_svg

__all__ = [
    "ExportOptions",
    "Exporter",
    "check_target",
    "export",
    "export_targets",
    "fleet_exporters",
    "picture_of",
    "plan_exporters",
    "schedule_exporters",
    "to_png",
    "to_svg",
    "why_not",
]

__getattr__ = lazy_names(__name__, dict.fromkeys(("picture_of", "to_png", "to_svg"), "weftline.export.picture"))
