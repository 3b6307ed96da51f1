"""What pages may ask, typed: unknown fields, wrong kinds and too large numbers are refused before anything is done."""

from __future__ import annotations

from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta
from starlette.requests import Request

from weftline.errors import InputError

__all__ = ["ClusterForm", "CompareRequest", "FileRequest", "PlanForm", "read_json"]

T = TypeVar("T")
Word = Annotated[str, Meta(min_length=1, max_length=64)]
Text = Annotated[str, Meta(max_length=2**20)]


class PlanForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Start a search."""

    seconds: Annotated[float, Meta(ge=1)]
    model: int | None = None
    """Number of an upload."""
    zoo: Word | None = None
    """Or the name of an architecture."""
    size: Word = "full"
    cluster: Text | None = None
    """TOML text."""
    preset: Word | None = None
    """Or the name of a preset."""
    objective: Literal["latency", "throughput"] = "latency"
    stages: Annotated[int, Meta(ge=1, le=4096)] | None = None
    solver: Word = "auto"
    gap: Annotated[float, Meta(ge=0, lt=1)] | None = None
    seed: Annotated[int, Meta(ge=0, lt=2**31)] = 0
    shapes: Annotated[list[Annotated[str, Meta(max_length=200)]], Meta(max_length=32)] = []


class FileRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Make a file of a plan."""

    what: Literal["report", "trace", "export"]
    target: Annotated[str, Meta(pattern=r"^[a-z0-9_.-]{0,40}$")] = ""


class CompareRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Two plans."""

    first: int
    second: int


class ClusterForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A cluster to be checked."""

    text: Text


async def read_json(request: Request, kind: type[T], most: int) -> T:
    """The body of a request, up to a limit."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise InputError("a request is JSON", hint="content-type: application/json")
    data = bytearray()
    async for chunk in request.stream():
        data += chunk
        if len(data) > most:
            raise InputError(f"a request is at most {most >> 10} KiB")
    try:
        return msgspec.json.decode(bytes(data), type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"the request makes no sense: {str(error)[:300]}") from error
