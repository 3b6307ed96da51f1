"""What the learned methods of this room share: parameters, checkpoints, the training loop.

In: a network and trials. Out: trained parameters. Simplified: needs the extra torch.

The training loop that the learned solvers share: episodes until a stop rule fires, events, checkpoints, polish.

In: a Search, a Learner (one network on one problem) and its Trials. Out: offers. With a time limit and a polish to
follow, training ends when its share of the time is over; everything else that is decided here follows from numbers of
episodes alone.

A checkpoint is one safetensors file, written atomically. It holds all that the next episode depends on: weights,
optimiser, generator, what the learner itself remembers, and the best placements so far; so a training that was killed
and resumed ends as if it never had been, and the same training gives the same bytes. One is read back only if it is
whole (a digest), of this version, and of the same solver, problem, settings and shapes. A file from outside is read by
safetensors, which holds numbers alone and runs nothing; whatever is wrong with it is an InputError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.errors import InfeasibleError, InputError, MissingExtra, unreadable
from weftline.files import read_limited, write_atomically
from weftline.latency.anneal import anneal_from, ask_helpers
from weftline.latency.measured.trials import Trials
from weftline.latency.policy.settings import TrainingPlan, one_thread
from weftline.papers.training.placer import Weights
from weftline.problem.model import problem_hash, problem_to_file
from weftline.search import Search
from weftline.units import format_time

__all__ = [
    "SIZE",
    "Arrays",
    "Checkpoint",
    "EpisodeResult",
    "Keeper",
    "Learner",
    "Owner",
    "changed_settings",
    "read_checkpoint",
    "run_training",
    "write_checkpoint",
]

FILE_FORMAT, FORMAT_VERSION = "weftline training", 1
MOST_BYTES, MOST_STEPS = 2**30, 10**12
"""No larger file is read; no training is longer."""
Arrays = dict[str, NDArray[Any]]


class Owner(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a training belongs to."""

    solver: str
    problem: str
    """Hash of the problem."""
    settings: dict[str, str]
    """Those that shape the network and its training."""


