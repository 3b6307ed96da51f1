"""`weftline fit`: a language model on cards by name -> where its layers go, how fast, and the command to run it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from weftline.cli.devices import Cpu, Gpu, Link, Ram
from weftline.cli.options import read_seconds
from weftline.cli.output import JsonFlag, console, print_json, show, telling
from weftline.cli.plan import call_arguments
from weftline.errors import UsageError
from weftline.interrupts import uninterrupted

if TYPE_CHECKING:
    from weftline.plans.fit import FitPlan

__all__ = ["explain_fit_file", "fit", "show_fit"]

LOAD_PANEL = "Load"
ENGINE_PANEL = "Engine"
ANSWER_PANEL = "Answer"

Model = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help="A name (llama-3.3-70b; --models lists them), a Hugging Face folder, a config.json, or a .gguf file.",
    ),
]
Context = Annotated[
    str,
    typer.Option(
        metavar="TOKENS",
        help="Tokens that one request may hold: 16k is 16384; max: the most that fits.",
        rich_help_panel=LOAD_PANEL,
    ),
]
Live = Annotated[
    str | None,
    typer.Option(
        metavar="TOKENS",
        help="Tokens in the cache when speed is counted.  [default: half of the context]",
        rich_help_panel=LOAD_PANEL,
    ),
]
Concurrency = Annotated[
    int,
    typer.Option(metavar="N", min=1, help="Requests at the same time.", rich_help_panel=LOAD_PANEL),
]
Quant = Annotated[
    str,
    typer.Option(
        metavar="NAME",
        help="How weights are quantised: q4_k_m, q8_0, fp8, awq, bf16 ...; best: the one with most bits that fits.  "
        "[default: as the file, or as it was published]",
        rich_help_panel=LOAD_PANEL,
    ),
]
KvType = Annotated[
    str,
    typer.Option(
        metavar="TYPE",
        help="Type of the KV cache: f16, q8_0, fp8; two of them for keys and values: q8_0,q4_0.",
        rich_help_panel=LOAD_PANEL,
    ),
]
MicroBatch = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="llama.cpp: tokens of a prompt that are computed at once (-ub); buffers grow with it.  [default: 512]",
        rich_help_panel=ENGINE_PANEL,
    ),
]
Engine = Annotated[
    str,
    typer.Option(
        "--for",
        metavar="ENGINE",
        help="llamacpp, vllm or sglang: the plan keeps to what it can do; any: the one that gives most.",
        rich_help_panel=ENGINE_PANEL,
    ),
]
TensorParallel = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        help="vLLM, SGLang: so many cards share every matrix.  [default: what is best]",
        rich_help_panel=ENGINE_PANEL,
    ),
]
Splits = Annotated[
    str | None,
    typer.Option(
        metavar="N,N",
        help="Do not search: say what this split gives, layers of each card in the order of --gpu.",
        rich_help_panel=ENGINE_PANEL,
    ),
]
Measured = Annotated[
    str,
    typer.Option(
        metavar="FILE|RATE",
        help="What you measured of this plan, which narrows the estimate: a file of llama-bench -o json, or tg=41.2.",
        rich_help_panel=ANSWER_PANEL,
    ),
]
Want = Annotated[
    str | None,
    typer.Option(
        metavar="RATE",
        help='Is it fast enough? "20 tok/s": yes with a plan, or no with a proof and what would help.',
        rich_help_panel=ANSWER_PANEL,
    ),
]
FirstToken = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Only plans whose first token comes in this time, after a prompt as long as what is in the cache: 2s.",
        rich_help_panel=LOAD_PANEL,
    ),
]
Time = Annotated[
    str | None,
    typer.Option(metavar="TIME", help="Time limit of the search.  [default: 2.5s]", rich_help_panel=ANSWER_PANEL),
]
Write = Annotated[
    Path | None,
    typer.Option(
        metavar="FOLDER",
        help="Write run.sh, compose.yaml and plan.json there.",
        rich_help_panel=ANSWER_PANEL,
    ),
]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the plan here.", rich_help_panel=ANSWER_PANEL),
]
Models = Annotated[
    bool,
    typer.Option("--models", help="List the models that are known by name.", rich_help_panel=ANSWER_PANEL),
]


def fit(
    model: Model = None,
    *,
    gpu: Gpu = None,
    cpu: Cpu = None,
    ram: Ram = None,
    link: Link = None,
    context: Context = "8k",
    live: Live = None,
    concurrency: Concurrency = 1,
    quant: Quant = "",
    kv_type: KvType = "f16",
    engine: Engine = "llamacpp",
    micro_batch: MicroBatch = None,
    tensor_parallel: TensorParallel = None,
    splits: Splits = None,
    measured: Measured = "",
    want: Want = None,
    first_token: FirstToken = None,
    time: Time = None,
    write: Write = None,
    output: Output = None,
    json: JsonFlag = False,
    models: Models = False,
) -> None:
    """Put a language model on the cards you have.

    Says which layers go on which card, how full each one is with the KV cache, how many tokens per second to expect
    (with an interval), what simpler splits would give, how much faster any other plan could be at most, and prints the
    command that starts the engine so. No model file is needed: popular models are known by name.

    weftline fit llama-3.3-70b --quant q4_k_m --gpu "RTX 4090" --gpu "2x RTX 3060 12GB" --context 16k

    weftline fit qwen3-32b --quant awq --gpu "4x RTX 3090" --for vllm --concurrency 16 --write serve
    """
    from weftline.ask.fit import answer_fit
    from weftline.ask.fit_request import FitRequest, read_splits

    if models:
        list_models(json)
        return
    if model is None:
        raise UsageError("which model? Try: weftline fit llama-3.1-8b --gpu 'RTX 4090'; --models lists names")
    cards: dict[str, Any] = {"gpus": gpu or (), "cpus": cpu or (), "links": link or (), "ram": ram or ""}
    load: dict[str, Any] = {"context": context, "live": live, "concurrency": concurrency}
    asked: dict[str, Any] = {"measured": measured, "want": want, "first_token": read_seconds(first_token)}
    asked |= {"micro_batch": micro_batch, "tensor_parallel": tensor_parallel}
    request = FitRequest(
        model=model,
        **cards | load | asked,
        quantisation=quant,
        kv_type=kv_type,
        engine=engine,
        splits=read_splits(splits) if splits is not None else (),
        time_limit=read_seconds(time),
        argv=tuple(call_arguments()),
    )
    with telling(f"fitting {Path(model).name}"):
        found = answer_fit(request)
    _give(found, output, write, json)


def _give(found: FitPlan, output: Path | None, write: Path | None, json: bool) -> None:
    """Write and show an answer."""
    from weftline.plans.fit import fit_plan_to_json

    written: list[Path] = []
    with uninterrupted():
        if write is not None:
            from weftline.export.fit import write_fit

            written = write_fit(found, write)
        if output is not None:
            found.save(output)
            written.append(output)
    if json:
        print_json(fit_plan_to_json(found).rstrip())
        return
    show_fit(found)
    if written:
        show("", *(f"written: {path}" for path in written))


def show_fit(found: FitPlan) -> None:
    """Advice, cards, the bound, other plans, the command."""
    from weftline.plans.fit_words import fit_answers, fit_summary
    from weftline.report.fit import fit_baseline_table, fit_device_table, moved_lines

    options = console().options
    first, *rest = fit_summary(found)
    show(first, "", *(rest[:1] if found.advice else ()))
    table = fit_device_table(found, ascii_only=options.ascii_only, width=options.max_width)
    show(table, *(f"  {line}" for line in moved_lines(found)), "")
    show(*(rest[1:] if found.advice else rest), *fit_answers(found), "")
    if len(found.baselines) > 0 and len(found.devices) > 1:
        show(fit_baseline_table(found), "")
    for line in found.command:
        typer.echo(line)
    for server in found.asked.get("servers", ()):
        words = f"or, of {len(found.asked['servers'])} servers, on {'+'.join(server['devices'])}:"
        show("", words)
        for line in server["command"]:
            typer.echo(line)
    if found.notes:
        show("", *(f"note: {note}" for note in found.notes))


def explain_fit_file(path: Path, json: bool) -> None:
    """Where the time goes, what is full, what a GiB more would give."""
    from weftline.ask.fit_story import explain_fit
    from weftline.plans.fit import load_fit_plan
    from weftline.plans.fit_words import rate_words
    from weftline.report.fit import fit_baseline_table, fit_device_table

    plan = load_fit_plan(path)
    story = explain_fit(plan)
    if json:
        print_json(story.to_json())
        return
    show(f"{rate_words(story.rate)} tokens per second; {story.guarantee}", *(f"  {line}" for line in story.lines))
    show(*(f"  {one.what}: {rate_words(one.rate)} tokens per second" for one in story.helps), "")
    options = console().options
    table = fit_device_table(plan, ascii_only=options.ascii_only, width=options.max_width)
    show(table, "", fit_baseline_table(plan))


def list_models(json: bool) -> None:
    """The catalogue of models."""
    from weftline.importers.llm import known_models
    from weftline.report.fit import known_model_table

    if json:
        import msgspec

        print_json({"models": msgspec.to_builtins(known_models())})
        return
    show(known_model_table())
