"""Train the policy: fresh graphs and clusters in every step, no labels, REINFORCE through the decoder.

In: seconds or steps, a seed, where the weights go. Out: a file of weights (the best by `check`) and a checkpoint beside
it. With steps, one seed gives the same bytes. Latencies of decodes with noise become a Push: the direction in which
what the network says should move. What is said for one decode is rewarded by the mean of samples near it; what is said
for many first by their mean, then by what lies above their 75th percentile alone. Samples with much noise count more
than those with little, whose differences are mostly chance. These rewards teach the heads; the layers before them learn
to foretell the best placement that was found, mended by a few steps of annealing, which take back what was only noise.
Adam, a cosine of the rate, gradients clipped; what is kept is the mean of the weights over the last steps.

`check`: one decode and the best of 64 on problems that training never sees (drawn from the training families with seeds
of their own), as the mean of log(value / cPEFT); 0 is cPEFT, below is better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any

import numpy as np

from weftline.errors import UsageError
from weftline.graph.arrays import Indices, Ints
from weftline.interrupts import Interruption
from weftline.latency.anneal.annealer import PlacementAnnealer
from weftline.latency.list.decoder import Decoder, Floats
from weftline.latency.list.schedulers import PER_DEVICE, PER_KAPPA, PER_LAMBDA, PER_OP
from weftline.latency.policy.features import Features, see
from weftline.latency.policy.instances import draw_devices, fresh_problem
from weftline.latency.policy.network import DecoderBias, PolicyOutput, Weights, ask, write_arrays
from weftline.latency.policy.samples import (
    PER_POWER,
    BiasNoise,
    Orders,
    bias_row,
    biases,
    decode_rows,
    draw_noise,
    scales_of,
)
from weftline.latency.policy.settings import load_torch, one_thread
from weftline.latency.policy.train_network import (
    Answers,
    Batch,
    TrainingState,
    batch_of,
    check_output,
    checkpoint_of,
    first_state,
    forward,
    load_state,
    save_state,
)
from weftline.problem import Problem
from weftline.search import Event
from weftline.simulate.sentinels import NEVER
from weftline.simulate.tables import tables

__all__ = ["Judged", "Push", "advantages", "check", "judge", "train_policy"]

NOISE_PAIRS = 24
"""Of samples, each of the two kinds."""
NEAR = (0.15, 1.0)
"""Scales of noise around what is said for one decode; for many they are those with which samples are drawn later."""
TOP_PERCENTILE = 75.0
"""Percentile above which samples count, once risk is sought."""
MENDING_STEPS, MENDING_HEAT = 2_000, 0.0003
"""Steps of annealing that the target gets, and how warm they begin, as a part of the value."""
FAILURE_PENALTY = 0.2
"""How much worse than the worst a decode is that found no device for some op, in logarithms."""


@dataclass(frozen=True, eq=False)
class Push:
    """Gradients of the expected cost, divided by the number of ops; all 0 where samples are equally good."""

    op: Floats
    """(n, K)"""
    device: Floats
    """(K,)"""
    weights: Floats
    """(3,): of lambda, kappa and the power of the order."""


@dataclass(frozen=True, eq=False)
class Judged:
    """What one graph teaches."""

    one: Push
    many: Push
    target: Indices
    """(n,): the best placement seen, mended."""


def judge(problem: Problem, seen: Features, output: PolicyOutput, random: np.random.Generator, *, risk: bool) -> Judged:
    """Decode around what was said for one and for many; `risk` rewards only the best of the many."""
    simple = int(seen.simple_values.argmin())
    target, least = seen.simple[simple], float(seen.simple_values[simple])
    decoder, orders, pushes = Decoder(problem), Orders(problem), []
    for center, scale, seek in (
        (output.one, scales_of(NOISE_PAIRS, *NEAR), False),
        (output.many, scales_of(NOISE_PAIRS), risk),
    ):
        noise = draw_noise(random, scale, *seen.possible.shape)
        placements, planned = decode_rows(decoder, orders, biases(seen, center, noise))
        best = int(planned.argmin())
        if planned[best] < least:
            target, least = placements[best], float(planned[best])
        pushes.append(_push(noise, advantages(planned, risk=seek)))
    return Judged(pushes[0], pushes[1], _mended(problem, target))


def _mended(problem: Problem, placement: Indices) -> Indices:
    annealer = PlacementAnnealer(
        tables(problem),
        capacity=problem.capacity,
        group=problem.group,
        start=[(placement, None)],
        first_temperature=MENDING_HEAT,
        cycle=MENDING_STEPS,
    )
    annealer.run(MENDING_STEPS, np.zeros(1, np.int64))
    return placement if annealer.best is None else annealer.best[0]


def _push(noise: BiasNoise, advantage: Floats) -> Push:
    share = -advantage / (noise.op.shape[0] * noise.op.shape[1])
    return Push(
        op=np.tensordot(share, noise.op, 1) / PER_OP,
        device=(share @ noise.device[:, 0]) / PER_DEVICE,
        weights=np.array(
            [share @ noise.lam / PER_LAMBDA, share @ noise.kappa / PER_KAPPA, share @ noise.power / PER_POWER]
        ),
    )


def advantages(planned: Ints, *, risk: bool) -> Floats:
    """(B,): above the mean, or what lies above the 75th percentile; of size 1, or 0 where all are equal."""
    failed = planned >= NEVER
    if failed.all():
        return np.zeros(len(planned))
    reward: Floats = -np.log(np.maximum(np.where(failed, 1, planned), 1).astype(np.float64))
    reward = np.where(failed, reward[~failed].min() - FAILURE_PENALTY, reward)
    found = np.maximum(reward - np.percentile(reward, TOP_PERCENTILE), 0.0) if risk else reward - reward.mean()
    size = float(np.sqrt((found**2).mean()))
    return found / size if size > 1e-9 else np.zeros(len(planned))


CHECK_SEED = 2**31 + 7
CHECK_PAIRS = 32


def check(weights: Weights, count: int = 40) -> tuple[float, float]:
    """Means of log(value / cPEFT): of one decode, and of the best of it and 64 samples."""
    one, many = [], []
    for problem, seen, noise, plain in _problems(count):
        output, decoder, orders = ask(weights, seen), Decoder(problem), Orders(problem)
        first = int(decode_rows(decoder, orders, bias_row(seen, output.one))[1][0])
        rest = int(decode_rows(decoder, orders, biases(seen, output.many, noise))[1].min())
        worst = 2 * plain  # where no device was found for some op
        one.append(np.log((first if first < NEVER else worst) / plain))
        many.append(np.log(min(first, rest, worst) / plain))
    return float(np.mean(one)), float(np.mean(many))


@cache
def _problems(count: int) -> list[tuple[Problem, Features, BiasNoise, int]]:
    """Problem, what is seen of it, noise, and the value of cPEFT."""
    found = []
    for number in range(count):
        random = np.random.default_rng([CHECK_SEED, number])
        problem = fresh_problem(random, 2 + number % 4)
        seen = see(problem)
        if seen is not None and np.isfinite(seen.simple_values[-1]):
            noise = draw_noise(random, scales_of(CHECK_PAIRS), *seen.possible.shape)
            found.append((problem, seen, noise, max(1, int(seen.simple_values[-1]))))
    return found


GRAPHS_PER_STEP = 6
"""Of a step."""
FIRST_RATE, LEAST_RATE = 1e-3, 2e-5
MOMENTS = (0.9, 0.999)
LARGEST_GRADIENT = 0.5
IMITATION_WEIGHT = 1.0
"""Weight of the logits' cross-entropy."""
MEAN_DECAY = 0.998
"""Of the mean of the weights, from one step to the next."""
MEAN_SHARE = 0.15
"""Of the run in which the mean of the many is rewarded."""
STEPS_PER_CHECK, STEPS_PER_CHECKPOINT = 250, 50
"""Steps between two looks at problems apart, and between two checkpoints."""


