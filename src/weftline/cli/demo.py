"""`weftline demo`: everything on a zoo model, in about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weftline.cli.output import JsonFlag, print_json, progress, show

__all__ = ["demo"]

QUESTIONS = (("flava", "four-unequal", "latency"), ("bert", "two-gpus", "throughput"))


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder to write plans, traces and summaries to.")
    ] = Path("demo"),
    json: JsonFlag = False,
) -> None:
    """Plan zoo models on presets, and write it all down.

    Builds the models, plans them, compares with the baselines, verifies, and writes plans, traces and summaries.
    """
    from weftline.certify import verify_file
    from weftline.cluster import Cluster
    from weftline.errors import InputError
    from weftline.files import write_atomically
    from weftline.plan import make_plan
    from weftline.problem import asked_rules, build_problem
    from weftline.report import comparison_table, plan_markdown, trace_json
    from weftline.zoo import zoo_graph

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", where=str(output)) from error
    written = []
    for model, cluster, objective in QUESTIONS:
        problem = build_problem(zoo_graph(model), Cluster.preset(cluster), rules=asked_rules({"objective": objective}))
        with progress(f"planning {model} on {cluster}") as tell:
            answer = make_plan(problem, argv=("demo",), on_event=tell)
        folder = output / f"{model}-{cluster}-{objective}"
        folder.mkdir(exist_ok=True)
        answer.save(folder / "plan.json")
        write_atomically(folder / "trace.json", trace_json(answer))
        write_atomically(folder / "summary.md", plan_markdown(answer).encode())
        verdict = verify_file(folder / "plan.json")
        written.append({"folder": str(folder), **verdict._asdict()})
        if not json:
            show(f"{model} on {cluster}: {objective}", comparison_table(answer), "")
            show(answer.summary().splitlines()[1], f"verified; plan, trace and summary are in {folder}", "")
    if json:
        print_json({"plans": written})
    else:
        show("Next: weftline explain PLAN. Or plan your own model:")
        show("weftline plan model.onnx --cluster laptop -o plan.json")
