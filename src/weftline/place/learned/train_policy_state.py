"""All that training must not forget: weights and their mean, Adam's moments, the best so far, and where it stands.

Kept in one safetensors file, so that training that was killed goes on as if it had not been; the same run gives the
same bytes.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path

import numpy as np

from weftline.errors import InputError
from weftline.place.learned.policy_file import read_arrays, write_arrays
from weftline.place.learned.policy_network import Weights, first_weights, shapes

__all__ = ["State", "check_output", "checkpoint_of", "first_state", "load_state", "save_state"]

MOST_STEPS = 10**12
PARTS = ("now", "mean", "first", "second", "best")


@dataclass
class State:
    """Of a training run."""

    now: Weights
    mean: Weights
    """Of the last few thousand steps, the latest counting most: steadier than `now`."""
    first: Weights
    second: Weights
    """Adam's moments."""
    best: Weights
    """The mean that was best by `train_policy_check`."""
    seed: int
    step: int = 0
    seconds: float = 0.0
    score: float = 0.0
    """Of the best: mean log of value / cPEFT."""
    best_step: int = 0
    """When the best was found."""


def checkpoint_of(output: Path | str) -> Path:
    """The file beside the weights that training goes on from."""
    output = Path(output)
    return output.with_name(f"{output.name}.checkpoint.safetensors")


def check_output(output: Path) -> None:
    """Raises `InputError` if weights and checkpoint could not be written there; better now than after the training."""
    where = str(output)
    try:
        if output.name in ("", "..") or output.is_dir():
            raise InputError("is a folder, not a file for weights", where=where)
        if not output.parent.is_dir():
            raise InputError("cannot be written: no such folder", where=where)
        if not os.access(output.parent, os.W_OK | os.X_OK):
            raise InputError("cannot be written: its folder is read-only", where=where)
        with suppress(FileNotFoundError):
            checkpoint_of(output).lstat()  # fails if the name is too long
    except (OSError, ValueError) as error:
        raise InputError(
            f"cannot be written: {getattr(error, 'strerror', None) or error}", where=repr(where)[:80]
        ) from error


def first_state(seed: int) -> State:
    """Nothing learnt."""
    weights = first_weights(seed)
    first, second = ({name: np.zeros_like(array) for name, array in weights.items()} for _ in range(2))
    mean, best = ({name: array.copy() for name, array in weights.items()} for _ in range(2))
    return State(weights, mean, first, second, best, seed)


def save_state(path: Path, state: State, *, timed: bool) -> None:
    """Seconds are written only where they count, so that runs by steps give the same bytes."""
    arrays = {f"{part}:{name}": array for part in PARTS for name, array in getattr(state, part).items()}
    words = {
        "seed": str(state.seed),
        "step": str(state.step),
        "score": state.score.hex(),
        "best_step": str(state.best_step),
    }
    write_arrays(path, arrays, words | ({"seconds": state.seconds.hex()} if timed else {}))


def load_state(path: Path) -> State:
    """Raises `InputError` on anything that is not a checkpoint of this network."""
    arrays, words = read_arrays(path, {f"{part}:{name}": shape for part in PARTS for name, shape in shapes().items()})
    parts = [{name: arrays[f"{part}:{name}"] for name in shapes()} for part in PARTS]
    try:
        where, best_step = (int(words["seed"]), int(words["step"])), int(words["best_step"])
        seconds, score = float.fromhex(words.get("seconds", "0x0p+0")), float.fromhex(words["score"])
    except (KeyError, ValueError, OverflowError) as error:
        raise InputError("does not say where training stood", where=str(path)) from error
    now, mean, first, second, best = parts
    possible = (
        0 <= best_step <= where[1] <= MOST_STEPS and where[0] >= 0 and seconds >= 0.0 and isfinite(seconds + score)
    )
    if not possible or any((array < 0).any() for array in second.values()):
        raise InputError("stands where no training can", where=str(path))
    return State(now, mean, first, second, best, *where, seconds, score, best_step)
