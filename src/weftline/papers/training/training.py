"""The training loop that the learned solvers share: episodes until a stop rule fires, events, checkpoints, polish.

In: a Search, a Learner (one network on one problem) and its Trials. Out: offers. A checkpoint holds all that the next
episode depends on, so a training that was killed and resumed ends as if it never had been.
With a time limit and a polish to follow, training ends when its share of the time is over; everything else that is
decided here follows from numbers of episodes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from weftline.errors import InfeasibleError
from weftline.latency.anneal.anneal import anneal_from, ask_helpers
from weftline.latency.measured.trials import Trials
from weftline.latency.policy.settings import TrainingPlan, one_thread
from weftline.papers.training.checkpoints import Owner
from weftline.papers.training.keeper import Keeper, Learner, Outcome
from weftline.search import Search
from weftline.units import format_time

__all__ = ["run_training"]

SHARE = 1 / 3
"""Of the time for training, if all the rest is for the polish."""


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


def _say(done: int, outcome: Outcome, trials: Trials) -> str:
    best = format_time(trials.best) if trials.kept else "nothing"
    return f"episode {done}: reward {outcome.reward:.4f}, best {best}, entropy {outcome.entropy:.3f}"


def _end(search: Search, schedule: TrainingPlan) -> float | None:
    """When training must end, in seconds since the search began; None without a time limit."""
    if search.time_limit is None:
        return None
    if schedule.polish is None:
        return search.seconds + SHARE * (search.time_limit - search.seconds)
    return max(search.seconds, search.time_limit - schedule.polish)
