"""Devices by name: the options `--gpu`, `--cpu`, `--link`, `--ram`, and `weftline cluster devices` and `make`."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weftline.cli.output import JsonFlag, print_json, show
from weftline.errors import InputError

if TYPE_CHECKING:
    from rich.table import Table

    from weftline.cluster import Accelerator

__all__ = ["Cpu", "Gpu", "Link", "Ram", "devices", "make"]

DEVICE_PANEL = "Devices by name"

Gpu = Annotated[
    list[str] | None,
    typer.Option(
        "--gpu",
        metavar="NAME",
        help="A card or chip by its product's name: 'RTX 4090', '2x RTX 3060 12GB', 'RTX 3090@20GB' (so much of its "
        "memory). May be repeated; `weftline cluster devices` lists all.",
        rich_help_panel=DEVICE_PANEL,
    ),
]
Cpu = Annotated[
    list[str] | None,
    typer.Option(
        "--cpu",
        metavar="NAME",
        help="The memory system of a CPU: 'DDR5-6000 dual channel', 'EPYC 9004', 'DDR4-3200 quad channel'.",
        rich_help_panel=DEVICE_PANEL,
    ),
]
Ram = Annotated[
    str | None,
    typer.Option(
        "--ram", metavar="SIZE", help="How much memory the CPU has: 64GB, 128 GiB.", rich_help_panel=DEVICE_PANEL
    ),
]
Link = Annotated[
    list[str] | None,
    typer.Option(
        "--link",
        metavar="NAME",
        help="What joins them: pcie4x16, pcie3x8, nvlink, thunderbolt4, 10gbe, infiniband200, or '12 GB/s'; for one "
        "device gpu1=pcie3x4, between two gpu0-gpu1=nvlink. May be repeated.  [default: each card's own PCIe]",
        rich_help_panel=DEVICE_PANEL,
    ),
]


def devices(
    word: Annotated[
        str, typer.Argument(metavar="[WORD]", help="Only devices whose name, vendor, class or architecture has it.")
    ] = "",
    json: JsonFlag = False,
) -> None:
    """List the devices that --gpu and --cpu know by name, with memory, bandwidth and rates.

    weftline cluster devices 3060
    """
    from weftline.cluster import accelerators, link_names

    parts = word.casefold().split()
    found = [product for product in accelerators() if all(part in _searched(product) for part in parts)]
    if json:
        print_json({"devices": [_about(product) for product in found], "links": list(link_names())})
        return
    if not found and (system := _one(word, [])) is not None:
        found = [system]
    if not found:
        show(f"no device has {word!r} in its name; weftline cluster devices lists all")
        return
    show(_table(found))
    if (one := _one(word, found)) is not None:
        show(f"{one.name}: {one.source}")
        if one.aliases or one.notes:
            also = f"also called {', '.join(one.aliases)}" if one.aliases else ""
            show("; ".join(filter(None, (also, one.notes))))
    else:
        show(f"{len(found)} devices; the whole name of one gives its sources and notes")
    if not word:
        show(f"links: {', '.join(link_names())}, or a rate like '12 GB/s'")


def make(
    gpu: Gpu = None,
    cpu: Cpu = None,
    link: Link = None,
    ram: Ram = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the TOML file here.")
    ] = None,
    json: JsonFlag = False,
) -> None:
    """Make a cluster file of devices by name, to be read and changed by hand.

    weftline cluster make --gpu "RTX 4090" --gpu "2x RTX 3060 12GB" --cpu "DDR5-6000" --ram 64GB -o mine.toml
    """
    from weftline.cluster import cluster_from_options, devices_from_options
    from weftline.files import write_atomically

    words = gpu or [], cpu or [], link or [], ram
    cluster, notes = cluster_from_options(*words), devices_from_options(*words).notes
    given = [
        part
        for option, texts in zip(("--gpu", "--cpu", "--link"), words[:3], strict=True)
        for text in texts
        for part in (option, text)
    ]
    call = shlex.join(["weftline", "cluster", "make", *given, *(("--ram", ram) if ram else ())])
    lines = [f"made by: {call}", *(f"note: {note}" for note in notes)]
    text = "".join(f"# {line}\n" for line in lines if line.isprintable()) + cluster.to_toml()
    if output is not None:
        write_atomically(output, text.encode())
    if json:
        import msgspec

        print_json({**msgspec.to_builtins(cluster), "notes": list(notes)})
        return
    for note in notes:
        typer.echo(f"note: {note}", err=True)
    if output is not None:
        show(f"{len(cluster.devices)} devices written to {output}")
    else:
        typer.echo(text, nl=False)


def _one(word: str, found: list[Accelerator]) -> Accelerator | None:
    """The device that a word names, if it names one."""
    from weftline.cluster import find_accelerator

    try:
        return found[0] if len(found) == 1 else find_accelerator(word)
    except InputError:
        return None


def _searched(product: Accelerator) -> str:
    words = (product.name, *product.aliases, product.vendor, product.device_class, product.architecture)
    return " ".join(words).casefold()


def _about(product: Accelerator) -> dict[str, object]:
    import msgspec

    built: dict[str, object] = msgspec.to_builtins(product)
    return {**built, "kind": product.kind}


def _table(found: list[Accelerator]) -> Table:
    from rich.table import Table

    table = Table()
    for column in ("name", "class", "memory", "bandwidth", "fp16", "bus"):
        table.add_column(column, justify="left" if column in ("name", "class", "bus") else "right")
    for product in found:
        least, most = (size / 2**30 for size in (product.least_memory_bytes, product.memory_bytes))
        memory = "" if not most else f"{most:g} GiB" if least == most else f"{least:g}-{most:g} GiB"
        peak = product.peaks.get("fp16", product.peaks.get("fp32"))
        table.add_row(
            product.name,
            product.device_class,
            memory,
            f"{product.bandwidth / 1e9:g} GB/s",
            "" if peak is None else f"{peak / 1e12:g} TFLOP/s",
            f"PCIe {product.pcie_generation}.0 x{product.pcie_lanes}" if product.pcie_lanes else "",
        )
    return table
