"""Export: a plan or schedule in the form that other programs read, one file per target.

In: a plan, or the `Timetable` of a schedule. Out: text or files, held to strict rules of our own before they are
written. Simplified: what a target cannot express is refused with a sentence, never approximated.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

from weftline.lazy import lazy_names

if TYPE_CHECKING:
    from weftline.export.exporter import Exporter, ExportOptions, PlanExporter

__all__ = ["ExportOptions", "Exporter", "PlanExporter", "plan_exporters", "schedule_exporters"]

__getattr__ = lazy_names(
    __name__,
    {
        "ExportOptions": "weftline.export.exporter",
        "Exporter": "weftline.export.exporter",
        "PlanExporter": "weftline.export.exporter",
    },
)

_BUILT_IN = ("torch_csv",)
_FOR_PLANS = ("onnx_stages", "openvino", "ort", "accelerate", "vllm", "megatron", "llamacpp")


@cache
def schedule_exporters() -> dict[str, Exporter]:
    """All targets for schedules: ours, then those other packages offer as entry points `weftline.export`."""
    from weftline.plugins import load_plugins

    found: list[Exporter] = [import_module(f"weftline.export.{module}").EXPORTER for module in _BUILT_IN]
    found += load_plugins("weftline.export")
    return {exporter.name: exporter for exporter in found}


@cache
def plan_exporters() -> dict[str, PlanExporter]:
    """All targets for plans: ours, then those other packages offer as entry points `weftline.export_plan`."""
    from weftline.plugins import load_plugins

    found: list[PlanExporter] = [import_module(f"weftline.export.{module}").PLAN_EXPORTER for module in _FOR_PLANS]
    found += load_plugins("weftline.export_plan")
    return {exporter.name: exporter for exporter in found}
