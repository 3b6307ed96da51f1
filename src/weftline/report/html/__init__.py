"""`report_html`: a plan, fleet plan or schedule as one HTML page that needs nothing else.

In: a Plan, fleet plan or Schedule, perhaps what a run measured and what would help. Out: the bytes of the page: text
and tables made here (jinja2, everything escaped), pictures drawn by its own scripts from embedded data. A
Content-Security-Policy allows exactly these scripts and this style, and no network. A page shows only what holds: the
independent checker comes first, and `VerificationError` if something does not hold. Simplified: above five megabytes
names are cut and spans joined; very large answers are only compared with the simulator, which is quick (`weftline
verify` checks all).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from weftline import __version__
from weftline.certify import check
from weftline.certify.check_fit import check_fit_plan
from weftline.certify.check_fleet import check_fleet
from weftline.certify.check_layers import check_layer_plan
from weftline.certify.check_schedule import check_schedule
from weftline.errors import InputError, VerificationError
from weftline.export.fit_picture import FitPicture
from weftline.export.picture import to_svg
from weftline.plans import Plan, plan_result
from weftline.plans.fit import FitPlan
from weftline.plans.fleet import AnyFleet
from weftline.plans.fleet_result import same_fleet, simulate_fleet
from weftline.plans.layers import LayerPlan
from weftline.plans.schedule import Schedule
from weftline.report.fleet import fleet_page, fleet_pictures
from weftline.report.html.fit import fit_page
from weftline.report.html.pack import PageBudget, asset_text, csp_hash, script_json, scripts, styles
from weftline.report.html.page import plan_page, run_rows
from weftline.report.html.plan import plan_data
from weftline.report.html.run import RunTable, check_run
from weftline.report.html.schedule import schedule_data, schedule_page
from weftline.report.html.sensitivity import Help

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["MOST_BYTES", "holds", "policy", "report_html"]

WHOLE_OPS = 5_000
WHOLE_OPERATIONS = 50_000


def holds(answer: Plan | Schedule | AnyFleet | FitPlan) -> bool:
    """True: checked whole. False: value and devices are the simulator's, the rest is as the file says."""
    if isinstance(answer, FitPlan):
        return _checked(check_fit_plan, answer, "plan")
    if isinstance(answer, Schedule):
        return _schedule_holds(answer)
    if isinstance(answer, AnyFleet):
        return _fleet_holds(answer)
    problem, result = plan_result(answer)
    used = {problem.devices[d].id for d in set(result.placement.tolist())}
    stages = {stage.device for stage in answer.stages}
    if result.value != answer.value_ns or list(answer.devices) != [device.id for device in problem.devices]:
        raise VerificationError("the plan's value or devices are not the simulator's; weftline verify says more")
    if stages != (used if answer.objective == "throughput" else set()):
        raise VerificationError("the plan's stages are not those of its placement; weftline verify says more")
    if len(problem.graph.ops) > WHOLE_OPS:
        return False
    return _checked(check.check_plan, answer, "plan")


def _checked(check_answer: Callable[[dict[str, Any]], object], answer: object, what: str) -> bool:
    try:
        check_answer(msgspec.to_builtins(answer))
    except check.Refusal as refusal:
        raise VerificationError(f"the {what} does not hold: {refusal}") from refusal
    return True


def _schedule_holds(schedule: Schedule) -> bool:
    found = schedule.timetable()
    if (found.makespan, found.peak_memory) != (schedule.makespan, schedule.peak_memory):
        raise VerificationError("the schedule's makespan or memory is not the simulator's; weftline verify says more")
    if len(schedule.memory_limit) != len(schedule.peak_memory):
        raise VerificationError("the schedule's limits do not fit its devices; weftline verify says more")
    if len(found.start) > WHOLE_OPERATIONS:
        return False
    return _checked(check_schedule, schedule, "schedule")


def _fleet_holds(answer: AnyFleet) -> bool:
    found = simulate_fleet(answer)
    if not same_fleet(answer, found):
        raise VerificationError("what was simulated is not what the plan says; weftline verify says what does not hold")
    if len(found.names) * len(found.lanes) > WHOLE_OPERATIONS:
        return False
    return _checked(check_layer_plan if isinstance(answer, LayerPlan) else check_fleet, answer, "plan")


MOST_BYTES = 5_000_000
MOST_TRIES = 6


def report_html(
    answer: Plan | Schedule | AnyFleet | FitPlan, *, run: RunTable | None = None, helps: Sequence[Help] = ()
) -> bytes:
    """The page; `VerificationError` for an answer that does not hold."""
    budget, checked = PageBudget(), holds(answer)
    if run is not None and isinstance(answer, Plan):
        check_run(run, answer)
    for _ in range(MOST_TRIES):
        page = _render(answer, run, helps, budget, checked)
        if len(page) < MOST_BYTES:
            return page
        budget = budget.half()
    raise InputError(f"the page would have {len(page):,} bytes, more than {MOST_BYTES:,}")


def _render(
    answer: Plan | Schedule | AnyFleet | FitPlan,
    run: RunTable | None,
    helps: Sequence[Help],
    budget: PageBudget,
    checked: bool,
) -> bytes:
    from markupsafe import Markup

    if isinstance(answer, Plan):
        data = plan_data(answer, budget)
        page: dict[str, Any] = plan_page(answer, data, run, helps)
    elif isinstance(answer, FitPlan):
        data, page = {"kind": "fit", "unit": "ns", "value": answer.value_ns}, fit_page(answer)
        page["fit"]["picture"] = Markup(to_svg(FitPicture(answer)))
        page["run"] = run_rows(run)
    elif isinstance(answer, AnyFleet):
        found = simulate_fleet(answer)
        data, page = {"kind": "fleet", "unit": "ns", "value": answer.value_ns}, fleet_page(answer, found)
        pictures = {name: Markup(svg) for name, svg in fleet_pictures(answer, found).items()}
        page["fleet"] |= {"picture": pictures["lanes"], "front": pictures.get("front", "")}
        page["run"] = run_rows(run)
    else:
        data = schedule_data(answer, budget)
        page = schedule_page(answer, data, run)
    if checked:
        page["chips"].append({"tone": "good", "text": "verified"})
    script, style = scripts() + asset_text("report.js"), styles()
    text = _template().render(
        page=page,
        version=__version__,
        policy=policy(script, style),
        style=Markup(style),
        script=Markup(script),
        data=Markup(script_json(data)),
    )
    return text.encode("utf-8", "replace")


def policy(script: str, style: str) -> str:
    """Nothing but this script and this style."""
    allowed = f"script-src {csp_hash(script)}; style-src {csp_hash(style)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    room = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return room.from_string(files("weftline.report").joinpath("templates", "report.html").read_text(encoding="utf-8"))
