"""Verbs to begin with: `weftline zoo` builds models, `demo` shows everything on some of them, `ui` opens a page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from weftline.cli.options import read_seconds
from weftline.cli.output import FileCommand, JsonFlag, print_json, progress, show, telling
from weftline.errors import UsageError

__all__ = ["demo", "ui", "zoo_app"]

zoo_app = typer.Typer(help="Models that need no download: list, build.", invoke_without_command=True)


@zoo_app.callback()
def _list(context: typer.Context, json: JsonFlag = False) -> None:
    if context.invoked_subcommand is not None:
        return
    from weftline.zoo import FAMILIES, architectures

    models = {name: (entry.description, list(entry.sizes)) for name, entry in architectures().items()}
    families = {name: family.description for name, family in FAMILIES.items()}
    if json:
        listed = {name: {"description": text, "sizes": sizes} for name, (text, sizes) in models.items()}
        print_json({"architectures": listed, "synthetic": families})
        return
    show("Architectures (ONNX, runnable): weftline zoo build NAME -o model.onnx")
    for name, (text, sizes) in models.items():
        show(f"  {name:<16} {text} (sizes: {', '.join(sizes)})")
    show("", "Synthetic graphs (seeded): weftline zoo build NAME --ops 1000 -o graph.json")
    for name, text in families.items():
        show(f"  {name:<16} {text}")


@zoo_app.command("build", cls=FileCommand)
def build(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Architecture or synthetic family; `weftline zoo` lists them.")
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="File to write.")],
    size: Annotated[
        str, typer.Option(metavar="SIZE", help="full, small, or another size of the architecture.")
    ] = "full",
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the weights or of the graph.")] = 0,
    weights: Annotated[bool, typer.Option(help="Without weights a file is small and can be planned, not run.")] = True,
    change: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=VALUE", help="Change a parameter: layers=24, sequence=512. May be repeated."
        ),
    ] = None,
    ops: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Synthetic: number of ops.  [default: 1000]")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Build a model file: an ONNX model, or a synthetic graph as JSON (REGAL-like families: cost graph text)."""
    from weftline.files import write_atomically
    from weftline.graph import graph_to_json
    from weftline.zoo import FAMILIES, save, synthetic, to_cost_graph_text
    from weftline.zoo import build as build_model

    if name in FAMILIES:
        if change or size != "full":
            raise UsageError(f"{name} is a synthetic family: it takes --ops and --seed")
        graph = synthetic(name, ops=ops or 1000, seed=seed)
        text = FAMILIES[name].unit_costs and output.suffix != ".json"
        write_atomically(output, to_cost_graph_text(graph).encode() if text else graph_to_json(graph))
        count = len(graph.ops)
    else:
        if ops is not None:
            raise UsageError(f"{name} is no synthetic family; --ops is for those. Try --set layers=24")
        model = build_model(name, size=size, seed=seed, weights=weights, **_parameters(change or []))
        save(model, output)
        count = len(model.graph.node)
    if json:
        print_json({"name": name, "ops": count, "file": str(output), "bytes": output.stat().st_size})
    else:
        show(f"{name}: {count} {'ops' if name in FAMILIES else 'ONNX nodes'} written to {output}")


def _parameters(words: list[str]) -> dict[str, int]:
    parameters = {}
    for word in words:
        key, _, value = word.partition("=")
        if not value.isascii() or not value.isdigit() or not key.isidentifier() or len(value) > 12:
            raise UsageError(f"--set {word!r}: write it like layers=24")
        parameters[key] = int(value)
    return parameters


MODEL, SPEEDS, DEMO_REQUESTS, DEMO_ROUNDS = "mobilenet-v3", (1.0, 0.5), 100, 2
FLEET_WORK = 400
"""Lanes and pipelines that the demo costs: with this limit it prints the same on every machine."""
Asked = Literal["latency", "throughput"]
QUESTIONS: tuple[tuple[str, str, Asked], ...] = (
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
    from weftline.errors import InputError

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"cannot be made: {error.strerror}", where=str(output)) from error
    written = [_planned(*question, output, json) for question in QUESTIONS]
    done = _run(output / "run", json) if run else None
    if json:
        print_json({"plans": written, "run": done})
    else:
        show(f"Next: weftline explain {written[0]['folder']}/plan.json. Or plan your own model:")
        show("weftline plan model.onnx --cluster laptop -o plan.json")


