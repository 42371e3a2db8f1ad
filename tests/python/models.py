"""Small models, data that every rank can make, and what tests look at."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def mlp(dtype: torch.dtype = torch.float32) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 96), nn.ReLU(), nn.Linear(96, 96), nn.ReLU(), nn.Linear(96, 10)).to(dtype)


def batch(rank: int, step: int, shape: tuple[int, ...] = (16, 32)) -> tuple[torch.Tensor, torch.Tensor]:
    made = torch.Generator().manual_seed(1000 * step + rank)
    return torch.randn(*shape, generator=made), torch.randint(0, 10, (shape[0],), generator=made)


def train(model: nn.Module, rank: int, steps: int, first: int = 0, lr: float = 0.05, momentum: float = 0.9,
          set_to_none: bool = True, between: Callable[[], None] | None = None) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)
    for step in range(first, first + steps):
        x, y = batch(rank, step)
        optimizer.zero_grad(set_to_none=set_to_none)
        nn.functional.cross_entropy(model(x).float(), y).backward()
        if between:
            between()
        optimizer.step()


def flat(model: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().reshape(-1).float() for p in model.parameters()])


def agree(model: nn.Module) -> torch.Tensor:
    """All parameters, which must be the same to the bit on all ranks."""
    mine = flat(model)
    all_ranks = [torch.zeros_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_ranks, mine)
    for other in all_ranks:
        assert torch.equal(other, mine)
    return mine


def small_buckets(module: nn.Module, **options) -> DistributedDataParallel:
    return DistributedDataParallel(module, bucket_cap_mb=0.02, **options)
