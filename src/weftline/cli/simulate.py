"""`weftline simulate`: run a plan's decisions through the simulator again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weftline.cli.output import JsonFlag, print_json, show
from weftline.errors import VerificationError

__all__ = ["simulate"]


def simulate(
    plan: Annotated[Path, typer.Argument(metavar="PLAN|SCHEDULE", help="A plan or schedule file.")],
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a trace for ui.perfetto.dev or chrome://tracing.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Simulate a plan again; write a trace of it.

    weftline simulate plan.json --trace trace.json
    """
    from weftline.certify.run import is_schedule
    from weftline.files import write_atomically
    from weftline.plans import load_plan, plan_result
    from weftline.report import device_table, stage_table, trace_json
    from weftline.units import format_time

    if is_schedule(plan):
        _schedule(plan, trace, json)
        return
    answer = load_plan(plan)
    problem, result = plan_result(answer)
    if trace is not None:
        write_atomically(trace, trace_json(answer))
    if json:
        peaks = {device.id: int(peak) for device, peak in zip(problem.devices, result.peak, strict=True)}
        print_json(
            {
                "objective": answer.objective,
                "value_ns": result.value,
                "plan_value_ns": answer.value_ns,
                "memory_bytes": peaks,
            }
        )
        return
    says = f"the plan says {format_time(answer.value_ns)}"
    what = "latency" if answer.objective == "latency" else "period"
    show(f"{problem.graph.name}: simulated {what} {format_time(result.value)}, {says}", "")
    show(stage_table(answer) if answer.stages else device_table(answer))
    if result.value != answer.value_ns:
        raise VerificationError("the simulated value is not the plan's; weftline verify says what does not hold")
    if trace is not None:
        show("", f"trace written to {trace}: open it in ui.perfetto.dev or chrome://tracing")


def _schedule(path: Path, trace: Path | None, json: bool) -> None:
    from weftline.files import write_atomically
    from weftline.plans.schedule import load_schedule
    from weftline.report.trace import schedule_trace

    answer = load_schedule(path)
    found = answer.timetable()
    if trace is not None:
        write_atomically(trace, schedule_trace(answer))
    if json:
        says = {"schedule_makespan": answer.makespan, "peak_memory": found.peak_memory}
        print_json({"objective": answer.objective, "makespan": found.makespan, **says})
        return
    show(f"{answer.name}: simulated makespan {found.makespan}, the schedule says {answer.makespan}")
    if found.makespan != answer.makespan:
        raise VerificationError("the simulated makespan is not the schedule's; weftline verify says what does not hold")
    if trace is not None:
        show("", f"trace written to {trace}: open it in ui.perfetto.dev or chrome://tracing")
