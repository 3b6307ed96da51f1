"""The door of the room: what happens without the extra, and with a port that is taken."""

from __future__ import annotations

import asyncio
import socket
import sys
from pathlib import Path

import pytest

from weftline.errors import InputError, MissingExtra, UsageError
from weftline.ui import PageLimits, serve
from weftline.ui.jobs import Jobs


def test_without_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a missing package is named, with the command that installs it."""
    monkeypatch.setitem(sys.modules, "starlette", None)
    with pytest.raises(MissingExtra, match=r"pip install 'weftline\[ui\]'"):
        serve()


def test_a_port_that_is_taken() -> None:
    """Tests that it is one error with a hint."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(InputError, match="--port 0"):
            serve(port=taken.getsockname()[1])


def test_limits_of_jobs(tmp_path: Path) -> None:
    """Tests that plans and pages beyond the limits are refused."""
    jobs = Jobs(tmp_path, PageLimits(plans=0, streams=1), 2**30)
    with pytest.raises(UsageError, match="remove some"):
        jobs.check_room()
    jobs.watch(print)
    with pytest.raises(UsageError, match="close some"):
        jobs.watch(len)  # type: ignore[arg-type]
    jobs.leave(print)
    jobs.watch(print)
    asyncio.run(jobs.close())
