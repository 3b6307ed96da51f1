"""A worker as the server sees it: limits on memory, sudden deaths, and the words for them."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil

from weftline.cluster import preset_text
from weftline.ui.process import Process
from weftline.ui.task import CheckTask, ModelFile, PlanTask, Said


def long_task(folder: Path) -> PlanTask:
    return PlanTask(
        model=ModelFile(str(folder / "model.onnx"), "bert-small", "bert", "small"),
        cluster=preset_text("four-unequal"),
        cluster_name="four-unequal",
        objective="throughput",
        stages=None,
        solver="auto",
        seconds=300.0,
        gap=None,
        seed=0,
        shapes=(),
        argv=(),
        output=str(folder / "plan.json"),
    )


async def all_lines(process: Process) -> list[Said]:
    found = [said async for said in process.listen()]
    await asyncio.sleep(0.05)  # asyncio closes its transports a little later
    return found


def test_too_much_memory(tmp_path: Path) -> None:
    """Tests that a process that takes more memory than allowed is ended, and that the error says so."""

    async def run() -> list[Said]:
        return await all_lines(await Process.start(long_task(tmp_path), 100.0, 2**20))

    last = asyncio.run(run())[-1]
    assert last.kind == "Died"
    assert "more than 1 MiB of memory" in last.error


def test_a_sudden_death(tmp_path: Path) -> None:
    """Tests that a worker that is killed from outside is an error, not a silence."""

    async def run() -> list[Said]:
        process = await Process.start(long_task(tmp_path), 100.0, 2**40)
        while not (children := psutil.Process(process.pid).children()):
            await asyncio.sleep(0.02)
        os.kill(children[0].pid, signal.SIGKILL)
        return await all_lines(process)

    last = asyncio.run(run())[-1]
    assert last.kind == "Died"
    assert "ended with code" in last.error


def test_killed_before_it_is_heard() -> None:
    """Tests that a process that was killed at once is gone when listening ends."""

    async def run() -> tuple[int, list[Said]]:
        process = await Process.start(CheckTask("version = 1"), 100.0, 2**40)
        process.kill("removed")
        return process.pid, await all_lines(process)

    pid, lines = asyncio.run(run())
    assert lines[-1].error.startswith("removed")
    assert not psutil.pid_exists(pid)
