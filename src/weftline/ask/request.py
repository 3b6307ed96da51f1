"""What is asked, as frozen objects: a plan, a schedule, a grid of plans.

In: words, files and objects. Out: requests, which `ask/answer.py` resolves and answers. The face, the command line, the
pages and the grid build requests, and nothing else. Simplified: files are not read here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from weftline.arguments import a_choice, a_flag, a_mapping, a_share, a_text, a_whole_number, seconds, several
from weftline.ask.targets import target_terms
from weftline.errors import InputError, UsageError

if TYPE_CHECKING:
    from weftline.cluster import Cluster
    from weftline.cost import Profile
    from weftline.graph import Graph
    from weftline.importers import ImportOptions
    from weftline.plans import Plan
    from weftline.problem import Blocks, Problem
    from weftline.schedule import Scheduler
    from weftline.schedule.noise import Noise
    from weftline.search import Solver

__all__ = [
    "ClusterText",
    "GridRequest",
    "Objective",
    "PlanRequest",
    "ScheduleRequest",
    "a_stage_count",
    "import_options",
    "read_dims",
    "read_memory",
    "read_shapes",
]

Objective = Literal["latency", "throughput"]
MOST_SEED = 2**31 - 1
MOST_COUNT = 2**62
MOST_DIGITS = 18
"""Of a limit of memory."""
_LISTS = {"without": '("cpus",)', "gpus": '("RTX 4090",)', "cpus": '("DDR5-6000",)', "links": '("pcie4x16",)'}


@dataclass(frozen=True)
class ClusterText:
    """A cluster as the text of its TOML file."""

    text: str
    where: str
    """What errors call it."""
    name: str
    """Where the text holds none."""


@dataclass(frozen=True, kw_only=True)
class PlanRequest:
    """Where does everything run? What is None keeps the file's own rules, or the defaults."""

    model: Graph | Problem | Path | str
    """An object, a file, or `zoo:NAME[:SIZE]`."""
    cluster: Cluster | ClusterText | Path | str | None = None
    """An object, a file, or the name of a preset; None where the model holds its own devices."""
    gpus: tuple[str, ...] = ()
    cpus: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    ram: str | None = None
    """Instead of a cluster: products by name ("2x RTX 3060 12GB", "DDR5-6000"), what joins them, memory of the CPU."""
    objective: Objective | None = None
    runtime: Literal["parallel", "sequential"] | None = None
    transfers: Literal["per-tensor", "per-edge"] | None = None
    communication: Literal["added", "overlapped"] | None = None
    memory: Literal["dynamic", "static"] | None = None
    stages: int | None = None
    copies: int | Literal["auto"] | None = None
    """Throughput: "auto" is the rate of the whole cluster; a number: no part of the model is on more devices; 1 is one
    pipeline. None is "auto" where nothing else means one pipeline (`ask.fleets.is_for_fleet`)."""
    max_depth: int | None = None
    """Of a fleet: the most devices in a row on the way of an input."""
    latency_limit: float | str | None = None
    """Of a fleet: an input that is alone takes at most so many seconds on its way; or text with a unit: "5ms"."""
    without: tuple[str, ...] = ()
    """Limits to be dropped: cpus, memory, together."""
    keep: Literal["", "layers"] = ""
    """What stays whole on one device: each layer, found by names or by structure."""
    target: str = ""
    """Who will run it, which implies what it needs: vllm, megatron, llamacpp or accelerate."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    dims: Mapping[str, int] = field(default_factory=dict)
    """Sizes of symbolic dimensions, by name."""
    strict: bool = False
    """Refuse a model some of whose dimensions cannot be computed."""
    costs: Profile | Path | str | None = None
    """Measured times of the model on the cluster."""
    coarsen: str = "none"
    model_file: Path | str | None = None
    """Of a model that is an object: what the oracle of fusions and measurements read."""
    model_name: str = ""
    """Of a model whose format has none."""
    reward: Literal["simulated", "measured"] = "simulated"
    measurements: int | None = None
    runtimes: Mapping[str, str] = field(default_factory=dict)
    solver: str | Solver = "auto"
    """Its name, or one of your own."""
    gap: float | str | None = None
    """A share, or text like "1%"."""
    time_limit: float | str | None = None
    """Seconds, or text with a unit: "5s"."""
    work_limit: int | None = None
    seed: int = 0
    proof: float | str | None = None
    """Seconds, after the search, for proofs that the checker can repeat; None: at most 10; 0: none."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """The solver's own, as after `--set`."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """Role -> sha256 of files that the caller has read: model, cluster, costs."""
    argv: tuple[str, ...] = ()
    """The call that asks the same, for the plan's provenance."""

    def __post_init__(self) -> None:
        _hold(self, _limits_of(self))
        _hold(
            self,
            {
                **{name: several(getattr(self, name), name, a_text, example) for name, example in _LISTS.items()},
                "ram": None if self.ram is None else a_text(self.ram, "ram"),
                "shapes": a_mapping(self.shapes, "shapes", _shape, '{"input": (1, 3, 224, 224)}'),
                "dims": a_mapping(self.dims, "dims", _size, '{"batch": 1}'),
                "runtimes": a_mapping(self.runtimes, "runtimes", a_text, '{"gpu0": "openvino:GPU.1"}'),
                "proof": seconds(self.proof, "proof"),
                "coarsen": a_text(self.coarsen, "coarsen"),
                "model_name": a_text(self.model_name, "model_name"),
            },
        )
        if self.names_devices and self.cluster is not None:
            raise UsageError("devices are a cluster, or products by name: one of both")
        _hold(self, target_terms(self))
        if self.measurements is not None:
            a_whole_number(self.measurements, "measurements", 1, 100_000)
        if self.reward == "simulated" and (self.runtimes or self.measurements is not None):
            raise UsageError("measurements and runtimes are for measured rewards")
        self._check_fleet()

    def _check_fleet(self) -> None:
        """What a fleet is asked, and what contradicts it."""
        if self.copies not in (None, "auto"):
            _hold(self, {"copies": a_whole_number(self.copies, 'copies (or "auto")', 1, MOST_COUNT)})
        if self.max_depth is not None:
            _hold(self, {"max_depth": a_whole_number(self.max_depth, "max_depth", 1, MOST_COUNT)})
        _hold(self, {"latency_limit": seconds(self.latency_limit, "latency_limit")})
        named = self.fleet_words
        if not named:
            return
        against = {
            "copies 1, which is one pipeline": self.copies == 1,
            "the objective latency": self.objective == "latency",
            "a number of stages, which is for one pipeline": self.stages is not None,
            f"coarsen {self.coarsen}": self.coarsen != "none",
            "measured rewards": self.reward != "simulated",
        }
        if wrong := [words for words, holds in against.items() if holds]:
            raise UsageError(f"{named} and {wrong[0]} contradict each other; leave one out")

    @property
    def names_devices(self) -> bool:
        """The devices are products by name."""
        return bool(self.gpus or self.cpus or self.links or self.ram)

    @property
    def fleet_words(self) -> str:
        """What asks for a fleet by name, empty if nothing does."""
        asked = {
            f"copies {self.copies}": self.copies not in (None, 1),
            "a limit of depth": self.max_depth is not None,
            "a limit of latency": self.latency_limit is not None,
        }
        return next((words for words, holds in asked.items() if holds), "")

    @property
    def most_copies(self) -> int | None:
        """On so many devices a part of the model may be."""
        return None if self.copies == "auto" else self.copies

    @property
    def latency_limit_ns(self) -> int | None:
        """The limit of latency in ns."""
        return None if self.latency_limit is None else round(float(self.latency_limit) * 1e9)

    @property
    def rules(self) -> dict[str, object]:
        """The rules of the problem that are asked for."""
        measured = self.reward == "measured" and self.objective != "throughput"
        return {
            "objective": self.objective if self.copies in (None, 1) else "throughput",
            "runtime": "sequential" if measured and self.runtime is None else self.runtime,  # it is what HETERO does
            "transfers": self.transfers,
            "communication": self.communication,
            "memory": self.memory,
            "stages": self.stages,
        }

    @property
    def limits(self) -> dict[str, Any]:
        """What every search takes."""
        return {
            "solver": self.solver,
            "gap": self.gap,
            "time_limit": self.time_limit,
            "work_limit": self.work_limit,
            "seed": self.seed,
            "argv": self.argv,
        }


