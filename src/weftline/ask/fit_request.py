"""What `weftline fit` is asked: a language model, cards by name, a context, an engine.

In: words of a user. Out: a frozen FitRequest, held to what makes sense together. Simplified: names are looked up later,
where the catalogues are read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftline.arguments import a_text, a_whole_number, seconds, several, shown
from weftline.errors import UsageError, near

if TYPE_CHECKING:
    from weftline.plans.fit import FitPlan

__all__ = [
    "BEST_QUANTISATION",
    "FIT_ENGINES",
    "LARGEST",
    "FitRequest",
    "fit",
    "read_context",
    "read_splits",
    "read_want",
]

FIT_ENGINES = ("llamacpp", "vllm", "sglang", "any")
_ENGINE_WORDS = {"llama.cpp": "llamacpp", "llama-cpp": "llamacpp", "llama_cpp": "llamacpp", "ollama": "llamacpp"}
LARGEST, BEST_QUANTISATION = "max", "best"
DEFAULT_CONTEXT, MOST_CONTEXT = 8192, 2**28
MOST_AT_ONCE, MOST_TENSOR_PARALLEL, MOST_MICRO_BATCH = 2**16, 64, 2**20
_CONTEXT = re.compile(r"\s*([0-9]{1,12}(?:\.[0-9]{1,6})?)\s*([kKmM]?)\s*(?:tokens?)?\s*")
_WANT = re.compile(r"\s*([0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(tok(en)?s?\s*/\s*s(ec)?|t/s|tps)?\s*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class FitRequest:
    """Where do the layers of a language model go, and how fast is it there?"""

    model: Path | str
    """A folder, a config.json, a .gguf, or a name of the catalogue."""
    gpus: tuple[str, ...] = ()
    """As `--gpu`: "RTX 4090", "2x RTX 3060 12GB", "M2 Ultra 192GB@150GB"."""
    cpus: tuple[str, ...] = ()
    """The memory of the host, where layers may lie, too: "DDR5-5600"."""
    ram: str = ""
    """How much of it: "64GB"."""
    links: tuple[str, ...] = ()
    """Between cards and host: "PCIe 4.0 x8"."""
    context: int | str = DEFAULT_CONTEXT
    """Tokens of one request, or text: "16k"; "max": the most for which there is a plan."""
    live: int | str | None = None
    """Tokens in the cache when a token is timed; None: half the context."""
    concurrency: int = 1
    """Requests at the same time."""
    quantisation: str = ""
    """A name; "best": the one with the most bits for which there is a plan; empty: as the model says."""
    engine: str = "llamacpp"
    splits: tuple[int, ...] = ()
    """Layers of each card: cost this split, search nothing."""
    measured: str = ""
    """A file of `llama-bench -o json`, or "tg=41.2"."""
    want: float | str | None = None
    """Tokens per second that are needed, or text: "20 tok/s"."""
    first_token: float | str | None = None
    """Seconds, or text: no plan whose first token, after a prompt as long as what is in the cache, takes longer."""
    kv_type: str = ""
    """Of the cache: f16, q8_0, q4_0 ..., or two of them: "q8_0,q4_0" (keys, values)."""
    micro_batch: int | None = None
    """llama.cpp: tokens of a prompt that are computed at once; None: its default."""
    tensor_parallel: int | None = None
    """vLLM, SGLang: width of every group; None: what is best."""
    time_limit: float | str | None = None
    argv: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        values = {
            "gpus": several(self.gpus, "gpus", a_text, '("RTX 4090",)'),
            "cpus": several(self.cpus, "cpus", a_text, '("DDR5-5600",)'),
            "links": several(self.links, "links", a_text, '("PCIe 4.0 x8",)'),
            "context": LARGEST if self.context == LARGEST else read_context(self.context, "context"),
            "live": None if self.live is None else read_context(self.live, "live"),
            "concurrency": a_whole_number(self.concurrency, "concurrency", 1, MOST_AT_ONCE),
            "engine": _engine(self.engine),
            "splits": several(self.splits, "splits", _layers, "(20, 12)"),
            "want": None if self.want is None else read_want(self.want),
            "time_limit": seconds(self.time_limit),
            "first_token": seconds(self.first_token, "first_token"),
        }
        for name in ("ram", "quantisation", "measured", "kv_type"):
            values[name] = a_text(getattr(self, name), name)
        if self.micro_batch is not None:
            values["micro_batch"] = a_whole_number(self.micro_batch, "micro_batch", 1, MOST_MICRO_BATCH)
        if self.tensor_parallel is not None:
            values["tensor_parallel"] = a_whole_number(self.tensor_parallel, "tensor_parallel", 1, MOST_TENSOR_PARALLEL)
        for name, value in values.items():
            object.__setattr__(self, name, value)
        self._check()

    def _check(self) -> None:
        """What contradicts each other."""
        if not self.gpus and not self.cpus:
            raise UsageError('which devices? Say --gpu "RTX 4090" (more than once for several), or --cpu for none')
        if self.context == LARGEST and self.quantisation == BEST_QUANTISATION:
            raise UsageError("the largest context and the best quantisation are two questions; say one of both")
        if self.splits and (self.context == LARGEST or self.quantisation == BEST_QUANTISATION):
            raise UsageError("--splits costs one split; say a context and a quantisation")
        if self.live is not None and self.context != LARGEST and int(self.live) > int(self.context):
            raise UsageError(f"{self.live} live tokens do not fit in a context of {self.context}")
        served = self.engine in ("vllm", "sglang")
        if served and not self.gpus:
            raise UsageError(f"{self.engine} runs on GPUs here; say --gpu, or plan for a CPU with --for llamacpp")
        if self.tensor_parallel is not None and not served:
            raise UsageError("groups of cards that share every matrix are for --for vllm and --for sglang")
        if self.micro_batch is not None and served:
            raise UsageError("micro-batches are those of llama.cpp: --for llamacpp")
        if self.splits and self.want is not None:
            raise UsageError("--splits costs one split and --want asks for the best one; leave one out")

    @property
    def kv_types(self) -> tuple[str, str]:
        """Of keys and of values."""
        keys, _, values = (self.kv_type or "f16").lower().partition(",")
        return keys.strip(), (values or keys).strip()


def fit(model: Path | str, *, gpus: Sequence[str] = (), **question: Any) -> FitPlan:
    """Put a language model on cards by name: which layers go where, how fast, the command that starts it.

    `wl.fit("llama-3.3-70b", quantisation="q4_k_m", gpus=["RTX 4090", "2x RTX 3060 12GB"], context="16k")`. `question`
    is what a `FitRequest` has: cpus, ram, links, context, live, concurrency, quantisation, engine, splits, measured,
    want, first_token, kv_type, micro_batch, tensor_parallel, time_limit. `InfeasibleError` says how much is missing,
    and what would fit.
    """
    from weftline.ask.fit import answer_fit

    try:
        request = FitRequest(model=model, gpus=gpus, **question)  # type: ignore[arg-type]
    except TypeError as error:  # a name that no request has
        raise UsageError(f"fit: {str(error).partition('() ')[2] or error}") from error
    return answer_fit(request)


def _engine(word: object) -> str:
    name = a_text(word, "engine").strip().lower()
    name = _ENGINE_WORDS.get(name, name)
    if name not in FIT_ENGINES:
        raise UsageError(f"no engine {name[:40]!r}{near(name, FIT_ENGINES)} (there are: {', '.join(FIT_ENGINES)})")
    return name


def _layers(value: object, name: str) -> int:
    return a_whole_number(value, name, 0, 10_000)


def read_context(value: object, name: str = "context") -> int:
    """`16k` is 16,384 tokens, `128K` 131,072, `1m` 1,048,576; a bare number is itself."""
    if isinstance(value, str):
        match = _CONTEXT.fullmatch(value) if len(value) <= 40 else None
        if match is None:
            raise UsageError(f"{name} {shown(value)} is no number of tokens; write it like 16k or 16384")
        value = round(float(match[1]) * {"": 1, "k": 1024, "m": 1024**2}[match[2].lower()])
    return a_whole_number(value, name, 1, MOST_CONTEXT)


def read_splits(text: str) -> tuple[int, ...]:
    """`20,12` or `20/12` -> (20, 12)."""
    words = [word.strip() for word in text.replace("/", ",").split(",")]
    if not all(word.isascii() and word.isdigit() and len(word) <= 5 for word in words):
        raise UsageError(f"--splits {text[:60]!r} is no list of layers for each card; write it like 20,12")
    return tuple(map(int, words))


def read_want(value: object) -> float:
    """`20 tok/s`, `20`."""
    if isinstance(value, str):
        match = _WANT.fullmatch(value) if len(value) <= 40 else None
        if match is None:
            raise UsageError(f"--want {shown(value)} is no rate; write it like '20 tok/s'")
        value = float(match[1])
    if not isinstance(value, int | float) or isinstance(value, bool) or not isfinite(value) or value <= 0:
        raise UsageError(f"want is a number of tokens per second above 0, not {shown(value)}")
    return float(value)
