"""API: what a script calls that trains in a loop of its own, alone or as one of many ranks."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import DataLoader

from manyhands.comm.ranks.rank_group import Team
from manyhands.comm.ranks.rank_info import place
from manyhands.comm.rendezvous import join
from manyhands.engine.strategies.sharded_loader import CURRENT_SHARE, ShardedDataLoader
from manyhands.engine.strategies.weighted_ddp import WeightedDDP
from manyhands.engine.strategies.zero import sharded
from manyhands.errors import ModelError
from manyhands.plan.axis import Axis
from manyhands.plan.plan import Plan
from manyhands.plan.spec import parse
from manyhands.train.user_script.launch import launched, settled

TIMEOUT = 1800.0  # seconds that ranks wait for one: it may save or evaluate alone meanwhile


def parallelize(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    loader: DataLoader[Any] | None = None,
    plan: str | Plan | None = None,
) -> tuple[nn.Module, torch.optim.Optimizer, DataLoader[Any] | None]:
    """Let the ranks train one model together, each on its share of every batch, in the script's own loop.

        plain = Net()                                                # python script.py: one process
        optimizer = torch.optim.Adam(plain.parameters())             # manyhands launch script.py --plan data:4
        loader = DataLoader(samples, batch_size=256, shuffle=True)   # 256 of all ranks together
        model, optimizer, loader = mh.parallelize(plain, optimizer, loader)
        for batch in loader:
            optimizer.zero_grad()
            loss = my_loss(model(batch["image"], batch["age"]), batch)
            loss.backward()
            optimizer.step()
            print(mh.mean_over_ranks(loss).item())

    In a process that is not one of many, all three come back as they are. Among ranks (of `manyhands launch`,
    torchrun, mpirun or srun) gradients are those that one device computes for a loss that is a mean over the batch:
    uneven last batches weigh as they should, and batch norms (changed in place) span all ranks. All begin with the
    first rank's weights.

    The model comes back in DistributedDataParallel. The plain one has the same weights: call its own methods, and
    save its `state_dict()`, by the name that you gave it, or as `model.module`. Models of which one's output is
    another's input belong in one nn.Module. The optimizer comes back as it is, or
    with `shard=optimizer` as a ZeroRedundancyOptimizer: make schedulers after this call. The loader gives the batches
    that it would give one process, this rank's part of each; finish with one before you take the next, and let all
    ranks take equally many.

    `plan` is by default the one that `launch` was given, or `data:N` for N ranks of another launcher.
    """
    wanted = parse(plan) if isinstance(plan, str) else plan
    if (here := place()) is None:
        return model, optimizer, loader
    first = next(model.parameters(), None)
    if first is None:
        raise ModelError(f"model {type(model).__name__} has no parameters: there is nothing to train")
    bound = wanted and settled(wanted.with_defaults(device=first.device.type), here)
    bound = bound or launched() or settled(Plan(axes=(Axis("data", here.world),), device=first.device.type), here)
    if bound.device != first.device.type:
        raise ModelError(
            f"the model is on {first.device.type}, plan {bound.name} is for device={bound.device}: "
            f"call model.to('{bound.device}') before parallelize, or say device={first.device.type}"
        )
    join(here, bound.backend or "gloo", TIMEOUT)
    team = Team(here.rank, here.world)
    if bound.layout == "channels_last":
        model = model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    spread = WeightedDDP(model, bound, team)
    return (
        spread,
        sharded(optimizer) if bound.shard == "optimizer" else optimizer,
        ShardedDataLoader(loader, team) if loader is not None else None,
    )


def mean_over_ranks(value: Tensor) -> Tensor:
    """The mean over the whole batch of what is a mean over this rank's share of it; all ranks call it together.

    Alone it is the value itself; either way without its gradient.
    """
    value = value.detach()
    if not (dist.is_available() and dist.is_initialized()):
        return value
    return Team(rank(), world()).sum(value * CURRENT_SHARE.weight(world()))


def rank() -> int:
    """Which of the ranks this process is: 0 for the one that speaks and saves, and for one that is alone."""
    here = place()
    return here.rank if here else 0


def world() -> int:
    """How many ranks there are; 1 for a process that is alone."""
    here = place()
    return here.world if here else 1
