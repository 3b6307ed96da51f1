"""What `weftline fit --write` leaves in a folder: run.sh, compose.yaml, plan.json.

In: a FitPlan. Out: the files: a script that starts every process and waits for them, the same as services of a compose
file, the plan. Words are quoted for the shell in one, and for YAML and the compose file's own variables in the other.
Servers answer this machine only: they ask for no
password. Simplified: containers see the GPUs of the plan by their numbers; models lie in a folder that is mounted.
"""

from __future__ import annotations

import json
from pathlib import Path

from weftline.errors import UsageError
from weftline.export.exporter import made_folder
from weftline.files import check_writable, write_atomically
from weftline.plans.fit import FitPlan, fit_plan_to_json
from weftline.plans.launch.line import LaunchLine, quoted

__all__ = ["compose_text", "script_text", "write_fit"]

FIT_FILES = ("run.sh", "compose.yaml", "plan.json")
_IMAGES = {
    "llamacpp": "ghcr.io/ggml-org/llama.cpp:server-cuda",
    "vllm": "vllm/vllm-openai:latest",
    "sglang": "lmsysorg/sglang:latest",
}
_GIVEN_BY_IMAGE = {"llamacpp": 1, "vllm": 2, "sglang": 0}
"""Words of the program that the image starts by itself."""


def write_fit(plan: FitPlan, folder: Path) -> list[Path]:
    """All files, or none where one of them cannot be written."""
    if not plan.launch:
        raise UsageError("this plan has no command to write")
    contents = (script_text(plan).encode(), compose_text(plan).encode(), fit_plan_to_json(plan))
    with made_folder(folder):
        paths = [folder / name for name in FIT_FILES]
        for path in paths:
            check_writable(path)
        for path, content in zip(paths, contents, strict=True):
            write_atomically(path, content)
    return paths


def script_text(plan: FitPlan) -> str:
    """A POSIX script; one process is started in its place, several are waited for."""
    head = ["#!/bin/sh", f"# {quoted(plan.model.name)}: made by weftline fit", "set -e"]
    here = [line for line in plan.launch if not line.machine]
    away = [
        part for line in plan.launch if line.machine for part in (f"# {_one_line(line.note)}:", f"#   {line.shell()}")
    ]
    lines = [line.shell() for line in here]
    notes = [f"# {_one_line(line.note)}" if line.note else "" for line in here]
    if len(lines) == 1:
        variables = [f"export {name}={quoted(value)}" for name, value in here[0].environment]
        program = " ".join(map(quoted, here[0].program))
        return "\n".join([*head, *away, *filter(None, notes), *variables, f'exec {program} "$@"', ""])
    started = [part for note, line in zip(notes, lines, strict=True) for part in (note, f"{line} &", 'all="$all $!"')]
    return "\n".join([*head, *away, "trap 'kill $all 2>/dev/null' INT TERM", *filter(None, started), "wait", ""])


def _one_line(text: str) -> str:
    return " ".join(text.split())


def compose_text(plan: FitPlan) -> str:
    """One service for each process; JSON strings are YAML strings, and $ is doubled for compose."""
    here = [line for line in plan.launch if not line.machine]
    services = [_service(plan, number, line) for number, line in enumerate(here)]
    return "\n".join(["services:", *services, ""])


def _service(plan: FitPlan, number: int, line: LaunchLine) -> str:
    engine = plan.terms.engine
    words = [_yaml(word) for word in line.program[_GIVEN_BY_IMAGE.get(engine, 0) :]]
    port = line.program[line.program.index("--port") + 1] if "--port" in line.program else "8000"
    rows = [
        f"  server{number}:",
        f"    image: {_yaml(_IMAGES.get(engine, ''))}",
        f"    command: [{', '.join([*words, *(_yaml(word) for word in _listen(engine))])}]",
        *(["    environment:"] if line.environment else []),
        *(f"      {name}: {_yaml(value)}" for name, value in line.environment),
        f"    ports: [{_yaml(f'127.0.0.1:{port}:{port}')}]",
        "    ipc: host",
        "    volumes: [" + _yaml("./models:/models:ro") + "]",
        "    working_dir: /models",
    ]
    if any(not device.id.startswith("cpu") and (device.layers or device.output) for device in plan.devices):
        rows += [
            "    deploy:",
            "      resources:",
            "        reservations:",
            "          devices:",
            "            - driver: nvidia",
            "              count: all",
            "              capabilities: [gpu]",
        ]
    return "\n".join(rows)


def _listen(engine: str) -> tuple[str, ...]:
    """Inside a container a server listens to all of its network."""
    return () if engine == "vllm" else ("--host", "0.0.0.0")


def _yaml(word: str) -> str:
    return json.dumps(word.replace("$", "$$"), ensure_ascii=True)
