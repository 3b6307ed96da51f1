"""`weftline explain`: why does a plan take as long as it does?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weftline.cli.output import JsonFlag, print_json, show
from weftline.errors import UsageError

__all__ = ["explain"]


def explain(
    plan: Annotated[Path, typer.Argument(metavar="PLAN", help="A plan file.")],
    op: Annotated[str | None, typer.Option(metavar="NAME", help="Tell the story of one op instead.")] = None,
    placement: Annotated[bool, typer.Option("--placement", help="List every op with its device and time.")] = False,
    most: Annotated[int, typer.Option(metavar="N", min=1, help="Show at most so many links of the chain.")] = 40,
    json: JsonFlag = False,
) -> None:
    """Show what decides the value of a plan.

    The limits that bind, and the chain of ops and transfers that ends last, or the slowest stage with its dearest ops
    and tensors. With --op why one op stands where it does, and what the plan would cost with it on each other device
    (simulated again). With --placement the whole placement.
    """
    from dataclasses import asdict

    from weftline.plans import binding_limits, explain_op, explain_plan, explain_stage, load_plan, placed_ops
    from weftline.plans.summary import guarantee, measured_words
    from weftline.report import placement_table
    from weftline.report.tables import moves_table

    if op is not None and placement:
        raise UsageError("--op tells the story of one op, --placement lists them all; leave one out")
    answer = load_plan(plan)
    if placement:
        if json:
            print_json({"placement": [asdict(row) for row in placed_ops(answer)]})
        else:
            show(placement_table(answer))
        return
    if op is not None:
        story = explain_op(answer, op)
        if json:
            print_json(asdict(story))
        else:
            show(*story.lines(), "", moves_table(story, answer.objective))
        return
    reasons, slowest, limits = explain_plan(answer), explain_stage(answer), binding_limits(answer)
    binds = ["What binds:", *(f"  {limit.says}" for limit in limits)]
    if json:
        told = {"value_ns": answer.value_ns, "binding": [asdict(limit) for limit in limits]}
        told["chain"] = [asdict(reason) for reason in reasons]
        print_json(told if slowest is None else {**told, "slowest_stage": asdict(slowest)})
        return
    if slowest is not None:
        show(guarantee(answer), *slowest.lines(), *binds)
        return
    show(
        *filter(None, (guarantee(answer), measured_words(answer))), *binds, "What decides the value, in order of time:"
    )
    shown = reasons if len(reasons) <= most else reasons[: most // 2] + reasons[-(most - most // 2) :]
    for number, reason in enumerate(shown):
        if number == most // 2 and len(reasons) > most:
            show(f"             ... {len(reasons) - most} more ...")
        show(str(reason))
