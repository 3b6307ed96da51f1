"""A process of a real run: joins the group, works, writes down the answer or the error, and ends with its parent.

In: a folder with `jobs.json`. Out: `answer.json` there, written by rank 0, or
`error-RANK.json`. A worker dies with its parent: by a signal of the kernel on Linux, and everywhere because its
standard input ends. Simplified: CPU and gloo only.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

import msgspec

from weftline.errors import WeftlineError
from weftline.execute.torch_job import Job

__all__ = ["main"]


def main(folder: Path, world: int, ranks: Sequence[int], parent: int) -> int:
    """A spawned process: one rank, or all of them as forks of a process that has loaded torch but started no thread."""
    _die_with(parent)
    if len(ranks) == 1:
        _watch_parent()
        return _member(folder, world, ranks[0])
    jobs = msgspec.json.decode((folder / "jobs.json").read_bytes(), type=list[Job])
    import torch.distributed

    if any(job.engine == "torch" for job in jobs):
        import torch.distributed.pipelining  # noqa: F401
    here, children = os.getpid(), []
    for rank in ranks:
        child = os.fork()
        if child == 0:
            _die_with(here)
            _watch_parent()
            code = _member(folder, world, rank)
            sys.stderr.flush()
            os._exit(code)
        children.append(child)
    return _first_failure(children)


def _first_failure(children: list[int]) -> int:
    """0 when all have ended well; when one fails, the others are ended too."""
    import signal

    while children:
        child, status = os.wait()
        children.remove(child)
        if status:
            # The others may have an error of their own to write down.
            threading.Event().wait(0.2)
            for other in children:
                with suppress(OSError):
                    os.kill(other, signal.SIGKILL)
            return 1
    return 0


def _member(folder: Path, world: int, rank: int) -> int:
    """One rank of the process group -> exit code."""
    try:
        jobs = msgspec.json.decode((folder / "jobs.json").read_bytes(), type=list[Job])
        import torch.distributed as dist

        from weftline.execute.torch_train import work

        limit = timedelta(seconds=max(job.time_limit for job in jobs))
        store = dist.FileStore(str(folder / "store"), world)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=limit)
        reports = work(jobs, rank)
        if rank == 0:
            _write(folder / "answer.json", msgspec.json.encode(reports))
        dist.barrier()
        dist.destroy_process_group()
    except Exception as error:
        said = {"kind": type(error).__name__, "what": str(error)[:4000], "ours": isinstance(error, WeftlineError)}
        _write(folder / f"error-{rank}.json", msgspec.json.encode(said))
        traceback.print_exc()
        return 1
    return 0


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def _die_with(parent: int) -> None:
    """On Linux the kernel ends this process when its parent is gone."""
    if sys.platform == "linux":
        import ctypes
        import signal

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)


def _watch_parent() -> None:
    """The starter holds the other end of standard input and writes nothing: reading ends when it is gone."""

    def watch() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), [int(r) for r in sys.argv[3].split(",")], int(sys.argv[4])))
