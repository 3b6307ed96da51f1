"""What the shards of a block on several devices exchange: two functions that autograd understands.

In: a tensor and the process group of the block. Out: the tensor, with a sum over the group in the forward or in the
backward pass. With no group (one process) both do nothing, so one module serves as a shard and as the whole.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist

__all__ = ["copy_to_group", "sum_over_group"]


def copy_to_group(x: torch.Tensor, group: Any) -> torch.Tensor:
    """Where a whole input enters the shards: gradients that come back are summed over them."""
    return x if group is None else _CopyToGroup.apply(x, group)


def sum_over_group(x: torch.Tensor, group: Any) -> torch.Tensor:
    """Where partial results leave the shards: they are summed, and every shard gets the whole gradient."""
    return x if group is None else _SumOverGroup.apply(x, group)


class _CopyToGroup(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return _summed(gradient, ctx.group), None


class _SumOverGroup(torch.autograd.Function):  # type: ignore[misc]
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, group: Any) -> torch.Tensor:
        return _summed(x, group)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def _summed(x: torch.Tensor, group: Any) -> torch.Tensor:
    whole = x.detach().clone(memory_format=torch.contiguous_format)
    dist.all_reduce(whole, group=group)
    return whole
