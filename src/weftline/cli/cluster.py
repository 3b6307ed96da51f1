"""`weftline cluster`: describe the machines."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weftline.cli.output import JsonFlag, print_json, show

if TYPE_CHECKING:
    from weftline.cluster import Cluster

__all__ = ["app"]

app = typer.Typer(help="Machines: presets, measure this one, check a file.", invoke_without_command=True)


@app.callback()
def _default(context: typer.Context, json: JsonFlag = False) -> None:
    if context.invoked_subcommand is None:
        presets(json=json)


@app.command("presets")
def presets(json: JsonFlag = False) -> None:
    """List the clusters that come with weftline."""
    from weftline.cluster import preset_descriptions

    if json:
        print_json({"presets": preset_descriptions()})
        return
    for name, text in preset_descriptions().items():
        show(f"{name:<14} {text}")
    show("", "weftline cluster show NAME > cluster.toml is a good start for your own file")


@app.command("show")
def show_preset(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a preset.")], json: JsonFlag = False
) -> None:
    """Print the TOML file of a preset, comments included."""
    from weftline.cluster import Cluster, preset_text

    if json:
        print_json(_about(Cluster.preset(name)))
    else:
        typer.echo(preset_text(name), nl=False)


@app.command("check")
def check(
    file: Annotated[str, typer.Argument(metavar="FILE|PRESET", help="A cluster file, or a preset.")],
    json: JsonFlag = False,
) -> None:
    """Check a cluster file: exit code 3 and the exact place if something is wrong."""
    from weftline.ask.answer import find_cluster
    from weftline.cluster import warnings

    cluster, digest = find_cluster(file)
    found = warnings(cluster)
    if json:
        print_json({**_about(cluster), "warnings": list(found), "sha256": digest})
        return
    show(f"{file}: {len(cluster.devices)} devices, {len(cluster.links)} links, no errors")
    for text in found:
        show(f"warning: {text}")


@app.command("detect")
def detect(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the TOML file here.")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Split the cores into so many devices.  [default: one each]")
    ] = None,
    quick: Annotated[bool, typer.Option(help="Small, less exact measurements.")] = False,
    json: JsonFlag = False,
) -> None:
    """Measure this machine: compute and memory rates of the cores, transfer rates between them."""
    from weftline.cli.output import console
    from weftline.cluster import detect as measure
    from weftline.files import write_atomically

    err = console(stderr=True)
    cluster = measure(devices, quick=quick, on_event=err.print if err.is_terminal else None)
    if output is not None:
        write_atomically(output, cluster.to_toml().encode())
    if json:
        print_json(_about(cluster))
    elif output is not None:
        show(f"{len(cluster.devices)} devices written to {output}")
    else:
        typer.echo(cluster.to_toml(), nl=False)


def _about(cluster: Cluster) -> dict[str, object]:
    import msgspec

    built: dict[str, object] = msgspec.to_builtins(cluster)
    return built