class _Head(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    format: str
    version: int
    owner: Owner
    episode: int
    steps: int
    digest: str


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """The state after some episodes."""

    episode: int
    """Episodes done."""
    steps: int
    """Steps of the optimiser."""
    arrays: Arrays


def write_checkpoint(path: Path, owner: Owner, checkpoint: Checkpoint) -> None:
    """One key of metadata, so that its order cannot differ."""
    save = _safetensors().save
    arrays = {name: np.ascontiguousarray(value) for name, value in checkpoint.arrays.items()}
    head = _Head(FILE_FORMAT, FORMAT_VERSION, owner, checkpoint.episode, checkpoint.steps, _digest(arrays))
    text = msgspec.json.encode(head, order="sorted").decode()
    write_atomically(path, save(arrays, metadata={"weftline": text}))


def read_checkpoint(path: Path, owner: Owner, shapes: Mapping[str, tuple[int, ...]]) -> Checkpoint | None:
    """None if there is no such file; `InputError` if it is not a whole checkpoint of this training.

    `shapes` are those that must be there; -1 stands for any length.
    """
    try:
        path.stat()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unreadable(path, error) from error
    data = read_limited(path, MOST_BYTES)
    try:
        head = _head(data)
        _compare(head.owner, owner)
        arrays = _safetensors().load(data)
        if head.digest != _digest(arrays):
            raise InputError("is damaged: its numbers do not fit their digest", hint="start again without it")
        _check_shapes(arrays, shapes)
        _check_numbers(arrays)
    except InputError as error:
        raise error.at(str(path)) from error
    except Exception as error:  # whatever safetensors says about bytes that are none of its own
        raise InputError(f"is no checkpoint: {error!s:.120}", where=str(path)) from error
    return Checkpoint(head.episode, head.steps, arrays)


def _safetensors() -> Any:
    try:
        import safetensors.numpy
    except ImportError as error:
        raise MissingExtra("safetensors", "torch") from error
    return safetensors.numpy


def _head(data: bytes) -> _Head:
    """The metadata: the file begins with the length of its JSON header."""
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(len(data) - 8, 2**24):
        raise InputError("is no safetensors file")
    try:
        text = msgspec.json.decode(data[8 : 8 + length])["__metadata__"]["weftline"]
        head = msgspec.json.decode(text, type=_Head)
    except (msgspec.DecodeError, KeyError, TypeError, RecursionError) as error:
        raise InputError("holds no training of weftline", hint="name another file") from error
    if head.format != FILE_FORMAT or head.version != FORMAT_VERSION:
        raise InputError(
            f"is {head.format!r:.40} of version {head.version}, not {FILE_FORMAT!r} of version {FORMAT_VERSION}"
        )
    if not (0 <= head.episode <= MOST_STEPS and 0 <= head.steps <= MOST_STEPS):
        raise InputError("does not say where training stood")
    return head


def _compare(found: Owner, wanted: Owner) -> None:
    hint = "name another file, or remove this one"
    if found.solver != wanted.solver:
        raise InputError(f"is a training of {found.solver!r:.40}, not of {wanted.solver!r}", hint=hint)
    if found.problem != wanted.problem:
        raise InputError("is a training on another problem", hint=hint)
    for name in sorted({*found.settings, *wanted.settings}):
        ours, theirs = wanted.settings.get(name), found.settings.get(name)
        if ours != theirs:
            raise InputError(f"is a training with {name}={theirs!s:.40}, not {ours!s:.40}", hint=hint)


def _check_shapes(arrays: Arrays, shapes: Mapping[str, tuple[int, ...]]) -> None:
    if set(arrays) != set(shapes):
        odd = sorted(set(arrays) ^ set(shapes))[:3]
        raise InputError(f"does not hold what it should: {', '.join(odd)!s:.120}")
    for name, shape in shapes.items():
        found = arrays[name].shape
        fits = len(found) == len(shape) and all(want in (-1, is_) for want, is_ in zip(shape, found, strict=True))
        if not fits:
            raise InputError(f"has {name} of shape {found}, not {shape}")


def _check_numbers(arrays: Arrays) -> None:
    for name, value in arrays.items():
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            raise InputError(f"has numbers in {name} that are not finite", hint="start again without it")


def _digest(arrays: Arrays) -> str:
    digest = hashlib.sha256()
    for name in sorted(arrays):
        value = arrays[name]
        digest.update(f"{name} {value.dtype.str} {value.shape}\n".encode())
        digest.update(np.ascontiguousarray(value).tobytes())
    return digest.hexdigest()


@dataclass(frozen=True)
class EpisodeResult:
    """One episode."""

    reward: float
    """The mean."""
    entropy: float
    """Of the policy, in nats per decision."""


class Learner(Protocol):
    """A network that is trained on one problem."""

    weights: Weights

    def episode(self, number: int) -> EpisodeResult | None:
        """Try placements, learn from them; None if time ran out in the middle."""
        ...

    def state(self) -> Arrays:
        """What else the next episode depends on; the shapes are always the same."""
        ...

    def restore(self, arrays: Arrays) -> None:
        """The state of another time."""
        ...


class Keeper:
    """Does nothing where no checkpoint is asked for. `every`: episodes between two checkpoints."""

    def __init__(
        self, search: Search, learner: Learner, trials: Trials, schedule: TrainingPlan, owner: Owner, every: int
    ) -> None:
        self._search, self._learner, self._trials = search, learner, trials
        self._path, self._every, self._owner = schedule.checkpoint, every, owner
        if self._path is not None:
            problem = problem_hash(problem_to_file(search.problem))
            self._owner = msgspec.structs.replace(owner, problem=problem)

    def save(self, done: int, *, last: bool = False) -> None:
        """After every so many episodes, and after the last one."""
        if self._path is None or (done % self._every == 0) == last:
            return
        write_checkpoint(self._path, self._owner, Checkpoint(done, self._learner.weights.steps, self._arrays()))

    def resume(self) -> int:
        """Put back what the checkpoint holds, if there is one -> episodes done."""
        if self._path is None:
            return 0
        found = read_checkpoint(self._path, self._owner, self._shapes())
        if found is None:
            return 0
        devices = found.arrays["kept/devices"].astype(np.int32)
        if devices.size and not 0 <= devices.min() <= devices.max() < len(self._search.problem.devices):
            raise InputError("holds placements on devices that do not exist", where=str(self._path))
        if (found.arrays["adam/square"] < 0).any():
            raise InputError("holds squares below 0", where=str(self._path))
        self._put_back(found)
        if len(devices):
            for value, row in zip(self._trials.values(devices).tolist(), devices, strict=True):
                self._trials.keep(value, row)
        self._search.tell(f"resumed after episode {found.episode}")
        return found.episode

    def _put_back(self, found: Checkpoint) -> None:
        own, arrays = self._learner.weights, found.arrays
        with own.torch.no_grad():
            for name, value in own.tensor.items():
                value.copy_(own.torch.from_numpy(arrays[f"weight/{name}"]))
        own.mean.copy_(own.torch.from_numpy(arrays["adam/mean"]))
        own.square.copy_(own.torch.from_numpy(arrays["adam/square"]))
        try:
            own.generator.set_state(own.torch.from_numpy(arrays["random"]))
        except (RuntimeError, TypeError) as error:
            raise InputError("holds no state of a generator", where=str(self._path)) from error
        own.steps = found.steps
        self._learner.restore({name: arrays[f"state/{name}"] for name in self._learner.state()})

    def _arrays(self) -> Arrays:
        own = self._learner.weights
        kept = [devices for _, devices in self._trials.kept]
        return {
            **{f"weight/{name}": value.detach().numpy() for name, value in own.tensor.items()},
            **{f"state/{name}": value for name, value in self._learner.state().items()},
            "adam/mean": own.mean.numpy(),
            "adam/square": own.square.numpy(),
            "random": own.generator.get_state().numpy(),
            "kept/devices": np.array(kept, np.int32).reshape(len(kept), self._trials.nodes.count),
        }

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        """Of everything; the number of kept placements is free."""
        shapes = {name: tuple(value.shape) for name, value in self._arrays().items()}
        return {**shapes, "kept/devices": (-1, self._trials.nodes.count)}


SIZE = {"least": 1, "most": 10**6}
"""Metadata of a parameter that is the size of something."""
TRAINING_SHARE = 1 / 3
"""Of the time for training, if all the rest is for the polish."""


def changed_settings(parameters: Any) -> dict[str, str]:
    """What the user set among a solver's numbers: a checkpoint belongs to these."""
    told = {field.name: getattr(parameters, field.name) for field in fields(parameters)}
    return {field.name: str(told[field.name]) for field in fields(parameters) if told[field.name] != field.default}


def run_training(
    search: Search,
    make: Callable[[], Learner],
    trials: Trials,
    singles: Mapping[int, int],
    schedule: TrainingPlan,
    solver: str,
    settings: dict[str, str],
    *,
    every: int = 1,
    saved: int = 1,
) -> None:
    """Train what `make` makes (if `singles`, what single devices gave, are not the end of it), then polish.

    A checkpoint belongs to the solver, the problem, the seed and these settings; there are `every` episodes between
    two events and `saved` between two checkpoints.
    """
    trials.begin(singles)
    if trials.nodes.choices > 1 and not search.is_over:
        with one_thread():
            learner, owner = make(), Owner(solver, "", {**settings, "seed": str(search.seed)})
            keeper = Keeper(search, learner, trials, schedule, owner, saved)
            _train(search, learner, trials, schedule, keeper, every)
        if not search.is_over and schedule.polish != 0.0:
            search.tell(f"annealing from the best {len(trials.kept)} placements")
            anneal_from(search, trials.starts(), seconds=schedule.polish)
    if search.best is None:
        ask_helpers(search)
    if search.best is None:
        late = search.stopped_by == "time"
        what = (
            "time ran out before a placement within the limits was found"
            if late
            else "the learned placements break limits"
        )
        raise InfeasibleError(what, conflicts=search.refused)


def _train(
    search: Search, learner: Learner, trials: Trials, schedule: TrainingPlan, keeper: Keeper, every: int
) -> None:
    done = keeper.resume()
    until, longest = _end(search, schedule), 0.0
    while done < schedule.episodes and not search.is_over and not trials.exhausted:
        begun = search.seconds
        if until is not None and begun + longest >= until:
            break
        outcome = learner.episode(done)
        if outcome is None:
            break
        done, longest = done + 1, max(longest, search.seconds - begun)
        keeper.save(done)
        if done % every == 0:
            search.tell(_say(done, outcome, trials))
    keeper.save(done, last=True)


def _say(done: int, outcome: EpisodeResult, trials: Trials) -> str:
    best = format_time(trials.best) if trials.kept else "nothing"
    return f"episode {done}: reward {outcome.reward:.4f}, best {best}, entropy {outcome.entropy:.3f}"


def _end(search: Search, schedule: TrainingPlan) -> float | None:
    """When training must end, in seconds since the search began; None without a time limit."""
    if search.time_limit is None:
        return None
    if schedule.polish is None:
        return search.seconds + TRAINING_SHARE * (search.time_limit - search.seconds)
    return max(search.seconds, search.time_limit - schedule.polish)
