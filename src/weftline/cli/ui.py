"""`weftline ui`: a local page in the browser."""

from __future__ import annotations

from typing import Annotated

import typer

from weftline.cli.options import read_seconds
from weftline.cli.output import JsonFlag, print_json
from weftline.errors import UsageError

__all__ = ["ui"]


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
    json: JsonFlag = False,
) -> None:
    """Plan in the browser: a page on this machine alone.

    Drop a model, edit the cluster, plan, watch value and bound converge, compare plans, download reports and exports.
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

    serve(port=port, limits=PageLimits(running=jobs, away=seconds), on_ready=ready)
    typer.echo("ended", err=True)
