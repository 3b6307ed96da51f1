"""Verbs about machines: `weftline cluster` describes them, `doctor` looks at this one, `profile` measures a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from weftline.cli import options as given
from weftline.cli.devices import devices, make
from weftline.cli.options import read_runtimes
from weftline.cli.output import FileCommand, JsonFlag, print_json, progress, show
from weftline.errors import InputError

if TYPE_CHECKING:
    from weftline.cluster import Cluster
    from weftline.cost import Profile

__all__ = ["cluster_app", "doctor", "profile"]

cluster_app = typer.Typer(
    help="Machines: presets, devices by name, measure this one, check a file.", invoke_without_command=True
)
cluster_app.command("devices")(devices)
cluster_app.command("make", cls=FileCommand)(make)


@cluster_app.callback()
def _default(context: typer.Context, json: JsonFlag = False) -> None:
    if context.invoked_subcommand is None:
        presets(json=json)


@cluster_app.command("presets")
def presets(json: JsonFlag = False) -> None:
    """List the clusters that come with weftline."""
    from weftline.cluster import preset_descriptions

    if json:
        print_json({"presets": preset_descriptions()})
        return
    for name, text in preset_descriptions().items():
        show(f"{name:<14} {text}")
    show("", "weftline cluster show NAME > cluster.toml is a good start for your own file")


@cluster_app.command("show")
def show_preset(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of a preset.")], json: JsonFlag = False
) -> None:
    """Print the TOML file of a preset, comments included."""
    from weftline.cluster import Cluster, preset_text

    if json:
        print_json(_about(Cluster.preset(name)))
    else:
        typer.echo(preset_text(name), nl=False)


@cluster_app.command("check")
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


@cluster_app.command("detect", cls=FileCommand)
def detect(
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the TOML file here.")
    ] = None,
    devices: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            min=1,
            help="Split the cores into so many devices.  [default: one each; one for all beside accelerators]",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option(help="Small, less exact measurements.")] = False,
    json: JsonFlag = False,
) -> None:
    """Measure this machine: compute and memory rates of the cores, transfer rates between them.

    Accelerators are those that nvidia-smi, rocm-smi or system_profiler list, with their memory, and with rates by name.
    """
    from weftline.cli.output import console
    from weftline.cluster import detect as measure
    from weftline.files import write_atomically

    err = console(stderr=True)
    cluster = measure(
        devices,
        quick=quick,
        on_event=err.print if err.is_terminal else None,
        on_note=lambda text: typer.echo(f"note: {text}", err=True),
    )
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


def doctor(
    ahead: Annotated[
        bool, typer.Option("--compile", help="First compile what any question needs and is not compiled yet.")
    ] = False,
    json: JsonFlag = False,
) -> None:
    """Check this installation and this machine.

    Python, the packages, plugins and compiled kernels; exit code 1 if something needed is missing.

    weftline doctor --compile
    """
    from weftline.report.health import checkup

    prepared = None
    if ahead:
        from weftline.ask.compiling import prepare_all
        from weftline.search import Event

        with progress("doctor") as tell:
            prepared = prepare_all(lambda text: tell(Event(0.0, "", None, None, text)))
    findings = checkup(prepared)
    if json:
        print_json({"ok": all(f.ok or not f.needed for f in findings), "checks": [f._asdict() for f in findings]})
    else:
        for finding in findings:
            mark = "ok" if finding.ok else ("MISSING" if finding.needed else "absent")
            show(f"{mark:<8} {finding.what:<16} {finding.detail}")
    if any(finding.needed and not finding.ok for finding in findings):
        raise typer.Exit(1)


_Model = Annotated[Path, typer.Argument(metavar="FILE", help="ONNX model, or OpenVINO IR.")]
_Cluster = Annotated[str, typer.Option("--cluster", "-c", metavar="FILE|PRESET", help="Cluster file (TOML) or preset.")]
_Output = Annotated[
    Path, typer.Option("--output", "-o", metavar="FILE", help="Write the costs here, for plan --costs.")
]
_Repeats = Annotated[int, typer.Option(metavar="N", min=3, max=100_000, help="Runs that count, for each number.")]
_Runtime = Annotated[
    list[str] | None,
    typer.Option(
        metavar="DEVICE=RUNTIME",
        help="What stands for a device on this machine: cpu0=ort:CPUExecutionProvider (a core of its own), "
        "cpu0=ort:CPUExecutionProvider:2-3 (these cores), gpu0=ort:CUDAExecutionProvider:0; or all of them by "
        "OpenVINO: gpu0=openvino:GPU.0. May be repeated.",
    ),
]
_Seed = Annotated[int, typer.Option(metavar="N", min=0, max=2**31 - 1, help="Seed of the random inputs.")]
_Links = Annotated[
    Literal["memory", "gloo"],
    typer.Option(help="Measure links over shared memory (run), or over gloo (run --engine torch)."),
]
_Cache = Annotated[
    bool, typer.Option("--cache/--no-cache", help="Give back what was measured before for the same question.")
]


def profile(
    model: _Model,
    cluster: _Cluster,
    output: _Output,
    *,
    repeats: _Repeats = 30,
    runtime: _Runtime = None,
    shape: given.Shape = None,
    dim: given.Dim = None,
    seed: _Seed = 0,
    links: _Links = "memory",
    cache: _Cache = True,
    json: JsonFlag = False,
) -> None:
    """Measure every op of a model on every device of a cluster, on this machine.

    ONNX Runtime (or OpenVINO) runs the model as it will run the plan; the times of its kernels are mapped back to ops.
    ONNX Runtime does so twice: each device alone (for latency), and all at once (for throughput).

    weftline profile model.onnx --cluster two.toml -o costs.json

    weftline plan model.onnx --cluster two.toml --costs costs.json --objective throughput
    """
    from weftline.ask.answer import find_cluster
    from weftline.ask.request import read_dims, read_shapes
    from weftline.cost import save_profile
    from weftline.measure.profiling import profile_model
    from weftline.search import Event

    if not output.parent.is_dir():
        raise InputError("cannot be written: no such folder", where=str(output))
    with progress(f"profiling {model.name}") as tell:
        found = profile_model(
            model,
            find_cluster(cluster)[0],
            shapes=read_shapes(shape or [], "--shape "),
            dims=read_dims(dim or [], "--dim "),
            runtimes=read_runtimes(runtime or []),
            repeats=repeats,
            cache=cache,
            seed=seed,
            channel=links,
            tell=lambda message: tell(Event(0.0, "", None, None, message)),
        )
    save_profile(found, output)
    if json:
        from weftline.cost.profile_file import profile_to_json

        print_json(profile_to_json(found).rstrip())
    else:
        _show(found, output)


def _show(found: Profile, output: Path) -> None:
    from rich.table import Table

    from weftline.units import format_time

    table = Table(title=f"{found.model}: {found.backend} {found.backend_version}")
    for column in ("device", "runtime", "kernels", "alone", "all busy", "spread"):
        table.add_column(column, justify="left" if column in ("device", "runtime") else "right")
    for device in found.devices:
        times = format_time(device.alone_ns), format_time(device.busy_ns)
        table.add_row(device.id, device.runtime, str(len(device.kernels)), *times, f"{device.spread:.0%}")
    show(table)
    for note in dict.fromkeys(device.note for device in found.devices if device.note):
        show(f"times of kernels are scaled: {note}")
    stolen = max(device.stolen for device in found.devices)
    if stolen > 0.1:
        show(f"others had a core for {stolen:.0%} of the time: times are too long; profile when it is idle")
    elif max(device.spread for device in found.devices) > 0.2:
        show("runs differ much from each other: something disturbs them; profile again when the machine is idle")
    show(f"written to {output}")