def train_policy(
    output: Path | str,
    *,
    seconds: float | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = False,
    on_event: Callable[[Event], None] | None = None,
    check_problems: int = 80,
) -> Path:
    """Train until the time or the steps are over -> the file of weights. `resume` goes on from its checkpoint."""
    if (seconds is None) == (steps is None):
        raise UsageError("training needs either seconds or steps")
    output = Path(output)
    check_output(output)
    state = load_state(checkpoint_of(output)) if resume else first_state(seed)
    if state.seed != seed:
        raise UsageError(f"the checkpoint was trained with seed {state.seed}, not {seed}")
    with one_thread():
        _Run(state, output, seconds, steps, on_event, check_problems).go()
    return output


class _Run:
    """One run; `state` is always what the next checkpoint would hold."""

    def __init__(
        self,
        state: TrainingState,
        output: Path,
        seconds: float | None,
        steps: int | None,
        on_event: Callable[[Event], None] | None,
        check_problems: int,
    ) -> None:
        self.state, self.output, self.seconds, self.steps = state, output, seconds, steps
        self.on_event, self.check_problems = on_event, check_problems
        self.before, self.begun = state.seconds, monotonic()
        self.saved = False
        torch = load_torch()
        self.weights = {name: torch.tensor(array, requires_grad=True) for name, array in state.now.items()}

    @property
    def done(self) -> float:
        """Share of the run."""
        if self.steps is not None:
            return self.state.step / max(1, self.steps)
        return self.state.seconds / max(1e-9, self.seconds or 0.0)

    def go(self) -> None:
        """Steps until the run is over. Ctrl-C ends it too, and leaves the files of the last checkpoint, if any."""
        state = self.state
        with Interruption() as stop:
            if state.step == 0:
                self.look(first=True)
            self.save()
            while self.done < 1.0:
                self.step()
                state.step += 1
                state.seconds = self.before + monotonic() - self.begun
                last = self.done >= 1.0
                if state.step % STEPS_PER_CHECK == 0 or last:
                    self.look()
                if state.step % STEPS_PER_CHECKPOINT == 0 or last:
                    self.save()
                    self.tell("saved")
        if stop.ended:
            if not self.saved:
                raise KeyboardInterrupt
            self.tell("stopped")

    def step(self) -> None:
        """Fresh problems, one pass, decodes, one move of the weights."""
        random = np.random.default_rng([self.state.seed, self.state.step])
        chosen = _fresh(random)
        if not chosen:
            return
        risk = self.done >= MEAN_SHARE
        batch = batch_of([seen for _, seen in chosen])
        answers = forward(self.weights, batch)
        outputs = _outputs(answers, [len(seen.unit) for _, seen in chosen])
        judged = [
            judge(problem, seen, each, random, risk=risk) for (problem, seen), each in zip(chosen, outputs, strict=True)
        ]
        loss = _loss(answers, batch, judged)
        for weight in self.weights.values():
            weight.grad = None
        loss.backward()
        self.move()

    def move(self) -> None:
        """Adam with clipped gradients."""
        torch, state = load_torch(), self.state
        rate = LEAST_RATE + (FIRST_RATE - LEAST_RATE) * 0.5 * (1.0 + np.cos(np.pi * min(1.0, self.done)))
        number = state.step + 1
        with torch.no_grad():
            gradients = {name: weight.grad for name, weight in self.weights.items() if weight.grad is not None}
            size = float(torch.sqrt(sum((g * g).sum() for g in gradients.values())))
            factor = min(1.0, LARGEST_GRADIENT / max(size, 1e-12)) if np.isfinite(size) else 0.0
            for name, gradient in gradients.items():
                first, second = torch.from_numpy(state.first[name]), torch.from_numpy(state.second[name])
                clipped = torch.nan_to_num(gradient) * factor
                first.mul_(MOMENTS[0]).add_(clipped, alpha=1.0 - MOMENTS[0])
                second.mul_(MOMENTS[1]).addcmul_(clipped, clipped, value=1.0 - MOMENTS[1])
                mean, spread = first / (1.0 - MOMENTS[0] ** number), second / (1.0 - MOMENTS[1] ** number)
                weight = self.weights[name]
                weight.sub_(rate * mean / (spread.sqrt() + 1e-8))
                torch.from_numpy(state.mean[name]).lerp_(weight, 1.0 - min(MEAN_DECAY, number / (number + 10.0)))

    def look(self, *, first: bool = False) -> None:
        """Are these weights the best so far?"""
        one, many = check(self.state.mean, self.check_problems)
        score = (one + many) / 2
        if first or score < self.state.score:
            self.state.score, self.state.best_step = score, self.state.step
            self.state.best = {name: array.copy() for name, array in self.state.mean.items()}
        self.tell(f"one decode {np.exp(one):.4f}, best of 64 {np.exp(many):.4f} of cPEFT")

    def keep(self) -> None:
        """The weights as arrays."""
        self.state.now = {name: weight.detach().numpy().copy() for name, weight in self.weights.items()}

    def save(self) -> None:
        """The checkpoint, and the best weights so far."""
        self.keep()
        state = self.state
        save_state(checkpoint_of(self.output), state, timed=self.seconds is not None)
        words = {"seed": str(state.seed), "steps": str(state.best_step), "score": f"{state.score:.6f}"}
        write_arrays(self.output, state.best, words)
        self.saved = True

    def tell(self, message: str) -> None:
        """Report progress."""
        if self.on_event is not None:
            text = f"step {self.state.step} ({self.done:.0%}): {message}"
            self.on_event(Event(self.state.seconds, "", None, None, text))


