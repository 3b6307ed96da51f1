"""A model for the tests of real runs: linear layers with tanh, tensor-parallel where a stage has several devices."""

from __future__ import annotations

import os
import time

import torch
from torch import nn

from weftline.run import Layout, Shard
from weftline.run.train.parallel import copy_to_group, sum_over_group

WIDTH, ROWS, CLASSES = 8, 3, 16


class Layer(nn.Module):  # type: ignore[misc]
    """x + down(tanh(up(sum of inputs))); a shard holds some of the inner units."""

    def __init__(self, shard: Shard, wrong: bool) -> None:
        super().__init__()
        self.shard, self.wrong = shard, wrong
        self.up = nn.Parameter(shard.part(torch.randn(2 * WIDTH, WIDTH) / 3, 0))
        self.down = nn.Parameter(shard.part(torch.randn(WIDTH, 2 * WIDTH) / 4, 1))
        self.bias = nn.Parameter(torch.randn(WIDTH))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        # Unequal factors: swapped inputs must not go unnoticed.
        x = torch.stack([value * (k + 1) for k, value in enumerate(inputs)]).sum(0) / 2
        shared = x if self.wrong else copy_to_group(x, self.shard.group)
        inner = torch.tanh(shared @ self.up.T)
        return x + sum_over_group(inner @ self.down.T, self.shard.group) + self.bias


class Table(nn.Module):  # type: ignore[misc]
    """An embedding of class numbers, sharded by rows."""

    def __init__(self, shard: Shard) -> None:
        super().__init__()
        self.shard = shard
        self.table = nn.Parameter(shard.part(torch.randn(CLASSES, WIDTH), 0))
        self.first = CLASSES // shard.size * shard.rank

    def forward(self, numbers: torch.Tensor) -> torch.Tensor:
        local = numbers - self.first
        known = (local >= 0) & (local < len(self.table))
        found = self.table[local.clamp(0, len(self.table) - 1)] * known[:, None]
        return sum_over_group(found, self.shard.group)


class Small:
    """Sources embed numbers, the others are layers; the loss is a mean square."""

    def __init__(self, layout: Layout, seed: int, *, wrong: bool = False) -> None:
        self.layout, self.seed, self.wrong = layout, seed, wrong

    def stage(self, number: int, shard: Shard) -> nn.Module:
        assert shard.size in (1, self.layout.shards[number])
        return Table(shard) if number in self.layout.sources else Layer(shard, self.wrong)

    def data(self, stage: int, step: int) -> torch.Tensor:
        return torch.randint(CLASSES, (ROWS * self.layout.micro_batches,), generator=self._random(stage, step))

    def target(self, stage: int, step: int) -> torch.Tensor:
        return torch.randn(ROWS * self.layout.micro_batches, WIDTH, generator=self._random(stage, step))

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return nn.functional.mse_loss(output, target)

    def _random(self, stage: int, step: int) -> torch.Generator:
        return torch.Generator().manual_seed(self.seed * 10_007 + stage * 101 + step)


def small(layout: Layout, seed: int) -> Small:
    return Small(layout, seed)


def forgets_to_sum(layout: Layout, seed: int) -> Small:
    """Wrong on purpose: gradients of shards are not summed."""
    return Small(layout, seed, wrong=True)


def differs_by_process(layout: Layout, seed: int) -> Small:
    """Wrong on purpose: other weights in every process."""
    made = Small(layout, seed)
    own = made.stage

    def stage(number: int, shard: Shard) -> nn.Module:
        torch.manual_seed(os.getpid())
        return own(number, shard)

    made.stage = stage  # type: ignore[method-assign]
    return made


def fails_on_one_rank(layout: Layout, seed: int) -> Small:
    """Wrong on purpose: the process that has stage 1 and not stage 0 fails while the other waits for it."""
    made = Small(layout, seed)

    def target(stage: int, step: int) -> torch.Tensor:
        raise ValueError("no data today")

    made.target = target  # type: ignore[method-assign]
    return made


def never_ends(layout: Layout, seed: int) -> Small:
    """Writes its process number into a folder and sleeps."""
    with open(os.path.join(os.environ["WEFTLINE_TEST_PIDS"], str(os.getpid())), "w"):  # noqa: PTH118, PTH123
        pass
    time.sleep(600)
    return Small(layout, seed)


class Widening(Small):
    """Each stage gives one more column than the one before, in double precision after the first."""

    def stage(self, number: int, shard: Shard) -> nn.Module:
        if number in self.layout.sources:
            return Table(shard)
        position, at = 0, number
        while at not in self.layout.sources:
            position, at = position + 1, self.layout.inputs[at][0]
        return Wider(WIDTH + position)

    def target(self, stage: int, step: int) -> torch.Tensor:
        width = WIDTH + self.layout.stages - 1
        return torch.randn(ROWS * self.layout.micro_batches, width, generator=self._random(stage, step)).double()


class Wider(nn.Module):  # type: ignore[misc]
    """One column more."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(width - 1, width, dtype=torch.float64)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.inner(x.double()))


def widening(layout: Layout, seed: int) -> Widening:
    return Widening(layout, seed)


def gives_two(layout: Layout, seed: int) -> Small:
    """Wrong on purpose: stages give two tensors."""
    made = Small(layout, seed)
    own = made.stage

    def stage(number: int, shard: Shard) -> nn.Module:
        module = own(number, shard)
        module.register_forward_hook(lambda _, __, found: (found, found))
        return module

    made.stage = stage  # type: ignore[method-assign]
    return made


def asks_for_pickles(layout: Layout, seed: int) -> Small:
    """Wrong on purpose: every stage says that it does not know its shapes."""
    from torch.distributed.pipelining._utils import InferenceMode

    InferenceMode.needs_dynamic = lambda *_: True
    return Small(layout, seed)
