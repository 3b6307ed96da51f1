"""`weftline zoo`: models that need no download."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from weftline.cli.output import JsonFlag, print_json, show
from weftline.errors import UsageError

__all__ = ["app"]

app = typer.Typer(help="Models that need no download: list, build.", invoke_without_command=True)


@app.callback()
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


@app.command("build")
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
