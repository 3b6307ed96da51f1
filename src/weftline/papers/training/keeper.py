"""Keeper: the state of a training, saved in a checkpoint now and then, and put back from one.

In: a Learner (one network on one problem) and its Trials. Out: checkpoints, and a Learner that goes on where another
ended: weights, optimiser, generator, what the learner itself remembers, and the best placements so far.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import msgspec
import numpy as np

from weftline.errors import InputError
from weftline.latency.measured.trials import Trials
from weftline.latency.policy.settings import Schedule
from weftline.papers.training.checkpoints import Arrays, Checkpoint, Owner, read_checkpoint, write_checkpoint
from weftline.papers.training.placer import Parameters
from weftline.problem.model import problem_hash, problem_to_file
from weftline.search import Search

__all__ = ["Keeper", "Learner", "Outcome"]


@dataclass(frozen=True)
class Outcome:
    """One episode."""

    reward: float
    """The mean."""
    entropy: float
    """Of the policy, in nats per decision."""


class Learner(Protocol):
    """A network that is trained on one problem."""

    parameters: Parameters

    def episode(self, number: int) -> Outcome | None:
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
        self, search: Search, learner: Learner, trials: Trials, schedule: Schedule, owner: Owner, every: int
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
        write_checkpoint(self._path, self._owner, Checkpoint(done, self._learner.parameters.steps, self._arrays()))

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
        own, arrays = self._learner.parameters, found.arrays
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
        own = self._learner.parameters
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
