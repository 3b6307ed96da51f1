"""`weftline plan`: words -> a request, and its answer."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import typer

from weftline.cli import options as given
from weftline.cli.devices import Cpu, Gpu, Link, Ram
from weftline.cli.fleets import show_device_sweep, show_fleet
from weftline.cli.options import process_begun, read_gap, read_rule_and_runtimes, read_seconds, read_settings
from weftline.cli.output import JsonFlag, console, print_json, progress, show, show_names
from weftline.errors import InputError, UsageError
from weftline.interrupts import uninterrupted

if TYPE_CHECKING:
    from weftline.ask import DeviceSweep, Sweep
    from weftline.ask.request import PlanRequest
    from weftline.plans import Plan
    from weftline.plans.fleet import AnyFleet, FleetPlan

__all__ = ["call_arguments", "plan", "read_stages"]


def plan(
    model: given.Model = None,
    cluster: given.Cluster = None,
    *,
    gpu: Gpu = None,
    cpu: Cpu = None,
    link: Link = None,
    ram: Ram = None,
    costs: given.Costs = None,
    shape: given.Shape = None,
    dim: given.Dim = None,
    strict: given.Strict = False,
    objective: given.Objective = None,
    stages: given.Stages = None,
    copies: given.Copies = None,
    max_depth: given.MaxDepth = None,
    latency_limit: given.LatencyLimit = None,
    sweep_stages: given.SweepStages = None,
    without: given.Without = "",
    keep: given.Keep = None,
    target: given.For = None,
    memory: given.Memory = None,
    runtime: given.Runtime = None,
    transfers: given.Transfers = None,
    communication: given.Communication = None,
    solver: given.SolverName = "auto",
    time: given.Time = None,
    proof: given.Proof = None,
    gap: given.Gap = None,
    work: given.Work = None,
    seed: given.Seed = 0,
    coarsen: given.Coarsen = "none",
    setting: given.Setting = None,
    preset: given.Preset = None,
    polish: given.Polish = None,
    output: given.Output = None,
    json: JsonFlag = False,
    reward: given.Reward = "simulated",
    measurements: given.Measurements = None,
    calibrate: given.Calibrate = False,
) -> None:
    """Decide which device runs which part of a model.

    Prints how long one input takes (or how many can enter in a second), how much faster any other plan could be at
    most, and what simple plans would take. For throughput the whole cluster works: whole copies of the model,
    pipelines side by side, whatever gives most; --copies 1 or --stages ask for one pipeline.

    weftline plan bert.onnx --cluster laptop -o plan.json

    weftline plan bert.onnx --gpu "RTX 4090" --gpu "2x RTX 3060 12GB" --objective throughput -o plan.json
    """
    from weftline.ask import DeviceSweep, Sweep
    from weftline.ask.request import PlanRequest, read_dims, read_shapes
    from weftline.plans.advice import advised
    from weftline.plans.fleet import FleetPlan
    from weftline.plans.plan import plan_to_json, save_plan

    if solver == "help":
        list_solvers(objective or "latency", json)
        return
    if model is None:
        raise UsageError("which model? Try: weftline plan MODEL --gpu 'RTX 4090' --cpu DDR5-6000 --ram 64GB")
    if output is not None and not output.parent.is_dir():
        raise InputError("cannot be written: no such folder", where=str(output))
    asked_gap, (number, several) = read_gap(gap), read_stages(stages, sweep_stages)
    settings = read_settings(setting or [], preset=preset, polish=polish)
    rule, runtimes = read_rule_and_runtimes(runtime or [])
    if reward != "measured" and (measurements is not None or runtimes):
        raise UsageError("--measurements and --runtime DEVICE=RUNTIME are for --reward measured")
    if calibrate and (several or reward == "measured" or costs is None):
        raise UsageError("--calibrate is for one plan with --costs")
    if several and (settings or reward == "measured"):
        raise UsageError("settings of a solver and measured rewards are for one plan, not for a sweep over stages")
    if costs is not None and coarsen in ("gcof", "oracle"):
        raise UsageError(f"--costs knows the kernels as they were measured; leave --coarsen {coarsen} out")
    request = PlanRequest(
        model=model,
        cluster=cluster or None,
        gpus=tuple(gpu or ()),
        cpus=tuple(cpu or ()),
        links=tuple(link or ()),
        ram=ram,
        objective=objective,
        runtime=rule,  # type: ignore[arg-type]
        transfers=transfers,
        communication=communication,
        memory=memory,
        stages=number,
        copies=_read_copies(copies),
        max_depth=max_depth,
        latency_limit=latency_limit,
        without=tuple(word for word in without.split(",") if word),
        keep=keep or "",
        target=target or "",
        shapes=read_shapes(shape or [], "--shape "),
        dims=read_dims(dim or [], "--dim "),
        strict=strict,
        costs=costs,
        coarsen=coarsen,
        reward=reward,
        measurements=measurements,
        runtimes=runtimes,
        solver=solver,
        gap=asked_gap,
        time_limit=read_seconds(time),
        work_limit=work,
        seed=seed,
        proof=read_seconds(proof),
        settings=settings,
        argv=tuple(call_arguments()),
    )
    if _plan_layers(request, output, json, alone=not (several or calibrate)):
        return
    if request.fleet_words and calibrate:
        raise UsageError(
            f"{request.fleet_words} asks for the whole cluster, so leave --calibrate out: it is for one pipeline"
        )
    answer = _answer(request, several, calibrate)
    if isinstance(answer, FleetPlan | DeviceSweep):
        _give_fleet(request, answer, (output, json))
        return
    best = answer.plan if isinstance(answer, Sweep) else answer
    if output is not None:
        with uninterrupted():
            save_plan(best, output)
    if json:
        print_json((answer.to_json() if isinstance(answer, Sweep) else plan_to_json(advised(answer))).rstrip())
    elif isinstance(answer, Sweep):
        show_sweep(answer, output)
    else:
        show_plan(answer, output)
    if asked_gap is not None and best.gap > asked_gap:
        why = "the solver had nothing more to try" if best.stopped_by == "done" else f"stopped by {best.stopped_by}"
        typer.echo(f"the gap is {best.gap:.2%}, not the asked {asked_gap:.2%}: {why}", err=True)
        raise typer.Exit(5)


def _answer(request: PlanRequest, several: str, calibrate: bool) -> Plan | FleetPlan | Sweep | DeviceSweep:
    from weftline.ask.answer import answer, answer_devices, answer_stages, resolve
    from weftline.measure import answer_calibrated

    begun = process_begun()
    if several:
        with progress(f"planning {Path(str(request.model)).name}") as tell:
            sweep = answer_devices if request.fleet_words else answer_stages
            return sweep(request, several, begun=begun, on_event=tell, say=_warn)
    if calibrate:
        with progress(f"calibrating {Path(str(request.model)).name}") as tell:
            return answer_calibrated(request, on_event=tell, say=_warn)
    found = resolve(request, say=_warn)
    with progress(f"planning {found.problem.graph.name}") as tell:
        return answer(found, begun=begun, on_event=tell)


def _plan_layers(request: PlanRequest, output: Path | None, json: bool, *, alone: bool) -> bool:
    """Where the file holds layers on devices with tables, their rate; False for all other models."""
    from weftline.ask.layers import answer_layers, read_layer_problem

    read = read_layer_problem(request.model)
    if read is None:
        return False
    if not alone:
        raise UsageError(
            "layers on devices are one plan with a front: leave --stages, --sweep-stages and --calibrate out"
        )

    with progress(f"planning {read[0].name}") as tell:
        found = answer_layers(request, *read, begun=process_begun(), on_event=tell)
    _give_fleet(request, found, (output, json))
    return True


def _give_fleet(request: PlanRequest, answer: AnyFleet | DeviceSweep, where: tuple[Path | None, bool]) -> None:
    """Write and show an answer about a whole cluster, or about some of its devices."""
    from weftline.ask import DeviceSweep
    from weftline.plans.advice import advised_fleet
    from weftline.plans.fleet import FleetPlan, fleet_to_json

    output, json = where
    sweep, found = (answer, answer.plan) if isinstance(answer, DeviceSweep) else (None, answer)
    if output is not None:
        with uninterrupted():
            found.save(output)
    if sweep is not None and json:
        print_json(sweep.to_json().rstrip())
    elif sweep is not None:
        show_device_sweep(sweep, output)
    elif json:
        print_json(fleet_to_json(advised_fleet(found) if isinstance(found, FleetPlan) else found).rstrip())
    else:
        show_fleet(found, output)
    if request.gap is not None and found.gap > float(request.gap):
        why = "the solver had nothing more to try" if found.stopped_by == "done" else f"stopped by {found.stopped_by}"
        typer.echo(f"the gap is {found.gap:.2%}, not the asked {float(request.gap):.2%}: {why}", err=True)
        raise typer.Exit(5)


def _warn(text: str) -> None:
    from weftline.ask.answer import NOTE_MARK

    typer.echo(text if text.startswith(NOTE_MARK) else f"warning: {text}", err=True)


def read_stages(stages: str | None, sweep: str | None) -> tuple[int | None, str]:
    """`--stages` and `--sweep-stages` -> one number of stages, or the words for a sweep over several."""
    if stages is not None and sweep is not None:
        raise UsageError("--stages asks for one number of stages, --sweep-stages for several; leave one out")
    if sweep == "":
        raise UsageError("--sweep-stages needs numbers of stages, like 1..8 or 1,2,4,8")
    if stages is None or stages == "auto":
        return None, sweep or stages or ""
    if not (stages.isascii() and stages.isdigit() and 1 <= len(stages) <= 9 and int(stages) >= 1):
        raise UsageError(
            f"--stages {stages[:40]!r} is neither a whole number from 1 nor auto; for several: --sweep-stages"
        )
    return int(stages), ""


def _read_copies(word: str | None) -> int | Literal["auto"] | None:
    """`--copies`: a whole number, or auto."""
    if word is None or word == "auto":
        return "auto" if word else None
    if not (word.isascii() and word.isdigit() and len(word) <= 9):
        raise UsageError(f"--copies {word[:40]!r} is neither a whole number from 1 nor auto")
    return int(word)


def call_arguments() -> list[str]:
    """The call, without where the answer goes: the same question gives the same bytes."""
    words, skip = [], False
    for word in sys.argv[1:]:
        if skip or word == "--json" or word.startswith("--output="):
            skip = False
        elif word in ("-o", "--output"):
            skip = True
        else:
            words.append(word)
    return words


def show_plan(answer: Plan, output: Path | None) -> None:
    """Comparison, devices, stages, guarantee."""
    from weftline.report import comparison_table, device_table

    _introduce(answer)
    show(comparison_table(answer), "", device_table(answer), "")
    _conclude(answer, output)


def _warn_of_guesses(answer: Plan) -> None:
    from weftline.plans.summary import guess_words

    if sentence := guess_words(answer.problem.graph):
        show(sentence)


def show_sweep(answer: Sweep, output: Path | None) -> None:
    """Every number of stages, the curve, what follows; then the best plan beside the baselines, and its stages."""
    from weftline.report import comparison_table, sweep_curve, sweep_table, sweep_words

    _introduce(answer.plan)
    show(sweep_table(answer), "", *sweep_curve(answer, ascii_only=console().options.ascii_only), "")
    show(*sweep_words(answer), "", comparison_table(answer.plan), "")
    _conclude(answer.plan, output)


def _introduce(answer: Plan) -> None:
    """What to do, where that is not to split; then what was planned: sizes and precision belong to every time."""
    from weftline.graph.describe import model_words
    from weftline.plans.advice import advise

    graph = answer.problem.graph
    _warn_of_guesses(answer)
    if sentence := advise(answer):
        show(sentence, "")
    show(f"{graph.name}: {len(graph.ops)} ops, {answer.objective}")
    if words := model_words(graph):
        show(words)
    show("")


def _conclude(answer: Plan, output: Path | None) -> None:
    from weftline.plans.summary import better_baseline, guarantee, measured_words, scattered_hosts
    from weftline.report import stage_table

    if answer.stages:
        show(stage_table(answer), "")
    if answer.stopped_by == "interrupted":
        show("Interrupted: this is the best plan so far. What was not compared yet is missing above.")
    if sentence := measured_words(answer):
        show(sentence, "")
    show(guarantee(answer))
    if sentence := scattered_hosts(answer):
        show(sentence)
    if sentence := better_baseline(answer):
        show(sentence)
    show(f"written to {output}" if output else "not written; -o plan.json keeps it")


def list_solvers(objective: str, as_json: bool) -> None:
    """Names and descriptions of an objective's family."""
    from weftline.ask.planning import solvers_for

    entries = {name: entry.description for name, entry in solvers_for(objective).items()}
    if as_json:
        print_json({"objective": objective, "solvers": entries})
        return
    show_names(entries)
