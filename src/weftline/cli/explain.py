"""`weftline explain`: why does a plan take as long as it does?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weftline.cli.output import JsonFlag, print_json, show

__all__ = ["explain"]


def explain(
    plan: Annotated[Path, typer.Argument(help="A plan file.")],
    op: Annotated[str | None, typer.Option(help="Tell the story of one op instead.")] = None,
    most: Annotated[int, typer.Option(min=1, help="Show at most so many links of the chain.")] = 40,
    json: JsonFlag = False,
) -> None:
    """Show what decides the value of a plan.

    The chain of ops and transfers that ends last, or the parts of the slowest stage; with --op the story of one op.
    """
    from dataclasses import asdict

    from weftline.plan import explain_op, explain_plan, load_plan
    from weftline.plan.summary import guarantee

    answer = load_plan(plan)
    if op is not None:
        lines = explain_op(answer, op)
        print_json({"op": op, "lines": lines}) if json else show(*lines)
        return
    reasons = explain_plan(answer)
    if json:
        print_json({"value_ns": answer.value_ns, "chain": [asdict(reason) for reason in reasons]})
        return
    show(guarantee(answer), "What decides the value, in order of time:")
    shown = reasons if len(reasons) <= most else reasons[: most // 2] + reasons[-(most - most // 2) :]
    for number, reason in enumerate(shown):
        if number == most // 2 and len(reasons) > most:
            show(f"             ... {len(reasons) - most} more ...")
        show(str(reason))
