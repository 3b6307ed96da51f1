"""`weftline diff`: what differs between two plans?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weftline.cli.output import JsonFlag, print_json, show

__all__ = ["diff"]


def diff(
    first: Annotated[Path, typer.Argument(help="A plan file.")],
    second: Annotated[Path, typer.Argument(help="Another plan file.")],
    json: JsonFlag = False,
) -> None:
    """Compare two plans: value, bound, loads, moves."""
    from dataclasses import asdict

    from weftline.plan import diff_plans, load_plan

    difference = diff_plans(load_plan(first), load_plan(second))
    if json:
        print_json({**asdict(difference), "identical": difference.identical})
    else:
        show("the plans are the same" if difference.identical else str(difference))
