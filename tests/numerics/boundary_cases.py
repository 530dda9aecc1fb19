"""One weird trick in turns, learning in each of them, and the same on one device."""

from itertools import pairwise

import torch
from torch.nn.functional import cross_entropy

from manyhands.comm.ranks.rank_group import Team
from manyhands.plan.tensor_layout import edges
from numerics.cases import LIMIT, trained
from numerics.split_cases import compare, job_of


def learns_in_turns(backend: str, rank: int, world: int, model: str) -> None:
    """Dense layers learn from each rank's samples, one after the other, all others from the whole batch."""
    options = f"backend={backend},precision=fp64,boundary=updates"
    job = trained(job_of(model, f"owt:{world}", options, Team(rank, world)))
    alone = job_of(model, "serial", "precision=fp64", Team())
    feed, one = alone.context.feed, alone.context.model
    dense = [each for name, each in one.named_parameters() if name.startswith(("dense", "output"))]
    others = [each for name, each in one.named_parameters() if not name.startswith(("dense", "output"))]
    assert dense
    assert others
    for epoch in range(2):
        for batch in feed.epoch(epoch):
            inputs, labels = alone.context.prepared(feed, batch)
            # A batch of too few samples is gathered.
            bounds = edges(len(labels), world if len(labels) >= 2 * world else 1)
            sums = [torch.zeros_like(each) for each in others]
            for begin, end in pairwise(bounds):
                alone.context.optimizer.zero_grad()
                cross_entropy(one(inputs[begin:end]), labels[begin:end]).backward()
                for total, each in zip(sums, others, strict=True):
                    total.add_(each.grad, alpha=(end - begin) / len(labels))
                    each.grad = None
                alone.context.optimizer.step()
            alone.context.optimizer.zero_grad()
            for total, each in zip(sums, others, strict=True):
                each.grad = total
            alone.context.optimizer.step()
    compare(job, alone, LIMIT["fp64"])
