"""How a language model is served: what prompts and tokens take on a unit, the room for their caches, the requests.

In: profiles (JSON, by content), lengths of requests. Out: frozen `ServingProfile`, `Requests` and `ServingRules`,
checked. A request has a prompt, which goes through all layers once, and then as many tokens as it is to get, each of
which goes through all layers behind the one before it. Its cache is kept on every layer until it ends. Simplified: the
time of a batch depends on its prompt tokens and on how many requests decode in it, not on how long their caches are;
all layers are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import isfinite
from pathlib import Path
from random import Random
from typing import Annotated, NamedTuple, Protocol

import msgspec
import numpy as np

from weftline.errors import InputError
from weftline.files import read_limited
from weftline.graph.arrays import Ints
from weftline.problem.layers import LayerInstance, LayerLane, LayerProblem

__all__ = [
    "CONVERSATION_KINDS",
    "RequestKind",
    "Requests",
    "ServedLayout",
    "ServingProfile",
    "ServingRules",
    "ServingUnit",
    "check_requests",
    "dense_times",
    "fixed_requests",
    "profile_for",
    "read_serving",
    "sample_requests",
    "unit_profiles",
]

MOST_PROFILE_BYTES, MOST_TABLE_ROWS, MOST_TABLE_TOKENS, MOST_TABLE_MS = 64 * 2**20, 100_000, 2_000_000, 3_600_000.0
MOST_REQUESTS, MOST_REQUEST_TOKENS = 5_000_000, 2_000_000
MOST_MODEL_LAYERS, MOST_KINDS = 10_000, 10_000
NS_PER_MS = 10**6

TimeTable = tuple[tuple[int, int], ...]
"""(how many, ns), ascending from 0 on; between two points the time is on the straight line between them."""


class ServedLayout(Protocol):
    """Instances that hold layers, and the lanes of requests through them: what is to be served."""

    @property
    def instances(self) -> tuple[LayerInstance, ...]:
        """Numbered as the hops of the lanes say."""

    @property
    def lanes(self) -> tuple[LayerLane, ...]:
        """Their rates are the shares of the requests."""


class ServingUnit(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one unit (a device, or a group that works as one) needs for a layer, and what caches it has room for."""

    name: str
    prompt: TimeTable
    """Prompt tokens in a batch -> time of a layer; a batch has at most as many as the table reaches."""
    decode: TimeTable
    """Requests of a batch that decode -> time of a layer, which is added to that of the prompts."""
    room: tuple[int, ...]
    """room[k - 1]: tokens of cache for each of its layers while it holds k."""
    prompts: tuple[int, ...]
    """prompts[k - 1]: the most prompts in a batch while it holds k layers."""


class ServingProfile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model on all units that were measured."""

    name: str
    layers: int
    units: tuple[ServingUnit, ...]
    prompt: int
    """Tokens of a typical prompt, and of a typical answer."""
    output: int


class ServingRules(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How requests are let in, what a hop costs beside its link's rate, and what is measured. Times in ns."""

    layer_percent: int = 80
    """High-water mark: of the room of the layer with the least, requests may take so much."""
    instance_percent: int = 85
    """And so much of the room of each instance on their way."""
    prompts_at_once: int = 20
    """Offline: so many requests may be in their prompts; 0: as many as have room."""
    pause_ns: int = 100_000_000
    """Offline: from when there is room for a request to when it sets out."""
    hop_ns: int = 1_000_000
    """Latency of a hop, from and to where requests come from too."""
    latencies: tuple[tuple[int, int, int], ...] = ()
    """(from, to, ns) where it is another; numbers of devices, SOURCE_NODE, SINK_NODE."""
    copy_ns: int = 0
    """For each token that enters an instance: into its memory, beside its other inputs."""
    warm_up_ns: int = 60 * 10**9
    """From the start on; not measured."""
    duration_ns: int = 600 * 10**9
    """Measured."""

    def check(self) -> ServingRules:
        """The rules themselves; `InputError` for the first thing in them that cannot be."""
        times = {"hop_ns": self.hop_ns, "copy_ns": self.copy_ns, "warm_up_ns": self.warm_up_ns}
        times["pause_ns"] = self.pause_ns
        times |= {"duration_ns": self.duration_ns} | {f"latencies[{i}]": row[2] for i, row in enumerate(self.latencies)}
        for name, value in times.items():
            if not 0 <= value <= 10**14:
                raise InputError(f"{name} is {value} ns; 0 to 10^14 can be simulated")
        if self.duration_ns == 0 or not 1 <= self.layer_percent <= 100 or not 1 <= self.instance_percent <= 100:
            raise InputError("something must be measured, and high-water marks are 1 to 100 percent")
        if not 0 <= self.prompts_at_once <= MOST_REQUESTS:
            raise InputError(f"{self.prompts_at_once} prompts at once", hint="0 is as many as have room")
        return self


