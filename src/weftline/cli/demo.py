"""`weftline demo`: everything on a zoo model, in about a minute."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from weftline.cli.output import JsonFlag, print_json, progress, show, telling

__all__ = ["demo"]

MODEL, SPEEDS, REQUESTS = "mobilenet-v3", (1.0, 0.5), 100
QUESTIONS: tuple[tuple[str, str, Literal["latency", "throughput"]], ...] = (
    ("flava", "four-unequal", "latency"),
    ("bert", "two-gpus", "throughput"),
)


def demo(
    output: Annotated[
        Path, typer.Option("--output", "-o", metavar="FOLDER", help="Folder to write plans, traces and reports to.")
    ] = Path("demo"),
    run: Annotated[
        bool, typer.Option("--run/--no-run", help="End with a real run on two workers of this machine.")
    ] = True,
    json: JsonFlag = False,
) -> None:
    """Plan zoo models on presets, run one on this machine, and write it all down.

    Builds the models, plans them, compares with the baselines, verifies, and writes plans, traces and reports. Then a
    model is measured, planned and run for real on two workers of this machine, one at half its speed.
    """
    from weftline.ask.answer import answer
    from weftline.ask.request import PlanRequest
    from weftline.certify import verify_file
    from weftline.cluster import Cluster
    from weftline.errors import InputError
    from weftline.files import write_atomically
    from weftline.report import comparison_table, plan_markdown, trace_json
    from weftline.report.html.html import report_html
    from weftline.zoo import zoo_graph

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", where=str(output)) from error
    written = []
    for model, cluster, objective in QUESTIONS:
        request = PlanRequest(
            model=zoo_graph(model), cluster=Cluster.preset(cluster), objective=objective, argv=("demo",)
        )
        with progress(f"planning {model} on {cluster}") as tell:
            found = answer(request, on_event=tell)
        folder = output / f"{model}-{cluster}-{objective}"
        folder.mkdir(exist_ok=True)
        found.save(folder / "plan.json")
        write_atomically(folder / "trace.json", trace_json(found))
        write_atomically(folder / "summary.md", plan_markdown(found).encode())
        write_atomically(folder / "report.html", report_html(found))
        verdict = verify_file(folder / "plan.json")
        written.append({"folder": str(folder), **verdict._asdict()})
        if not json:
            show(f"{model} on {cluster}: {objective}", comparison_table(found), "")
            show(found.summary().splitlines()[1], f"verified; plan, trace and summary are in {folder}")
            show(f"look at it: {folder / 'report.html'}", "")
    done = _run(output / "run", json) if run else None
    if json:
        print_json({"plans": written, "run": done})
    else:
        show(f"Next: weftline explain {written[0]['folder']}/plan.json. Or plan your own model:")
        show("weftline plan model.onnx --cluster laptop -o plan.json")


def _run(folder: Path, quiet: bool) -> dict[str, object]:
    """Profile, plan, run; the files stay."""
    from dataclasses import asdict

    from weftline.ask.answer import answer
    from weftline.ask.request import PlanRequest
    from weftline.cluster.detect import worker_cluster
    from weftline.cost import save_profile
    from weftline.files import write_atomically
    from weftline.measure.profile import profile_model
    from weftline.report.html.html import report_html
    from weftline.report.html.run import find_run
    from weftline.run.local.run import run_local
    from weftline.zoo import build, save

    folder.mkdir(exist_ok=True)
    model, cluster = folder / f"{MODEL}.onnx", worker_cluster(SPEEDS)
    save(build(MODEL), model)
    with telling(f"{MODEL} on two workers") as tell:
        costs = profile_model(model, cluster, cache=False, tell=tell)
        save_profile(costs, folder / "costs.json")
        request = PlanRequest(
            model=model, cluster=cluster, objective="throughput", costs=costs, time_limit=10.0, argv=("demo",)
        )
        plan = answer(request)
        plan.save(folder / "plan.json")
        result = run_local(plan, model=model, requests=REQUESTS, on_event=tell)
    result.check()
    write_atomically(folder / "report.html", report_html(plan, run=find_run(result)))
    if not quiet:
        show(f"{MODEL} on two workers of this machine, speeds 1 and 0.5: run for real", result.summary())
        show(f"plan, costs and model are in {folder}")
        show(f"look at it, measured beside predicted: {folder / 'report.html'}", "")
    return asdict(result)
