"""A small transformer, cut in stages, trained by schedules in real processes.

`weftline run sched.json --model examples/train_transformer.py:transformer` calls `transformer` with the layout and a
seed. It fits any shape: sources embed tokens, blocks on several devices are tensor-parallel, branches are summed where
they join, and the last stages predict tokens. Run as a script it trains a pipeline and an M shape.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

import weftline as wl
from weftline.run import Layout, Shard, run_schedule
from weftline.run.train.parallel import copy_to_group, sum_over_group

VOCABULARY, WIDTH, HEADS, LENGTH, ROWS = 64, 64, 4, 32, 4


class Embedding(nn.Module):
    """Tokens -> vectors; each shard knows a slice of the vocabulary, and the slices are summed."""

    def __init__(self, shard: Shard) -> None:
        super().__init__()
        self.shard = shard
        whole = torch.randn(VOCABULARY, WIDTH) / 4
        self.table = nn.Parameter(shard.part(whole, 0))
        self.first = sum(len(part) for part in whole.tensor_split(shard.size)[: shard.rank])

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """A token outside the slice gives 0 here and its vector elsewhere."""
        local = tokens - self.first
        known = (local >= 0) & (local < len(self.table))
        vectors = functional.embedding(local.clamp(0, len(self.table) - 1), self.table) * known[..., None]
        return sum_over_group(vectors, self.shard.group)


class Block(nn.Module):
    """Attention and a feed-forward layer; a shard holds some of the heads and of the inner width."""

    def __init__(self, shard: Shard) -> None:
        super().__init__()
        self.shard, self.heads = shard, HEADS // shard.size
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.query, self.key, self.value = (self._weight(WIDTH, WIDTH, 0) for _ in range(3))
        self.out = self._weight(WIDTH, WIDTH, 1)
        self.up, self.down = self._weight(4 * WIDTH, WIDTH, 0), self._weight(WIDTH, 4 * WIDTH, 1)

    def _weight(self, rows: int, columns: int, dim: int) -> nn.Parameter:
        return nn.Parameter(self.shard.part(torch.randn(rows, columns) / columns**0.5, dim))

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Branches that join here are summed."""
        x = torch.stack(inputs).sum(0)
        shared = copy_to_group(self.norm1(x), self.shard.group)
        query, key, value = (
            functional.linear(shared, w).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for w in (self.query, self.key, self.value)
        )
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + sum_over_group(functional.linear(mixed.transpose(1, 2).flatten(2), self.out), self.shard.group)
        shared = copy_to_group(self.norm2(x), self.shard.group)
        inner = functional.gelu(functional.linear(shared, self.up))
        return x + sum_over_group(functional.linear(inner, self.down), self.shard.group)


class Transformer:
    """The model in stages; weights and data depend on the seed alone."""

    def __init__(self, layout: Layout, seed: int) -> None:
        self.layout, self.seed = layout, seed

    def stage(self, number: int, shard: Shard) -> nn.Module:
        """An embedding, a block, both, and a head: as the place in the layout wants it."""
        together = self.layout.shards[number] > 1
        parts: list[nn.Module] = []
        if number in self.layout.sources:
            parts.append(Embedding(shard))
        if number not in self.layout.sources or not together:
            parts.append(Block(shard))
        if number in self.layout.sinks:
            parts.append(nn.Linear(WIDTH, VOCABULARY))
        return parts[0] if len(parts) == 1 else Chain(parts)

    def data(self, stage: int, step: int) -> torch.Tensor:
        """Random tokens."""
        return self._tokens(stage, step, 0)

    def target(self, stage: int, step: int) -> torch.Tensor:
        """Other random tokens, to be predicted."""
        return self._tokens(stage, step, 1)

    def loss(self, output: torch.Tensor, target: torch.Tensor) -> Any:
        """Mean cross-entropy."""
        return functional.cross_entropy(output.flatten(0, 1), target.flatten())

    def _tokens(self, *place: int) -> torch.Tensor:
        number = 0
        for part in (self.seed, *place):
            number = number * 1009 + part
        random = torch.Generator().manual_seed(number)
        return torch.randint(VOCABULARY, (ROWS * self.layout.micro_batches, LENGTH), generator=random)


class Chain(nn.Module):
    """Modules one after another; the first may take several inputs."""

    def __init__(self, parts: list[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Run them in order."""
        x = self.parts[0](*inputs)
        for part in self.parts[1:]:
            x = part(x)
        return x


def transformer(layout: Layout, seed: int) -> Transformer:
    """What `--model` names."""
    return Transformer(layout, seed)


def main() -> None:
    """Search two schedules, train by them, and compare with one process and with the simulator."""
    for shape, engine in (("zigzag", "torch"), ("mshape", "weftline")):
        schedule = wl.schedule(wl.shape(shape, 2), micro_batches=8, memory=8, solver="list")
        result = run_schedule(schedule, engine=engine, model=transformer, steps=5)
        print(f"{shape}: {result.summary()}")
        print(f"losses: {', '.join(f'{loss:.3f}' for loss in result.losses)}")


if __name__ == "__main__":
    main()