class Requests(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is asked: each request once, in this order."""

    lengths: tuple[tuple[int, int], ...]
    """(tokens of the prompt, tokens to be made after it)"""
    arrivals: tuple[int, ...] = ()
    """ns, ascending; empty: all are there from the start and enter as there is room (offline)."""

    @property
    def mean_prompt(self) -> float:
        """Tokens."""
        return sum(prompt for prompt, _ in self.lengths) / len(self.lengths)

    @property
    def mean_output(self) -> float:
        """Tokens."""
        return sum(output for _, output in self.lengths) / len(self.lengths)


def check_requests(requests: Requests, where: str = "") -> Requests:
    """The requests themselves; `InputError` for the first thing in them that cannot be."""
    count = len(requests.lengths)
    if not 1 <= count <= MOST_REQUESTS:
        raise InputError(f"{count} requests; 1 to {MOST_REQUESTS} can be served", where=where)
    for number, (prompt, output) in enumerate(requests.lengths):
        if not (1 <= prompt <= MOST_REQUEST_TOKENS and 1 <= output <= MOST_REQUEST_TOKENS):
            raise InputError(f"request {number}: a prompt of {prompt} and {output} tokens after it", where=where)
    if requests.arrivals:
        late = requests.arrivals
        if len(late) != count or late[0] < 0 or any(b < a for a, b in pairwise(late)):
            raise InputError("an arrival for every request, ascending, or none at all", where=where)
        if late[-1] > 10**14:
            raise InputError(f"the last request arrives after {late[-1]} ns; 10^14 can be simulated", where=where)
    return requests


class RequestKind(NamedTuple):
    """Requests that are alike: their lengths are lognormal, drawn again until they are inside the limits."""

    weight: int
    prompt: float
    """Median; and the deviation of the logarithm."""
    prompt_spread: float
    output: float
    output_spread: float


CONVERSATION_KINDS = (
    RequestKind(435, 395.0, 0.05, 85.0, 0.3),
    RequestKind(395, 1090.0, 0.1, 430.0, 0.15),
    RequestKind(60, 180.0, 0.25, 155.0, 0.3),
    RequestKind(110, 1400.0, 0.25, 75.0, 0.5),
)
"""Read off the Azure conversation trace of 2023 without prompts above 2,048 and answers above 1,024 tokens, which is
what Helix serves: short questions with short answers, longer ones with long answers, and few others. There the means
are 763 and 232 tokens (https://github.com/Azure/AzurePublicDataset, Patel et al., "Splitwise", ISCA 2024).
"""
LEAST_TOKENS, MOST_PROMPT_TOKENS, MOST_OUTPUT_TOKENS = 4, 2048, 1024
"""Limits of what is drawn."""


def sample_requests(
    count: int, seed: int = 0, *, kinds: Sequence[RequestKind] = CONVERSATION_KINDS, per_second: float = 0.0
) -> Requests:
    """Requests of these kinds; with `per_second` they arrive at that mean rate, independent of each other."""
    if not 1 <= count <= MOST_REQUESTS or not isfinite(per_second) or per_second < 0:
        raise InputError(f"{count} requests, {per_second} per second; 1 to {MOST_REQUESTS} can be drawn")
    random, weights = Random(seed), [kind.weight for kind in kinds]
    lengths, arrivals, now = [], [], 0.0
    for _ in range(count):
        kind = random.choices(kinds, weights)[0]
        lengths.append(
            (
                _drawn(random, kind.prompt, kind.prompt_spread, MOST_PROMPT_TOKENS),
                _drawn(random, kind.output, kind.output_spread, MOST_OUTPUT_TOKENS),
            )
        )
        if per_second:
            now += random.expovariate(per_second)
            arrivals.append(int(now * 10**9))
    return check_requests(Requests(tuple(lengths), tuple(arrivals)))


def _drawn(random: Random, median: float, spread: float, most: int) -> int:
    for _ in range(1000):
        found = round(median * random.lognormvariate(0.0, spread))
        if LEAST_TOKENS <= found <= most:
            return found
    raise InputError(f"lengths around {median:g} are hardly ever {LEAST_TOKENS} to {most} tokens")


def fixed_requests(count: int, prompt: int, output: int) -> Requests:
    """Requests that are all alike."""
    return check_requests(Requests(((prompt, output),) * min(count, MOST_REQUESTS + 1)))


def dense_times(table: TimeTable) -> Ints:
    """The time at 0, 1, 2 ... up to the last point, rounded down to whole ns."""
    found = np.zeros(table[-1][0] + 1, np.int64)
    for (left, low), (right, high) in pairwise(table):
        steps = np.arange(right - left + 1, dtype=np.int64)
        found[left : right + 1] = low + (high - low) * steps // (right - left)
    return found


def unit_profiles(problem: LayerProblem, profile: ServingProfile) -> list[ServingUnit]:
    """The profile of every unit of a problem, by its name or that of its pool; `InputError` where one has none."""
    if profile.layers != problem.layers:
        raise InputError(f"{problem.name!r:.60} has {problem.layers} layers, {profile.name!r:.60} has {profile.layers}")
    known, found = {unit.name: unit for unit in profile.units}, []
    for unit in problem.units:
        own = known.get(unit.name) or (known.get(problem.pools[unit.pool].name) if unit.size == 1 else None)
        if own is None:
            there = ", ".join(sorted(known)[:8])
            raise InputError(f"{profile.name!r:.60} has no profile of {unit.name!r:.60}", hint=f"it has {there}"[:200])
        found.append(own)
    return found


def profile_for(problem: LayerProblem, profiles: Sequence[ServingProfile], name: str = "") -> ServingProfile:
    """The one that fits a problem: its layers, and all its units; or the one of that name."""
    said = []
    for profile in profiles:
        if name in ("", profile.name):
            try:
                unit_profiles(problem, profile)
            except InputError as error:
                said.append(str(error))
                continue
            return profile
    have = ", ".join(profile.name for profile in profiles)
    raise InputError(said[0] if len(said) == 1 else f"no profile fits {problem.name!r:.60}", hint=f"there is {have}")


_Rows = Annotated[list[tuple[int, float]], msgspec.Meta(min_length=2, max_length=MOST_TABLE_ROWS)]
_Held = Annotated[list[int], msgspec.Meta(min_length=1, max_length=MOST_MODEL_LAYERS)]
_Count = Annotated[int, msgspec.Meta(ge=1, le=MOST_MODEL_LAYERS)]
_Mean = Annotated[int, msgspec.Meta(ge=1, le=MOST_REQUEST_TOKENS)]


class _KindFile(msgspec.Struct, forbid_unknown_fields=True):
    max_layers: _Count
    kv_tokens_per_layer: _Held
    prompt_ms_per_layer: _Rows
    decode_ms_per_layer: _Rows
    prompt_max_requests: _Held


class _ModelFile(msgspec.Struct, forbid_unknown_fields=True):
    layers: _Count
    avg_input: _Mean
    avg_output: _Mean
    kinds: Annotated[dict[str, _KindFile], msgspec.Meta(min_length=1, max_length=MOST_KINDS)]


def read_serving(path: Path | str) -> tuple[ServingProfile, ...]:
    """Read the profiles of all models of a file, as Helix measured them, or say what is wrong with it and where."""
    data = read_limited(path, MOST_PROFILE_BYTES)
    try:
        models = msgspec.json.decode(data, type=dict[str, _ModelFile])
        if not models:
            raise InputError("no model has a profile here")
        return tuple(_profile_of(name, file) for name, file in models.items())
    except InputError as error:
        raise error.at(str(path)) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        hint = "models by name, each with layers, avg_input, avg_output and kinds; see docs/formats.md"
        raise InputError(f"is not a file of profiles: {error}", where=str(path), hint=hint) from error


def _profile_of(name: str, file: _ModelFile) -> ServingProfile:
    units = []
    for kind, row in file.kinds.items():
        where = f"{name}.kinds.{kind}"[:200]
        if not len(row.kv_tokens_per_layer) == len(row.prompt_max_requests) == row.max_layers:
            raise InputError("one kv_tokens_per_layer and prompt_max_requests for each of 1..max_layers", where=where)
        for room, prompts in zip(row.kv_tokens_per_layer, row.prompt_max_requests, strict=True):
            if not (0 <= room <= 2**40 and 1 <= prompts <= MOST_REQUESTS):
                raise InputError(f"room for {room} tokens, {prompts} prompts in a batch", where=where)
        prompt = _times(row.prompt_ms_per_layer, f"{where}.prompt_ms_per_layer")
        decode = _times(row.decode_ms_per_layer, f"{where}.decode_ms_per_layer")
        if len(decode) > 1 and decode[1][0] == 2:  # one alone takes as long as two: that is what Helix does
            decode = (decode[0], (1, decode[1][1]), *decode[1:])
        units.append(ServingUnit(kind, prompt, decode, tuple(row.kv_tokens_per_layer), tuple(row.prompt_max_requests)))
    return ServingProfile(name, file.layers, tuple(units), file.avg_input, file.avg_output)


def _times(rows: Sequence[tuple[int, float]], where: str) -> TimeTable:
    if rows[0][0] != 0 or any(b[0] <= a[0] for a, b in pairwise(rows)):
        raise InputError("a table begins at 0 and ascends", where=where)
    if rows[-1][0] > MOST_TABLE_TOKENS or not all(isfinite(ms) and 0 <= ms <= MOST_TABLE_MS for _, ms in rows):
        raise InputError(f"up to {MOST_TABLE_TOKENS} tokens and {MOST_TABLE_MS:g} ms, none negative", where=where)
    return tuple((many, round(ms * NS_PER_MS)) for many, ms in rows)