def _planned(model: str, cluster: str, objective: Asked, output: Path, quiet: bool) -> dict[str, object]:
    """Plan one question of the demo, verify it, and write it down -> the folder and the verdict."""
    from weftline.ask.answer import answer
    from weftline.ask.request import PlanRequest
    from weftline.certify import verify_file
    from weftline.cluster import Cluster
    from weftline.files import write_atomically
    from weftline.plans.fleet import FleetPlan
    from weftline.plans.summary import bound_line
    from weftline.report import comparison_table, plan_markdown, trace_json
    from weftline.report.fleet import fleet_comparison_table
    from weftline.report.html import report_html
    from weftline.zoo import zoo_graph

    request = PlanRequest(
        model=zoo_graph(model),
        cluster=Cluster.preset(cluster),
        objective=objective,
        work_limit=FLEET_WORK if objective == "throughput" else None,
        argv=("demo",),
    )
    with progress(f"planning {model} on {cluster}") as tell:
        found = answer(request, on_event=tell)
    folder = output / f"{model}-{cluster}-{objective}"
    folder.mkdir(exist_ok=True)
    found.save(folder / "plan.json")
    if isinstance(found, FleetPlan):
        write_atomically(folder / "summary.md", f"```text\n{found.summary()}\n```\n".encode())
        shown: tuple[Any, ...] = (found.summary(), "", fleet_comparison_table(found), "")
        files = "plan and summary are"
    else:
        write_atomically(folder / "trace.json", trace_json(found))
        write_atomically(folder / "summary.md", plan_markdown(found).encode())
        shown, files = (comparison_table(found), "", bound_line(found)), "plan, trace and summary are"
    write_atomically(folder / "report.html", report_html(found))
    verdict = verify_file(folder / "plan.json")
    if not quiet:
        show(f"{model} on {cluster}: {objective}", *shown, f"verified; {files} in {folder}")
        show(f"look at it: {folder / 'report.html'}", "")
    return {"folder": str(folder), **verdict._asdict()}


def _run(folder: Path, quiet: bool) -> dict[str, object]:
    """Profile, plan, run; the files stay. Lanes are the plan where they were seen to be faster than whole copies."""
    from dataclasses import asdict, replace

    from weftline.ask.answer import answer, answer_one, resolve
    from weftline.ask.request import PlanRequest
    from weftline.cluster.detect import worker_cluster
    from weftline.cost import Profile, save_profile
    from weftline.files import write_atomically
    from weftline.measure.calibration import calibrated_fleet
    from weftline.measure.profiling import profile_model
    from weftline.plans.fleet import FleetPlan
    from weftline.report.html import report_html
    from weftline.report.html.run import find_run
    from weftline.run.local.run import run_local
    from weftline.units import format_time
    from weftline.zoo import build, save

    folder.mkdir(exist_ok=True)
    model, cluster = folder / f"{MODEL}.onnx", worker_cluster(SPEEDS)
    save(build(MODEL), model)

    def planned(profile: Profile, copies: bool) -> FleetPlan:
        found = answer(resolve(replace(request, costs=profile, solver="replicas" if copies else "auto")))
        assert isinstance(found, FleetPlan)
        return found

    with telling(f"{MODEL} on two workers") as tell:
        costs = profile_model(model, cluster, cache=False, tell=tell)
        save_profile(costs, folder / "costs.json")
        request = PlanRequest(
            model=model, cluster=cluster, objective="throughput", costs=costs, time_limit=10.0, argv=("demo",)
        )
        plan = calibrated_fleet(model, costs, planned, rounds=DEMO_ROUNDS)
        plan.save(folder / "plan.json")
        result = run_local(plan, model=model, requests=DEMO_REQUESTS, on_event=tell)
        one = run_local(answer_one(replace(request, copies=1)), model=model, requests=DEMO_REQUESTS, on_event=tell)
    result.check()
    write_atomically(folder / "report.html", report_html(plan, run=find_run(result)))
    if not quiet:
        show(f"{MODEL} on two workers of this machine, speeds 1 and 0.5: run for real", result.summary())
        share = result.measured_ns / one.measured_ns
        show(f"one pipeline: {format_time(one.measured_ns)}, the plan takes {share:.3f} of it")
        show(f"plan, costs and model are in {folder}")
        show(f"look at it, measured beside predicted: {folder / 'report.html'}", "")
    return {**asdict(result), "pipeline_ns": one.measured_ns}


def ui(
    port: Annotated[
        int, typer.Option(metavar="N", min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 0,
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in the browser.")] = False,
    jobs: Annotated[int, typer.Option(metavar="N", min=1, max=64, help="Searches at the same time; others wait.")] = 2,
    away: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Stop searches when no page has been open for so long; their best plans are kept."
        ),
    ] = "30s",
    clusters: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER", help="Where the page keeps clusters.  [default: ~/.local/share/weftline/clusters]"
        ),
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Plan in the browser: a page on this machine alone.

    Drop a model, edit the cluster, plan or schedule, watch value and bound converge, compare, download reports and
    exports. Language models on cards by name have a page of their own: follow "Language models".
    The address holds a token: whoever has it may use the page. Ctrl-C ends it, and everything it started.

    weftline ui --open
    """
    from weftline.ui import PageLimits, serve

    seconds = read_seconds(away)
    if not seconds:
        raise UsageError("--away needs a time, like 30s")

    def ready(address: str) -> None:
        if json:
            print_json({"url": address})
        else:
            typer.echo(f"Open {address}")
            typer.echo("Ctrl-C ends it.", err=True)
        import sys

        sys.stdout.flush()
        if open_page:
            import webbrowser

            webbrowser.open(address)

    serve(port=port, limits=PageLimits(running=jobs, away=seconds), on_ready=ready, clusters=clusters)
    typer.echo("ended", err=True)
