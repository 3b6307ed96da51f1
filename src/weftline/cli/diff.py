"""`weftline diff`: what differs between two plans?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weftline.cli.output import JsonFlag, print_json, show
from weftline.errors import InputError, VerificationError

if TYPE_CHECKING:
    from weftline.plans import Plan

__all__ = ["diff"]


def diff(
    first: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file.")],
    second: Annotated[Path, typer.Argument(metavar="PLAN", help="Another plan file.")],
    json: JsonFlag = False,
) -> None:
    """Compare two plans: value, bound, loads, moves.

    Both values are simulated again first: a file that claims another one is refused. (weftline verify checks the rest.)
    """
    from dataclasses import asdict

    from weftline.plans import diff_plans

    difference = diff_plans(_simulated(first), _simulated(second))
    if json:
        print_json({**asdict(difference), "identical": difference.identical})
    else:
        show("the plans are the same" if difference.identical else str(difference))


def _simulated(path: Path) -> Plan:
    """A plan whose value is what the simulator says."""
    from weftline.plans import load_plan, plan_result

    plan = load_plan(path)
    try:
        value = plan_result(plan)[1].value
    except InputError as error:
        raise error.at(str(path)) from None
    if value != plan.value_ns:
        raise VerificationError(f"{path}: the simulated value is not the plan's; weftline verify says what is wrong")
    return plan
