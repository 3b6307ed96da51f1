"""The FitPlan: where the layers of a language model go on the cards of a machine, how fast it is, how to start it.

In: a FitAnswer with the facts around it. Out: the fields of the file, in their order; read and write. The problem is in
the file, so `certify/check_fit.py` re-adds value and memory and re-computes the bound. Simplified: rates are of one
step of every request; the time of a prompt stands apart.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import msgspec

from weftline.cost.llm import Interval
from weftline.errors import InputError, unreadable
from weftline.files import other_kind, write_atomically
from weftline.lazy import notebook_html
from weftline.plans.launch.line import LaunchLine
from weftline.problem.fit import FitProblem, FitSegment, check_fit_problem

__all__ = [
    "FIT_FORMAT",
    "FitBound",
    "FitHolding",
    "FitHost",
    "FitModel",
    "FitMove",
    "FitPlan",
    "FitProvenance",
    "FitTerms",
    "fit_plan_to_json",
    "load_fit_plan",
]

FIT_FORMAT = "weftline-fit"
MOST_FIT_BYTES = 256 * 2**20


class FitModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The language model, in numbers."""

    name: str
    architecture: str
    source: str
    quantisation: str
    layers: int
    parameters: int
    bytes: int
    """Of all weights that are loaded."""
    exact_bytes: bool
    """Read from headers; else they follow from shapes and a recipe."""
    context: int
    """The longest it was made for; 0: unknown."""


class FitTerms(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For what it was planned."""

    engine: str
    context: int
    live: int
    """Tokens in the cache when a token is timed."""
    concurrency: int
    kv_type_k: str
    kv_type_v: str
    micro_batch: int
    memory_permille: int
    """Share of each card that vLLM or SGLang may take; 0: no such thing."""


class FitHolding(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one device holds."""

    id: str
    name: str
    weights_bytes: int
    kv_bytes: int
    compute_bytes: int
    limit_bytes: int
    """For these three together; what driver and engine need is already taken off."""
    layers: tuple[int, ...]
    """[first, last + 1]; empty where it holds none."""
    output: bool
    """Whether it holds the output layer."""
    share: float
    """Of every matrix: 1, or that of one card of a group."""
    step_ns: int
    """Its part of the time of a step."""


class FitMove(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part of some layers that lies on the host, though the layers are a card's."""

    part: str
    device: str
    """Of the layers."""
    layers: tuple[int, ...]


class FitHost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the memory of the host must hold in any case."""

    weights_bytes: int
    """The input embedding, and layers and parts that lie there."""
    kv_bytes: int
    compute_bytes: int


class FitBound(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """No plan that the engine can run takes less."""

    by: str
    value_ns: int
    proof: Literal["proved", "claimed"]
    witness: dict[str, Any] | None


class FitProvenance(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where the plan comes from."""

    version: str
    problem_sha256: str
    argv: tuple[str, ...]


class FitPlan(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One answer about a language model on cards."""

    format: Literal["weftline-fit"] = "weftline-fit"
    version: Literal[1] = 1
    objective: Literal["decode"] = "decode"
    value_ns: int
    """Of one step: a token of every request."""
    bound_ns: int
    gap: float
    """(value - bound) / value"""
    proof: Literal["proved", "claimed", "none"]
    bound_by: str
    tokens_per_second: Interval
    """Of all requests together."""
    measured_factor: float = 1.0
    """Of all rates: a measured rate of this plan, of the estimated one; 1 where nothing was measured."""
    bound_tokens_per_second: float
    """No plan that the engine can run gives more, by the same costs."""
    prefill_tokens_per_second: Interval
    first_token_ns: int
    """Of a prompt of `live` tokens, alone."""
    baselines: dict[str, float | None]
    """Name -> tokens per second by the same costs; None where it does not fit."""
    free_tokens_per_second: float | None
    """Without the rules of the engine; None: not asked."""
    advice: str
    """What to do first, in one line; may be empty."""
    model: FitModel
    terms: FitTerms
    devices: tuple[FitHolding, ...]
    moved: tuple[FitMove, ...]
    host: FitHost
    command: tuple[str, ...]
    """A line of a shell for each process."""
    launch: tuple[LaunchLine, ...]
    """The same, in words."""
    notes: tuple[str, ...]
    asked: dict[str, Any] = {}
    """Answers to further questions: want, largest context, quantisations that fit."""
    solver: str
    seconds: float | None
    stopped_by: str
    segments: tuple[FitSegment, ...]
    """Rows of the problem on its units: what the checker re-adds."""
    bounds: tuple[FitBound, ...]
    provenance: FitProvenance
    problem: FitProblem

    @property
    def rate(self) -> float:
        """Tokens per second, the middle of the interval."""
        return self.tokens_per_second.value

    def save(self, path: Path | str) -> None:
        """Write the file."""
        write_atomically(Path(path), fit_plan_to_json(self))

    def summary(self) -> str:
        """A few lines for a terminal."""
        from weftline.plans.fit_words import fit_summary

        return "\n".join(fit_summary(self))

    @classmethod
    def load(cls, path: Path | str) -> FitPlan:
        """Read the file."""
        return load_fit_plan(path)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook_html(self)

    def __repr__(self) -> str:
        return f"FitPlan({self.model.name}, {self.rate:.4g} tokens per second, gap {self.gap:.2%} {self.proof})"


def fit_plan_to_json(plan: FitPlan) -> bytes:
    """The bytes of the file."""
    return msgspec.json.encode(plan) + b"\n"


def load_fit_plan(path: Path | str) -> FitPlan:
    """Read a plan of a language model; every failure is an `InputError` that names the file and the place in it."""
    path = Path(path)
    try:
        if not path.is_file() or path.stat().st_size > MOST_FIT_BYTES:
            raise InputError("more than 256 MiB, or not a file at all, is not a plan", where=str(path))
        data = path.read_bytes()
    except OSError as error:
        raise unreadable(path, error) from error
    try:
        plan = msgspec.json.decode(data, type=FitPlan)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        what = other_kind(data, "a plan of a language model") or f"not a plan of a language model: {error}"
        raise InputError(what, where=str(path)) from error
    check_fit_problem(plan.problem, str(path))
    if any(len(one.layers) not in (0, 2) for one in plan.devices) or any(len(one.layers) != 2 for one in plan.moved):
        raise InputError("layers are [first, last + 1]", where=str(path))
    return plan