def _fresh(random: np.random.Generator) -> list[tuple[Problem, Features]]:
    """Problems with equally many devices, and what is seen of them."""
    devices = draw_devices(random)
    problems = [fresh_problem(random, devices) for _ in range(GRAPHS_PER_STEP)]
    return [(problem, seen) for problem in problems if (seen := see(problem)) is not None]


def _outputs(answers: Answers, sizes: list[int]) -> list[PolicyOutput]:
    """The answers, graph by graph, without gradients."""
    op, device, weights, logits = (
        part.detach().numpy().astype(np.float64)
        for part in (answers.op_bias, answers.device_bias, answers.weights, answers.logits)
    )
    found, first = [], 0
    for graph, size in enumerate(sizes):
        here = slice(first, first + size)
        first += size
        one, many = (
            DecoderBias(op[here, :, i] + device[graph, :, i], 1.0 + lam, kappa, 1.0 + power)
            for i, (lam, kappa, power) in enumerate(weights[graph].tolist())
        )
        found.append(PolicyOutput(one, many, logits[here]))
    return found


def _loss(answers: Answers, batch: Batch, judged: list[Judged]) -> Any:
    """What has the pushes as its gradients, plus the cross-entropy of the logits."""
    torch = load_torch()
    total, first = torch.zeros(()), 0
    for graph, (each, size) in enumerate(zip(judged, batch.size[:, 0].int().tolist(), strict=True)):
        here = slice(first, first + size)
        first += size
        for i, push in enumerate((each.one, each.many)):
            for output, gradient in (
                (answers.op_bias[here, :, i], push.op),
                (answers.device_bias[graph, :, i], push.device),
                (answers.weights[graph, i], push.weights),
            ):
                total = total + (output * torch.from_numpy(gradient.astype(np.float32))).sum()
        target = torch.from_numpy(each.target.astype(np.int64))
        total = total + IMITATION_WEIGHT * torch.nn.functional.cross_entropy(answers.logits[here], target)
    return total / len(judged)