@dataclass(frozen=True, kw_only=True)
class ScheduleRequest:
    """In what order do micro-batches run?"""

    blocks: Blocks | Path | str | None = None
    """An object or a file; or"""
    plan: Plan | Path | str | None = None
    """a throughput plan, or its file: its stages become blocks."""
    micro_batches: int | None = None
    """None: four for each device."""
    memory: int | Sequence[int] | None = None
    """Limit of every device, or one for each."""
    train: bool = True
    split_backward: bool = False
    recompute: bool = False
    objective: Literal["makespan", "device-span"] = "makespan"
    arrivals: int | None = None
    solver: str | Scheduler = "auto"
    gap: float | str | None = None
    time_limit: float | str | None = None
    work_limit: int | None = None
    seed: int = 0
    robust: Noise | None = None
    proof: float | str | None = None
    """Seconds, after the search, for proofs that the checker can repeat; None: at most 10; 0: none."""
    settings: Mapping[str, str] = field(default_factory=dict)
    argv: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _hold(self, {**_limits_of(self), "proof": seconds(self.proof, "proof")})
        a_choice(self.objective, "objective", ("makespan", "device-span"))
        for name in ("train", "split_backward", "recompute"):
            a_flag(getattr(self, name), name)
        if self.micro_batches is not None:
            _hold(self, {"micro_batches": a_whole_number(self.micro_batches, "micro_batches", 1, MOST_COUNT)})
        if self.arrivals is not None:
            a_whole_number(self.arrivals, "arrivals", 0, MOST_COUNT)
        if self.memory is not None and not isinstance(self.memory, int):
            _hold(self, {"memory": several(self.memory, "memory", _amount, "(4, 8)")})

    @property
    def options(self) -> dict[str, Any]:
        """What every search takes."""
        return {
            "solver": self.solver,
            "device_span": self.objective == "device-span",
            "arrivals": self.arrivals,
            "gap": self.gap,
            "time_limit": self.time_limit,
            "work_limit": self.work_limit,
            "seed": self.seed,
            "robust": self.robust,
            "proof": self.proof,
            "settings": self.settings,
            "argv": self.argv,
        }


class GridRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Lists, of which every combination is a request, and limits for each of them; for throughput of one pipeline."""

    models: tuple[str, ...] = ()
    """Files, or `zoo:NAME` and `zoo:NAME:SIZE`."""
    clusters: tuple[str, ...] = ()
    """Files or presets; none where the models hold their own devices."""
    objectives: tuple[Objective, ...] = ("latency",)
    stages: tuple[int, ...] = ()
    """Throughput: numbers of stages; none means all devices."""
    solvers: tuple[str, ...] = ("auto",)
    seeds: tuple[int, ...] = (0,)
    gap: float | None = None
    time_limit: float | None = None
    """Seconds."""
    work_limit: int | None = None


def import_options(shapes: Mapping[str, Sequence[int]], dims: Mapping[str, int]) -> ImportOptions:
    """What is said about the shapes of a model's inputs."""
    from weftline.importers import ImportOptions

    return ImportOptions(
        shapes=a_mapping(shapes, "shapes", _shape, '{"input": (1, 3, 224, 224)}'),
        dims=a_mapping(dims, "dims", _size, '{"batch": 1}'),
    )


def _hold(request: PlanRequest | ScheduleRequest, values: Mapping[str, object]) -> None:
    """Put what was read in place of what was given."""
    for name, value in values.items():
        object.__setattr__(request, name, value)


