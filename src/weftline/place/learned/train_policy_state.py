"""Everything that training must not forget: weights, Adam's moments, the best weights so far, and where it stands.

Kept in one safetensors file, so that training that was killed goes on as if it had not been; the same run gives the
same bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weftline.errors import InputError
from weftline.place.learned.policy_file import read_arrays, write_arrays
from weftline.place.learned.policy_network import Weights, first_weights, shapes

__all__ = ["State", "checkpoint_of", "first_state", "load_state", "save_state"]

PARTS = ("now", "first", "second", "best")


@dataclass
class State:
    """Of a training run."""

    now: Weights
    first: Weights
    second: Weights
    """Adam's moments."""
    best: Weights
    """By `train_policy_check`."""
    seed: int
    step: int = 0
    seconds: float = 0.0
    score: float = 0.0
    """Of the best: mean log of value / cPEFT."""
    best_step: int = 0
    """When the best was found."""


def checkpoint_of(output: Path | str) -> Path:
    """The file beside the weights that training goes on from."""
    return Path(output).with_suffix(".checkpoint.safetensors")


def first_state(seed: int) -> State:
    """Nothing learnt."""
    weights = first_weights(seed)
    first, second = ({name: np.zeros_like(array) for name, array in weights.items()} for _ in range(2))
    return State(weights, first, second, {name: array.copy() for name, array in weights.items()}, seed)


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
    now, first, second, best = parts
    return State(now, first, second, best, *where, seconds, score, best_step)
