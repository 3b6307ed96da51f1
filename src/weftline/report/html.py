"""`report_html`: a plan or schedule as one HTML page that needs nothing else.

In: a Plan or Schedule, perhaps what a run measured and what would help. Out: the bytes of the page: text and tables
made here (jinja2, everything escaped), pictures drawn by its own scripts from embedded data. A Content-Security-Policy
allows exactly these scripts and this style, and no network. Simplified: above five megabytes names are cut and spans
joined.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftline import __version__
from weftline.certify.run import is_schedule
from weftline.errors import InputError
from weftline.plan import Plan, load_plan
from weftline.plan.schedule_file import Schedule, load_schedule
from weftline.report import assets
from weftline.report.html_check import holds
from weftline.report.html_pack import Room, script_json
from weftline.report.html_page import plan_page
from weftline.report.html_plan import plan_data
from weftline.report.html_run import RunTable, check_run
from weftline.report.html_schedule import schedule_data
from weftline.report.html_schedule_page import schedule_page
from weftline.report.html_sensitivity import Help

if TYPE_CHECKING:
    from jinja2 import Template

__all__ = ["MOST_BYTES", "load_answer", "policy", "report_html"]

MOST_BYTES = 5_000_000
TRIES = 6


def load_answer(path: Path | str) -> Plan | Schedule:
    """A plan or schedule file, whatever it says that it is."""
    return load_schedule(path) if is_schedule(Path(path)) else load_plan(path)


def report_html(answer: Plan | Schedule, *, run: RunTable | None = None, helps: Sequence[Help] = ()) -> bytes:
    """The page; `VerificationError` for an answer that does not hold."""
    room, checked = Room(), holds(answer)
    if run is not None and isinstance(answer, Plan):
        check_run(run, answer)
    for _ in range(TRIES):
        page = _render(answer, run, helps, room, checked)
        if len(page) < MOST_BYTES:
            return page
        room = room.half()
    raise InputError(f"the page would have {len(page):,} bytes, more than {MOST_BYTES:,}")


def _render(answer: Plan | Schedule, run: RunTable | None, helps: Sequence[Help], room: Room, checked: bool) -> bytes:
    from markupsafe import Markup

    if isinstance(answer, Plan):
        data = plan_data(answer, room)
        page: dict[str, Any] = plan_page(answer, data, run, helps)
    else:
        data = schedule_data(answer, room)
        page = schedule_page(answer, data, run)
    if checked:
        page["chips"].append({"tone": "good", "text": "verified"})
    script, style = assets.scripts() + assets.text("report.js"), assets.styles()
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
    allowed = f"script-src {assets.csp_hash(script)}; style-src {assets.csp_hash(style)}"
    return f"default-src 'none'; {allowed}; base-uri 'none'; form-action 'none'"


@cache
def _template() -> Template:
    from jinja2 import Environment, StrictUndefined

    room = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    return room.from_string(files("weftline.report").joinpath("templates", "report.html").read_text(encoding="utf-8"))