def _limits_of(request: PlanRequest | ScheduleRequest) -> dict[str, object]:
    """What every search takes, as it is meant."""
    work = request.work_limit
    return {
        "gap": a_share(request.gap),
        "time_limit": seconds(request.time_limit),
        "work_limit": None if work is None else a_whole_number(work, "work_limit", 1, MOST_COUNT),
        "seed": a_whole_number(request.seed, "seed", 0, MOST_SEED),
        "settings": a_mapping(request.settings, "settings", _setting, '{"levels": "2"}'),
    }


def _shape(value: object, name: str) -> tuple[int, ...]:
    return several(value, name, _size, "(1, 3, 224, 224)")


def _size(value: object, name: str) -> int:
    return a_whole_number(value, name, 1, MOST_COUNT)


def a_stage_count(value: object, name: str) -> int:
    """How many stages a pipeline may have; what is too many is said where it is used."""
    return a_whole_number(value, name, 0, MOST_COUNT)


def _amount(value: object, name: str) -> int:
    return a_whole_number(value, name, 0, MOST_COUNT)


def _setting(value: object, name: str) -> str:
    """As the user would write it after `--set`."""
    return value if isinstance(value, str) else a_text(f"{value}" if isinstance(value, int | float) else value, name)


def read_shapes(words: Sequence[str], option: str = "") -> dict[str, tuple[int, ...]]:
    """`input=1x3x224x224` -> {"input": (1, 3, 224, 224)}; `option` is what errors call it."""
    shapes: dict[str, tuple[int, ...]] = {}
    for word in words:
        name, _, sizes = word.rpartition("=")
        parts = sizes.split("x") if sizes else []
        if not name or not all(part.isascii() and part.isdigit() and 0 < len(part) <= 12 for part in parts):
            raise UsageError(f"{option}{word!r:.80} is not a shape; write it like input=1x3x224x224")
        shapes[name] = tuple(map(int, parts))
        if 0 in shapes[name]:
            raise UsageError(f"{option}{word!r:.80}: a dimension of 0 leaves nothing to plan")
    return shapes


def read_dims(words: Sequence[str], option: str = "") -> dict[str, int]:
    """`batch=8` -> {"batch": 8}; `option` is what errors call it."""
    dims: dict[str, int] = {}
    for word in words:
        name, _, size = word.rpartition("=")
        if not name or not (size.isascii() and size.isdigit() and len(size) <= 12):
            raise UsageError(f"{option}{word!r:.80} is not the size of a dimension; write it like batch=8")
        if int(size) == 0:
            raise UsageError(f"{option}{word!r:.80}: a dimension of 0 leaves nothing to plan")
        if dims.setdefault(name, int(size)) != int(size):
            raise UsageError(f"{option}{word!r:.80} and {f'{name}={dims[name]}'!r:.80} contradict each other")
    return dims


def read_memory(word: str, in_bytes: bool, option: str = "") -> int | list[int]:
    """`4`, `4,4,8`, or with bytes `12 GiB`; `option` is what errors call it."""
    from weftline.units import parse_bytes

    limits = []
    for part in word.split(","):
        if part.strip().isascii() and part.strip().isdigit() and len(part) <= MOST_DIGITS:
            limits.append(int(part))
            continue
        try:
            size = parse_bytes(part)
        except InputError as error:
            if in_bytes:
                raise UsageError(f"{option.rstrip()}: {error}" if option else str(error)) from error
            raise UsageError(
                f"{option}{word[:60]!r} is not a whole number in units of the blocks, nor one for each device: 4,4,8"
            ) from error
        if not in_bytes:
            raise UsageError(
                f"{option}{word[:60]!r}: a named shape or a file of blocks has no bytes. Its unit is what the blocks "
                f"hold: 1 is one activation of a stage (half of one for linear and zigzag). Write {option}4; bytes are "
                "for plans"
            )
        limits.append(size)
    return limits[0] if len(limits) == 1 else limits
