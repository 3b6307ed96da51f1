"""A local page in the browser: drop a model, edit the cluster, plan or schedule, watch both converge.

In: requests of one user's browser over the loopback device, each with the token of this start. Out: a page, events,
plans, schedules, reports, traces and exports. Whatever a user gives is read in a process of its own, never in the
server. Simplified: one user, one machine; what is neither downloaded nor kept is gone when the server ends.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from weftline.errors import MissingExtra
from weftline.ui.clusters import data_folder
from weftline.ui.models import PageLimits

__all__ = ["PageLimits", "serve"]


def serve(
    *,
    port: int = 0,
    limits: PageLimits | None = None,
    on_ready: Callable[[str], None] | None = None,
    clusters: Path | None = None,
) -> None:
    """Serve until Ctrl-C or SIGTERM; `on_ready` hears the address, token and all, once it can be opened.

    `clusters` is the folder in which users keep clusters; unless told, one in their folder for data.
    """
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401
    except ImportError as error:
        raise MissingExtra(error.name or "starlette", "ui") from error
    from weftline.ui.server import run_server

    run_server(port, limits or PageLimits(), on_ready or (lambda address: None), clusters or data_folder())
