"""The entry point: builds the app, turns every error into one line on stderr and an exit code."""

from __future__ import annotations

import json
import os
import sys
from typing import Annotated

import typer

from weftline import __version__
from weftline.cli.fit import fit
from weftline.cli.inspect import diff, explain, simulate, verify
from weftline.cli.machine import cluster_app, doctor, profile
from weftline.cli.output import FileCommand
from weftline.cli.plan import plan
from weftline.cli.run import run, train_app
from weftline.cli.schedule import schedule
from weftline.cli.write import export, report, sweep
from weftline.cli.zoo import demo, ui, zoo_app
from weftline.errors import InfeasibleError, WeftlineError
from weftline.interrupts import Interruption, end_program, ignore_interrupts, keep_interrupts

__all__ = ["app", "main"]

app = typer.Typer(
    name="weftline",
    help="Plan how one neural network runs on several unequal devices, and know how far the plan is from the best one.",
    epilog="Start with: weftline demo. Exit codes: 0 done, "
    "1 a defect, output that cannot be printed, or `doctor`: something needed is missing, "
    "2 usage, 3 bad input, 4 infeasible, "
    "5 stopped before the asked gap, 6 verification failed, 7 execution differs from the plan, 130 interrupted.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("demo", cls=FileCommand)(demo)
app.add_typer(zoo_app, name="zoo")
app.add_typer(cluster_app, name="cluster")
app.command("profile", cls=FileCommand)(profile)
app.command("fit", cls=FileCommand)(fit)
app.command("plan", cls=FileCommand)(plan)
app.command("sweep", cls=FileCommand)(sweep)
app.command("schedule", cls=FileCommand)(schedule)
app.command("verify", cls=FileCommand)(verify)
app.command("simulate", cls=FileCommand)(simulate)
app.command("run", cls=FileCommand)(run)
app.command("export", cls=FileCommand)(export)
app.command("explain", cls=FileCommand)(explain)
app.command("diff", cls=FileCommand)(diff)
app.command("report", cls=FileCommand)(report)
app.add_typer(train_app, name="train")
app.command("ui", cls=FileCommand)(ui)
app.command("doctor", cls=FileCommand)(doctor)


EXIT_INTERRUPTED = 130


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _about(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


def main() -> None:
    """Run one command and leave with its exit code."""
    for name in ("stdout", "stderr"):  # a closed stream takes everything and says nothing
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w"))  # noqa: PTH123, SIM115
    try:
        keep_interrupts()
        with Interruption() as stop:
            code = app(standalone_mode=False) or 0
            sys.stdout.flush()
        if stop.ended or (stop.seen and code == EXIT_INTERRUPTED):  # the argument parser makes a code of it
            raise KeyboardInterrupt
        ignore_interrupts()
        if code == EXIT_INTERRUPTED:
            end_program(code)
        sys.exit(code)
    except WeftlineError as error:
        _report(error)
    except (KeyboardInterrupt, typer.Abort):
        ignore_interrupts()
        typer.echo("interrupted", err=True)
        end_program(EXIT_INTERRUPTED)
    except OSError as error:
        # Our output cannot be written. If its reader has left, nothing more can be said to it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):
            typer.echo(f"error: {error}", err=True)
        sys.exit(0 if isinstance(error, BrokenPipeError) else 1)
    except Exception as error:
        # A usage error of the argument parser can show itself; anything else is a defect and keeps its traceback.
        if not hasattr(error, "show"):
            raise
        error.show()
        sys.exit(getattr(error, "exit_code", 2))


def _report(error: WeftlineError) -> None:
    from weftline.report.tables import printable

    typer.echo(f"error: {printable(str(error))}", err=True)
    if "--json" in sys.argv:
        answer: dict[str, object] = {"error": str(error), "kind": type(error).__name__, "exit_code": error.exit_code}
        if isinstance(error, InfeasibleError):
            answer |= {"conflicts": list(error.conflicts), "proved": error.proved}
        typer.echo(json.dumps(answer))
    sys.exit(error.exit_code)
